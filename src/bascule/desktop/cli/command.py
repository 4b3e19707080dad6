"""`bascule desktop ...`: see and use windows as agents do, and decide what they may."""

import argparse
import os
import sys
from typing import Any

from bascule.cli.console_pages import open_page
from bascule.cli.talk import add_json, add_state_dir, connect, seconds, state_of
from bascule.desktop.cli import gnome, kwin, person
from bascule.desktop.cli.ways import ask
from bascule.foundation import paths
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import NOT_FOUND, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_exactly, show_json

_DESCRIPTION = """\
What agents may do on your desktop, and the same for you. It is off until you enable it.

The daemon decides and asks about your calls as it does about an agent's; the question comes up in this terminal.
With --socket a host that listens (bascule desktop-host --listen) is spoken to instead: running the command confirms it.
"""
_EPILOG = """\
first steps, in a terminal on the desktop:
  bascule desktop enable                       let agents use it; asks for your passphrase
  bascule desktop windows                      what is open
  bascule desktop observe --app org.gnome.TextEditor
  bascule desktop click --ref e:7              an element as observe shows it
  bascule desktop click --role AXButton --title Save
  bascule desktop type --title Name 'Ada 中文'
  bascule desktop wait --window-opens Saved
  bascule desktop report EXECUTION-ID          pictures, elements and timeline of what was done
  bascule desktop stop                         nothing more reaches the screen; resume goes on
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    desktop = commands.add_parser(
        "desktop",
        help="see and use windows; let agents do so; stop them",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = desktop.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_decisions(verbs)
    _add_looks(verbs)
    _add_acts(verbs)
    gnome.add_verbs(verbs)
    kwin.add_verbs(verbs)
    report = verbs.add_parser("report", help="what an execution did, as an HTML page")
    report.add_argument("execution", metavar="EXECUTION", help="its executionId, or its directory of evidence")
    report.add_argument(
        "--workspace", metavar="DIR", help="whose evidence (default: this directory, then the daemon's)"
    )
    report.add_argument("-o", "--output", metavar="FILE", help="default: desktop-report-<id>.html here; - is stdout")
    report.add_argument("--console", action="store_true", help="in the console instead, in your browser")
    add_state_dir(report)
    report.set_defaults(run=run_report)


def _add_decisions(verbs: Any) -> None:
    enable = _decision(verbs, "enable", "let agents see and use this desktop, under the policy", person.run_enable)
    enable.add_argument(
        "--daemon-session", action="store_true", help="not this terminal's session but the one the daemon runs in"
    )
    _decision(verbs, "disable", "take it back; forget which apps agents may look at", person.run_disable)
    _decision(verbs, "status", "whether it is enabled, stopped, reachable", person.run_status)
    for name, words, run in (
        ("stop", "abort everything, release all keys, take no more input", person.run_stop),
        ("resume", "take input again after a stop; asks for your passphrase", person.run_resume),
        ("doctor", "what can be seen and used here, and what is missing", person.run_doctor),
    ):
        _add_socket(_decision(verbs, name, words, run))


def _add_looks(verbs: Any) -> None:
    _verb(verbs, "windows", "list the windows", run_windows)
    observe = _verb(verbs, "observe", "a window as text, each element with its ref; its picture on disk", run_observe)
    observe.add_argument("--diff", action="store_true", help="only what changed since the last look")
    observe.add_argument("--marks", action="store_true", help="refs drawn on the picture (marks.png)")
    _add_route(observe)
    find = _verb(verbs, "find", "elements of a window by role, title, value", run_find)
    _add_route(find)
    _add_selector(find)
    find.add_argument("--limit", type=int, default=10, help="how many to show (default 10)")
    wait = _verb(verbs, "wait", "wait until something is so: an element is there, gone, has a value ...", run_wait)
    _add_route(wait)
    _add_selector(wait)
    what = wait.add_mutually_exclusive_group()
    what.add_argument("--gone", action="store_true", help="until the element is not there")
    what.add_argument("--contains", metavar="TEXT", help="until the element's value contains it")
    what.add_argument("--titled", metavar="PATTERN", help="until the window's title matches")
    what.add_argument("--window-opens", metavar="PATTERN", help="until a window with such a title is there")
    what.add_argument("--stable", action="store_true", help="until nothing changes any more")
    wait.add_argument("--timeout", type=seconds, default=15.0, metavar="SECONDS", help="give up after (default 15)")


def _add_acts(verbs: Any) -> None:
    click = _verb(verbs, "click", "click an element", run_click)
    kind = click.add_mutually_exclusive_group()
    kind.add_argument("--double", action="store_true", help="twice")
    kind.add_argument("--right", action="store_true", help="with the right button")
    _add_route(click)
    _add_target(click)
    typing = _verb(verbs, "type", "type a text into a field, or where the focus is", run_type)
    typing.add_argument("text", help="the text; - reads it from stdin, which other programs cannot see")
    typing.add_argument("--clear", action="store_true", help="replace what is in the field")
    _add_route(typing)
    _add_target(typing)
    hotkey = _verb(verbs, "hotkey", "press keys together: ctrl s", run_hotkey)
    hotkey.add_argument("keys", nargs="+", metavar="KEY", help="cmd is ctrl here; super is the real one")
    _add_route(hotkey)
    dialogs = _verb(verbs, "dialogs", "list the dialogs of an app that want an answer first", run_dialogs)
    _add_route(dialogs)
    dismiss = _verb(verbs, "dismiss", "answer the dialog in front", run_dismiss)
    dismiss.add_argument("--button", metavar="TITLE", help="with this button (default: Escape)")
    _add_route(dismiss)
    focus = _verb(verbs, "focus", "bring a window to the front", run_focus)
    _add_route(focus)


def _decision(verbs: Any, name: str, words: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=words)
    add_state_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run, workspace=None, no_wait=False)
    return parser


def _verb(verbs: Any, name: str, words: str, run: Any) -> argparse.ArgumentParser:
    parser = _decision(verbs, name, words, run)
    _add_socket(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait for a person when something asks")
    return parser


def _add_socket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--socket",
        nargs="?",
        const="",
        metavar="SOCKET",
        help="not through the daemon: a host that listens (default: desktop.sock in the state directory)",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="where evidence goes (default: this directory if below your home)"
    )


def _add_route(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", metavar="ID", help="an app by its id, as `bascule desktop windows` shows it")
    parser.add_argument("--window", metavar="PATTERN", help="a window by its title or its id (default: the front one)")


def _add_selector(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", help="AXButton, AXTextField, ...")
    parser.add_argument("--title", help="contained in its title")
    parser.add_argument("--value", help="contained in its value")


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ref", help="an element as observe and find show it: e:7")
    _add_selector(parser)
    parser.add_argument("--index", type=int, metavar="N", help="the N-th of several that fit, from 0")


# -- looking --


def run_windows(args: argparse.Namespace) -> int:
    result = ask(args, "desktop.windows", {})
    if args.json:
        show_json(result)
        return 0
    for each in result["windows"]:
        mark = "*" if each["active"] else " "
        note = "  (kept out)" if each["forbidden"] else ""
        title = visible(each["title"]) or "-"
        show(f"{mark} {each['windowId']:<12} {visible(each['bundleId']):<32} {title}{note}")
    if args.socket is None and not all(each["title"] for each in result["windows"]):
        say("titles are shown of apps that you may look at; bascule desktop observe --app ID asks for one")
    return 0


def run_observe(args: argparse.Namespace) -> int:
    options = {"snapshot": not args.diff, "diff": args.diff, "marks": args.marks, "axMaxDepth": 64}
    result = ask(args, "desktop.observe", {**_route(args), "options": options})
    if args.json:
        show_json(result)
        return 0
    text = "\n".join(result.get("diff") or ["nothing has changed"]) if args.diff else result.get("snapshot") or ""
    show(visible(text))
    _show_evidence(result)
    return 0


def run_find(args: argparse.Namespace) -> int:
    params = {**_route(args), "selector": {**_selector(args), "limit": args.limit}}
    result = ask(args, "desktop.find", params)
    if args.json:
        show_json(result)
    else:
        for each in result["elementRefs"]:
            frame = each["frame"]
            place = f"{frame['x']},{frame['y']} {frame['width']}x{frame['height']}"
            where = place if each["visible"] else "not visible"
            words = " ".join(filter(None, (each["title"], f"= {each['value']}" if each["value"] else "")))
            show(f"{each['elementId']:<8} {each['role']:<18} {visible(words)}  ({where})")
        show(f"{result['matched']} matched")
    return 0 if result["matched"] else NOT_FOUND


def run_wait(args: argparse.Namespace) -> int:
    milliseconds = max(1, round(args.timeout * 1000))
    params = {**_route(args), "condition": _condition(args)}
    result = ask(args, "desktop.waitUntil", params, timeout_ms=milliseconds)
    show_json(result) if args.json else show(f"after {result['elapsedMs']} ms")
    return 0


def run_dialogs(args: argparse.Namespace) -> int:
    result = ask(args, "desktop.listModals", _route(args))
    if args.json:
        show_json(result)
        return 0
    for each in result["modals"]:
        show(f"{visible(each['title']) or '-'}: {one_line(each['text'])}")
        show(f"  buttons: {', '.join(map(visible, each['buttons']))}")
    if not result["modals"]:
        show("no dialog is open")
    return 0


# -- acting --


def run_click(args: argparse.Namespace) -> int:
    name = "doubleClick" if args.double else "rightClick" if args.right else "click"
    return _act(args, f"desktop.{name}", {**_route(args), "target": _target(args)})


def run_type(args: argparse.Namespace) -> int:
    text = sys.stdin.read() if args.text == "-" else args.text
    params: dict[str, Any] = {**_route(args), "text": text}
    if args.clear:
        params["options"] = {"clearBefore": True}
    if target := _target(args, needed=False):
        params["target"] = target
    return _act(args, "desktop.typeText", params)


def run_hotkey(args: argparse.Namespace) -> int:
    return _act(args, "desktop.hotkey", {**_route(args), "keys": args.keys})


def run_dismiss(args: argparse.Namespace) -> int:
    params = _route(args) | ({"button": args.button} if args.button is not None else {})
    return _act(args, "desktop.dismissModal", params)


def run_focus(args: argparse.Namespace) -> int:
    route = _route(args)
    if not route:
        raise WrongUsage("which window?", "say it with --window or --app")
    return _act(args, "desktop.focusWindow", route)


def _act(args: argparse.Namespace, method: str, params: dict[str, Any]) -> int:
    result = ask(args, method, params, confirmed=True)
    if args.json:
        show_json(result)
    else:
        show(_EFFECTS[result["effect"]])
        if "watchedMs" in result:
            show(f"no change was seen within {result['watchedMs']} ms; `bascule desktop wait` waits for a later one")
        _show_evidence(result)
    return 0


_EFFECTS = {
    "confirmed": "done, and its effect was seen",
    "unverified": "done; whether it had an effect could not be seen",
    "none": "done, but nothing seems to have changed",
}


# -- afterwards --


def run_report(args: argparse.Namespace) -> int:
    if args.console:
        with connect(args) as client:
            return open_page(client, "evidence", os.path.basename(args.execution.rstrip("/")))
    from bascule.programs.desktop_host import report

    try:
        text = report.page(_evidence_of(args))
    except report.NoSuchExecution as error:
        say(f"bascule: {error}")
        if args.workspace is None:
            say(
                "  observe, click and the others print it; --workspace DIR names the directory that the agent worked in"
            )
        return NOT_FOUND
    if args.output == "-":
        show_exactly(text)
        return 0
    name = os.path.basename(args.execution.rstrip("/"))
    path = args.output or f"desktop-report-{name[:8]}.html"
    paths.write_private_file(os.path.abspath(path), text)
    show(path)
    return 0


def _evidence_of(args: argparse.Namespace) -> str:
    from bascule.programs.desktop_host.report import NoSuchExecution, find_folder

    if os.path.isfile(os.path.join(args.execution, "result.json")):
        return str(args.execution)
    if args.workspace is not None:
        return find_folder(os.path.realpath(args.workspace), args.execution)
    try:
        return find_folder(os.path.realpath("."), args.execution)
    except NoSuchExecution:
        return find_folder(_evidence_of_the_daemon(args), args.execution)


def _evidence_of_the_daemon(args: argparse.Namespace) -> str:
    """Of calls that named no directory; where, depends on the settings."""
    from bascule.daemon import config
    from bascule.desktop.machine.workspaces import EvidencePlaces
    from bascule.desktop.settings import DesktopSettings

    settings = config.load(paths.config_dir(), os.environ).of(DesktopSettings)
    return EvidencePlaces(settings.directory(), paths.desktop_dir(state_of(args)), ()).own


def _show_evidence(result: dict[str, Any]) -> None:
    """On stderr: beside what was asked for, not in it."""
    say(f"evidence: {visible(result['evidence']['dir'])}\npage: bascule desktop report {result['executionId']}")


# -- what is meant --


def _route(args: argparse.Namespace) -> dict[str, Any]:
    route: dict[str, Any] = {}
    if args.app:
        route["app"] = {"bundleId": args.app}
    if args.window:
        route["window"] = {"windowId" if args.window.startswith("w:") else "titlePattern": args.window}
    return {"route": route} if route else {}


def _selector(args: argparse.Namespace, *, needed: bool = True) -> dict[str, Any]:
    names = {"byRole": args.role, "titleContains": args.title, "valueContains": args.value}
    selector: dict[str, Any] = {name: value for name, value in names.items() if value}
    if needed and not selector:
        hint = "or with --ref, as observe and find show it" if hasattr(args, "ref") else None
        raise WrongUsage("say what you mean with --role, --title or --value", hint)
    return selector


def _target(args: argparse.Namespace, *, needed: bool = True) -> dict[str, Any]:
    if args.ref:
        return {"elementRef": {"elementId": args.ref}}
    selector = _selector(args, needed=needed)
    if selector and args.index is not None:
        selector["index"] = args.index
    return {"selector": selector} if selector else {}


def _condition(args: argparse.Namespace) -> dict[str, Any]:
    if args.titled:
        return {"titleMatches": args.titled}
    if args.window_opens:
        return {"windowExists": {"titlePattern": args.window_opens}}
    if args.stable:
        return {"stable": {}}
    if args.contains:
        return {"valueContains": {"selector": _selector(args), "text": args.contains}}
    return {"selectorGone" if args.gone else "selectorExists": _selector(args)}
