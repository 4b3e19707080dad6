"""What a Linux desktop is made of: five parts, because sessions differ in which of them they have.

`Trees` (`trees.py`) is AT-SPI everywhere. The other four depend on who draws the screen: `x11_session` has them for
an X server; Wayland has one module per compositor. A session never mixes parts of two.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bascule.desktop.capabilities import Capabilities
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.ports import Halt, IsShown, Onto, Pasted, Shot, Window


class Finding(NamedTuple):
    """What is wrong, and what to do about it."""

    issue: str
    remedy: str


class Windows(Protocol):
    async def windows(self) -> list[Window]:
        """From the lowest to the topmost."""

    async def screen(self) -> Rect:
        """Around all outputs."""

    async def activate(self, window: Window) -> bool:
        """Bring to the front. False: it is not there yet."""


class Pictures(Protocol):
    async def grab(self, rect: Rect, of: Sequence[Window] = ()) -> Shot: ...

    async def probe(self) -> None:
        """Raises NotReachable where a picture would show nothing."""


class Hands(Protocol):
    """Where each event goes is looked at in the same moment in which it is sent; Elsewhere says that it was not."""

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None: ...

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None: ...

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None: ...

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None: ...

    async def check_keys(self, keys: Sequence[str]) -> None: ...

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted: ...

    async def release_all(self) -> None: ...


class StopKeys(Protocol):
    def chord(self) -> str | None:
        """What stops everything, whatever window has the focus. None: nothing does."""

    def finding(self) -> Finding | None:
        """Why there is none, where there should be one."""


class Session(Protocol):
    """The four parts that one compositor or X server has, and the connection that they share."""

    windows: Windows
    pictures: Pictures
    hands: Hands
    stop_keys: StopKeys

    # What it can do where everything answers; `status` takes away what does not.
    @property
    def capabilities(self) -> Capabilities: ...

    # Worth knowing, and nothing wrong.
    @property
    def notes(self) -> tuple[str, ...]: ...

    # What to do where no picture can be taken.
    picture_remedy: str

    async def open(self) -> None:
        """Connect, if it is not connected. Raises NotReachable."""

    async def close(self) -> None: ...

    async def accessibility_hint(self) -> str | None:
        """The address of the accessibility bus, where the session knows it beside the session bus."""
