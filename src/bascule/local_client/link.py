"""Link frames: `Content-Length: N`, an empty line, JSON. The framing alone, and a socket that never blocks.

The stdio program waits for its client and for the daemon at once, so nothing here may wait.
"""

from __future__ import annotations

import socket

from bascule.foundation import paths
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.local_client.exits import BadAnswer, ConnectionLost
from bascule.local_client.http import Door, connect, unix_address
from bascule.local_client.peers import stopped_peer
from bascule.local_client.values import decode_answer, encode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

# One header line is 30 bytes; a second one may appear some day.
MAX_HEAD_BYTES = 1024
# Of more, malloc gets fresh pages from the kernel and gives them back, at every read.
_PIECE_BYTES = 64 * 1024
_END_OF_HEAD = b"\r\n\r\n"


def frame(message: dict[str, Any]) -> bytes:
    return framed(encode(message))


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Frames:
    """Bytes in, messages out; the same messages however the stream is cut."""

    def __init__(self, max_frame_bytes: int = MAX_LINK_FRAME_BYTES) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray()
        self._needed: int | None = None

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        self._buffer += data
        messages = []
        while (body := self._next_body()) is not None:
            message = decode_answer(body)
            if not isinstance(message, dict):
                raise BadAnswer("a link frame does not hold an object")
            messages.append(message)
        return messages

    def _next_body(self) -> bytes | None:
        if self._needed is None:
            end = self._buffer.find(_END_OF_HEAD)
            if end < 0:
                if len(self._buffer) > MAX_HEAD_BYTES:
                    raise BadAnswer("a link frame has no end of header: is it Bascule that listens there?")
                return None
            self._needed = self._length(bytes(self._buffer[:end]))
            del self._buffer[: end + len(_END_OF_HEAD)]
        if len(self._buffer) < self._needed:
            return None
        body = bytes(self._buffer[: self._needed])
        del self._buffer[: self._needed]
        self._needed = None
        return body

    def _length(self, head: bytes) -> int:
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            digits = value.strip()
            if name.strip().lower() == b"content-length" and digits.isdigit() and len(digits) < 10:
                length = int(digits)
                if length <= self._max:
                    return length
                raise BadAnswer(f"a link frame of {length} bytes is over the limit of {self._max}")
        raise BadAnswer("a link frame has no Content-Length: is it Bascule that listens there?")


class LinkSocket:
    """A connection to `link.sock` that never blocks: what cannot be sent yet waits in `unsent`."""

    def __init__(self, state: str) -> None:
        path = unix_address(paths.link_socket(state))
        self._sock = connect(Door(socket.AF_UNIX, path, state=state), seconds=0)
        self._frames = Frames()
        self.unsent = bytearray()

    def fileno(self) -> int:
        return self._sock.fileno()

    def stopped_peer(self) -> int:
        return stopped_peer(self._sock)

    def close(self) -> None:
        self._sock.close()

    def send(self, message: dict[str, Any]) -> None:
        self.send_body(encode(message))

    def send_body(self, body: bytes) -> None:
        self.unsent += framed(body)
        self.flush()

    def flush(self) -> None:
        while self.unsent:
            try:
                sent = self._sock.send(self.unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as fault:
                raise ConnectionLost(f"the connection to the daemon broke: {fault.strerror}") from None
            del self.unsent[:sent]

    def receive(self) -> list[dict[str, Any]]:
        """What has arrived since; ConnectionLost when the daemon closed."""
        try:
            data = self._sock.recv(_PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as fault:
            raise ConnectionLost(f"the connection to the daemon broke: {fault.strerror}") from None
        if not data:
            raise ConnectionLost("the daemon closed the connection")
        return self._frames.feed(data)
