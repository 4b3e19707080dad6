"""What the host asks of a desktop. `linux` answers it; a Mac would with AX and ScreenCaptureKit."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.desktop.protocol import Permission
from bascule.programs.desktop_host.elements import Element, Key, Tree
from bascule.programs.desktop_host.geometry import Rect


class BackendError(Exception):
    """The desktop did not do it. The sentence is for the peer."""


class AppGone(BackendError):
    """The program went away while it was being used."""


class NotAnswering(BackendError):
    """The program hangs, or is stopped."""


class NotReachable(BackendError):
    """No accessibility bus, no display: what is missing, and what to do."""


class NoSuchKey(BackendError):
    """This keyboard has no such key."""


class Elsewhere(BackendError):
    """What the keys or the click were for is not where they would go: nothing was sent."""

    def __init__(self, message: str, reason: Literal["focus", "covered", "modifier", "moved"]) -> None:
        super().__init__(message)
        self.reason = reason


class Aborted(Exception):
    """Somebody stopped the execution: not one event more."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A window with a title bar, or a popup of one."""

    # A number of the backend's own, for as long as the window lives.
    handle: int
    pid: int
    # The best name of its program, and every name it is known by.
    bundle_id: str
    names: frozenset[str]
    # What the other windows of its process are known by: what is kept out is kept out with all of its windows.
    process_names: frozenset[str] = frozenset()
    # Its program's file, as the system says; a name is what a program says of itself.
    program: str | None = None
    title: str
    # What it draws in, and with the window manager's frame around it.
    rect: Rect
    outer: Rect
    # Of `rect`, what its program uses for a shadow: left, right, top, bottom.
    shadow: tuple[int, int, int, int] = (0, 0, 0, 0)
    active: bool = False
    # A menu or tooltip, which the window manager does not know.
    popup: bool = False
    # Its program is not told where it is (Wayland): the places of its elements begin at a corner of the window.
    placeless: bool = False
    # It comes above all others that float when it is activated; a tile stays where it is.
    floats: bool = False


class Judged(msgspec.Struct, frozen=True):
    """The window that a point on the screen is in, and where it was when the point was judged."""

    handle: int
    rect: Rect
    # It was elsewhere a moment before.
    moves: bool = False

    def follow(self, x: int, y: int, now: Rect) -> tuple[int, int]:
        """The same point of the window where it is now."""
        if now[2:] != self.rect[2:]:
            # What is where in it is not known any more.
            raise Elsewhere("the window has changed its size", "moved")
        return x + now.x - self.rect.x, y + now.y - self.rect.y


class Onto(msgspec.Struct, frozen=True):
    """Whose windows a click is for: these, and the popups of their program."""

    pid: int
    handles: frozenset[int]
    # None: the point stays where it is on the screen, whatever moves.
    judged: Judged | None = None

    def is_moving(self, judged: tuple[int, int], now: tuple[int, int]) -> bool:
        """Whether the window of this point has moved since it was looked for."""
        return self.judged is not None and (self.judged.moves or judged != now)

    def follow(self, x: int, y: int, windows: Sequence[Window]) -> tuple[int, int]:
        """The point among these windows."""
        if self.judged is None:
            return x, y
        now = next((each.rect for each in windows if each.handle == self.judged.handle), None)
        if now is None:
            raise Elsewhere("the window meant is not shown", "focus")
        return self.judged.follow(x, y, now)


class Status(msgspec.Struct, frozen=True, kw_only=True):
    accessibility: Permission
    screen_recording: Permission
    # What is wrong, and what to do about it, in the same order.
    issues: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    # Worth knowing, and nothing wrong.
    notes: tuple[str, ...] = ()
    # What the person can press to stop everything, whatever window has the focus. None: nothing.
    stop_keys: str | None = None
    # None: not known yet.
    capabilities: Capabilities | None = None


class Shot(msgspec.Struct, frozen=True, kw_only=True):
    """Pixels of a part of the screen: BGRX, row by row."""

    rect: Rect
    pixels: bytes
    # Only the windows that it was taken of are in it, whatever lies over them on the screen.
    alone: bool = False


