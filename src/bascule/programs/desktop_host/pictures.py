"""Screenshots that show one program's windows and nothing else, with what is secret blanked out."""

import base64
import io
from collections.abc import Iterable, Sequence
from typing import Final

from PIL import Image, ImageDraw

from bascule.desktop.protocol import INLINE_EDGE_PIXELS, InlineImage
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.ports import Shot, Window

# Fast: a level higher costs half as much again and saves a tenth.
_PNG_LEVEL: Final = 1
NOT_SHOWN: Final = (90, 90, 90)
_BLANK: Final = (20, 20, 20)
_MARK: Final = (220, 30, 30)
# More numbers than this hide what they number.
MAX_MARKS: Final = 150
# Photographs and noise grow large as PNG; an answer carries them as JPEG then.
MAX_INLINE_PNG_BYTES: Final = 1024 * 1024
_JPEG_QUALITY: Final = 80


def region(windows: Sequence[Window], screen: Rect) -> Rect:
    """The part of the screen these windows take up."""
    around = NOWHERE
    for window in windows:
        around = around.joined(window.outer)
    return around.within(screen)


def composed(shot: Shot, stacked: Sequence[Window], shown: frozenset[int], blanked: Iterable[Rect]) -> Image.Image:
    """The shot with everything covered that does not belong to the windows shown.

    Most sessions give pixels of the screen, not of a window: what lies over the window, and beside it, is somebody
    else's.
    """
    size = (shot.rect.width, shot.rect.height)
    image = Image.frombytes("RGB", size, shot.pixels, "raw", "BGRX")
    mask = Image.new("1", size, 0)
    pen = ImageDraw.Draw(mask)
    for window in stacked:
        if window.handle in shown or not shot.alone:
            pen.rectangle(_box(window.outer, shot.rect), fill=1 if window.handle in shown else 0)
    out = Image.composite(image, Image.new("RGB", size, NOT_SHOWN), mask)
    pen = ImageDraw.Draw(out)
    for rect in blanked:
        if not rect.within(shot.rect).empty:
            pen.rectangle(_box(rect.grown(2), shot.rect), fill=_BLANK)
    return out


def marked(image: Image.Image, origin: Rect, marks: Sequence[tuple[str, Rect]]) -> Image.Image:
    """A copy with a box and a label at each rectangle."""
    out = image.copy()
    pen = ImageDraw.Draw(out)
    for label, rect in marks[:MAX_MARKS]:
        if rect.within(origin).empty:
            continue
        box = _box(rect, origin)
        pen.rectangle(box, outline=_MARK, width=2)
        if label:
            left, top = box[0], max(0, box[1] - 11)
            pen.rectangle((left, top, left + 6 * len(label) + 3, top + 11), fill=_MARK)
            pen.text((left + 2, top), label, fill=(255, 255, 255))
    return out


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=_PNG_LEVEL)
    return buffer.getvalue()


def cropped(image: Image.Image, origin: Rect, around: Rect, margin: int) -> Image.Image:
    """What is around a rectangle; all of it where that is nowhere to be seen."""
    shown = around.grown(margin).within(origin)
    if around.within(origin).empty:
        return image
    moved = shown.moved(-origin.x, -origin.y)
    return image.crop((moved.x, moved.y, moved.right, moved.bottom))


def inline(image: Image.Image, edge: int = INLINE_EDGE_PIXELS) -> InlineImage:
    """As it goes into an answer."""
    longest = max(image.size)
    if longest > edge:
        size = tuple(max(1, round(each * edge / longest)) for each in image.size)
        small = image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    else:
        small = image
    data, kind = png(small), "image/png"
    if len(data) > MAX_INLINE_PNG_BYTES:
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=_JPEG_QUALITY)
        data, kind = buffer.getvalue(), "image/jpeg"
    return InlineImage(
        mime_type=kind,
        data=base64.b64encode(data).decode("ascii"),
        width=small.width,
        height=small.height,
        scale=image.width / small.width,
    )


def _box(rect: Rect, origin: Rect) -> tuple[int, int, int, int]:
    """Pillow counts the last pixel in."""
    moved = rect.moved(-origin.x, -origin.y)
    return moved.x, moved.y, max(moved.x, moved.right - 1), max(moved.y, moved.bottom - 1)
