"""SQLite's write-ahead log as it lies on the disk: looked at before SQLite opens it, blanked when it is at rest.

SQLite reads a log up to the first page that does not fit its checksum and drops the rest without a word. After a crash
that is the commit that was being written, which nobody was told about. After a flipped bit it is every commit since,
acknowledged ones too; and closing the database would then delete the log. The two can be told apart: a commit that
was being written has nothing behind it.

The format is that of SQLite's "WAL-mode File Format" page: a header of 32 bytes, then frames of a 24 byte header and a
page. Each frame's checksum goes on from that of the frame before it.
"""

import os
import struct
from array import array
from collections.abc import Callable
from itertools import pairwise
from sys import byteorder
from typing import NamedTuple

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
# The last bit says in which byte order checksums are computed.
_MAGIC = 0x377F0682
_BIG_ENDIAN = 1
# SQLite's own bounds; 1 stands for the largest.
_PAGE_SIZES = frozenset(1 << power for power in range(9, 17))
_WORD = 0xFFFFFFFF
_FILL_BYTES = 1024 * 1024


class Break(NamedTuple):
    """Where the log stops being readable."""

    # Bytes that can be read.
    offset: int
    # Pages behind it that were written in the same round of the log.
    pages: int
    # At least one finished commit follows the one that cannot be read: this is damage, and no crash.
    damage: bool


class _Frame(NamedTuple):
    offset: int
    is_commit: bool
    # Both salts are this round's; at least one of them is.
    fits: bool
    checksum: tuple[int, int]
    # What the checksum goes over.
    head: bytes
    page: bytes


def find_break(path: str) -> Break | None:
    """None when all of the log can be read, or there is none."""
    try:
        with open(path, "rb") as file:
            return _find(file.read())
    except FileNotFoundError:
        return None


