"""`bascule on`, `bascule off`: the daemon, its tools and hooks for every client here; one question, and out again."""

import argparse
import os
from typing import TYPE_CHECKING

from bascule.cli import paste
from bascule.cli.setup.command import agreed, beside, home_of, show_changes, write_changes
from bascule.foundation import paths
from bascule.local_client.exits import WrongUsage
from bascule.programs.helpers.terminal import say, show

if TYPE_CHECKING:
    from collections.abc import Collection

    from bascule.cli.setup.changes import CannotChange, Change
    from bascule.cli.setup.keeping_up import KeepingUp
    from bascule.cli.setup.planning import SetupRequest
    from bascule.cli.setup.record import Record

CLIENTS = ("claude", "codex", "gemini")
_EPILOG = """\
examples:
  bascule on                     every client that is installed here
  bascule on claude              only this one
  bascule on claude --closed     calls are refused while the daemon cannot be asked
  bascule on --print             every line that it would write; nothing is written
  bascule off                    everything out again, each file as it was

For each client: our MCP server, hooks that report what its own tools do (nothing is refused: `bascule native mode`),
a skill that says how to use it, for Claude Code a badge in the status line. And the daemon, as a service of yours.
It says what it will change and asks once; `d` at the question shows every line of it (--yes answers for you). A client
whose settings cannot be read is left out and named; the others are set up. docs/native.md begins with what hooks cannot
see.
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
        parser.add_argument(
            "--print", dest="only_print", action="store_true", help="show every line of it; write nothing"
        )
        parser.add_argument("--yes", action="store_true", help="write without asking")
        parser.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets, if not as usual")
        # For tests, and for root who sets up somebody else.
        parser.add_argument("--home", metavar="DIR", help=argparse.SUPPRESS)


def run_switch(args: argparse.Namespace) -> int:
    switch = _Switch(args)
    if not switch.changes and not switch.steps:
        show("nothing to change")
        return switch.code
    if args.only_print:
        switch.show_details()
    switch.show_summary()
    if args.only_print:
        return switch.code
    if not args.yes and not agreed("Do this?", details=switch.show_details):
        show("nothing was written")
        return 1
    switch.write()
    for note in switch.notes:
        show(f"- {note}")
    if switch.daemon and not args.undo:
        _offer_person(args)
    return switch.code


class _Switch:
    """What is to be done, known before anything is written."""

    def __init__(self, args: argparse.Namespace) -> None:
        from bascule.cli.setup.planning import SetupRequest
        from bascule.cli.setup.record import Record

        self._undo = args.undo
        self._request = request = SetupRequest(
            bascule=paste.command(),
            bridge_wait=beside(paste.command(), "bridge-wait"),
            home=home_of(args),
            state_dir=os.path.abspath(args.state_dir) if args.state_dir else None,
            instructions=False,
            environment=os.environ,
        )
        named = _clients(args, request)
        # Apart from what `bascule setup` made.
        state = paths.state_dir(args.state_dir)
        self._record = Record(state, paths.native_record(state))
        # A client that was left out is a part that failed.
        self.code = 0
        self._clients = named
        self._changes, self.notes, left_out = _changes(args, request, named, self._record)
        for client, fault in left_out.items():
            self._leave_out(client, fault)
        self.daemon = _daemon(args, request, self._clients, left_out, self._record)
        self.steps = self.daemon.shown() if self.daemon else []
        self._trusts = "codex" in self._clients and not args.undo and _must_trust(request, self.changes)
        if self._trusts:
            self.steps.append("let Codex trust these hooks: it skips others without a word")

    @property
    def changes(self) -> "list[Change]":
        return [change for changes in self._changes.values() for change in changes]

    def _leave_out(self, client: str, fault: "CannotChange") -> None:
        self.code = 1
        self._clients = [each for each in self._clients if each != client]
        again = f"bascule {'off' if self._undo else 'on'} {client}"
        say(f"bascule: {client} is left out: {fault.message} ({fault.hint or 'mend that'}; then: {again})")

    def show_summary(self) -> None:
        for change in self.changes:
            how = "make" if change.old is None else "remove" if change.new is None else "change"
            show(f"- {how} {change.path} ({_count(change)})")
        for step in self.steps:
            show(f"- {step}")

    def show_details(self) -> None:
        show_changes(self.changes)
        if text := self.daemon.details() if self.daemon else "":
            show(text)

    def write(self) -> None:
        from bascule.cli.setup.changes import CannotChange

        for client, changes in self._changes.items():
            try:
                write_changes(changes, self._record, undo=self._undo)
            except CannotChange as fault:
                if len(self._changes) == 1:
                    raise
                self._leave_out(client, fault)
        # A client that still has our hooks needs it.
        if self._undo and len(self._clients) < len(self._changes):
            self.daemon = None
        if self.daemon and (problem := self.daemon.do()):
            self.notes.append(problem)
        if self._trusts and "codex" in self._clients:
            self.notes.append(_trust(self._request, self._record))
        if self._clients and not self._undo:
            clients = ", ".join(self._clients)
            self.notes.append(f"New sessions of {clients} report what they do: bascule sessions, bascule undo.")


def _offer_person(args: argparse.Namespace) -> None:
    from bascule.cli import person
    from bascule.foundation.errors import BasculeError

    try:
        person.offer(paths.state_dir(args.state_dir), asks=not args.yes)
    except BasculeError as fault:
        show(f"- The daemon does not answer ({fault.message}). When it does, set a passphrase: bascule person set")


def _count(change: "Change") -> str:
    added, removed = change.counts()
    return ", ".join(f"{number} lines {how}" for number, how in ((added, "added"), (removed, "removed")) if number)


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
) -> "tuple[dict[str, list[Change]], list[str], dict[str, CannotChange]]":
    """What is to be written for each client, what a reader should know, and whose files cannot be edited."""
    from bascule.cli.setup.changes import CannotChange
    from bascule.cli.setup.everything import add_everything
    from bascule.cli.setup.native_hooks import PROGRAM
    from bascule.cli.setup.planning import Planner

    changes: dict[str, list[Change]] = {}
    notes: list[str] = []
    left_out: dict[str, CannotChange] = {}
    for client in clients:
        planner = Planner(request, client, record, undo=args.undo, shares=True)
        add_everything(planner, beside(paste.command(), PROGRAM), closed=args.closed)
        try:
            plan = planner.finish()
        except CannotChange as fault:
            if len(clients) == 1:
                raise
            left_out[client] = fault
            continue
        changes[client] = plan.changes
        notes += plan.notes
    return changes, notes, left_out


def _daemon(
    args: argparse.Namespace,
    request: "SetupRequest",
    clients: list[str],
    left_out: "Collection[str]",
    record: "Record",
) -> "KeepingUp | None":
    """None where it is not this command's: by wish, for somebody else, or while other clients still need it."""
    from bascule.cli.setup.keeping_up import KeepingUp, is_own_home, service_of
    from bascule.cli.setup.native_hooks import installed

    # What cannot be read may still have our hooks.
    others = [each for each in CLIENTS if each not in clients and (each in left_out or installed(each, request))]
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
