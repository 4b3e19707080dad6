"""`bascule desktop-host`, and `bascule desktop ...`: a person's way to a host that listens."""

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from bascule import places
from bascule.cli.talk import add_json, add_state_dir, state_of
from bascule.doors.exits import NOT_FOUND, NOTHING_CAME, REFUSED, UNEXPECTED, UNREACHABLE, USAGE, DoorError, WrongUsage
from bascule.helpers.terminal import say, show, show_json, visible

if TYPE_CHECKING:
    from bascule.protocols.desktop_errors import DesktopError

_EXTRA = "this needs the desktop extra:  pip install 'bascule[desktop]'"


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _add_host(commands)
    desktop = commands.add_parser(
        "desktop",
        help="see and act on windows through a desktop host",
        description="Talk to a desktop host that listens (bascule desktop-host --listen). What you act on, you confirm "
        "by running the command; agents come through the daemon, which asks.",
    )
    verbs = desktop.add_subparsers(title="verbs", metavar="VERB", required=True)

    _verb(verbs, "doctor", "what the host can see and do, and what is missing", run_doctor)
    _verb(verbs, "windows", "list the windows", run_windows)
    observe = _verb(verbs, "observe", "picture and elements of a window", run_observe)
    _add_route(observe)
    find = _verb(verbs, "find", "elements of a window by role, title, value", run_find)
    _add_route(find)
    _add_selector(find)
    find.add_argument("--limit", type=int, default=10, help="how many to show (default 10)")
    click = _verb(verbs, "click", "click an element", run_click)
    _add_route(click)
    _add_selector(click)
    typing = _verb(verbs, "type", "type a text into a field, or where the focus is", run_type)
    typing.add_argument("text", help="the text; - reads it from stdin, which other programs cannot see")
    typing.add_argument("--clear", action="store_true", help="replace what is in the field")
    _add_route(typing)
    _add_selector(typing)
    hotkey = _verb(verbs, "hotkey", "press keys together: cmd v", run_hotkey)
    hotkey.add_argument("keys", nargs="+", metavar="KEY", help="cmd is ctrl here; super is the real one")
    _add_route(hotkey)
    wait = _verb(verbs, "wait", "wait until an element is there", run_wait)
    _add_route(wait)
    _add_selector(wait)
    wait.add_argument("--gone", action="store_true", help="wait until it is not there")
    wait.add_argument("--timeout", type=float, default=15.0, metavar="SECONDS", help="give up after (default 15)")
    _verb(verbs, "stop", "abort everything, release all keys, take no more input", run_stop)
    _verb(verbs, "resume", "take input again after a stop", run_resume)
    report = verbs.add_parser("report", help="what an execution did, as an HTML page")
    report.add_argument("execution", metavar="EXECUTION-ID")
    report.add_argument("--workspace", default=".", metavar="DIR", help="whose evidence (default: this directory)")
    report.add_argument("-o", "--output", metavar="FILE", help="default: desktop-report-<id>.html here; - is stdout")
    report.set_defaults(run=run_report)


