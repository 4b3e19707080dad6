"""Prints branch coverage by package, the worst first, from what `coverage json` wrote: coverage_table.py REPORT."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Below this a package is a whole subject: `kernel.policy`, `workspace.machine`, `programs.helpers`.
DEPTH = 2
COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def package(path: str) -> str:
    """`src/bascule/kernel/policy/rules.py` is part of `kernel.policy`; what lies beside the packages, of `bascule`."""
    parts = Path(path).parts
    name, *inner = parts[parts.index("src") + 1 : -1]
    return ".".join(inner[:DEPTH] if name == "bascule" and inner else [name, *inner[: DEPTH - 1]])


def by_package(report: dict[str, Any]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for path, file in report["files"].items():
        counts = found.setdefault(package(path), Counter())
        counts.update({name: file["summary"][name] for name in COUNTS})
    return found


def percent(counts: Counter[str]) -> float:
    """As coverage counts it: lines and branches together. Nothing to run is all of it."""
    most = counts["num_statements"] + counts["num_branches"]
    return 100 * (counts["covered_lines"] + counts["covered_branches"]) / most if most else 100.0


def lines(report: dict[str, Any]) -> list[str]:
    packages = sorted(by_package(report).items(), key=lambda each: percent(each[1]))
    total: Counter[str] = Counter()
    for _, counts in packages:
        total.update(counts)
    width = max([len("package"), *(len(name) for name, _ in packages)])
    rows = [f"{'package':<{width}}  {'lines':>13}  {'branches':>13}  percent"]
    for name, counts in (*packages, ("all", total)):
        of_lines = f"{counts['covered_lines']}/{counts['num_statements']}"
        of_branches = f"{counts['covered_branches']}/{counts['num_branches']}"
        rows.append(f"{name:<{width}}  {of_lines:>13}  {of_branches:>13}  {percent(counts):6.1f}")
    return rows


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: coverage_table.py REPORT", file=sys.stderr)
        return 2
    print("\n".join(lines(json.loads(Path(arguments[0]).read_text("utf-8")))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