def _find(log: bytes) -> Break | None:
    if len(log) <= HEADER_BYTES:
        return None
    magic, _, size, _, salt1, salt2, *stored = struct.unpack(">8I", log[:HEADER_BYTES])
    page_bytes = 65_536 if size == 1 else size
    big = bool(magic & _BIG_ENDIAN)
    known = magic & ~_BIG_ENDIAN == _MAGIC and page_bytes in _PAGE_SIZES
    if not known or _checksum((0, 0), log[:24], big=big) != tuple(stored):
        # The header is written and synced before any page.
        step = FRAME_HEADER_BYTES + (page_bytes if page_bytes in _PAGE_SIZES else min(_PAGE_SIZES))
        return Break(0, (len(log) - HEADER_BYTES) // step, damage=True) if any(log) else None
    frames = _frames(log, page_bytes, salt1, salt2)
    before: tuple[int, int] = (stored[0], stored[1])
    for number, frame in enumerate(frames):
        if not frame.fits or _goes_on(before, frame, big=big) != frame.checksum:
            return Break(frame.offset, len(frames) - number, damage=_has_sequel(frames[number:], before, big=big))
        before = frame.checksum
    return None


def _frames(log: bytes, page_bytes: int, salt1: int, salt2: int) -> list[_Frame]:
    """Those of this round: the log is written from its beginning again and again, each round with new salts."""
    frames: list[_Frame] = []
    newest = 0
    step = FRAME_HEADER_BYTES + page_bytes
    for offset in range(HEADER_BYTES, len(log) - step + 1, step):
        page = offset + FRAME_HEADER_BYTES
        _, commit, one, two, *stored = struct.unpack(">6I", log[offset:page])
        # A flipped bit in one salt leaves the other; pages of an older round share neither.
        if one == salt1 or two == salt2:
            newest = len(frames) + 1
        fits = one == salt1 and two == salt2
        checksum = (stored[0], stored[1])
        frames.append(_Frame(offset, bool(commit), fits, checksum, log[offset : offset + 8], log[page : offset + step]))
    return frames[:newest]


def _has_sequel(frames: list[_Frame], before: tuple[int, int], *, big: bool) -> bool:
    """Whether something was appended behind the end of the commit that `frames` begin in.

    That happens only after that commit was synced. Pages left by a write that failed lie there too, but do not go on
    from the ones before them.
    """
    computed = _goes_on(before, frames[0], big=big)
    for frame, following in pairwise(frames):
        if following.checksum not in (
            _goes_on(frame.checksum, following, big=big),
            _goes_on(computed, following, big=big),
        ):
            # The following one may be the page with the flipped bit, or nothing that belongs here.
            return False
        if frame.is_commit:
            return True
        computed = _goes_on(computed, following, big=big)
    return False


def _goes_on(before: tuple[int, int], frame: _Frame, *, big: bool) -> tuple[int, int]:
    return _checksum(_checksum(before, frame.head, big=big), frame.page, big=big)


def _checksum(start: tuple[int, int], data: bytes, *, big: bool) -> tuple[int, int]:
    words = array("I", data)
    if big != (byteorder == "big"):
        words.byteswap()
    one, two = start
    # Four rounds between two maskings: 85 microseconds a page instead of 140, and there may be thousands.
    each = iter(words[: len(words) // 8 * 8])
    for a, b, c, d, e, f, g, h in zip(each, each, each, each, each, each, each, each, strict=True):
        one += a + two
        two += b + one
        one += c + two
        two += d + one
        one += e + two
        two += f + one
        one = (one + g + two) & _WORD
        two = (two + h + one) & _WORD
    rest = iter(words[len(words) // 8 * 8 :])
    for a, b in zip(rest, rest, strict=True):
        one = (one + a + two) & _WORD
        two = (two + b + one) & _WORD
    return one, two


class Log:
    """The log of an open database, whose only connection is ours.

    Cut to nothing at each rest, it would grow again under the next commits, and a sync that stores a new length costs
    more. So it keeps its length, and what earlier rounds left in it is overwritten.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # The header of the round that began in a blank log.
        self._blanked = b""

    def forget(self) -> None:
        """Something may lie in the log that SQLite does not count."""
        self._blanked = b""

    def has_page(self, number: int) -> bool:
        """Whether this round has come to the page of this number, the first being 1."""
        with open(self._path, "rb", buffering=0) as file:
            start = file.read(HEADER_BYTES)
            step = FRAME_HEADER_BYTES + int.from_bytes(start[8:12], "big")
            head = os.pread(file.fileno(), FRAME_HEADER_BYTES, HEADER_BYTES + (number - 1) * step)
            return head[8:16] == start[16:24]

    def is_known(self) -> bool:
        """Whether all there is in the log is of this round."""
        with open(self._path, "rb") as file:
            return file.read(HEADER_BYTES) == self._blanked

    def blank(self, pages: int | None, *, keep: int, goes_on: Callable[[], bool] = lambda: True) -> bool:
        """Overwrite all but the first page, which SQLite has just written; `keep` pages is how long the log is then.

        `pages`: how many may have something in them, None for all. `goes_on` is asked between pieces; the answer is
        whether it came to the end.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._blanked = b""
            start = os.pread(descriptor, HEADER_BYTES, 0)
            page_bytes, salts = int.from_bytes(start[8:12], "big"), start[16:24]
            step = FRAME_HEADER_BYTES + page_bytes
            first, second = (os.pread(descriptor, FRAME_HEADER_BYTES, HEADER_BYTES + at) for at in (0, step))
            if first[8:16] != salts or second[8:16] == salts:
                # Not a log of one page.
                return True
            # Before anything goes: an old header with only the first of its pages would bring those back.
            os.fdatasync(descriptor)
            length, kept = os.fstat(descriptor).st_size, HEADER_BYTES + keep * step
            if length > kept:
                os.ftruncate(descriptor, kept)
                os.fdatasync(descriptor)
            used = length if pages is None else HEADER_BYTES + pages * step
            if not _fill(descriptor, HEADER_BYTES + step, min(used, kept), goes_on):
                return False
            try:
                if not _fill(descriptor, length, kept, goes_on):
                    return False
            except OSError:
                # The last room on a disk is not ours to take.
                os.ftruncate(descriptor, length)
                raise
            self._blanked = start
            return True
        finally:
            os.close(descriptor)


def _fill(descriptor: int, begin: int, end: int, goes_on: Callable[[], bool]) -> bool:
    """Zeros from `begin` to `end`, on disk piece by piece: a commit that comes waits for one piece."""
    while begin < end:
        if not goes_on():
            return False
        begin += os.pwrite(descriptor, bytes(min(end - begin, _FILL_BYTES)), begin)
        os.fdatasync(descriptor)
    return True
