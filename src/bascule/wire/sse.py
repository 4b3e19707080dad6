"""Server-sent events, both directions, as the HTML standard (section 9.2) has them."""

import re
from typing import Final

import msgspec

# A reply payload of 1 MiB with JSON escapes and field names around it.
DEFAULT_MAX_EVENT_BYTES = 8 * 1024 * 1024

# A comment line: keeps proxies and half-open connections honest, and readers skip it.
COMMENT_PING = b": ping\n\n"

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_NOT_IN_FIELD: Final = re.compile(r"[\r\n\0]")


class EventTooLarge(Exception):
    """An event is over the limit; the reader stays dead, for the rest of it is still to come."""

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(max_event_bytes)
        self.message = f"an event is larger than {max_event_bytes} bytes"
        # Events completed by the same feed, before the large one.
        self.events: list[SseEvent] = []

    def __str__(self) -> str:
        return self.message


class SseEvent(msgspec.Struct, frozen=True):
    event: str
    data: str
    # The last id the stream has named, this event's or an earlier one's; "" before the first.
    id: str


def encode_event(data: str | bytes, event: str | None = None, id: str | None = None) -> bytes:  # noqa: A002 - the field's name in the standard
    """One event. A line ending inside `data` reaches the reader as LF, whichever it was."""
    if isinstance(data, str):
        data = data.encode()
    head = b""
    if event is not None:
        head = b"event: %b\n" % _field("event", event)
    if id is not None:
        head += b"id: %b\n" % _field("id", id)
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    return b"%bdata: %b\n\n" % (head, data)


def _field(name: str, value: str) -> bytes:
    # A line ending would start a field of the value's choosing; readers ignore an id with NUL.
    if _NOT_IN_FIELD.search(value):
        raise ValueError(f"the {name} of a server-sent event must not hold CR, LF or NUL: {value[:60]!r}")
    return value.encode()


class SseReader:
    """Bytes in, events out, whatever the line endings and wherever the cuts."""

    __slots__ = (
        "_at_start",
        "_data",
        "_dead",
        "_event",
        "_held",
        "_id",
        "_last_id",
        "_max_event_bytes",
        "_size",
        "_skip_newline",
    )

    def __init__(self, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._held = bytearray()
        self._data: list[str] = []
        self._event = ""
        # As in the standard: an id counts from the end of its event on, for an event that was cut off
        # must be asked for again.
        self._id = ""
        self._last_id = ""
        self._size = 0
        self._at_start = True
        self._skip_newline = False
        self._dead = False

    @property
    def last_event_id(self) -> str:
        """What a reconnecting reader sends as `Last-Event-ID`."""
        return self._last_id

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that `data` completes. Raises EventTooLarge at the first large one and ever after."""
        if self._dead:
            raise EventTooLarge(self._max_event_bytes)
        if not data:
            return []
        # A CR ends its line at once, so that no event waits for the next byte; the LF of a CR LF that
        # was cut in two is then skipped.
        if self._skip_newline and data.startswith(b"\n"):
            data = data[1:]
        self._skip_newline = data.endswith(b"\r")
        first, *others = _LINE_END.split(data)
        self._held += first
        events: list[SseEvent] = []
        if others:
            *whole, rest = others
            self._take_line(bytes(self._held), events)
            for line in whole:
                self._take_line(line, events)
            self._held = bytearray(rest)
        if self._size + len(self._held) > self._max_event_bytes:
            self._fail(events)
        return events

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._size + len(line) > self._max_event_bytes:
            self._fail(events)
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                # Every line counts at least its name, so that empty ones are bounded too.
                self._size += len(line)
                self._data.append(value.decode(errors="replace"))
            case b"event":
                self._event = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")
            case _:
                # Comments, `retry` (our own back-off decides) and fields nobody has defined yet.
                pass

    def _dispatch(self, events: list[SseEvent]) -> None:
        self._last_id = self._id
        if self._data:
            events.append(SseEvent(self._event or "message", "\n".join(self._data), self._id))
            self._data = []
        self._event = ""
        self._size = 0

    def _fail(self, events: list[SseEvent]) -> None:
        self._dead = True
        self._held.clear()
        self._data.clear()
        failure = EventTooLarge(self._max_event_bytes)
        failure.events = events
        raise failure
