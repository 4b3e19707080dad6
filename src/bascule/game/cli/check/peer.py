"""One connection to a mod, written and read by hand: what it really sent is what is judged."""

import re
import socket
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gabp import envelopes, messages
from gabp.codec import BadJson, decode
from gabp.content_length import DEFAULT_MAX_HEADER_BYTES
from gabp.schemas import RESULTS
from gabp.session import RESULT_DECODERS, new_id

# A mod that answers in its game's next frame needs milliseconds; one that loads, seconds.
ANSWER_SECONDS: Final = 10.0
# What a mod has to be able to read, and may therefore send too.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_HEADER: Final = re.compile(rb"([!-9;-~]+):[ \t]*(.*?)[ \t]*\Z")


class Failed(Exception):
    """The mod did not do what the sentence says."""


class Stream(Protocol):
    """Bytes to a mod and back: a socket, or the pipes of its process."""

    def send(self, data: bytes, /) -> None: ...

    def receive(self, seconds: float, /) -> bytes:
        """What has come; empty at the end. Raises TimeoutError."""

    def close(self) -> None: ...


class SocketStream:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, data: bytes) -> None:
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.sendall(data)

    def receive(self, seconds: float) -> bytes:
        self._socket.settimeout(max(0.001, seconds))
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()


@dataclass
class Seen:
    """What this mod does that a strict bridge, or GABS, would not take; each once."""

    strict: dict[str, None] = field(default_factory=dict)
    gabs: dict[str, None] = field(default_factory=dict)


