"""Writes `src/bascule/programs/mcp_stdio/tools.json` from the tools of the bridges.

gen_tools.py           write it
gen_tools.py --check   say whether it is up to date; change nothing
"""

import json
import sys
from pathlib import Path

from bascule.surfaces.mcp.tools import shipped

TARGET = Path(__file__).resolve().parent.parent / "src" / "bascule" / "programs" / "mcp_stdio" / "tools.json"


def text() -> str:
    """The same tools give the same bytes: the order is that of the tuples."""
    return json.dumps(shipped(), indent=1) + "\n"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: gen_tools.py [--check]", file=sys.stderr)
        return 2
    wanted = text()
    if arguments:
        if TARGET.is_file() and TARGET.read_text("utf-8") == wanted:
            return 0
        print(
            "gen_tools: src/bascule/programs/mcp_stdio/tools.json differs from the bridges' tools: run "
            "tools/gen_tools.py",
            file=sys.stderr,
        )
        return 1
    TARGET.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
