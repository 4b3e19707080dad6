"""The protocol between a client and a server of NATS: bytes in, events out. No I/O.

    MSG <subject> <sid> [reply] <bytes>\\r\\n<data>\\r\\n
    HMSG <subject> <sid> [reply] <bytes of headers> <bytes of both>\\r\\n<headers><data>\\r\\n
    INFO {...}   PING   PONG   +OK   -ERR 'text'      one line each

Headers begin with `NATS/1.0`, behind which the server says a status where it has something to say itself.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

# INFO lists every server of a cluster; all other lines are below 4 KB.
MAX_LINE_BYTES = 64 * 1024
# No server can be configured to more.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024 + MAX_LINE_BYTES

_END = b"\r\n"
_HEADERS = b"NATS/1.0"
# What is behind it would be a line of its own to the server.
_SUBJECT = re.compile(r"[!-~]+")


class BadFrame(Exception):
    """Not what a server of NATS says."""


class Message(NamedTuple):
    sid: int
    subject: str
    reply: str
    data: bytes
    # Beside `NATS/1.0`: "503" and why. Publishers can write it as well.
    status: str = ""
    headers: Mapping[str, str] = {}


class Control(NamedTuple):
    """A line about the connection itself: INFO, ERR, PING or PONG."""

    word: str
    text: bytes = b""


Event: TypeAlias = Message | Control


class FrameReader:
    def __init__(self, max_message: int = MAX_MESSAGE_BYTES) -> None:
        self._buffer = bytearray()
        self._max_message = max_message
        # Up to here no end of a line was found.
        self._searched = 0
        # The message whose line is read and whose data is not: its fields, bytes of headers, bytes of both.
        self._message: tuple[int, str, str, int, int] | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Raises `BadFrame`, after which it cannot be used."""
        self._buffer += data
        events: list[Event] = []
        while (event := self._next()) is not None:
            events.append(event)
        return events

    def _next(self) -> Event | None:
        while True:
            if self._message is not None:
                return self._take_message(*self._message)
            end = self._buffer.find(_END, self._searched)
            if end < 0:
                if len(self._buffer) > MAX_LINE_BYTES:
                    raise BadFrame(f"a line of more than {MAX_LINE_BYTES} bytes")
                self._searched = max(0, len(self._buffer) - 1)
                return None
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            self._searched = 0
            control = self._read_line(line)
            if control is not None:
                return control

    def _read_line(self, line: bytes) -> Control | None:
        """None: a message begins, or nothing was said."""
        word, _, rest = line.partition(b" ")
        match word.upper():
            case b"MSG" | b"HMSG" as kind:
                self._message = self._read_place(rest, headers=kind == b"HMSG")
                return None
            case b"INFO":
                return Control("INFO", rest)
            case b"PING" | b"PONG" as word:
                return Control(word.decode())
            case b"-ERR":
                return Control("ERR", rest.strip().strip(b"'"))
            case b"+OK":
                return None
        raise BadFrame(f"a line that begins with {word[:20]!r}")

    def _read_place(self, rest: bytes, *, headers: bool) -> tuple[int, str, str, int, int]:
        words = rest.split()
        sizes = 2 if headers else 1
        if len(words) not in (2 + sizes, 3 + sizes):
            raise BadFrame("a message without its size")
        try:
            sid = int(words[1])
            header_bytes = int(words[-2]) if headers else 0
            whole = int(words[-1])
        except ValueError:
            raise BadFrame("a message whose size is not a number") from None
        if not 0 <= header_bytes <= whole <= self._max_message:
            raise BadFrame(f"a message of {whole} bytes")
        reply = words[2].decode(errors="replace") if len(words) == 3 + sizes else ""
        return sid, words[0].decode(errors="replace"), reply, header_bytes, whole

    def _take_message(self, sid: int, subject: str, reply: str, header_bytes: int, whole: int) -> Message | None:
        if len(self._buffer) < whole + 2:
            return None
        if self._buffer[whole : whole + 2] != _END:
            raise BadFrame("a message that is longer than its size")
        head = bytes(self._buffer[:header_bytes])
        data = bytes(self._buffer[header_bytes:whole])
        del self._buffer[: whole + 2]
        self._message = None
        if not head:
            return Message(sid, subject, reply, data)
        status, headers = _read_headers(head)
        return Message(sid, subject, reply, data, status, headers)


def _read_headers(head: bytes) -> tuple[str, dict[str, str]]:
    first, *lines = head.split(_END)
    if not first.startswith(_HEADERS):
        raise BadFrame("headers of another version")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.decode(errors="replace")] = value.strip().decode(errors="replace")
    return first[len(_HEADERS) :].strip().decode(errors="replace"), headers


def publish(subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    """Names and values of headers are ours."""
    if not (_SUBJECT.fullmatch(subject) and (not reply or _SUBJECT.fullmatch(reply))):
        raise ValueError(f"not a subject of NATS: {subject!r}")
    place = f"{subject} {reply}" if reply else subject
    if headers is None:
        return b"PUB %s %d\r\n%s\r\n" % (place.encode(), len(data), data)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = b"%s\r\n%s\r\n" % (_HEADERS, lines.encode())
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (place.encode(), len(head), len(head) + len(data), head, data)


def subscribe(subject: str, sid: int) -> bytes:
    if not _SUBJECT.fullmatch(subject):
        raise ValueError(f"not a subject of NATS: {subject!r}")
    return f"SUB {subject} {sid}\r\n".encode()


def connect(options: bytes) -> bytes:
    return b"CONNECT %s\r\n" % options


PING = b"PING\r\n"
PONG = b"PONG\r\n"
