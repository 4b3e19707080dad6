"""Writes what `src/bascule/programs/mcp_stdio/` is shipped with, from the tools of the bridges.

gen_tools.py           write it
gen_tools.py --check   say whether it is up to date; change nothing
"""

import json
import sys
from pathlib import Path

from bascule.surfaces.mcp.tools import shipped_tools, shipped_toolsets

FOLDER = Path(__file__).resolve().parent.parent / "src" / "bascule" / "programs" / "mcp_stdio"
FILES = {"toolsets.json": shipped_toolsets, "tools.json": shipped_tools}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: gen_tools.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, make in FILES.items():
        # The same tools give the same bytes: the order is that of the bridges.
        text, file = json.dumps(make(), indent=1) + "\n", FOLDER / name
        if not file.is_file() or file.read_text("utf-8") != text:
            stale.append(name)
            if not arguments:
                file.write_text(text, "utf-8")
    if arguments and stale:
        print(f"gen_tools: {', '.join(stale)} differ from the bridges' tools: run tools/gen_tools.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
