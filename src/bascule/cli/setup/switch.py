"""`bascule on`, `bascule off`: a client's own tools undoable and on record, and out again."""

import argparse
import os
from typing import TYPE_CHECKING

from bascule.cli import paste
from bascule.cli.setup.command import agreed, apply_plan, beside, home_of
from bascule.foundation import paths
from bascule.local_client.exits import WrongUsage
from bascule.programs.helpers.terminal import show

if TYPE_CHECKING:
    from bascule.cli.setup.changes import Change
    from bascule.cli.setup.clients import SetupRequest

CLIENTS = ("claude", "codex", "gemini")
_EPILOG = """\
examples:
  bascule on claude              hooks that report what Claude Code's own tools do; nothing is refused
  bascule on claude --closed     calls are refused while the daemon cannot be asked
  bascule off claude             take them out again

Nothing is written before you have seen the difference and said yes (--yes says it for you). `bascule setup` connects
the client's MCP server; docs/native.md begins with what hooks cannot see.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, help_ in (
        ("on", "see what a client's own tools do, and be able to undo it"),
        ("off", "take the hooks of `bascule on` out again"),
    ):
        parser = commands.add_parser(
            name, help=help_, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.set_defaults(run=run_switch, undo=name == "off", only_print=False, project=None, closed=False)
        parser.add_argument("clients", metavar="CLIENT", nargs="*", help=f"of {', '.join(CLIENTS)} (default: all)")
        if name == "on":
            parser.add_argument("--closed", action="store_true", help="refuse calls while the daemon cannot be asked")
        parser.add_argument("--yes", action="store_true", help="write without asking")
        parser.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets, if not as usual")
        # For tests, and for root who sets up somebody else.
        parser.add_argument("--home", metavar="DIR", help=argparse.SUPPRESS)


def run_switch(args: argparse.Namespace) -> int:
    from bascule.cli.setup.clients import SetupRequest
    from bascule.cli.setup.native_hooks import PROGRAM, RECORD, plan, settings_file
    from bascule.cli.setup.record import Record

    if unknown := [name for name in args.clients if name not in CLIENTS]:
        raise WrongUsage(f"{unknown[0]} is not one of {', '.join(CLIENTS)}")
    request = SetupRequest(
        bascule=paste.command(),
        bridge_wait="",
        home=home_of(args),
        state_dir=os.path.abspath(args.state_dir) if args.state_dir else None,
        environment=os.environ,
    )
    record = Record(paths.state_dir(args.state_dir), RECORD)
    code = 0
    for client in args.clients or [
        each for each in CLIENTS if os.path.isdir(os.path.dirname(settings_file(request, each)))
    ]:
        made = plan(request, client, beside(paste.command(), PROGRAM), record, closed=args.closed, undo=args.undo)
        file = settings_file(request, client)
        if client == "codex" and args.undo and (trusted := _trusted(file)) is not None:
            made.changes.append(trusted)
        code = max(code, apply_plan(args, made, record))
        if client == "codex" and not args.undo and code == 0:
            _trust(args, request)
    return code


def _trusted(hooks_file: str) -> "Change | None":
    from bascule.cli.setup.codex_trust import forget

    return forget(os.path.join(os.path.dirname(hooks_file), "config.toml"), os.path.realpath(hooks_file))


def _trust(args: argparse.Namespace, request: "SetupRequest") -> None:
    """With the person's yes: without it `codex exec` leaves our hooks out, and says nothing."""
    from bascule.cli.setup.codex_trust import CannotAsk, trust, untrusted

    environment = {**request.environment, "HOME": request.home}
    try:
        waiting = untrusted(environment, request.home)
        if not waiting:
            return
        question = f"Codex does not trust {len(waiting)} of these hooks yet, and skips them. Trust them as they are?"
        if args.yes or agreed(question):
            show(f"Codex trusts {trust(environment, request.home)} hooks now")
        else:
            show("Codex runs them only after you have trusted them: type /hooks in Codex")
    except CannotAsk as fault:
        show(f"Codex could not be asked ({fault}): type /hooks in Codex and trust ours")