class Peer:
    def __init__(self, stream: Stream, seen: Seen) -> None:
        self._stream = stream
        self._seen = seen
        self._buffer = b""
        self.events: list[envelopes.Event] = []
        # The last number of each channel.
        self._numbers: dict[str, int] = {}

    def close(self) -> None:
        self._stream.close()

    # -- out --

    def send_raw(self, data: bytes) -> None:
        try:
            self._stream.send(data)
        except TimeoutError:
            raise Failed(f"the mod does not read what it is sent, for {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise Failed(f"the mod closed the connection: {error}") from error

    def ask(self, method: str, params: dict[str, Any] | None = None) -> str:
        id_ = new_id()
        self.send_raw(envelopes.request(id_, method, envelopes.to_json(params or {})))
        return id_

    def call(self, method: str, params: dict[str, Any] | None = None, *, seconds: float = ANSWER_SECONDS) -> Any:
        """The result; `Failed` where an error came, or a result that is not what the schema says."""
        answer = self.answer(self.ask(method, params), seconds=seconds)
        if isinstance(answer.error, envelopes.ErrorBody):
            raise Failed(f"{method} answered the error {answer.error.code}: {answer.error.message}")
        if method in RESULT_DECODERS:
            try:
                RESULT_DECODERS[method].decode(answer.result)
            except BadJson as bad:
                raise Failed(f"Bascule cannot read the result of {method}: {bad.message}") from None
        result = decode(answer.result)
        if method in RESULTS:
            for problem in RESULTS[method].problems(result, "result"):
                self._seen.strict[f"{method}: {problem}"] = None
        return result

    def refusal(self, method: str, params: dict[str, Any] | None = None) -> envelopes.ErrorBody:
        """The error; `Failed` where there is none."""
        answer = self.answer(self.ask(method, params))
        if not isinstance(answer.error, envelopes.ErrorBody):
            raise Failed(f"{method} was answered with a result, and should have been refused")
        return answer.error

    # -- in --

    def answer(self, id_: str, *, seconds: float = ANSWER_SECONDS) -> envelopes.Response:
        """The response with this id; events are kept, other responses are a fault of the mod."""
        end = time.monotonic() + seconds
        while True:
            message = self.message(end - time.monotonic())
            match message:
                case envelopes.Event():
                    self.events.append(message)
                case envelopes.Response() if message.id == id_:
                    return message
                case envelopes.Response():
                    raise Failed(f"a response has the id {message.id}, and no request of that id is open")
                case _:
                    raise Failed("the mod sent a request: only bridges do")

    def message(self, seconds: float = ANSWER_SECONDS) -> envelopes.Message:
        body = self._frame(time.monotonic() + seconds)
        try:
            return self._counted(envelopes.parse(body, envelopes.Mode.STRICT))
        except envelopes.BadMessage as bad:
            self._seen.strict[f"a message is not a strict envelope: {bad.message}"] = None
        try:
            return self._counted(envelopes.parse(body, envelopes.Mode.COMPAT))
        except envelopes.BadMessage as bad:
            raise Failed(f"a message is not an envelope: {bad.message}: {body[:200]!r}") from None

    def _counted(self, message: envelopes.Message) -> envelopes.Message:
        """The numbers of a channel's events only grow."""
        if isinstance(message, envelopes.Event):
            before = self._numbers.get(message.channel)
            if before is not None and message.seq <= before:
                raise Failed(f"an event of {message.channel} has the number {message.seq} after {before}")
            self._numbers[message.channel] = message.seq
        return message

    def closed(self, seconds: float = ANSWER_SECONDS) -> bool:
        """Whether the mod ends the connection."""
        end = time.monotonic() + seconds
        try:
            while self._more(end):
                pass
        except TimeoutError:
            return False
        return True

    def _frame(self, end: float) -> bytes:
        try:
            while b"\r\n\r\n" not in self._buffer:
                if len(self._buffer) > DEFAULT_MAX_HEADER_BYTES:
                    raise Failed(f"no frame begins here: {self._buffer[:80]!r}")
                if not self._more(end):
                    raise Failed("the mod closed the connection instead of answering")
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            length = self._length(head)
            while len(rest) < length:
                if not self._more(end):
                    raise Failed("the mod closed the connection inside a frame")
                rest = self._buffer.partition(b"\r\n\r\n")[2]
        except TimeoutError:
            raise Failed(f"no answer within {ANSWER_SECONDS:g} s") from None
        self._buffer = rest[length:]
        body = rest[:length]
        if not body.isascii():
            self._seen.gabs["a body is not ASCII: some bridges count characters where the frame counts bytes"] = None
        return body

    def _length(self, head: bytes) -> int:
        """What the headers say, with every way in which they differ from the spec (2.1) noted."""
        found: dict[str, bytes] = {}
        for line in head.split(b"\r\n"):
            header = _HEADER.match(line)
            if header is None:
                raise Failed(f"a header is not `Name: value`: {line[:80]!r}")
            name = header[1].decode("latin-1")
            if name.lower() in map(str.lower, found):
                raise Failed(f"the header {name} comes twice")
            found[name] = header[2]
        length = next((value for name, value in found.items() if name.lower() == "content-length"), None)
        if length is None or not length.isdigit() or int(length) > MAX_BODY_BYTES:
            raise Failed(f"no usable Content-Length: {head[:120]!r}")
        if "Content-Length" not in found:
            self._seen.gabs["the header is not written Content-Length, to the letter"] = None
        kind = next((value for name, value in found.items() if name.lower() == "content-type"), None)
        if kind is None:
            self._seen.strict["a frame has no Content-Type"] = None
        elif kind.split(b";")[0].strip().lower() != b"application/json":
            self._seen.strict[f"Content-Type is {kind.decode('latin-1')}, not application/json"] = None
        return int(length)

    def _more(self, end: float) -> bool:
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            data = self._stream.receive(left)
        except ConnectionError:
            return False
        self._buffer += data
        return bool(data)


def hello(token: str, launch_id: str, platform: str) -> dict[str, Any]:
    return {
        "token": token,
        "bridgeVersion": "1.0.0",
        "platform": messages.platform_name(platform),
        "launchId": launch_id,
        "clientInfo": {"name": "bascule games check"},
    }
