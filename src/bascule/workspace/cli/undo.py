"""`bascule undo`, `redo`, `log`, `show`: what agents did in a project, and taking it back."""

import argparse
import contextlib
import os
import re
from datetime import datetime, timedelta
from typing import Any

from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.client.sync import SyncClient
from bascule.foundation.errors import NotFound
from bascule.foundation.text import one_line, short_id
from bascule.local_client.exits import OK, UNEXPECTED, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json, show_table
from bascule.workspace.cli.spaces import or_as_person, show_changes

# How many operations a screen shows well.
DEFAULT_SHOWN = 20
MAX_TITLE_CHARS = 60
# The project itself, as a path from there.
_ROOT = "."
# A file may be called `run_tests`.
_OPERATION = re.compile(r"(?:run|undo)_[0-9a-f]{20}")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_SPAN = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_UNDO = """\
which work:
  bascule undo                          the last run here
  bascule undo run_01H...               this one (`bascule log` lists them)
  bascule undo --session codex          all of Codex's newest session
  bascule undo --agent Jerry            all of this agent
  bascule undo --session codex --last 2h   (or --since 14:00) only what it did since then
  bascule undo src/app.py docs/         what the last run that changed these did to them
  bascule undo --to run_01H...          everything after this one

Everything else stays: what others changed later in other files, and what they changed later in the same file, which
is then left alone and named. `--merge` takes such a file back line by line. `bascule redo` takes an undo back.
"""
_REDO = """\
examples:
  bascule redo                 take back the last undo here
  bascule redo undo_01H...     take back this one
  bascule redo --dry-run       what that would change
"""
_LOG = """\
examples:
  bascule log                  what was done in this project, newest first
  bascule log src/app.py       only what changed this file, or directory
  bascule log --session codex  only Codex's newest session
  bascule show run_01H...      one of them, with its diff
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    undo = _parser(commands, "undo", "take back what an agent did, and keep the rest", _UNDO)
    undo.set_defaults(run=run_undo)
    undo.add_argument("what", metavar="OPERATION|FILE", nargs="*", help="an operation, or files and directories")
    _add_whose(undo)
    times = undo.add_mutually_exclusive_group()
    times.add_argument("--since", metavar="TIME", help="only what began then or later: 14:00, 2026-03-01T14:00")
    times.add_argument("--last", metavar="SPAN", help="only what began so long ago at most: 30m, 2h, 1d")
    undo.add_argument("--to", metavar="OPERATION", help="everything that came after this operation")
    undo.add_argument("--merge", action="store_true", help="merge by line where others changed the same file later")
    undo.add_argument("--dry-run", action="store_true", help="only show what would change, as a diff")
    redo = _parser(commands, "redo", "take back the last undo", _REDO)
    redo.set_defaults(run=run_redo)
    redo.add_argument("undo", metavar="UNDO", nargs="?", help="which one (default: the last one here)")
    redo.add_argument("--dry-run", action="store_true", help="only show what would change, as a diff")
    log = _parser(commands, "log", "what was done in this project: runs, undos, redos", _LOG)
    log.set_defaults(run=run_log)
    log.add_argument("path", metavar="FILE", nargs="?", help="only what changed this file or directory")
    log.add_argument("-n", type=int, default=DEFAULT_SHOWN, metavar="N", help="how many (%(default)s)")
    _add_whose(log)
    shown = _parser(commands, "show", "one operation: who did it, when, and its diff", None)
    shown.set_defaults(run=run_show)
    shown.add_argument("operation", metavar="OPERATION", help="a run or an undo, from `bascule log`")
    for each in (undo, redo, log, shown):
        add_state_dir(each)
        add_json(each)


def _parser(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, what: str, epilog: str | None
) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=what, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)


def _add_whose(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", metavar="SESSION", help="its id, the end of it, or a client's newest: codex")
    parser.add_argument("--agent", metavar="HANDLE", help="of the agent with this handle")


# -- undo, redo --


def run_undo(args: argparse.Namespace) -> int:
    operations = [each for each in args.what if _OPERATION.fullmatch(each)]
    files = [each for each in args.what if each not in operations]
    if len(operations) > 1:
        raise WrongUsage("one operation at a time", "or a session, an agent, a time: see `bascule undo --help`")
    if operations and (args.session or args.agent or args.since or args.last or args.to):
        raise WrongUsage("an operation is one: --session, --agent, --since, --last and --to choose several")
    params: dict[str, Any] = {"dryRun": args.dry_run, "merge": args.merge}
    params |= {name: value for name in ("session", "agent", "to") if (value := getattr(args, name)) is not None}
    if args.since is not None or args.last is not None:
        params["since"] = _since(args.since, args.last)
    with connect(args) as client:
        if operations:
            params["runId"] = operations[0]
        if files or not operations:
            params["spaceId"], root = project(client, ".")
            paths = [_path(each, root) for each in files]
            if paths and _ROOT not in paths:
                params["paths"] = paths
        result = or_as_person(client, "runs.undo", params)
    return _show_undone(args, result)


def run_redo(args: argparse.Namespace) -> int:
    with connect(args) as client:
        params = {"spaceId": project(client, ".")[0], "dryRun": args.dry_run}
        if args.undo is not None:
            params["undoId"] = args.undo
        result = or_as_person(client, "runs.redo", params)
    return _show_undone(args, result)


def project(client: SyncClient, directory: str) -> tuple[str, str]:
    """The innermost space that a directory is in, or is: its id, and where it is."""
    known = client.call("spaces.list", {})
    places: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        # A shell's directory may be gone.
        places.append(os.path.realpath(directory))
    shell = os.environ.get("PWD", "")
    if directory == "." and shell.startswith("/") and not os.path.exists(shell):
        # The project that the shell is in was moved or removed: only the shell still knows where it was.
        places.append(shell)
    spaces = [each for place in places for each in known if f"{place}/".startswith(f"{each['path']}/")]
    if not spaces:
        where = next(iter(places), directory)
        raise NotFound(f"no agent has worked in {where}", hint="`bascule spaces` lists where agents have")
    space = max(spaces, key=lambda each: len(each["path"]))
    return space["spaceId"], space["path"]


def _path(file: str, root: str) -> str:
    """From the project's directory, which is `.` itself."""
    if not file:
        raise WrongUsage("an empty name is no file", "`bascule undo` alone takes back the last run")
    folder, name = os.path.split(os.path.abspath(file))
    place = os.path.join(os.path.realpath(folder), name)
    try:
        place.encode()
    except UnicodeEncodeError:
        raise WrongUsage(
            f"{file!a} is not UTF-8, and cannot be named here", "name the directory that it is in"
        ) from None
    if place.startswith(f"{root}/"):
        return os.path.relpath(place, root)
    if os.path.realpath(file) == root:
        return _ROOT
    raise WrongUsage(f"{file} is not in {root}", "a run outside of the project is taken back as one: name it")


