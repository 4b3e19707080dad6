"""`bascule spaces`, `bascule runs`, `bascule processes`: what is open, what was done there, and taking it back."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from bascule.cli.console_pages import open_page
from bascule.cli.person import unlock
from bascule.cli.talk import add_json, add_state_dir, ask, connect
from bascule.client.sync import SyncClient
from bascule.foundation.errors import Forbidden, NotFound
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import NOT_FOUND, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json, show_table
from bascule.workspace.cli.live import show_steering
from bascule.workspace.cli.work import add_space, find_space

Verb = tuple[str, Callable[[argparse.Namespace], int], str]
# How long a follower of a log waits for more before it asks again.
_FOLLOW_MS = 25_000
# One value in a list of events.
MAX_VALUE_CHARS = 200
_PAGE_BYTES = 64 * 1024
# How many runs a screen shows well.
DEFAULT_RUNS = 20


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    spaces = commands.add_parser("spaces", help="directories that agents work in")
    verbs = spaces.add_subparsers(metavar="VERB")
    for name, run, help_ in (
        ("list", list_spaces, "every space (the default)"),
        ("open", open_space, "make a directory a space, or find the space it is"),
        ("close", close_space, "end its commands and forget it; the files stay"),
    ):
        verb = verbs.add_parser(name, help=help_)
        verb.set_defaults(run=run)
        if name == "open":
            verb.add_argument("directory", metavar="DIR", nargs="?", default=".")
            verb.add_argument("--name", help="what to call it (default: the directory's name)")
        elif name == "close":
            verb.add_argument("space", metavar="DIR|NAME|ID", nargs="?")
        _common(verb, below=True)
    spaces.set_defaults(run=list_spaces)
    _common(spaces)
    _add_runs(commands)
    _add_processes(commands)


def _add_runs(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    runs = commands.add_parser("runs", help="what was done in a space: show, diff, cancel")
    verbs = runs.add_subparsers(metavar="VERB")
    listed: tuple[Verb, ...] = (
        ("list", list_runs, "newest first (the default)"),
        ("show", show_run, "the events of a run"),
        ("open", open_run, "it in the console, in your browser"),
        ("diff", diff_run, "what it changed, as a unified diff"),
        ("commit", commit_run, "take over what it did on a copy"),
        ("cancel", cancel_run, "stop it and everything it started"),
    )
    for name, run, help_ in listed:
        verb = verbs.add_parser(name, help=help_)
        verb.set_defaults(run=run)
        if name == "list":
            verb.add_argument("-n", type=int, default=DEFAULT_RUNS, metavar="N", help="how many (default %(default)s)")
            verb.add_argument("--all", action="store_true", help="of all spaces")
        else:
            verb.add_argument("run_id", metavar="RUN", help="its id, or `last`")
        add_space(verb, below=True)
        _common(verb, below=True)
    runs.set_defaults(run=list_runs, n=DEFAULT_RUNS, all=False)
    add_space(runs)
    _common(runs)


def _add_processes(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    processes = commands.add_parser("processes", help="commands that run in a space: list, logs, stop")
    verbs = processes.add_subparsers(metavar="VERB")
    for name, run, help_ in (
        ("list", list_processes, "running ones, and those that ended lately (the default)"),
        ("logs", show_logs, "a command's output"),
        ("stop", stop_process, "end a command and everything it started"),
    ):
        verb = verbs.add_parser(name, help=help_)
        verb.set_defaults(run=run)
        if name != "list":
            verb.add_argument("process_id", metavar="PROCESS")
        if name == "logs":
            verb.add_argument("-f", "--follow", action="store_true", help="go on until the command ends")
            verb.add_argument("--stderr", action="store_true", help="its stderr (default: stdout)")
        _common(verb, below=True)
    processes.set_defaults(run=list_processes)
    _common(processes)


def _common(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    add_state_dir(parser, below=below)
    add_json(parser, below=below)


# -- spaces --


def list_spaces(args: argparse.Namespace) -> int:
    spaces = ask(args, "spaces.list")
    if args.json:
        show_json(spaces)
        return 0
    if not spaces:
        show("no space yet: `bascule exec -- ls` makes one of this directory, and so does an agent's first tool call")
        return 0
    rows = [
        (each["spaceId"], each["name"], each["sandbox"], str(each["runs"]), str(each["processes"]), each["path"])
        for each in spaces
    ]
    show_table(("SPACE", "NAME", "SANDBOX", "RUNS", "RUNNING", "DIRECTORY"), rows)
    for problem in sorted({each["problem"] for each in spaces if each.get("problem")}):
        say(f"commands cannot run: {problem}")
    return 0


def open_space(args: argparse.Namespace) -> int:
    with connect(args) as client:
        space = client.space(args.directory, name=args.name)
    if args.json:
        show_json({"spaceId": space.space_id, "name": space.name, "path": space.path})
    else:
        show(f"{space.space_id}  {space.name}  {visible(space.path)}")
    return 0


def close_space(args: argparse.Namespace) -> int:
    with connect(args) as client:
        space = find_space(client, args.space)
        or_as_person(client, "spaces.close", {"spaceId": space.space_id})
    show(f"{space.name} is closed; its files stay in {visible(space.path)}")
    return 0


# -- runs --


def list_runs(args: argparse.Namespace) -> int:
    with connect(args) as client:
        params: dict[str, Any] = {"limit": args.n}
        if not args.all:
            params["spaceId"] = find_space(client, args.space).space_id
        runs = client.call("runs.list", params)
    if args.json:
        show_json(runs)
        return 0
    if not runs:
        show("no run yet")
        return 0
    rows = [
        (
            each["runId"],
            each["startedAt"][:19].replace("T", " "),
            each["startedBy"],
            each["status"],
            str(each["operations"]),
            _undo_word(each),
        )
        for each in runs
    ]
    show_table(("RUN", "STARTED", "BY", "STATUS", "OPERATIONS", "UNDO"), rows)
    return 0


def _undo_word(run: dict[str, Any]) -> str:
    if run.get("undone"):
        return "undone"
    how = run["native"]["title"] if run.get("native") else "background" if run.get("background") else None
    words = ("yes" if run.get("undoable") else None, how, run.get("note"))
    return _short("; ".join(word for word in words if word)) or "-"


def show_run(args: argparse.Namespace) -> int:
    result = _about_run(args, "runs.show")
    if args.json:
        show_json(result)
        return 0
    show(f"{result['runId']}: {result['status']}")
    for event in result["events"]:
        rest = {name: value for name, value in event.items() if name not in ("type", "timestamp", "operationId")}
        words = " ".join(f"{name}={_short(value)}" for name, value in rest.items())
        show(f"  {event['timestamp']} {event.get('operationId', ''):<8} {event['type']:<16} {words}".rstrip())
    show_steering(result.get("steering", ()))
    return 0


def diff_run(args: argparse.Namespace) -> int:
    return show_changes(args, _about_run(args, "runs.diff"), "changed nothing")


def commit_run(args: argparse.Namespace) -> int:
    return show_changes(args, _about_run(args, "runs.commit"), "changed nothing")


def cancel_run(args: argparse.Namespace) -> int:
    result = _about_run(args, "runs.cancel")
    show_json(result) if args.json else show(f"{result['runId']}: {result['status']}")
    return 0


def open_run(args: argparse.Namespace) -> int:
    with connect(args) as client:
        if args.run_id != "last":
            # Of whichever space.
            return open_page(client, "runs", args.run_id)
        return open_page(client, "runs", _last_run(client, find_space(client, args.space).space_id))


def _about_run(args: argparse.Namespace, method: str, **more: Any) -> Any:
    with connect(args) as client:
        space_id = find_space(client, args.space).space_id
        run_id = _last_run(client, space_id) if args.run_id == "last" else args.run_id
        return or_as_person(client, method, {"spaceId": space_id, "runId": run_id, **more})


def _last_run(client: SyncClient, space_id: str) -> str:
    runs = client.call("runs.list", {"spaceId": space_id, "limit": 1})
    if not runs:
        raise NotFound("there was no run in this space yet", hint="`bascule runs list --all` lists others'")
    return str(runs[0]["runId"])


def or_as_person(client: SyncClient, method: str, params: dict[str, Any]) -> Any:
    """What another has started is the person's to look at and to end: ask for the passphrase then."""
    try:
        return client.call(method, params)
    except Forbidden as refused:
        if not (sys.stdin is not None and sys.stdin.isatty()) or not client.call("person.status", {})["set"]:
            raise
        say(f"bascule: {refused.message}; the person may")
        unlock(client)
        return client.call(method, params)


