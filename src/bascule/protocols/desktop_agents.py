"""The desktop bridge's method rows: what agents ask the daemon for, and what a person says about it.

The same names and fields as in the contract, without what is the daemon's business: `meta` (who, when, for how long)
is spread over the params, and there is no `confirm`: the daemon asks, and confirms.
"""

from typing import Annotated, Any

import msgspec

from bascule.protocols import desktop as d
from bascule.protocols import desktop_more as m
from bascule.protocols.methods import (
    ANYONE,
    LOCAL_USER,
    PERSON_ONLY,
    Consent,
    Effect,
    Nothing,
    Params,
    Record,
    Result,
    Row,
    Shape,
    Who,
)

# What the host of a session needs of its environment, and nothing else is passed on.
SESSION_VARIABLES = (
    "DISPLAY",
    "XAUTHORITY",
    "WAYLAND_DISPLAY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_TYPE",
    "DBUS_SESSION_BUS_ADDRESS",
    "AT_SPI_BUS_ADDRESS",
)

# Shorter than a path may be: in a GET it must fit into the query.
WorkspacePath = Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]


class DesktopCall(Params, frozen=True, kw_only=True):
    """What every call has in common."""

    # Where evidence goes; unless given, a directory of the daemon's own.
    workspace_path: WorkspacePath | None = None
    timeout_ms: d.Millis = d.DEFAULT_TIMEOUT_MS
    # To abort it by, before its answer says its executionId.
    request_id: Annotated[str, msgspec.Meta(pattern=d.REQUEST_ID)] | None = None


class Routed(DesktopCall, frozen=True, kw_only=True):
    # Without one: the frontmost app.
    route: d.Route | None = None


class ObserveCall(Routed, frozen=True, kw_only=True):
    options: d.ObserveOptions = d.ObserveOptions()


class FindCall(Routed, frozen=True, kw_only=True):
    selector: d.Selector


class WaitUntilCall(Routed, frozen=True, kw_only=True):
    """`timeoutMs` is how long to wait: of the contract's two limits the smaller counts, so one is enough."""

    condition: d.Condition
    poll_ms: Annotated[int, msgspec.Meta(ge=d.MIN_POLL_MS, le=d.MAX_TIMEOUT_MS)] = d.DEFAULT_POLL_MS


class TargetCall(Routed, frozen=True, kw_only=True):
    target: d.Target


class TypeTextCall(Routed, frozen=True, kw_only=True):
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=d.MAX_TEXT_CHARS)]
    target: d.Target | None = None
    options: d.TypeTextOptions = d.TypeTextOptions()


class HotkeyCall(Routed, frozen=True, kw_only=True):
    keys: d.Keys
    options: d.HotkeyOptions = d.HotkeyOptions()


class ScrollCall(TargetCall, frozen=True, kw_only=True):
    direction: m.Direction
    steps: Annotated[int, msgspec.Meta(ge=1, le=m.MAX_SCROLL_STEPS)] = m.DEFAULT_SCROLL_STEPS


class DragCall(TargetCall, frozen=True, kw_only=True):
    to: d.Target


class SetValueCall(TargetCall, frozen=True, kw_only=True):
    value: m.Value


class DismissModalCall(Routed, frozen=True, kw_only=True):
    button: m.ButtonTitle | None = None


class DoctorCall(Params, frozen=True, kw_only=True):
    # Also which open programs cannot be read, and why; not for agents.
    programs: bool = False


class AbortCall(Params, frozen=True, kw_only=True):
    # The executionId, or the requestId that was sent along.
    execution_id: Annotated[str, msgspec.Meta(pattern=d.REQUEST_ID)]


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


def _row(
    name: str,
    summary: str,
    params: type[msgspec.Struct],
    result: Any,
    effect: Effect,
    *,
    who: Who = ANYONE,
    record: Record = Record.NONE,
    consent: Consent = Consent.NEVER,
    shape: Shape = Shape.REPLY,
) -> Row:
    return Row(
        name=f"desktop.{name}",
        summary=summary,
        params=params,
        result=result,
        effect=effect,
        who=who,
        record=record,
        consent=consent,
        shape=shape,
    )


def _look(name: str, summary: str, params: type[msgspec.Struct], result: Any, *, shape: Shape = Shape.REPLY) -> Row:
    """Asks once per app. Looked at often, and nothing changes by it: its record may come a moment later."""
    return _row(name, summary, params, result, Effect.OBSERVE, record=Record.BEHIND, consent=Consent.HOLD, shape=shape)


def _act(name: str, summary: str, params: type[msgspec.Struct], result: Any = m.ActResult) -> Row:
    return _row(name, summary, params, result, Effect.UI_CONTROL, record=Record.AHEAD, consent=Consent.HOLD)


METHODS: tuple[Row, ...] = (
    _row("status", "Say whether the desktop is enabled, stopped and reachable.", Nothing, DesktopStatus, Effect.READ),
    _row(
        "enable",
        "Let agents see and use the desktop, under the policy; only the person may.",
        EnableParams,
        DesktopStatus,
        Effect.ADMIN,
        who=PERSON_ONLY,
        record=Record.JOINED,
    ),
    _row(
        "disable",
        "Take the desktop away from agents, and forget which apps they may look at.",
        Nothing,
        DesktopStatus,
        Effect.ADMIN,
        who=LOCAL_USER,
        record=Record.JOINED,
    ),
    _row(
        "stop",
        "Abort everything, release all keys, and take no more input until a person resumes.",
        Nothing,
        m.StopResult,
        Effect.PROCESS_CONTROL,
        who=LOCAL_USER,
        record=Record.JOINED,
    ),
    _row(
        "resume",
        "Take input again after a stop; only the person may.",
        Nothing,
        DesktopStatus,
        Effect.ADMIN,
        who=PERSON_ONLY,
        record=Record.JOINED,
    ),
    _row("health", "Show the desktop host's version and permissions.", Nothing, d.HealthResult, Effect.READ),
    _row("doctor", "Say what the desktop host is missing, and what to do.", DoctorCall, d.DoctorResult, Effect.READ),
    _look("windows", "List the windows; titles only of apps that may be looked at.", DesktopCall, m.WindowsResult),
    _look("observe", "See a window: its elements, and its picture on disk.", ObserveCall, d.ObserveResult),
    _look("find", "Find elements of a window.", FindCall, d.FindResult),
    _look("listModals", "List the dialogs that want an answer first.", Routed, m.ListModalsResult),
    _look("waitUntil", "Wait until something is so in a window.", WaitUntilCall, d.WaitUntilResult, shape=Shape.WAIT),
    _act("click", "Click an element.", TargetCall, d.ClickResult),
    _act("doubleClick", "Click an element twice.", TargetCall),
    _act("rightClick", "Click an element with the right button.", TargetCall),
    _act("typeText", "Type a text into an element, or where the focus is.", TypeTextCall, d.TypeTextResult),
    _act("hotkey", "Press keys together.", HotkeyCall, d.HotkeyResult),
    _act("scroll", "Turn the wheel over an element.", ScrollCall),
    _act("drag", "Drag one element to another.", DragCall),
    _act("setValue", "Set the value of an element.", SetValueCall),
    _act("focusWindow", "Bring a window to the front.", Routed),
    _act("dismissModal", "Answer a dialog.", DismissModalCall),
    _row(
        "abort",
        "Stop one's own call: nothing more of it reaches the screen.",
        AbortCall,
        d.AbortResult,
        Effect.PROCESS_CONTROL,
        record=Record.BEHIND,
    ),
)
