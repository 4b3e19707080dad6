"""`bascule on`, `bascule off`: the daemon, its tools and hooks for every client here; one question, and out again."""

import argparse
import os
from typing import TYPE_CHECKING

from bascule.cli import paste
from bascule.cli.setup.command import agreed, beside, home_of, show_changes, write_changes
from bascule.foundation import paths
from bascule.local_client.exits import WrongUsage
from bascule.programs.helpers.terminal import show

if TYPE_CHECKING:
    from bascule.cli.setup.changes import Change
    from bascule.cli.setup.keeping_up import KeepingUp
    from bascule.cli.setup.planning import SetupRequest
    from bascule.cli.setup.record import Record

CLIENTS = ("claude", "codex", "gemini")
_EPILOG = """\
examples:
  bascule on                     every client that is installed here
  bascule on claude              only this one
  bascule on claude --closed     calls are refused while the daemon cannot be asked
  bascule off                    everything out again, each file as it was

For each client: our MCP server, hooks that report what its own tools do (nothing is refused: `bascule native mode`),
a skill that says how to use it, for Claude Code a badge in the status line. And the daemon, as a service of yours.
Nothing is written before you have seen all of it and said yes (--yes says it for you). docs/native.md begins with what
hooks cannot see.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, help_ in (
        ("on", "govern Claude Code, Codex and Gemini CLI: daemon, tools, hooks, all in one"),
        ("off", "take out what `bascule on` put in"),
    ):
        parser = commands.add_parser(
            name, help=help_, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.set_defaults(run=run_switch, undo=name == "off", closed=False)
        parser.add_argument(
            "clients", metavar="CLIENT", nargs="*", help=f"of {', '.join(CLIENTS)} (default: those that are here)"
        )
        if name == "on":
            parser.add_argument("--closed", action="store_true", help="refuse calls while the daemon cannot be asked")
        parser.add_argument("--no-service", action="store_true", help="leave the daemon and its service alone")
        parser.add_argument("--yes", action="store_true", help="write without asking")
        parser.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets, if not as usual")
        # For tests, and for root who sets up somebody else.
        parser.add_argument("--home", metavar="DIR", help=argparse.SUPPRESS)


def run_switch(args: argparse.Namespace) -> int:
    from bascule.cli.setup.planning import SetupRequest
    from bascule.cli.setup.record import Record

    request = SetupRequest(
        bascule=paste.command(),
        bridge_wait=beside(paste.command(), "bridge-wait"),
        home=home_of(args),
        state_dir=os.path.abspath(args.state_dir) if args.state_dir else None,
        instructions=False,
        environment=os.environ,
    )
    clients = _clients(args, request)
    # Apart from what `bascule setup` made.
    state = paths.state_dir(args.state_dir)
    record = Record(state, paths.native_record(state))
    changes, notes = _changes(args, request, clients, record)
    daemon = _daemon(args, request, clients, record)
    steps = daemon.shown() if daemon else []
    trusts = "codex" in clients and not args.undo and _must_trust(request, changes)
    if trusts:
        steps.append("let Codex trust these hooks: it skips others without a word")
    if not changes and not steps:
        show("nothing to change")
        return 0
    show_changes(changes)
    for change in changes:
        # Again in short: the differences fill the screen.
        how = "make" if change.old is None else "remove" if change.new is None else "change"
        show(f"- {how} {change.path}")
    for step in steps:
        show(f"- {step}")
    if not args.yes and not agreed("Do this?"):
        show("nothing was written")
        return 1
    write_changes(changes, record, undo=args.undo)
    if daemon and (problem := daemon.do()):
        notes.append(problem)
    if trusts:
        notes.append(_trust(request, record))
    if not args.undo:
        notes.append(f"New sessions of {', '.join(clients)} report what they do: bascule sessions, bascule undo.")
    for note in notes:
        show(f"- {note}")
    return 0


def _clients(args: argparse.Namespace, request: "SetupRequest") -> list[str]:
    from bascule.cli.setup.everything import is_there

    if unknown := [name for name in args.clients if name not in CLIENTS]:
        raise WrongUsage(f"{unknown[0]} is not one of {', '.join(CLIENTS)}")
    found = args.clients or [each for each in CLIENTS if args.undo or is_there(each, request)]
    if not found:
        raise WrongUsage("no client is installed here", f"name one to set it up all the same: {', '.join(CLIENTS)}")
    return list(dict.fromkeys(found))


def _changes(
    args: argparse.Namespace, request: "SetupRequest", clients: list[str], record: "Record"
) -> "tuple[list[Change], list[str]]":
    from bascule.cli.setup.everything import add_everything
    from bascule.cli.setup.native_hooks import PROGRAM
    from bascule.cli.setup.planning import Planner

    changes: list[Change] = []
    notes: list[str] = []
    for client in clients:
        planner = Planner(request, client, record, undo=args.undo, shares=True)
        add_everything(planner, beside(paste.command(), PROGRAM), closed=args.closed)
        plan = planner.finish()
        changes += plan.changes
        notes += plan.notes
    return changes, notes


def _daemon(
    args: argparse.Namespace, request: "SetupRequest", clients: list[str], record: "Record"
) -> "KeepingUp | None":
    """None where it is not this command's: by wish, for somebody else, or while other clients still need it."""
    from bascule.cli.setup.keeping_up import KeepingUp, is_own_home, service_of
    from bascule.cli.setup.native_hooks import installed

    others = [each for each in CLIENTS if each not in clients and installed(each, request)]
    if args.no_service or not is_own_home(request.home) or (args.undo and others):
        return None
    manager = service_of(args.state_dir, paths.passwd_home())
    return KeepingUp(paths.state_dir(args.state_dir), manager, record, undo=args.undo)


def _must_trust(request: "SetupRequest", changes: "list[Change]") -> bool:
    from bascule.cli.setup.codex_trust import CannotAsk, untrusted
    from bascule.cli.setup.native_hooks import settings_file

    if any(change.path == settings_file(request, "codex") for change in changes):
        return True
    try:
        return bool(untrusted(_environment(request), request.home))
    except CannotAsk:
        # What is there is as it was; doctor says that nobody knows.
        return False


def _trust(request: "SetupRequest", record: "Record") -> str:
    from bascule.cli.setup.codex_trust import CannotAsk, trust
    from bascule.cli.setup.everything import TRUSTED, folder_of
    from bascule.cli.setup.record import Entry

    try:
        keys = trust(_environment(request), request.home)
    except CannotAsk as fault:
        return f"Codex could not be asked ({fault}): type /hooks in Codex and trust ours"
    config = os.path.realpath(os.path.join(folder_of(request, "codex"), "config.toml"))
    record.add(config, Entry(parts=[f"{TRUSTED}{key}" for key in keys]))
    record.save()
    return f"Codex trusts {len(keys)} hooks now"


def _environment(request: "SetupRequest") -> dict[str, str]:
    return {**request.environment, "HOME": request.home}
