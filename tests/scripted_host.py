"""A desktop host as the test says: windows, elements, a kill switch, and everything that was asked of it."""

import asyncio
import base64
import copy
import itertools

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop import rows as desktop_rows
from bascule.desktop.errors import Code, DesktopError, not_found
from bascule.desktop.host_methods import METHODS
from bascule.desktop.ports import HostGone
from bascule.foundation.errors import Forbidden

PICTURE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x02\x00\x00\x00\x02 not really"
NAME = {"selector": {"titleContains": "Name"}}
EDITOR = {"app": {"bundleId": "editor"}}
PEER = d.PeerInfo(pid=1, audit_token_digest="x")
EVIDENCE = d.Evidence(dir="artifacts/")


class FakeWindow:
    def __init__(self, app, pid, handle, title, *, program=None, forbidden=False):
        self.app, self.pid, self.title = app, pid, title
        self.id = f"w:{handle:x}"
        self.elements = ["Name", "OK"]
        self.program = program or f"/usr/bin/{app}"
        self.forbidden = forbidden

    def element(self, title):
        if title not in self.elements:
            raise not_found("no element matches the selector", reason="selector")
        return d.FoundElement(
            element_id=f"e{self.elements.index(title)}",
            fingerprint=f"{self.id}/{title}",
            role="AXTextField" if title == "Name" else "AXButton",
            title=title,
            value=None,
            frame=d.Frame(x=10, y=20, width=30, height=40),
            native_role="entry",
            visible=True,
            states=["enabled"],
        )


class FakeScreen:
    """The launcher, the places of evidence and the windows; it outlives its hosts."""

    def __init__(self, pictures=None):
        self.pictures = pictures
        self.windows = [
            FakeWindow("editor", 100, 1, "letter to Ann"),
            FakeWindow("xterm", 200, 2, "root shell"),
            FakeWindow("keepassxc", 300, 3, "all passwords", forbidden=True),
        ]
        self.hosts = []
        self.environments = []
        self.fail_start = None
        # What was really done, by method and the contract's params.
        self.done = []
        # Set by a test: called before an act, with its method.
        self.before = lambda _method: None
        self.gate = None
        # False: a session that shows no pictures, as most Wayland compositors.
        self.has_pictures = True
        # False: one that cannot hold keys and clicks to a window, as GNOME.
        self.holds = True

    @property
    def host(self):
        return self.hosts[-1]

    def window(self, app):
        return next(each for each in self.windows if each.app == app)

    def own_environment(self):
        return {"DISPLAY": ":own"}

    def place(self, named):
        if named is not None and not named.startswith("/home/me/"):
            raise Forbidden("workspacePath is not within desktop_root")
        return named or "/home/me/.evidence"

    def program_of(self, pid):
        return next((each.program for each in self.windows if each.pid == pid), None)

    async def start(self, environment, *, on_stopped, on_lost):
        self.environments.append(dict(environment))
        if self.fail_start is not None:
            raise HostGone(self.fail_start)
        self.hosts.append(FakeHost(self, on_stopped, on_lost))
        return self.hosts[-1]


