"""The `bascule` command's first step: `bascule mcp` and `bascule badge` at once, the rest through the parser.

An agent's client starts `bascule mcp` and waits for it; it must not pay for the other commands.
"""

import sys


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == ["mcp"]:
        from bascule.programs.mcp_stdio.command import main as mcp

        return mcp(arguments[1:])
    if arguments[:1] == ["badge"]:
        from bascule.programs.helpers.badge import main as badge

        return badge(arguments[1:])
    from bascule.cli.main import main as command_line

    return command_line(arguments)


if __name__ == "__main__":
    sys.exit(main())
