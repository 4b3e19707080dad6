"""Pictures by KWin's ScreenShot2: it writes the pixels into a pipe of ours, where it has given us the permission."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from PIL import Image

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import Bus, BusError
from bascule.programs.desktop_host.pictures import NOT_SHOWN
from bascule.programs.desktop_host.ports import NotReachable, Shot

_NAME: Final = "org.kde.KWin.ScreenShot2"
_PATH: Final = "/org/kde/KWin/ScreenShot2"
_CLOSED: Final = f"{_NAME}.Error.InvalidWindow"
# Of QImage::Format, by how Pillow names the order of their bytes.
_RAW: Final = {4: "BGRX", 5: "BGRX", 6: "BGRX", 16: "RGBX", 17: "RGBX", 18: "RGBX"}
# 30 to 70 ms on a processor alone.
ANSWER_SECONDS: Final = 5.0
# Sixteen thousand by sixteen thousand: no screen is larger.
MAX_BYTES: Final = 1 << 30
_READ_BYTES: Final = 1 << 20


async def capture_area(bus: Bus, rect: Rect) -> Shot:
    image = await _capture(bus, "CaptureArea", "iiuu", rect)
    if image.size != (rect.width, rect.height):
        # A screen with a scale has more pixels than the numbers of its windows say.
        image = image.resize((rect.width, rect.height), Image.Resampling.BILINEAR)
    return Shot(rect=rect, pixels=image.tobytes("raw", "BGRX"))


class _NoSuchWindow(NotReachable):
    """KWin knows no window of that number."""


class Captured(NamedTuple):
    """A window by the compositor's number."""

    id: str
    frame: Rect
    # A compositor does not say what of a window is in its picture: one of these, by its size.
    places: tuple[Rect, ...]

    def part_in(self, width: int, height: int) -> tuple[Rect, Rect] | None:
        """What of a picture of this size is shown, without the shadow: where in it, and where on the screen."""
        place = next((each for each in self.places if (each.width, each.height) == (width, height)), None)
        if place is None:
            return None
        shown = place.within(self.frame)
        return shown.moved(-place.x, -place.y), shown


async def capture_windows(bus: Bus, rect: Rect, windows: Sequence[Captured]) -> Shot | None:
    """These alone, from the lowest to the topmost, without title bars of KWin's. None: where one is cannot be told."""

    async def picture_of(window: Captured) -> Image.Image | None:
        try:
            return await _capture(bus, "CaptureWindow", "s", (window.id,))
        except _NoSuchWindow:
            return None

    return await put_together(rect, windows, picture_of)


async def put_together(
    rect: Rect, windows: Sequence[Captured], picture_of: Callable[[Captured], Awaitable[Image.Image | None]]
) -> Shot | None:
    """From the lowest to the topmost. None: where one of them is cannot be told."""
    canvas = Image.new("RGB", (rect.width, rect.height), NOT_SHOWN)
    for window in windows:
        image = await picture_of(window)
        if image is None:
            # It has closed meanwhile, and is not in it.
            continue
        found = window.part_in(*image.size)
        if found is None:
            return None
        inside, shown = found
        image = image.crop((inside.x, inside.y, inside.right, inside.bottom))
        canvas.paste(image, (shown.x - rect.x, shown.y - rect.y))
    return Shot(rect=rect, pixels=canvas.tobytes("raw", "BGRX"), alone=True)


async def _capture(bus: Bus, member: str, signature: str, what: Sequence[Any]) -> Image.Image:
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    reader = asyncio.StreamReader(limit=_READ_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
    )
    # KWin's end waits where the pipe is full.
    os.set_blocking(write, True)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            try:
                answer = await bus.call(
                    _NAME, _PATH, _NAME, member, f"{signature}a{{sv}}h", (*what, {}, 0), descriptors=(write,)
                )
            finally:
                os.close(write)
            width, height, stride, kind = (int(answer[name].value) for name in ("width", "height", "stride", "format"))
            size = stride * height
            if kind not in _RAW or not 0 < size <= MAX_BYTES:
                raise NotReachable(f"the screen cannot be captured: KWin gives a picture of another kind ({kind})")
            data = await reader.readexactly(size)
    except BusError as error:
        if str(error).endswith(_CLOSED):
            raise _NoSuchWindow(str(error)) from error
        raise NotReachable(f"the screen cannot be captured: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, EOFError) as error:
        raise NotReachable("the screen cannot be captured: KWin answers in a way that is not known") from error
    except TimeoutError:
        raise NotReachable("the screen cannot be captured: KWin does not answer") from None
    finally:
        transport.close()
    return Image.frombytes("RGB", (width, height), data, "raw", _RAW[kind], stride)
