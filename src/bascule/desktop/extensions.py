"""What the host does beyond the contract: the same requests, confirmation and evidence. Pure data."""

from typing import Annotated, Any, Literal

import msgspec

from bascule.desktop.protocol import (
    Effect,
    Evidence,
    FoundElement,
    Frame,
    InlineImage,
    Intent,
    Routed,
    SeenBy,
    Target,
    TargetCall,
)
from bascule.kernel.rows import Params, Result

# Wheel steps at once: a page is about ten.
MAX_SCROLL_STEPS = 100
DEFAULT_SCROLL_STEPS = 3

Direction = Literal["up", "down", "left", "right"]
Value = Annotated[str, msgspec.Meta(max_length=1_000_000)] | Annotated[float, msgspec.Meta()]
ButtonTitle = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class ActResult(Result, frozen=True, kw_only=True):
    execution_id: str
    done: bool
    effect: Effect
    by: SeenBy | None = None
    evidence: Evidence
    rematched: bool = False
    watched_ms: int | None = None


class ScrollCall(TargetCall, frozen=True, kw_only=True):
    direction: Direction
    steps: Annotated[int, msgspec.Meta(ge=1, le=MAX_SCROLL_STEPS)] = DEFAULT_SCROLL_STEPS


class DragCall(TargetCall, frozen=True, kw_only=True):
    """From the middle of one element to the middle of another."""

    to: Target


class SetValueCall(TargetCall, frozen=True, kw_only=True):
    value: Value


class WindowInfo(Result, frozen=True, kw_only=True, omit_defaults=False):
    window_id: str
    bundle_id: str
    title: str
    pid: int
    frame: Frame
    active: bool
    # Nobody may act in it or see into it.
    forbidden: bool


class WindowsResult(Result, frozen=True, kw_only=True):
    windows: list[WindowInfo]


class Modal(Result, frozen=True, kw_only=True, omit_defaults=False):
    title: str
    text: str
    buttons: list[str]


class ListModalsResult(Result, frozen=True, kw_only=True):
    execution_id: str
    modals: list[Modal]
    evidence: Evidence


class DismissModalCall(Routed, frozen=True, kw_only=True):
    """By the title of one of its buttons, or with Escape."""

    button: ButtonTitle | None = None


class ResolveParams(Params, frozen=True, kw_only=True):
    """What a call would be about, before anybody is asked about it. Nothing is done, and no evidence is left."""

    intent: Intent
    # With a crop of the screen in which the target is marked.
    picture: bool = False


class ResolveResult(Result, frozen=True, kw_only=True):
    """Which program, window and elements; `params` are the same call tied to exactly these."""

    bundle_id: str
    pid: int
    # The program's file; nothing where the system does not say.
    program: str | None = None
    window_id: str
    window_title: str
    element: FoundElement | None = None
    # Of a drag.
    to: FoundElement | None = None
    # Without meta and confirm: route by pid and windowId, targets by elementRef.
    params: dict[str, Any]
    picture: InlineImage | None = None
    # False: this session shows none, whoever asks.
    pictures: bool = True
    # False: it is an act, and its keys or click may reach another window that takes the focus in that moment.
    held: bool = True


class StopResult(Result, frozen=True, kw_only=True, omit_defaults=False):
    stopped: bool
    aborted: int


class Stopped(Result, frozen=True, kw_only=True, omit_defaults=False):
    """What the notification `desktop.stopped` says."""

    aborted: int
