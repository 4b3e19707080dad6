"""What a client can do on the desktop, as programs: see `verbs` for how they are carried out.

Nothing here is repeated by itself but the question to the person: what reached the screen may have been seen.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from bascule.client.durations import Duration, milliseconds, seconds
from bascule.client.steps import Program
from bascule.client.verbs import Verbs
from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop import rows as a
from bascule.foundation.errors import ApprovalRequired
from bascule.kernel.rows import Nothing

# An element: its ref, as a snapshot and `find` show it, or a description of it.
Element = str | d.Selector | d.FoundElement | d.Target


class Where(TypedDict, total=False):
    """Which window, and how long. Without `app`, `pid` and `window`: the front one."""

    app: str
    pid: int
    # `w:...` as `windows` shows it, or a regular expression for its title.
    window: str
    # Refuse rather than take the focus from the person.
    require_focused: bool
    timeout: Duration
    # How long to wait for the person where the policy asks; default: one slice of the daemon's, 45 s.
    patience: Duration
    # Where evidence goes; default: with the daemon.
    workspace: str | os.PathLike[str]
    # To abort it by, from elsewhere.
    request_id: str


class DesktopVerbs:
    def __init__(self, verbs: Verbs, now: Callable[[], float]) -> None:
        self._verbs = verbs
        self._now = now

    # -- the whole of it --

    def status(self) -> Program[a.DesktopStatus]:
        return self._verbs.call("desktop.status", Nothing(), a.DesktopStatus)

    def stop(self) -> Program[m.StopResult]:
        return self._verbs.call("desktop.stop", Nothing(), m.StopResult)

    def abort(self, execution_id: str) -> Program[d.AbortResult]:
        return self._verbs.call("desktop.abort", d.AbortCall(execution_id=execution_id), d.AbortResult)

    # -- looking --

    def windows(self, where: Where) -> Program[list[m.WindowInfo]]:
        listed: m.WindowsResult = yield from self._ask("windows", d.DesktopCall, m.WindowsResult, where)
        return listed.windows

    def observe(self, options: d.ObserveOptions, where: Where) -> Program[d.ObserveResult]:
        return self._ask("observe", d.ObserveCall, d.ObserveResult, where, options=options)

    def find(self, selector: d.Selector, where: Where) -> Program[d.FindResult]:
        return self._ask("find", d.FindCall, d.FindResult, where, selector=selector)

    def list_modals(self, where: Where) -> Program[list[m.Modal]]:
        listed: m.ListModalsResult = yield from self._ask("listModals", d.Routed, m.ListModalsResult, where)
        return listed.modals

    def wait_until(self, condition: d.Condition, where: Where) -> Program[d.WaitUntilResult]:
        return self._ask("waitUntil", d.WaitUntilCall, d.WaitUntilResult, where, condition=condition)

    # -- acting --

    def click(self, target: Element, where: Where) -> Program[d.ClickResult]:
        return self._ask("click", d.TargetCall, d.ClickResult, where, target=target_of(target))

    def act(self, method: str, target: Element, where: Where) -> Program[m.ActResult]:
        """doubleClick and rightClick."""
        return self._ask(method, d.TargetCall, m.ActResult, where, target=target_of(target))

    def type_text(self, text: str, target: Element | None, *, clear: bool, where: Where) -> Program[d.TypeTextResult]:
        into = None if target is None else target_of(target)
        options = d.TypeTextOptions(clear_before=clear)
        return self._ask("typeText", d.TypeTextCall, d.TypeTextResult, where, text=text, target=into, options=options)

    def hotkey(self, keys: Iterable[str], where: Where) -> Program[d.HotkeyResult]:
        return self._ask("hotkey", d.HotkeyCall, d.HotkeyResult, where, keys=list(keys))

    def scroll(self, target: Element, direction: m.Direction, steps: int, where: Where) -> Program[m.ActResult]:
        aim = target_of(target)
        return self._ask("scroll", m.ScrollCall, m.ActResult, where, target=aim, direction=direction, steps=steps)

    def drag(self, target: Element, to: Element, where: Where) -> Program[m.ActResult]:
        return self._ask("drag", m.DragCall, m.ActResult, where, target=target_of(target), to=target_of(to))

    def set_value(self, target: Element, value: str | float, where: Where) -> Program[m.ActResult]:
        return self._ask("setValue", m.SetValueCall, m.ActResult, where, target=target_of(target), value=value)

    def focus_window(self, where: Where) -> Program[m.ActResult]:
        return self._ask("focusWindow", d.Routed, m.ActResult, where)

    def dismiss_modal(self, button: str | None, where: Where) -> Program[m.ActResult]:
        return self._ask("dismissModal", m.DismissModalCall, m.ActResult, where, button=button)

    def _ask(self, method: str, params: type[d.DesktopCall], result: Any, where: Where, **more: Any) -> Program[Any]:
        call = params(**more, **_common(where, routed=issubclass(params, d.Routed)))
        deadline = self._now() + seconds(where.get("patience", 0.0))
        while True:
            try:
                return (yield from self._verbs.call(f"desktop.{method}", call, result))
            except ApprovalRequired:
                # Word for word the same call: it joins the question that waits, or spends the answer.
                if self._now() >= deadline:
                    raise


def target_of(element: Element) -> d.Target:
    match element:
        case d.Target():
            return element
        case d.Selector():
            return d.Target(selector=element)
        case d.FoundElement():
            ref = d.ElementRef(element_id=element.element_id, fingerprint=element.fingerprint)
            return d.Target(element_ref=ref)
        case str():
            return d.Target(element_ref=d.ElementRef(element_id=element))


def _common(where: Where, *, routed: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if "timeout" in where:
        out["timeout_ms"] = milliseconds(where["timeout"])
    if "workspace" in where:
        out["workspace_path"] = os.path.abspath(where["workspace"])
    if "request_id" in where:
        out["request_id"] = where["request_id"]
    if routed and (route := _route(where)) is not None:
        out["route"] = route
    return out


def _route(where: Where) -> d.Route | None:
    app, pid, window = where.get("app"), where.get("pid"), where.get("window")
    focused = where.get("require_focused", False)
    if app is None and pid is None and window is None and not focused:
        return None
    route_window = None
    if window is not None:
        by_id = window.startswith("w:")
        route_window = d.RouteWindow(window_id=window) if by_id else d.RouteWindow(title_pattern=window)
    return d.Route(
        app=None if app is None and pid is None else d.RouteApp(bundle_id=app, pid=pid),
        window=route_window,
        focus_policy="requireFocused" if focused else "focusIfNeeded",
    )