def _since(since: str | None, last: str | None) -> str:
    now = datetime.now().astimezone()
    if last is not None:
        span = _SPAN.fullmatch(last)
        with contextlib.suppress(OverflowError):
            if span is not None:
                return (now - timedelta(**{_UNITS[span[2]]: int(span[1])})).isoformat()
        raise WrongUsage(f"--last {last!r} is not a span of time", "as in 30m, 2h or 1d")
    assert since is not None
    clock = _CLOCK.fullmatch(since)
    try:
        if clock is None:
            return datetime.fromisoformat(since).astimezone().isoformat()
        moment = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0)
    except (ValueError, OverflowError):
        raise WrongUsage(f"--since {since!r} is not a time", "as in 14:00 or 2026-03-01T14:00") from None
    # One that is still to come was yesterday.
    return (moment if moment <= now else moment - timedelta(days=1)).isoformat()


def _show_undone(args: argparse.Namespace, result: dict[str, Any]) -> int:
    """The exit code says whether all that was to be put back is back."""
    show_changes(args, result, "no file to put back")
    failed = result.get("failed", [])
    if not args.json:
        count = len(result["changes"])
        files = f"{count} file{'' if count == 1 else 's'}"
        if all(each.startswith("undo_") for each in result["operations"]):
            say(f"{'would take' if result['dryRun'] else 'took'} back {one_line(result['what'])}: {files} changed")
        else:
            say(f"{'would put' if result['dryRun'] else 'put'} back {files} of {one_line(result['what'])}")
        for each in failed:
            say(f"not back  {one_line(each['path'])}: {one_line(each['reason'])}")
        if result.get("takenBackBy"):
            say(f"to take this undo back: {result['takenBackBy']}")
    return UNEXPECTED if failed else OK


# -- log, show --


def run_log(args: argparse.Namespace) -> int:
    if args.n < 1:
        raise WrongUsage("-n is a number of lines above zero")
    with connect(args) as client:
        space_id, root = project(client, ".")
        params: dict[str, Any] = {"spaceId": space_id, "limit": args.n}
        params |= {name: value for name in ("session", "agent") if (value := getattr(args, name)) is not None}
        if args.path is not None and (path := _path(args.path, root)) != _ROOT:
            params["path"] = path
        found = client.call("spaces.log", params)
    if args.json:
        show_json(found)
    elif not found:
        show("nothing was done here that is kept")
    else:
        show_table(("OPERATION", "BEGAN", "BY", "FILES", "WHAT"), [_row(each) for each in found])
    return OK


def run_show(args: argparse.Namespace) -> int:
    with connect(args) as client:
        diff = or_as_person(client, "runs.diff", {"runId": args.operation})
        params = {"spaceId": diff["spaceId"], "operationId": args.operation}
        view = next(iter(client.call("spaces.log", params)), None)
    if args.json:
        show_json({"operation": view, "diff": diff})
        return OK
    if view is not None:
        facts = {
            view["kind"]: view["operationId"],
            "by": _who(view, whole=True),
            "did": _what(view, 1_000),
            "began": view["startedAt"],
            "after": view.get("parent"),
        }
        for name, value in facts.items():
            if value:
                show(f"{name + ':':7}{one_line(str(value))}")
    return show_changes(args, diff, "changed nothing")


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    return each["operationId"], _when(each["startedAt"]), _who(each), _files(each), _what(each)


def _when(text: str) -> str:
    return datetime.fromisoformat(text).astimezone().strftime("%m-%d %H:%M:%S")


def _who(each: dict[str, Any], *, whole: bool = False) -> str:
    native = each.get("native")
    if native is None:
        return one_line(str(each["startedBy"]))
    if whole:
        return one_line(f"{native['client']}, session {native['session']}")
    return one_line(f"{native['client']} {short_id(native['session'])}")


def _files(each: dict[str, Any]) -> str:
    return "?" if each.get("files") is None else str(each["files"])


def _what(each: dict[str, Any], max_chars: int = MAX_TITLE_CHARS) -> str:
    native = each.get("native")
    did = f"{each['kind']} of {each['what']}" if each.get("what") else each.get("title") or each["kind"]
    what = native["title"] if native else did
    how = "undone" if each.get("undone") else "in part undone"
    state = f" ({how} by {each['undoneBy']})" if each.get("undoneBy") else " (undone)" if each.get("undone") else ""
    note = f"; {each['note']}" if each.get("note") else ""
    return one_line(what, max_chars) + one_line(state + note, 200)