def _add_host(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    host = commands.add_parser(
        "desktop-host",
        help="the process that sees and acts on windows",
        description="Run the desktop host. The daemon starts it by itself; with --listen it serves other clients of "
        "the desktop contract of the same user.",
    )
    door = host.add_mutually_exclusive_group(required=True)
    door.add_argument(
        "--listen",
        nargs="?",
        const="",
        metavar="SOCKET",
        help="listen on a unix socket (default: desktop.sock in the state directory)",
    )
    door.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    host.add_argument(
        "--workspace-root",
        metavar="DIR",
        default=os.environ.get("WORKSPACE_ROOT"),
        help="workspaces, and so evidence, lie in here (default: WORKSPACE_ROOT)",
    )
    host.add_argument("--no-phrase", action="store_true", help="take confirm tokens only, not the phrase CONFIRM")
    host.add_argument("--allow", action="append", default=[], metavar="PROGRAM", help="only these programs may connect")
    host.add_argument(
        "--keep-out", action="append", default=[], metavar="PATTERN", help="one more app never to look at"
    )
    host.add_argument("--no-stop-keys", action="store_true", help="leave Ctrl+Alt+Shift+Escape to other programs")
    add_state_dir(host)
    host.set_defaults(run=run_host)


def _verb(verbs: Any, name: str, words: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=words)
    parser.add_argument("--socket", metavar="SOCKET", help="the host's (default: desktop.sock in the state directory)")
    parser.add_argument("--workspace", default=".", metavar="DIR", help="where evidence goes (default: this directory)")
    add_state_dir(parser)
    add_json(parser)
    parser.set_defaults(run=run)
    return parser


def _add_route(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--app", metavar="ID", help="an app by its id, as `bascule desktop windows` shows it")
    parser.add_argument("--window", metavar="PATTERN", help="a window by its title")


def _add_selector(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--role", help="AXButton, AXTextField, ...")
    parser.add_argument("--title", help="contained in its title")
    parser.add_argument("--value", help="contained in its value")


# -- the host --


def run_host(args: argparse.Namespace) -> int:
    if not args.workspace_root:
        raise WrongUsage("the host needs a WORKSPACE_ROOT", "set it, or give --workspace-root DIR")
    try:
        from bascule.desktop_host import main
        from bascule.desktop_host.routes import KEEP_OUT
    except ModuleNotFoundError as error:
        raise WrongUsage(f"{error.name} is not installed", _EXTRA) from error
    listen = None
    if args.listen is not None:
        listen = os.path.abspath(args.listen) if args.listen else socket_of(args)
    settings = main.Settings(
        workspace_root=args.workspace_root,
        listen=listen,
        descriptor=args.fd,
        phrase=not args.no_phrase,
        stop_keys=not args.no_stop_keys,
        allowed=tuple(os.path.realpath(each) for each in args.allow),
        keep_out=(*KEEP_OUT, *(each.lower() for each in args.keep_out)),
    )
    try:
        return main.run(settings)
    except main.CannotStart as error:
        say(f"bascule: {error}")
        return USAGE


def socket_of(args: argparse.Namespace) -> str:
    return getattr(args, "socket", None) or os.path.join(state_of(args), "desktop.sock")


# -- the verbs --


def run_doctor(args: argparse.Namespace) -> int:
    result = _ask(args, "desktop.doctor", {})
    if args.json:
        _show(result)
    else:
        for issue, remedy in zip(result.issues, result.remedies, strict=True):
            show(f"{visible(issue)}\n  {visible(remedy)}")
        if result.healthy:
            show("the desktop can be seen and used")
    return 0 if result.healthy else UNEXPECTED


def run_windows(args: argparse.Namespace) -> int:
    result = _ask(args, "desktop.windows", {})
    if args.json:
        _show(result)
        return 0
    for each in result.windows:
        mark = "*" if each.active else " "
        note = "  (kept out)" if each.forbidden else ""
        show(f"{mark} {visible(each.bundle_id):<32} {visible(each.title)}{note}")
    return 0


def run_observe(args: argparse.Namespace) -> int:
    result = _ask(args, "desktop.observe", {**_route(args), "options": {"snapshot": True, "axMaxDepth": 64}})
    if args.json:
        _show(result)
    else:
        show(visible(result.snapshot or ""))
        show(f"evidence: {result.evidence.dir}")
    return 0


def run_find(args: argparse.Namespace) -> int:
    params = {**_route(args), "selector": {**_selector(args), "limit": args.limit}}
    result = _ask(args, "desktop.find", params)
    if args.json:
        _show(result)
    else:
        for each in result.element_refs:
            frame = each.frame
            where = f"{frame.x},{frame.y} {frame.width}x{frame.height}" if each.visible else "not visible"
            words = " ".join(filter(None, (each.title, f"= {each.value}" if each.value else "")))
            show(f"{each.element_id:<8} {each.role:<18} {visible(words)}  ({where})")
        show(f"{result.matched} matched")
    return 0 if result.matched else NOT_FOUND


def run_click(args: argparse.Namespace) -> int:
    return _act(args, "desktop.click", {**_route(args), "target": {"selector": _selector(args)}})


def run_type(args: argparse.Namespace) -> int:
    text = sys.stdin.read() if args.text == "-" else args.text
    params: dict[str, Any] = {**_route(args), "text": text}
    if args.clear:
        params["options"] = {"clearBefore": True}
    if selector := _selector(args, needed=False):
        params["target"] = {"selector": selector}
    return _act(args, "desktop.typeText", params)


def run_hotkey(args: argparse.Namespace) -> int:
    return _act(args, "desktop.hotkey", {**_route(args), "keys": args.keys})


def run_wait(args: argparse.Namespace) -> int:
    name = "selectorGone" if args.gone else "selectorExists"
    milliseconds = round(args.timeout * 1000)
    params = {**_route(args), "condition": {name: _selector(args)}, "timeoutMs": milliseconds}
    result = _ask(args, "desktop.waitUntil", params, timeout_ms=milliseconds)
    _show(result) if args.json else show(f"after {result.elapsed_ms} ms")
    return 0


def run_stop(args: argparse.Namespace) -> int:
    result = _ask(args, "desktop.stop", {})
    _show(result) if args.json else show(f"stopped; {result.aborted} aborted. Go on with: bascule desktop resume")
    return 0


def run_resume(args: argparse.Namespace) -> int:
    return _act(args, "desktop.resume", {})


def run_report(args: argparse.Namespace) -> int:
    from bascule.desktop_host import report

    try:
        text = report.page(report.find_folder(os.path.realpath(args.workspace), args.execution))
    except report.NoSuchExecution as error:
        say(f"bascule: {error}")
        return NOT_FOUND
    if args.output == "-":
        show(text)
        return 0
    path = args.output or f"desktop-report-{args.execution[:8]}.html"
    places.write_private_file(os.path.abspath(path), text)
    show(path)
    return 0


# -- reaching the host --


def _act(args: argparse.Namespace, method: str, params: dict[str, Any]) -> int:
    result = _ask(args, method, params, confirmed=True)
    if args.json:
        _show(result)
    else:
        effect = getattr(result, "effect", "done")
        evidence = getattr(result, "evidence", None)
        show(f"{effect}" + (f"; evidence: {evidence.dir}" if evidence is not None else ""))
    return 0


def _ask(
    args: argparse.Namespace, method: str, params: dict[str, Any], *, confirmed: bool = False, timeout_ms: int = 60_000
) -> Any:
    from bascule.adapters.desktop.client import HostClient, HostLost
    from bascule.protocols.desktop_errors import DesktopError

    workspace = os.path.realpath(args.workspace)

    async def ask() -> Any:
        client = await HostClient.connect(socket_of(args), workspace)
        try:
            act = client.confirmed if confirmed else client.call
            return await act(method, params, timeout_ms=timeout_ms)
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except HostLost as error:
        failure = DoorError(str(error), "start one with: bascule desktop-host --listen --workspace-root DIR")
        failure.exit_code = UNREACHABLE
        raise failure from error
    except DesktopError as error:
        raise _refused(error) from error


def _refused(error: "DesktopError") -> DoorError:
    codes = {
        "DESKTOP_ELEMENT_NOT_FOUND": NOT_FOUND,
        "DESKTOP_TIMEOUT": NOTHING_CAME,
        "DESKTOP_INVALID_REQUEST": USAGE,
        "DESKTOP_INTERNAL_ERROR": UNEXPECTED,
        "DESKTOP_HOST_NOT_READY": UNREACHABLE,
    }
    failure = DoorError(f"{error.code.value}: {visible(error.message)}", error.details.get("evidenceDir"))
    failure.exit_code = codes.get(error.code.value, REFUSED)
    return failure


def _show(result: Any) -> None:
    import msgspec

    show_json(msgspec.to_builtins(result))


def _route(args: argparse.Namespace) -> dict[str, Any]:
    route: dict[str, Any] = {}
    if args.app:
        route["app"] = {"bundleId": args.app}
    if args.window:
        route["window"] = {"titlePattern": args.window}
    return {"route": route} if route else {}


def _selector(args: argparse.Namespace, *, needed: bool = True) -> dict[str, Any]:
    names = {"byRole": args.role, "titleContains": args.title, "valueContains": args.value}
    selector = {name: value for name, value in names.items() if value}
    if needed and not selector:
        raise WrongUsage("say what you mean with --role, --title or --value")
    return selector
