"""`make bench`: measure Bascule beside what it should be judged by, and say so in docs/performance.md.

python bench/run.py                all of it, then docs/performance.md and the pictures in docs/img are rewritten
python bench/run.py --only cpu     one measure, printed only
python bench/run.py --quick        a minute: does it run at all? Printed only
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import goals
import plot
import pythons
import report
from measure_ask import ask, durable
from measure_console import console
from measure_cpu import cpu
from measure_desktop import MEASURES as DESKTOP
from measure_game import MEASURES as GAMES
from measure_http import http_requests, routes
from measure_ledger import ledger
from measure_load import load
from measure_mcp import MEASURES as MCP
from measure_mesh import MEASURES as MESH
from measure_pump import MEASURES as PUMPS
from measure_scale import scale_agents, scale_tickets, waiters
from measure_start import daemon, start
from measure_work import checkpoints, commands, earlier_runs, files, messages, watched_checkpoints
from measure_wrap import wrap
from report import Section, Settings

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "performance.md")
IMAGES = os.path.join(ROOT, "docs", "img")

MEASURES: dict[str, Callable[[Settings], Section]] = {
    "ask": ask,
    "durable": durable,
    "cpu": cpu,
    "http": http_requests,
    "routes": routes,
    "scale-tickets": scale_tickets,
    "scale-agents": scale_agents,
    "waiters": waiters,
    "start": start,
    "daemon": daemon,
    **MCP,
    "ledger": ledger,
    "wrap": wrap,
    "commands": commands,
    "files": files,
    "messages": messages,
    "earlier-runs": earlier_runs,
    "checkpoints": checkpoints,
    "watched-checkpoints": watched_checkpoints,
    **GAMES,
    **PUMPS,
    **DESKTOP,
    "console": console,
    **MESH,
    "load": load,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure Bascule beside its peers.")
    parser.add_argument("--only", choices=tuple(MEASURES), action="append", help="this measure alone (repeatable)")
    parser.add_argument("--quick", action="store_true", help="few and short runs: shows that it works, not how fast")
    parser.add_argument("--dir", metavar="DIR", help="where the stores are written (default: /var/tmp, not memory)")
    parser.add_argument("--json", metavar="FILE", help="also write every figure as JSON")
    parser.add_argument("--beside", metavar="PYTHON", help="run Bascule on this one too, in the tables of an ask")
    parser.add_argument("--plots", metavar="DIR", help="also draw the pictures there")
    args = parser.parse_args()
    settings = Settings(quick=args.quick, directory=args.dir, beside=args.beside)
    began = time.perf_counter()
    neighbours = report.Neighbours()
    spins = [report.spin_micros()]
    sections: list[Section] = []
    for name in args.only or MEASURES:
        at = time.perf_counter()
        section = MEASURES[name](settings)
        sections.append(section)
        spins.append(report.spin_micros())
        print(f"\n{section.text()}\n\n  ({name}: {time.perf_counter() - at:.0f} s)", flush=True)
    verdicts = goals.judge(sections)
    if verdicts.rows:
        print(f"\n{verdicts.text()}\n")
    remarks = [f"Measured on {report.machine(str(pythons.here()))}", report.noise(settings, spins, neighbours.share())]
    print("\n".join(remarks))
    print(f"bench: took {time.perf_counter() - began:.0f} s")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump([figure for each in (verdicts, *sections) for figure in each.figures], file, indent=1)
    if args.plots:
        plot.write(args.plots, sections)
    if not (args.quick or args.only):
        pictures = [f"img/{name}" for name in plot.write(IMAGES, sections)]
        report.write_page(PAGE, verdicts, sections, remarks, pictures)
        print(f"bench: wrote {os.path.relpath(PAGE, ROOT)} and {', '.join(pictures)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench: {error}")