class Halt:
    """Set once, from any thread: checked before every event that is sent."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def check(self) -> None:
        if self._event.is_set():
            raise Aborted

    def pause(self, seconds: float) -> None:
        """Sleep, unless stopped."""
        if self._event.wait(seconds):
            raise Aborted


# Which program, and what kind of change.
Changed = Callable[[str, str], None]
# "untouched": the text went another way.
Clipboard = Literal["restored", "empty", "lost", "untouched"]


# Whether the field shows what was pasted; None, if it cannot be read.
IsShown = Callable[[], Awaitable[bool | None]]


class Pasted(msgspec.Struct, frozen=True):
    # How many of the pieces a program really took.
    taken: int
    pieces: int
    clipboard: Clipboard


class Pace(msgspec.Struct, frozen=True):
    """How soon a program reports what an act changed, in seconds."""

    # How long a button is shown pressed before the program carries out its action.
    action_delay: float
    # Once the program answers again: within this time it reports what changed, if it has not done so already.
    reports_within: float


class Desktop(Protocol):
    """Every method may raise BackendError; what waits for another program has a limit of its own."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def status(self) -> Status: ...

    async def unreadable(self) -> list[str]:
        """Programs with windows whose elements cannot be read: which, why, and what to do."""

    async def windows(self) -> list[Window]:
        """From the lowest to the topmost; popups are among them."""

    async def screen(self) -> Rect: ...

    async def tree(
        self, windows: Sequence[Window], *, seconds: float, max_depth: int, max_nodes: int, values: bool = True
    ) -> Tree:
        """What is in these windows of one program, the first one first. What cannot be read in time is left out."""

    async def refreshed(self, element: Element) -> Element | None:
        """The same element as it is now; None when it is gone."""

    async def steady(self, element: Element, window: Window) -> tuple[Rect, Rect] | None:
        """Where an element of the tree is, and where its window was in the same moment. None: it keeps moving."""

    async def element_at(self, window: Window, x: int, y: int) -> Key | None:
        """What the program says is there; None where it does not say."""

    async def press(self, element: Element) -> bool:
        """Do what a click means by the program's own action. False: it offers none."""

    async def focus(self, element: Element) -> bool: ...

    async def caret_to_end(self, element: Element) -> None:
        """Behind what is in a field, with nothing selected: toolkits select it all when the focus comes."""

    async def set_value(self, element: Element, value: str | float) -> bool: ...

    @property
    def has_pictures(self) -> bool:
        """False: this session never shows any, and what is done by elements' own programs goes without."""

    @property
    def has_hands(self) -> bool:
        """False: no key and no click can be sent; what is done is done by elements' own programs."""

    @property
    def holds(self) -> bool:
        """False: keys and clicks go where it was right to send them a moment before, and not surely to that window."""

    @property
    def inserts(self) -> bool:
        """Whether `insert` comes before `paste`: where a paste needs the focus, and that is not sure to stay."""

    async def insert(self, element: Element, text: str, *, clear: bool) -> bool:
        """Put a text into a field by its own program. False: it cannot; True proves nothing."""

    async def activate(self, window: Window) -> bool:
        """Bring to the front. False: it is not there yet."""

    # Where each event goes is looked at in the same moment in which it is sent; Elsewhere says that it was not.

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None: ...

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None: ...

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        """Where the end is covered by another program, it is let go where it began."""

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None: ...

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        """Elsewhere before the first piece; later it ends there, and `taken` says so.

        The person's clipboard is given back once the text is shown, and soon where nobody can say whether it is.
        """

    async def release_all(self) -> None:
        """No key and no button that we pressed stays down."""

    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot:
        """`of`: what it is taken for, from the lowest to the topmost; these alone are in it where that is possible."""

    def changes(self, on_change: Changed) -> AbstractAsyncContextManager[None]:
        """Call `on_change` for each change anywhere, while inside."""

    def root_of(self, window: Window) -> Key | None:
        """The top level that stands for this window in a tree that was read, if it is known."""

    async def check_keys(self, keys: Sequence[str]) -> None:
        """Raises NoSuchKey where `chord` would."""

    def program_of(self, window: Window) -> str | None:
        """The name under which `changes` speaks of this window's program, if it is known by now."""

    def pace_of(self, program: str | None) -> Pace:
        """Of a program that is not known: the slowest."""