class FakeHost:
    _pids = itertools.count(5_000)

    def __init__(self, screen, on_stopped, on_lost):
        self.screen = screen
        self.pid = next(self._pids)
        self.press_stop_keys = on_stopped
        self.on_lost = on_lost
        self.asked = []
        self.stopped = False
        self.stop_keys = "Ctrl+Alt+Shift+F12"
        self.closed = False
        # By client and request id.
        self.under_way = {}
        self.gone = asyncio.Event()

    def crash(self):
        """As a process that is killed: whatever waits hears of it, and so does the bridge."""
        self.gone.set()
        self.on_lost("the desktop host closed the connection: it ended")

    async def call(self, method, params=None, *, client, request_id=None, timeout_ms=60_000, workspace=None):
        if self.gone.is_set() or self.closed:
            raise HostGone("the desktop host is gone")
        params = copy.deepcopy(dict(params or {}))
        self.asked.append((method, client, params))
        return await self._answer(method, params, client, request_id or "none")

    async def confirmed(self, method, params, *, client, request_id=None, timeout_ms=60_000, workspace=None):
        await asyncio.sleep(0)
        return await self.call(method, params, client=client, request_id=request_id)

    async def close(self):
        self.closed = True
        self.gone.set()

    async def _answer(self, method, params, client, request_id):
        match method:
            case "desktop.resolve":
                return self._resolve(params["intent"], picture=params["picture"])
            case "desktop.stop":
                self.stopped = True
                aborted = len(self.under_way)
                for halt in list(self.under_way.values()):
                    halt.set()
                return m.StopResult(stopped=True, aborted=aborted)
            case "desktop.resume":
                self.stopped = False
                return m.StopResult(stopped=False, aborted=0)
            case "desktop.abort":
                halt = self.under_way.get((client, params["executionId"]))
                if halt is None:
                    raise DesktopError(Code.INVALID_REQUEST, "no such execution of this client is under way")
                halt.set()
                return d.AbortResult(aborted=True, execution_id=params["executionId"])
            case "desktop.windows":
                return m.WindowsResult(windows=[_info(each) for each in self.screen.windows])
            case "desktop.doctor":
                detail = d.PermissionDetail(granted=True, required=True, purpose="x")
                return d.DoctorResult(
                    permissions=d.DoctorPermissions(accessibility=detail, screen_recording=detail),
                    issues=[],
                    healthy=True,
                    peer=PEER,
                    remedies=[],
                )
            case _:
                return await self._execute(method, params, client, request_id)

    async def _execute(self, method, params, client, request_id):
        halt = asyncio.Event()
        self.under_way[client, request_id] = halt
        try:
            if METHODS[method].confirmed:
                if self.stopped:
                    raise DesktopError(Code.HOST_STOPPED, "input was stopped")
                self.screen.before(method)
                self._compare(params, params["confirm"]["resolved"])
                await self._act(method, params, halt)
            elif method == "desktop.waitUntil":
                await self._first_of(halt)
            return _result(method)
        finally:
            del self.under_way[client, request_id]

    def _compare(self, params, resolved):
        """As the real host does when it acts; a window that is gone is `_act`'s to refuse."""
        window = self._resolved(params["route"])
        found = {"bundleId": window.app, "pid": window.pid, "program": window.program, "windowTitle": window.title}
        changed = [name for name, value in found.items() if resolved.get(name) != value]
        if changed:
            raise DesktopError(Code.CONFIRM_REQUIRED, "not what confirm.resolved says", reason="changed")

    async def _act(self, method, params, halt):
        window = self._resolved(params["route"])
        target = params.get("target")
        if target is not None:
            fingerprint = target["elementRef"]["fingerprint"]
            if fingerprint not in [window.element(each).fingerprint for each in window.elements]:
                raise not_found("the element is gone: find it again", reason="stale")
        if self.screen.gate is not None:
            self.screen.gate.set()
            await self._first_of(halt)
        self.screen.done.append((method, params))

    async def _first_of(self, halt):
        waits = [asyncio.ensure_future(each.wait()) for each in (halt, self.gone)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        if self.gone.is_set():
            raise HostGone("the desktop host closed the connection: it ended")
        raise DesktopError(Code.ABORTED, "the execution was aborted", executionId="x-1")

    def _resolved(self, route):
        found = [
            each
            for each in self.screen.windows
            if each.pid == route["app"]["pid"] and each.id == route["window"]["windowId"]
        ]
        if not found:
            raise not_found("the window is closed, or of another app", reason="route")
        return found[0]

    def _resolve(self, intent, *, picture):
        params = intent["params"]
        route = params.get("route", {})
        app = route.get("app", {}).get("bundleId")
        named = route.get("window", {}).get("windowId")
        found = [each for each in self.screen.windows if app in (None, each.app) and named in (None, each.id)]
        if not found:
            raise not_found(f"no window of {app!r} is open", reason="route")
        window = found[0]
        if window.forbidden:
            raise DesktopError(Code.APP_FORBIDDEN, f"{window.app} is never seen into nor acted in", bundleId=window.app)
        resolved = {**params, "route": {"app": {"pid": window.pid}, "window": {"windowId": window.id}}}
        element = None
        if "target" in params:
            element = window.element(params["target"]["selector"]["titleContains"])
            resolved["target"] = {"elementRef": {"elementId": "e1", "fingerprint": element.fingerprint}}
        image = d.InlineImage(
            mime_type="image/png", data=base64.b64encode(PICTURE).decode(), width=1, height=1, scale=1.0
        )
        return m.ResolveResult(
            bundle_id=window.app,
            pid=window.pid,
            program=window.program,
            window_id=window.id,
            window_title=window.title,
            element=element,
            params=resolved,
            picture=image if picture and self.screen.has_pictures else None,
            pictures=self.screen.has_pictures,
            held=self.screen.holds,
        )


def _info(window):
    return m.WindowInfo(
        window_id=window.id,
        bundle_id=window.app,
        title=window.title,
        pid=window.pid,
        frame=d.Frame(x=0, y=0, width=1, height=1),
        active=False,
        forbidden=window.forbidden,
    )


def _result(method):
    common = {"execution_id": "x-1", "evidence": EVIDENCE}
    match method:
        case "desktop.observe":
            resolved = d.RouteResolved(frontmost_bundle_id="editor", window_title="letter")
            return d.ObserveResult(route_resolved=resolved, **common)
        case "desktop.find":
            return d.FindResult(element_refs=[], matched=0, **common)
        case "desktop.listModals":
            return m.ListModalsResult(modals=[], **common)
        case "desktop.waitUntil":
            return d.WaitUntilResult(ok=True, matched=1, elapsed_ms=1, **common)
        case "desktop.click":
            return d.ClickResult(clicked=True, effect="confirmed", method="action", **common)
        case "desktop.typeText":
            return d.TypeTextResult(typed=True, effect="confirmed", clipboard="restored", **common)
        case "desktop.hotkey":
            return d.HotkeyResult(sent=True, effect="unverified", **common)
        case _:
            return m.ActResult(done=True, effect="confirmed", **common)


ROWS = {row.name: row for row in desktop_rows.METHODS}
