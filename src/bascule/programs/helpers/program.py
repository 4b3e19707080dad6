"""What every command has in common: its options, its exit, its errors."""

from __future__ import annotations

import argparse
import os
import sys

from bascule import __version__
from bascule.foundation import paths
from bascule.local_client import exits
from bascule.programs.helpers import terminal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def run(name: str, main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> int:
    """The exit code of `main`; errors become one sentence and one next step on stderr."""
    terminal.prepare()
    try:
        return main(sys.argv[1:] if arguments is None else arguments)
    except exits.DoorError as fault:
        terminal.say(f"{name}: {fault.message}")
        if fault.hint:
            terminal.say(f"  next: {fault.hint}")
        return fault.exit_code
    except paths.UnsafePlace as fault:
        terminal.say(f"{name}: {fault}")
        return exits.UNEXPECTED
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left. The interpreter would complain once more while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.UNEXPECTED


def parser(name: str, description: str, examples: str) -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog=name,
        description=description,
        epilog="examples:\n" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Abbreviations would break scripts whenever an option is added.
        allow_abbrev=False,
    )
    out.add_argument("--version", action="version", version=f"bascule {__version__}")
    add_state_dir(out)
    return out


def add_state_dir(to: argparse.ArgumentParser, *, below: bool = False) -> None:
    """`below`: on a subcommand, whose default must not undo what stood before its name."""
    to.add_argument(
        "--state-dir",
        metavar="DIR",
        default=argparse.SUPPRESS if below else None,
        help="where the daemon keeps its sockets (default: BASCULE_STATE_DIR, else ~/.local/state/bascule)",
    )


def milliseconds(text: str) -> int:
    """An argparse type: a whole number of milliseconds above zero."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of milliseconds")
    return int(text)
