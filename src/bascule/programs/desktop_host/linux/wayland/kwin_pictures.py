"""Pictures by KWin's ScreenShot2: it writes the pixels into a pipe of ours, where it has given us the permission."""

import asyncio
import os
from collections.abc import Sequence
from typing import Any, Final

from PIL import Image

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import Bus, BusError
from bascule.programs.desktop_host.ports import NotReachable, Shot

_NAME: Final = "org.kde.KWin.ScreenShot2"
_PATH: Final = "/org/kde/KWin/ScreenShot2"
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
        raise NotReachable(f"the screen cannot be captured: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, EOFError) as error:
        raise NotReachable("the screen cannot be captured: KWin answers in a way that is not known") from error
    except TimeoutError:
        raise NotReachable("the screen cannot be captured: KWin does not answer") from None
    finally:
        transport.close()
    return Image.frombytes("RGB", (width, height), data, "raw", _RAW[kind], stride)
