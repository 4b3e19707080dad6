"""The desktop host's methods as rows: what each takes and answers, and whether it must be confirmed. Pure data.

What a method is about is declared once, for the daemon's call. The contract's params have the same fields, with `meta`
and `confirm` in place of those of `DesktopCall`.
"""

from enum import StrEnum
from functools import cache
from typing import Any, Final

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.kernel.rows import Nothing, Params


class Kind(StrEnum):
    """The contract's three words for what a method can do."""

    READ_ONLY = "read-only"
    UI_CONTROL = "ui-control"
    PROCESS_CONTROL = "process-control"


class DesktopMethod(msgspec.Struct, frozen=True):
    name: str
    # What it is about, as the daemon's rows have it.
    call: type[Params]
    result: Any
    kind: Kind
    # In the contract 2.2, or an addition of ours.
    contract: bool = True
    # Answered at once whatever else goes on, also before the desktop is ready.
    at_once: bool = False
    # A question beside the work: it leaves no files.
    evidence: bool = True
    # How long it waits is its own, beside `meta`.
    waits: bool = False

    @property
    def confirmed(self) -> bool:
        return self.kind is Kind.UI_CONTROL

    def wire_type(self, *, meta: bool = True) -> type[msgspec.Struct]:
        """The params as the contract has them; those of an intent are without `meta`."""
        return _wire_type(self, meta)

    def call_of(self, params: msgspec.Struct) -> Params:
        """What decoded params are about."""
        names = [name for name in params.__struct_fields__ if name not in ("meta", "confirm")]
        return self.call(**{name: getattr(params, name) for name in names})


@cache
def _wire_type(row: DesktopMethod, meta: bool) -> type[msgspec.Struct]:
    fields: list[Any] = [("meta", d.Meta)] if meta else []
    if row.confirmed:
        fields.append(("confirm", d.Confirm | None, None))
    if row.waits:
        fields.append(("timeout_ms", d.Millis))
    fields += [
        (each.name, each.type) if each.required else (each.name, each.type, each.default)
        for each in msgspec.structs.fields(row.call)
        if each.name not in d.DesktopCall.__struct_fields__
    ]
    return msgspec.defstruct(row.call.__name__, fields, bases=(Params,), frozen=True, kw_only=True)


_READ, _UI, _PROCESS = Kind.READ_ONLY, Kind.UI_CONTROL, Kind.PROCESS_CONTROL

METHODS: Final = {
    row.name: row
    for row in (
        DesktopMethod("desktop.health", Nothing, d.HealthResult, _READ, at_once=True),
        DesktopMethod("desktop.doctor", d.DoctorCall, d.DoctorResult, _READ, at_once=True),
        DesktopMethod("desktop.observe", d.ObserveCall, d.ObserveResult, _READ),
        DesktopMethod("desktop.find", d.FindCall, d.FindResult, _READ),
        DesktopMethod("desktop.click", d.TargetCall, d.ClickResult, _UI),
        DesktopMethod("desktop.typeText", d.TypeTextCall, d.TypeTextResult, _UI),
        DesktopMethod("desktop.hotkey", d.HotkeyCall, d.HotkeyResult, _UI),
        DesktopMethod("desktop.waitUntil", d.WaitUntilCall, d.WaitUntilResult, _READ, waits=True),
        DesktopMethod("desktop.abort", d.AbortCall, d.AbortResult, _PROCESS, at_once=True),
        DesktopMethod("desktop.confirm.issue", d.ConfirmIssueParams, d.ConfirmIssueResult, _READ, at_once=True),
        DesktopMethod("desktop.doubleClick", d.TargetCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.rightClick", d.TargetCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.scroll", m.ScrollCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.drag", m.DragCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.setValue", m.SetValueCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.focusWindow", d.Routed, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.dismissModal", m.DismissModalCall, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.windows", d.DesktopCall, m.WindowsResult, _READ, contract=False),
        DesktopMethod("desktop.listModals", d.Routed, m.ListModalsResult, _READ, contract=False),
        DesktopMethod("desktop.resolve", m.ResolveParams, m.ResolveResult, _READ, contract=False, evidence=False),
        DesktopMethod("desktop.stop", Nothing, m.StopResult, _PROCESS, contract=False, at_once=True),
        DesktopMethod("desktop.resume", d.Routed, m.StopResult, _UI, contract=False, at_once=True),
    )
}

# To every connection but the one that did it: input was stopped, by the keys, a signal or another process.
STOPPED: Final = "desktop.stopped"

# What `health` says there is beyond the contract.
EXTENSIONS: Final = {
    "methods": [row.name for row in METHODS.values() if not row.contract],
    "selectors": ["byPath", "near", "byRect", "index"],
    "conditions": ["selectorGone", "valueContains", "titleMatches", "windowExists", "stable"],
    "observe": ["snapshot", "marks", "diff", "inline"],
    "route": ["app.pid", "window.windowId", "focusPolicy.requireFocused"],
    "target": ["rematch"],
    "confirm": ["resolved"],
    "typeText": ["clearBefore"],
    "meta": ["client"],
    "doctor": ["programs"],
    "notifications": [STOPPED],
}
