"""How commands reach the daemon, and the options they share."""

import argparse
from typing import TYPE_CHECKING, Any

from bascule.foundation import paths

if TYPE_CHECKING:
    from bascule.client.sync import SyncClient


# Ten years: more than anybody waits, and few enough for milliseconds in every integer.
MAX_SECONDS = 315_360_000.0


# `below` is for a verb whose command takes the option too: its default must not undo what was given before the verb.
def add_state_dir(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        default=argparse.SUPPRESS if below else None,
        help="where the daemon keeps its things (default: BASCULE_STATE_DIR, else ~/.local/state/bascule)",
    )


def add_json(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    default = argparse.SUPPRESS if below else False
    parser.add_argument("--json", action="store_true", default=default, help="print JSON for programs")


def seconds(text: str) -> float:
    """A time on the command line: `nan` and `inf` are numbers to Python, and no time to wait."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above zero")
    return value


def state_of(args: argparse.Namespace) -> str:
    return paths.state_dir(args.state_dir)


def connect(args: argparse.Namespace) -> "SyncClient":
    # Who only reads the options, as the daemon's own command does, loads no client.
    from bascule.client.sync import SyncClient

    return SyncClient.connect(state_dir=state_of(args))


def ask(args: argparse.Namespace, method: str, params: dict[str, Any] | None = None) -> Any:
    """One call to the running daemon; the answer as plain JSON values."""
    with connect(args) as client:
        return client.call(method, params or {})
