"""The desktop bridge's method rows: what agents ask the daemon for, and what a person says about it.

The same names and fields as in the contract, without what is the daemon's business: `meta` (who, when, for how long)
is spread over the params, and there is no `confirm`: the daemon asks, and confirms.
"""

from typing import Annotated

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.kernel.rows import (
    LOCAL_USER,
    PERSON_ONLY,
    Acts,
    Changes,
    Effect,
    Http,
    Nothing,
    P,
    Params,
    R,
    Reads,
    Result,
    never,
    rows_of,
)

# What the host of a session needs of its environment, and nothing else is passed on.
SESSION_VARIABLES = (
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "SWAYSOCK",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "XDG_CURRENT_DESKTOP",
    "DBUS_SESSION_BUS_ADDRESS",
    "AT_SPI_BUS_ADDRESS",
)


class EnableParams(Params, frozen=True, kw_only=True):
    # Of the session whose windows are meant: see SESSION_VARIABLES. Nothing: the daemon's own.
    environment: dict[str, Annotated[str, msgspec.Meta(max_length=4_096)]] = {}


class DesktopStatus(Result, frozen=True, kw_only=True, omit_defaults=False):
    enabled: bool
    # By `bascule desktop stop` or the keys: nothing reaches the screen until a person resumes.
    stopped: bool
    # off, starting, ready or lost.
    host: str
    pid: int | None = None
    # Which session: DISPLAY, or what stands for it.
    display: str | None = None
    # Why the host is not there, and what to do.
    problem: str | None = None
    # The keys that stop everything, whatever window has the focus; before a host runs, those it will try first. None:
    # there are none in this session.
    stop_keys: str | None
    # Apps that the caller may look at.
    seen: list[str] = []


class _Look(Acts[P, R]):
    """Asks once per app. Looked at often, and nothing changes by it: its record may come a moment later."""

    def __init__(self, name: str, summary: str, *, verb: str = "POST", waits: bool = False) -> None:
        at = Http(verb, f"/v1/desktop/{name}")
        super().__init__(f"desktop.{name}", summary, at, effect=Effect.OBSERVE, behind=True, waits=waits)


class _Act(Acts[P, R]):
    def __init__(self, name: str, summary: str) -> None:
        at = Http("POST", f"/v1/desktop/{name}")
        super().__init__(f"desktop.{name}", summary, at, effect=Effect.UI_CONTROL)


DESKTOP_STATUS = Reads[Nothing, DesktopStatus](
    "desktop.status", "Say whether the desktop is enabled, stopped and reachable.", Http("GET", "/v1/desktop/status")
)
DESKTOP_ENABLE = Changes[EnableParams, DesktopStatus](
    "desktop.enable",
    "Let agents see and use the desktop, under the policy; only the person may.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
)
DESKTOP_DISABLE = Changes[Nothing, DesktopStatus](
    "desktop.disable",
    "Take the desktop away from agents, and forget which apps they may look at.",
    effect=Effect.ADMIN,
    who=LOCAL_USER,
)
DESKTOP_STOP = Changes[Nothing, m.StopResult](
    "desktop.stop",
    "Abort everything, release all keys, and take no more input until a person resumes.",
    effect=Effect.PROCESS_CONTROL,
    who=LOCAL_USER,
    urgent=True,
)
DESKTOP_RESUME = Changes[Nothing, DesktopStatus](
    "desktop.resume",
    "Take input again after a stop; only the person may.",
    effect=Effect.ADMIN,
    who=PERSON_ONLY,
    stopped=never,
)
DESKTOP_HEALTH = Reads[Nothing, d.HealthResult](
    "desktop.health", "Show the desktop host's version and permissions.", Http("GET", "/v1/desktop/health")
)
DESKTOP_DOCTOR = Reads[d.DoctorCall, d.DoctorResult](
    "desktop.doctor", "Say what the desktop host is missing, and what to do.", Http("GET", "/v1/desktop/doctor")
)
DESKTOP_WINDOWS = _Look[d.DesktopCall, m.WindowsResult](
    "windows", "List the windows; titles only of apps that may be looked at.", verb="GET"
)
DESKTOP_OBSERVE = _Look[d.ObserveCall, d.ObserveResult](
    "observe", "See a window: its elements, and its picture on disk."
)
DESKTOP_FIND = _Look[d.FindCall, d.FindResult]("find", "Find elements of a window.")
DESKTOP_LIST_MODALS = _Look[d.Routed, m.ListModalsResult]("listModals", "List the dialogs that want an answer first.")
DESKTOP_WAIT_UNTIL = _Look[d.WaitUntilCall, d.WaitUntilResult](
    "waitUntil", "Wait until something is so in a window.", waits=True
)
DESKTOP_CLICK = _Act[d.TargetCall, d.ClickResult]("click", "Click an element.")
DESKTOP_DOUBLE_CLICK = _Act[d.TargetCall, m.ActResult]("doubleClick", "Click an element twice.")
DESKTOP_RIGHT_CLICK = _Act[d.TargetCall, m.ActResult]("rightClick", "Click an element with the right button.")
DESKTOP_TYPE_TEXT = _Act[d.TypeTextCall, d.TypeTextResult](
    "typeText", "Type a text into an element, or where the focus is."
)
DESKTOP_HOTKEY = _Act[d.HotkeyCall, d.HotkeyResult]("hotkey", "Press keys together.")
DESKTOP_SCROLL = _Act[m.ScrollCall, m.ActResult]("scroll", "Turn the wheel over an element.")
DESKTOP_DRAG = _Act[m.DragCall, m.ActResult]("drag", "Drag one element to another.")
DESKTOP_SET_VALUE = _Act[m.SetValueCall, m.ActResult]("setValue", "Set the value of an element.")
DESKTOP_FOCUS_WINDOW = _Act[d.Routed, m.ActResult]("focusWindow", "Bring a window to the front.")
DESKTOP_DISMISS_MODAL = _Act[m.DismissModalCall, m.ActResult]("dismissModal", "Answer a dialog.")
DESKTOP_ABORT = Acts[d.AbortCall, d.AbortResult](
    "desktop.abort",
    "Stop one's own call: nothing more of it reaches the screen.",
    Http("POST", "/v1/desktop/abort"),
    effect=Effect.PROCESS_CONTROL,
    asks=False,
    behind=True,
)

METHODS = rows_of(globals())