def show_changes(args: argparse.Namespace, result: dict[str, Any], nothing: str) -> int:
    if args.json:
        show_json(result)
    elif result["changes"]:
        for change in result["changes"]:
            counts = "binary" if change.get("binary") else f"+{change.get('added', 0)} -{change.get('removed', 0)}"
            say(f"{change['change']:<9} {change['path']} ({counts})")
        if result["diff"]:
            show(visible(result["diff"]).rstrip("\n"))
        if result.get("truncated"):
            say("the diff was cut; `--json` and HTTP have no more of it")
    elif not any(result.get(field) for field in ("unknown", "leftAlone", "steering")):
        say(nothing)
    if not args.json:
        _show_not_undoable(result)
        show_steering(result.get("steering", ()))
    return 0


def _show_not_undoable(result: dict[str, Any]) -> None:
    for word, field in (("unknown", "unknown"), ("left alone", "leftAlone")):
        for each in result.get(field, []):
            say(f"{word:<9} {one_line(each['path'])}: {one_line(each['reason'])}")
    if result.get("note"):
        say(f"note: {one_line(result['note'])}")


def _short(value: Any) -> str:
    return one_line(str(value), MAX_VALUE_CHARS)


# -- processes --


def list_processes(args: argparse.Namespace) -> int:
    processes = ask(args, "processes.list")
    if args.json:
        show_json(processes)
        return 0
    rows = [
        (
            each["processId"],
            each["startedBy"],
            "running" if each["running"] else f"exit {each.get('exitCode', '?')}",
            each["startedAt"][:19].replace("T", " "),
            _short(each["command"]),
        )
        for each in processes
    ]
    show_table(("PROCESS", "BY", "STATE", "STARTED", "COMMAND"), rows) if rows else show("nothing runs")
    return 0


def show_logs(args: argparse.Namespace) -> int:
    if args.follow and args.json:
        raise WrongUsage("--follow prints text", "leave out --json, or ask for pages without --follow")
    params = {"processId": args.process_id, "stream": "stderr" if args.stderr else "stdout", "limit": _PAGE_BYTES}
    offset = 0
    with connect(args) as client:
        while True:
            wait = {"waitMs": _FOLLOW_MS} if args.follow and offset else {}
            page = or_as_person(client, "processes.logs", {**params, "offset": offset, **wait})
            if args.json:
                show_json(page)
                return 0
            sys.stdout.write(visible(page["text"]))
            sys.stdout.flush()
            behind = page["nextOffset"] < page["size"]
            if not behind and not (args.follow and page["running"]):
                break
            offset = page["nextOffset"]
    if page.get("dropped"):
        say(f"{page['dropped']} more bytes were not kept")
    return 0


def stop_process(args: argparse.Namespace) -> int:
    with connect(args) as client:
        view = or_as_person(client, "processes.stop", {"processId": args.process_id})
    show_json(view) if args.json else show(f"{view['processId']} stopped")
    return NOT_FOUND if view["running"] else 0
