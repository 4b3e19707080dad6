"""`bascule run` and `bascule exec`: operations and commands in the space of this directory."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.client.spaces import SyncSpace
from bascule.client.sync import SyncClient
from bascule.foundation.errors import BasculeError, NotFound
from bascule.local_client.exits import INTERRUPTED, REFUSED, UNEXPECTED, USAGE, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json
from bascule.workspace.cli.live import Screen, exit_code, follow
from bascule.workspace.protocol import ApprovalRequiredEvent, Event, PolicyDeniedEvent, StreamedOutput
from gabp import codec

# A run is a message of at most 10,000 operations; larger files are something else.
MAX_OPERATIONS_FILE_BYTES = 64 * 1024 * 1024
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    run = commands.add_parser(
        "run",
        help="carry out a file of operations in this directory",
        description="Carry out an operations message of the Agent Spaces protocol: files and commands, in order, each "
        "decided by the policy and recorded in the ledger. `bascule runs diff` shows what changed, `bascule undo` "
        "puts it back.",
        epilog='ops.json: {"protocolVersion": "1.0", "operations": [{"type": "shell", "command": "make"}]}',
    )
    run.add_argument("-f", "--file", required=True, metavar="OPS.json", help="the message; - for stdin")
    run.add_argument("--on-copy", action="store_true", help="try it on a copy; `bascule runs commit` takes it over")
    run.set_defaults(run=run_file)
    execute = commands.add_parser(
        "exec",
        help="run a command in this directory's sandbox, with live output",
        description="Run one command where agents run theirs: it sees /usr, this directory and a private /tmp, no "
        "network, and nothing of it is left when it ends. The exit code is the command's own.",
        epilog="examples:\n  bascule exec -- pytest -q\n  bascule exec --timeout 10m 'make && make install'\n"
        "  bascule exec --background -- python3 -m http.server",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    execute.add_argument("--cwd", metavar="DIR", help="where in the space (default: here)")
    execute.add_argument("--timeout", metavar="TIME", type=_duration, help="e.g. 90s, 10m (default 30s, at most 1h)")
    execute.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="one more variable")
    execute.add_argument("--background", action="store_true", help="start it and return; see `bascule processes`")
    execute.add_argument("command", nargs="+", metavar="COMMAND", help="a program and its arguments, or one shell text")
    execute.set_defaults(run=run_exec)
    for parser in (run, execute):
        add_space(parser)
        parser.add_argument(
            "--no-wait",
            action="store_true",
            help="when something asks, end with exit code 4 instead of waiting for a person",
        )
        add_state_dir(parser)
        add_json(parser)


def add_space(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    parser.add_argument(
        "--space",
        metavar="DIR|NAME|ID",
        default=argparse.SUPPRESS if below else None,
        help="the space (default: the current directory)",
    )


def find_space(client: SyncClient, wanted: str | None) -> SyncSpace:
    """By directory, else by name or id; the current directory when none is named."""
    if wanted is None or os.path.isdir(wanted):
        return client.space(wanted or ".")
    for space in client.call("spaces.list", {}):
        if wanted in (space["spaceId"], space["name"]):
            return client.space(space["path"])
    raise NotFound(f"there is no space and no directory {wanted!r}", hint="`bascule spaces` lists the spaces")


def run_file(args: argparse.Namespace) -> int:
    message = _read(args.file)
    with connect(args) as client:
        space = find_space(client, args.space)
        operations = message.get("operations") if isinstance(message, dict) else None
        if not isinstance(message, dict) or message.get("protocolVersion") != "1.0" or not isinstance(operations, list):
            # The daemon says what is wrong with it, in the protocol's own form.
            request = message if isinstance(message, dict) else {"operations": message}
            answer = client.call("runs.start", {**request, "spaceId": space.space_id})
            show_json(answer) if args.json else say(f"bascule: {answer['events'][0]['message']}")
            return USAGE
        if args.json:
            return _as_json(space, operations, args)
        status, events = _live(space, operations, args, verbose=True)
    failed = sum(not getattr(event, "success", False) for event in events)
    say(f"{status}: {len(events)} operations, {failed} without success")
    return 0 if status == "completed" and not failed else UNEXPECTED


def run_exec(args: argparse.Namespace) -> int:
    command = args.command[0] if len(args.command) == 1 else shlex.join(args.command)
    operation: dict[str, Any] = {"type": "shell", "command": command}
    if args.timeout is not None:
        operation["timeout"] = args.timeout
    if args.env:
        operation["env"] = dict(_variable(each) for each in args.env)
    with connect(args) as client:
        space = find_space(client, args.space)
        if cwd := _inside(space, args):
            operation["cwd"] = cwd
        if args.background:
            process = space.spawn(command, cwd=operation.get("cwd"), env=operation.get("env"))
            id_ = process.process_id
            if args.json:
                show_json({"processId": id_, "runId": process.run_id})
            else:
                show(f"{id_} started; bascule processes logs {id_}; bascule runs diff {process.run_id}")
            return 0
        if args.json:
            return _as_json(space, [operation], args)
        status, events = _live(space, [operation], args, verbose=False)
    return exit_code(events[-1] if events else None) if status != "cancelled" else INTERRUPTED


def _live(
    space: SyncSpace, operations: list[Any], args: argparse.Namespace, *, verbose: bool
) -> tuple[str, list[Event]]:
    """Start a run and show it to its end; Ctrl-C and SIGTERM cancel it."""
    signal.signal(signal.SIGTERM, _interrupted)
    run_id = space.start(operations, on_copy=getattr(args, "on_copy", False))
    try:
        items = _naming_who_answers(space.follow(run_id), args)
        screen = Screen(raw=not (sys.stdout is not None and sys.stdout.isatty()))
        what = "the command" if len(operations) == 1 else "the run"
        return follow(_unless_asked(items) if args.no_wait else items, screen, what=what, verbose=verbose)
    except (KeyboardInterrupt, _Unanswered) as stopped:
        # The stream's connection may be in the middle of a frame: say it on a new one.
        with connect(args) as other:
            try:
                find_space(other, space.space_id).cancel(run_id, str(stopped) or "its terminal was interrupted")
            except BasculeError as error:
                say(f"bascule: {run_id} could not be cancelled: {error.message}")
        if isinstance(stopped, _Unanswered):
            raise SystemExit(REFUSED) from None
        say(f"[cancelled: {run_id}]")
        return "cancelled", []


def _naming_who_answers(items: Iterable[StreamedOutput], args: argparse.Namespace) -> Iterator[StreamedOutput]:
    """Where nobody can answer yet, the question says what to do first."""
    for item in items:
        yield item
        if isinstance(item.event, ApprovalRequiredEvent) and not ask(args, "person.status")["set"]:
            say("  nobody can approve yet; first, in another terminal: bascule person set")


class _Unanswered(Exception):
    """Something asks and nobody is to be waited for."""


def _unless_asked(items: Iterable[StreamedOutput]) -> Iterator[StreamedOutput]:
    for item in items:
        yield item
        if isinstance(item.event, ApprovalRequiredEvent):
            raise _Unanswered("it asks, and --no-wait waits for nobody")


def _as_json(space: SyncSpace, operations: list[Any], args: argparse.Namespace) -> int:
    """The events message and nothing else, for programs."""
    result = space.run(operations, on_copy=getattr(args, "on_copy", False))
    if result.status == "awaiting_approval" and not args.no_wait:
        say(f"bascule: {result.run_id} waits for a person: bascule approvals")
        while result.status == "awaiting_approval":
            result = space.wait(result.run_id)
    show_json(msgspec.to_builtins(result))
    if args.run is run_exec:
        return exit_code(result.events[-1] if result.events else None)
    refused = any(isinstance(event, PolicyDeniedEvent) for event in result.events)
    return REFUSED if refused else 0 if result.status == "completed" else UNEXPECTED


def _interrupted(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _read(path: str) -> Any:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_OPERATIONS_FILE_BYTES + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(MAX_OPERATIONS_FILE_BYTES + 1)
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_OPERATIONS_FILE_BYTES:
        raise WrongUsage(f"{path} is larger than {MAX_OPERATIONS_FILE_BYTES} bytes", "split it into several runs")
    try:
        return codec.decode(data, Any)
    except codec.BadJson as error:
        raise WrongUsage(f"{path} is not JSON: {error.message}") from error


def _inside(space: SyncSpace, args: argparse.Namespace) -> str | None:
    """Where the command runs: what --cwd says, else this directory when the space is one of its parents."""
    if args.cwd is not None:
        return str(args.cwd)
    if args.space is None:
        return None
    here = os.path.realpath(".")
    if os.path.commonpath((here, space.path)) == space.path and here != space.path:
        return os.path.relpath(here, space.path)
    return None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongUsage(f"--env {text!r} is not NAME=VALUE")
    return name, value


def _duration(text: str) -> float:
    """Milliseconds of `90s`, `10m`, `1500ms`; a plain number is seconds."""
    for unit in ("ms", "s", "m", "h"):
        number = text.removesuffix(unit)
        if number != text:
            break
    else:
        number, unit = text, "s"
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 10m or 1500ms") from None
