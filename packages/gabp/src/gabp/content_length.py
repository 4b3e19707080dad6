"""Content-Length framing: `Content-Length: N`, an empty line, N bytes of body; one frame after another.

Link, GABP and the desktop contract share it. A peer may send anything in any cut: the first violation
raises, and the reader stays dead, for behind a wrong length nothing can be trusted to be a header.

A body above the limit is such a violation, unless the reader is made with `max_skipped_bytes`: then exactly as many
bytes as its header says are read and dropped, and an `Oversized` stands in its place.
"""

import re
from typing import Final

# GABP "Message Size Limits": messages up to 1 MiB should be supported; owners with larger ones say so.
DEFAULT_MAX_BODY_BYTES = 1024 * 1024
# The two headers that exist take 60 bytes; 8 KiB is what HTTP servers allow a whole request.
DEFAULT_MAX_HEADER_BYTES = 8 * 1024
MAX_HEADER_LINES = 16
# More than any limit needs; int() of a very long digit string costs quadratic time.
MAX_LENGTH_DIGITS = 15
# Kept of each end of a body that is skipped: an envelope's own fields stand before or behind its payload.
EXCERPT_BYTES = 1024

_END: Final = b"\r\n\r\n"
# Exactly what `frame` writes, with or without what GABP's peers write behind it: nearly every header we meet.
# Any other header, and a longer number, is parsed line by line.
_USUAL: Final = re.compile(rb"Content-Length: ([0-9]{1,14})(\r\nContent-Type: application/json)?\r\n\r\n")
# RFC 9110 section 5.6.2 for the name; visible ASCII, space and tab for the value. The two parts cannot
# share a character, so a match never backtracks.
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e]*)\Z")
_BARE_NEWLINE: Final = re.compile(rb"(?<!\r)\n")


