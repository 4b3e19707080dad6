"""The desktop host's methods as rows: what each takes and answers, and whether it must be confirmed. Pure data."""

from enum import StrEnum
from typing import Any, Final

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d


class Kind(StrEnum):
    """The contract's three words for what a method can do."""

    READ_ONLY = "read-only"
    UI_CONTROL = "ui-control"
    PROCESS_CONTROL = "process-control"


class DesktopMethod(msgspec.Struct, frozen=True):
    name: str
    params: type[msgspec.Struct]
    result: Any
    kind: Kind
    # In the contract 2.2, or an addition of ours.
    contract: bool = True
    # Answered at once whatever else goes on, also before the desktop is ready.
    at_once: bool = False
    # A question beside the work: it leaves no files.
    evidence: bool = True

    @property
    def confirmed(self) -> bool:
        return self.kind is Kind.UI_CONTROL


_READ, _UI, _PROCESS = Kind.READ_ONLY, Kind.UI_CONTROL, Kind.PROCESS_CONTROL

METHODS: Final = {
    row.name: row
    for row in (
        DesktopMethod("desktop.health", d.HealthParams, d.HealthResult, _READ, at_once=True),
        DesktopMethod("desktop.doctor", d.DoctorParams, d.DoctorResult, _READ, at_once=True),
        DesktopMethod("desktop.observe", d.ObserveParams, d.ObserveResult, _READ),
        DesktopMethod("desktop.find", d.FindParams, d.FindResult, _READ),
        DesktopMethod("desktop.click", d.ClickParams, d.ClickResult, _UI),
        DesktopMethod("desktop.typeText", d.TypeTextParams, d.TypeTextResult, _UI),
        DesktopMethod("desktop.hotkey", d.HotkeyParams, d.HotkeyResult, _UI),
        DesktopMethod("desktop.waitUntil", d.WaitUntilParams, d.WaitUntilResult, _READ),
        DesktopMethod("desktop.abort", d.AbortParams, d.AbortResult, _PROCESS, at_once=True),
        DesktopMethod("desktop.confirm.issue", d.ConfirmIssueParams, d.ConfirmIssueResult, _READ, at_once=True),
        DesktopMethod("desktop.doubleClick", m.DoubleClickParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.rightClick", m.RightClickParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.scroll", m.ScrollParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.drag", m.DragParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.setValue", m.SetValueParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.focusWindow", m.FocusWindowParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.dismissModal", m.DismissModalParams, m.ActResult, _UI, contract=False),
        DesktopMethod("desktop.windows", m.WindowsParams, m.WindowsResult, _READ, contract=False),
        DesktopMethod("desktop.listModals", m.ListModalsParams, m.ListModalsResult, _READ, contract=False),
        DesktopMethod("desktop.resolve", m.ResolveParams, m.ResolveResult, _READ, contract=False, evidence=False),
        DesktopMethod("desktop.stop", m.StopParams, m.StopResult, _PROCESS, contract=False, at_once=True),
        DesktopMethod("desktop.resume", m.ResumeParams, m.StopResult, _UI, contract=False, at_once=True),
    )
}

# To every connection but those of whoever did it: input was stopped, by the keys, a signal or another process.
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
