"""`bascule`: the commands of the house. Each lives in a module of its own and mounts itself here."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from bascule import __version__
from bascule.foundation.errors import BasculeError
from bascule.foundation.paths import UnsafePlace
from bascule.local_client.exits import BY_STATUS, INTERRUPTED, UNEXPECTED, DoorError
from bascule.programs.helpers.terminal import prepare, say

_DESCRIPTION = "Bascule: one local daemon through which AI agents act, with every action recorded."
_EPILOG = """\
first steps:
  bascule up -d                 start the daemon in the background
  bascule demo                  watch one agent ask another, in a throw-away daemon
  bascule doctor                what this machine can do, and what is missing
  bascule console               see and answer everything in your browser
  bascule exec -- ls            run a command where agents run theirs
  bridge-register --agent Jerry --type script
  bridge-send Jerry "hello"     (in another terminal: bridge-recv --agent Jerry)
"""


def main(arguments: Sequence[str]) -> int:
    prepare()
    args = build_parser(arguments[0] if arguments else None).parse_args(arguments)
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # `bascule logs | head`: the reader has what it wanted.
        sys.stderr.close()
        return 0
    except BasculeError as error:
        return _complain(error.message, error.hint, BY_STATUS.get(error.status, UNEXPECTED))
    except DoorError as error:
        return _complain(error.message, error.hint, error.exit_code)
    except UnsafePlace as error:
        return _complain(str(error), None, UNEXPECTED)


def _complain(message: str, hint: str | None, code: int) -> int:
    say(f"bascule: {message}")
    if hint:
        say(f"  {hint}")
    return code


# The daemon's own commands, by the module that has them; those of the bridges stand between the two. This is the order
# of --help. One command needs one module, and importing all of them takes longer than most answers.
FIRST = {
    "bascule.cli.life": ("up", "status", "logs", "down"),
    "bascule.cli.setup.command": ("setup",),
    "bascule.cli.setup.switch": ("on", "off"),
    "bascule.cli.demo": ("demo",),
    "bascule.cli.doctor": ("doctor",),
}
LAST = {
    # A program that the daemon starts: it loads no bridge but its own, so the list must not be needed for it.
    "bascule.desktop.cli.host": ("desktop-host",),
    "bascule.cli.tmux": ("tmux",),
    "bascule.cli.stop": ("stop", "resume"),
    "bascule.cli.top": ("top",),
    "bascule.cli.approvals": ("approvals",),
    "bascule.cli.console": ("console",),
    "bascule.cli.policy": ("policy",),
    "bascule.cli.ledger": ("ledger",),
    "bascule.cli.person": ("person",),
    "bascule.cli.backup": ("backup", "restore"),
    "bascule.cli.clean": ("gc", "purge"),
    "bascule.cli.service": ("service",),
}


def homes(command: str | None = None) -> dict[str, tuple[str, ...]]:
    """The module that has this command, with all that it has; every module where none has it."""
    own = FIRST | LAST
    # The list of bridges needs packages, and `bascule doctor` has to say which one is missing.
    if found := {module: names for module, names in own.items() if command in names}:
        return found
    from bascule.bridge_list import BRIDGES

    bridges = {each.module: each.names for bridge in BRIDGES for each in bridge.commands}
    return {module: names for module, names in bridges.items() if command in names} or FIRST | bridges | LAST


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """For every command, or for one of them alone."""
    parser = argparse.ArgumentParser(
        prog="bascule",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bascule {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in homes(command):
        import_module(module).add_parser(commands)
    # Served by `cli.start` before this parser is built; listed here so that --help knows it.
    commands.add_parser("mcp", help="serve MCP over stdio to one agent (put this into its MCP config)")
    commands.add_parser("badge", help="a line for a client's status line (`bascule on` puts it there)")
    return parser