class FrameError(Exception):
    """The peer broke the framing; the connection must be closed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        # Bodies completed by the same feed, before the violation.
        self.frames: list[bytes] = []


class FrameTooLarge(FrameError):
    """A frame claims a body above the limit. Nothing was allocated for it."""


class BadHeader(FrameError):
    """The header block is not one."""


class Oversized(bytes):
    """The first and last EXCERPT_BYTES of a body above the limit; `length` is what the header said, and what came."""

    length: int


class _Skip:
    """A body that is being read and dropped."""

    __slots__ = ("_first", "_last", "_left", "_length")

    def __init__(self, length: int) -> None:
        self._length = self._left = length
        self._first = bytearray()
        self._last = b""

    def take(self, data: memoryview) -> int:
        """How much of `data` belongs to it."""
        piece = data[: self._left]
        self._left -= len(piece)
        for_first = EXCERPT_BYTES - len(self._first)
        self._first += piece[:for_first]
        rest = piece[for_first:] if for_first > 0 else piece
        self._last = (self._last + bytes(rest[-EXCERPT_BYTES:]))[-EXCERPT_BYTES:]
        return len(piece)

    def finished(self) -> Oversized | None:
        if self._left:
            return None
        oversized = Oversized(bytes(self._first) + self._last)
        oversized.length = self._length
        return oversized


class FrameReader:
    """Bytes in, whole bodies out. Memory held is what the peer really sent, never what it claims."""

    __slots__ = (
        "_failure",
        "_held",
        "_max_body_bytes",
        "_max_header_bytes",
        "_max_skipped_bytes",
        "_need",
        "_require_content_type",
        "_searched",
        "_skip",
        "frames_read",
    )

    def __init__(
        self,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES,
        *,
        require_content_type: bool = False,
        max_skipped_bytes: int = 0,
    ) -> None:
        """`max_skipped_bytes`: bodies above the limit and up to this are skipped instead of ending the stream."""
        self._max_body_bytes = max_body_bytes
        self._max_skipped_bytes = max_skipped_bytes
        self._skip: _Skip | None = None
        self._max_header_bytes = max_header_bytes
        self._require_content_type = require_content_type
        # The incomplete frame, from the first byte of its header.
        self._held = bytearray()
        # How long `_held` must be to hold a whole frame; 0 while its header is incomplete.
        self._need = 0
        # How much of an incomplete header was already looked through.
        self._searched = 0
        # Kind and message, not the exception: its traceback would keep the caller's frames alive.
        self._failure: tuple[type[FrameError], str] | None = None
        # Whole ones so far. A reader may be in the middle of a frame after every read and still never wait for one.
        self.frames_read = 0

    @property
    def mid_frame(self) -> bool:
        """Bytes of an incomplete frame are held: the stream must not end here."""
        return bool(self._held) or self._skip is not None

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that `data` completes. Raises FrameError at the first violation and ever after."""
        if self._failure is not None:
            kind, message = self._failure
            raise kind(message)
        if not self._held and self._skip is None and not self._require_content_type:
            # Nearly every read of a peer that waits for its answers is one whole frame.
            usual = _USUAL.match(data, 0, self._max_header_bytes)
            if usual is not None:
                length, start = int(usual[1]), usual.end()
                if length + start == len(data) and length <= self._max_body_bytes:
                    self.frames_read += 1
                    return [data[start:]]
        frames: list[bytes] = []
        try:
            if self._skip is not None:
                data = data[self._skipped(memoryview(data), frames) :]
            if self._held:
                self._held += data
                if self._still_incomplete():
                    return frames
                data = bytes(self._held)
                self._held.clear()
                self._need = self._searched = 0
            self._take_frames(data, frames)
        except FrameError as failure:
            failure.frames = frames
            self._failure = type(failure), failure.message
            self._held.clear()
            raise
        self.frames_read += len(frames)
        return frames

    def _still_incomplete(self) -> bool:
        """Look only at bytes not looked at before, so that a slow peer costs linear time."""
        held = self._held
        if not self._need:
            limit = self._max_header_bytes
            end = held.find(_END, max(0, self._searched - len(_END) + 1), limit)
            if end < 0:
                self._check_partial_header(held, self._searched)
                self._searched = len(held)
                return True
            start = end + len(_END)
            length = self._body_length(bytes(held[:end]))
            if length > self._max_body_bytes:
                # To be skipped: what is here of it is not held any longer.
                return False
            self._need = start + length
        return len(held) < self._need

    def _take_frames(self, data: bytes, frames: list[bytes]) -> None:
        position = 0
        size = len(data)
        while position < size:
            usual = _USUAL.match(data, position, position + self._max_header_bytes)
            if usual is not None:
                start = usual.end()
                length = int(usual[1])
                if length > self._max_body_bytes or (self._require_content_type and usual[2] is None):
                    length = self._body_length(data[position : start - 4])
            else:
                end = data.find(_END, position, position + self._max_header_bytes)
                if end < 0:
                    self._held += memoryview(data)[position:]
                    self._check_partial_header(self._held, 0)
                    self._searched = len(self._held)
                    return
                start = end + 4
                length = self._body_length(data[position:end])
            if length > self._max_body_bytes:
                self._skip = _Skip(length)
                position = start + self._skipped(memoryview(data)[start:], frames)
                continue
            stop = start + length
            if stop > size:
                self._held += memoryview(data)[position:]
                self._need = stop - position
                return
            frames.append(data[start:stop])
            position = stop

    def _skipped(self, data: memoryview, frames: list[bytes]) -> int:
        """How many bytes of `data` belong to the body that is being skipped."""
        assert self._skip is not None
        taken = self._skip.take(data)
        oversized = self._skip.finished()
        if oversized is not None:
            frames.append(oversized)
            self._skip = None
        return taken

    def _check_partial_header(self, held: bytearray, searched: int) -> None:
        if len(held) >= self._max_header_bytes:
            raise BadHeader(f"the header block is longer than {self._max_header_bytes} bytes")
        # A peer that writes bare newlines never sends the end we wait for: say so now, not at a timeout.
        if _BARE_NEWLINE.search(held, searched):
            raise BadHeader("header lines must end in CR LF; the peer sent LF alone")

    def _body_length(self, block: bytes) -> int:
        lengths, content_types = _headers(block)
        if len(lengths) != 1:
            raise BadHeader("no Content-Length" if not lengths else "more than one Content-Length")
        # bytes.isdigit knows ASCII digits only; int() alone would take signs, underscores and spaces.
        digits = lengths[0]
        if not digits.isdigit() or len(digits) > MAX_LENGTH_DIGITS:
            raise BadHeader(f"Content-Length must be 1 to {MAX_LENGTH_DIGITS} digits, got {digits[:40]!r}")
        if self._require_content_type and content_types != [b"application/json"]:
            raise BadHeader("Content-Type must be given once and be application/json")
        length = int(digits)
        limit = max(self._max_body_bytes, self._max_skipped_bytes)
        if length > limit:
            raise FrameTooLarge(f"a frame of {length} bytes is over the limit of {limit}: send less at once")
        return length


def _headers(block: bytes) -> tuple[list[bytes], list[bytes]]:
    """The values of Content-Length, and the media types of Content-Type; other headers only checked."""
    lines = block.split(b"\r\n")
    if len(lines) > MAX_HEADER_LINES:
        raise BadHeader(f"the header block has more than {MAX_HEADER_LINES} lines")
    lengths: list[bytes] = []
    content_types: list[bytes] = []
    for line in lines:
        header = _HEADER.match(line)
        if header is None:
            raise BadHeader(f"not a header line: {line[:60]!r}")
        name = header[1].lower()
        if name == b"content-length":
            lengths.append(header[2].strip(b" \t"))
        elif name == b"content-type":
            content_types.append(header[2].partition(b";")[0].strip().lower())
    return lengths, content_types


def frame(body: bytes, *, content_type: str | None = None) -> bytes:
    if content_type is None:
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    return b"Content-Length: %d\r\nContent-Type: %b\r\n\r\n%b" % (
        len(body),
        content_type.encode("ascii"),
        body,
    )
