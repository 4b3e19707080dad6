"""`make bench`: measure Bascule beside what it should be judged by, and say so in docs/performance.md.

python bench/run.py                all of it, then docs/performance.md and docs/img/ask-latency.svg are rewritten
python bench/run.py --only cpu     one measure, printed only
python bench/run.py --quick        a few seconds: does it run at all? Printed only
"""

import argparse
import json
import os
import sys
import time

import plot
import report
from measure_ask import ask, durable
from measure_cpu import cpu
from measure_http import http_requests
from measure_ledger import ledger
from measure_start import start
from report import Section, Settings, micros

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "performance.md")
PLOT = os.path.join(ROOT, "docs", "img", "ask-latency.svg")

MEASURES = {"ask": ask, "durable": durable, "cpu": cpu, "http": http_requests, "start": start, "ledger": ledger}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Bascule beside its peers.")
    parser.add_argument("--only", choices=tuple(MEASURES), action="append", help="this measure alone (repeatable)")
    parser.add_argument("--quick", action="store_true", help="few and short runs: shows that it works, not how fast")
    parser.add_argument("--long", action="store_true", help="restart with 100,000 tickets instead of 10,000")
    parser.add_argument("--dir", metavar="DIR", help="where the stores are written (default: /var/tmp, not memory)")
    parser.add_argument("--json", metavar="FILE", help="also write every figure as JSON")
    args = parser.parse_args()
    settings = Settings(quick=args.quick, long=args.long, directory=args.dir)
    began = time.perf_counter()
    spins = [report.spin_micros()]
    sections: list[Section] = []
    for name in args.only or MEASURES:
        section = MEASURES[name](settings)
        sections.append(section)
        spins.append(report.spin_micros())
        print(f"\n{section.text()}\n", flush=True)
    noise = (
        f"Medians of {settings.rounds} interleaved runs: the contenders take turns, so that what disturbs the machine "
        f"disturbs all of them. A fixed piece of Python took {micros(min(spins))} to {micros(max(spins))} between the "
        "measures: that spread is the noise to read the figures with."
    )
    remarks = [f"Measured on {report.machine()}", noise]
    print("\n".join(remarks))
    print(f"bench: took {time.perf_counter() - began:.0f} s")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump([figure for section in sections for figure in section.figures], file, indent=1)
    if not (args.quick or args.only):
        report.write_page(PAGE, sections, remarks)
        plot.write(PLOT, sections)
        print(f"bench: wrote {os.path.relpath(PAGE, ROOT)} and {os.path.relpath(PLOT, ROOT)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench: {error}")
