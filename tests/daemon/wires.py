"""HTTP and link spoken by hand: tests say exactly which bytes go out, and see exactly what comes back."""

import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from living import Living

from patience import PATIENCE


def connect(address: tuple[str, int] | str, seconds: float = PATIENCE) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The one shape of errors; anything else fails here."""
        error: dict[str, Any] = self.json["error"]
        assert set(error) <= {"code", "message", "details", "hint"}
        assert isinstance(error["code"], str)
        assert error["message"]
        assert self.headers["content-type"] == "application/json"
        return error


class Wire:
    """One HTTP connection."""

    def __init__(self, address: tuple[str, int] | str, seconds: float = PATIENCE) -> None:
        self.sock = connect(address, seconds)
        self._file = self.sock.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        status = self._file.readline()
        assert status, "the connection was closed without an answer"
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(status.split()[1]), headers

    def answer(self, verb: str = "GET") -> Answer:
        status, headers = self.head()
        return Answer(status, headers, self.body(headers) if verb != "HEAD" and status != 204 else b"")

    def body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(self.chunks())
        return self._file.read(int(headers["content-length"]))

    def ask(self, verb: str, path: str, headers: list[tuple[str, str]], body: bytes | None = None) -> Answer:
        self.send(request(verb, path, headers, body))
        return self.answer(verb)

    def chunks(self) -> Iterator[bytes]:
        while size := int(self._file.readline(), 16):
            yield self._file.read(size)
            self._file.readline()
        self._file.readline()

    def closed(self) -> bool:
        """Whether the server ends the connection, within our patience, without saying more."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def request(verb: str, path: str, headers: list[tuple[str, str]], body: bytes | None = None) -> bytes:
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class Caller:
    """JSON over TCP as one principal, a connection each call."""

    def __init__(self, daemon: Living, token: str | None = None) -> None:
        self.daemon = daemon
        self.token = token or daemon.token

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [("Host", self.daemon.host), ("Authorization", f"Bearer {self.token}")]

    def ask(self, verb: str, path: str, body: Any = None) -> Answer:
        headers = self.headers
        data = None
        if body is not None:
            headers.append(("Content-Type", "application/json"))
            data = json.dumps(body).encode()
        elif verb == "POST":
            data = b""
        with Wire(self.daemon.tcp) as wire:
            return wire.ask(verb, path, headers, data)

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, body: Any = None) -> Answer:
        return self.ask("POST", path, body)

    def register(self, handle: str, **more: Any) -> "Caller":
        answer = self.post("/agents/register", {"agentId": handle, **more})
        assert answer.status == 200, answer
        return Caller(self.daemon, answer.json["agentToken"])

    def send(self, handle: str, payload: Any = "hello", **more: Any) -> str:
        answer = self.post(f"/agents/{handle}/send", {"payload": payload, **more})
        assert answer.status == 200, answer
        ticket: str = answer.json["ticketId"]
        return ticket

    def open(self, path: str) -> "Events":
        wire = Wire(self.daemon.tcp)
        try:
            wire.send(request("GET", path, self.headers))
            return Events(wire)
        except BaseException:
            wire.close()
            raise

    def gauge(self, name: str) -> float:
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no gauge {name}")


class Events:
    """Server-sent events of one open answer."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        status, headers = wire.head()
        assert status == 200, status
        assert headers["content-type"] == "text/event-stream"
        self._chunks = wire.chunks()
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def block(self) -> str | None:
        """The next block, comments too; None when the stream has ended."""
        while "\n\n" not in self._text:
            chunk = next(self._chunks, None)
            if chunk is None:
                assert not self._text, self._text
                return None
            self._text += chunk.decode()
        block, _, self._text = self._text.partition("\n\n")
        return block

    def event(self) -> dict[str, Any] | None:
        """The next event with its data decoded; None when the stream has ended."""
        while (block := self.block()) is not None:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
            if fields:
                return {**fields, "data": json.loads(fields["data"])}
        return None


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class LinkWire:
    """One link connection; answers and notifications in the order they came."""

    def __init__(self, path: str, seconds: float = PATIENCE) -> None:
        self.sock = connect(path, seconds)
        self._came = bytearray()
        self._frames: list[dict[str, Any]] = []
        self._next_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send_bytes(self, data: bytes) -> None:
        self.sock.sendall(data)

    def request(self, method: str, params: Any = None, id_: Any = None) -> Any:
        self._next_id += 1
        id_ = self._next_id if id_ is None else id_
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}
        self.send_bytes(frame(json.dumps(message).encode()))
        return id_

    def notify(self, method: str, params: Any) -> None:
        self.send_bytes(frame(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()))

    def read(self) -> dict[str, Any] | None:
        """The next message; None when the daemon closed the connection."""
        while not self._frames:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._came += data
            self._frames += map(json.loads, self._bodies())
        return self._frames.pop(0)

    def _bodies(self) -> Iterator[bytes]:
        """What has come whole."""
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            name, _, length = self._came[:end].partition(b": ")
            assert name == b"Content-Length", bytes(self._came[:end])
            start, stop = end + 4, end + 4 + int(length)
            if len(self._came) < stop:
                return
            yield bytes(self._came[start:stop])
            del self._came[:stop]

    def answer(self, id_: Any) -> dict[str, Any]:
        """The answer to `id_`; what came before it stays to be read."""
        before = []
        while (message := self.read()) is not None:
            if message.get("id") == id_ and "method" not in message:
                self._frames = before + self._frames
                return message
            before.append(message)
        raise AssertionError("the connection was closed before the answer")

    def call(self, method: str, params: Any = None) -> Any:
        answer = self.answer(self.request(method, params))
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def refusal(self, method: str, params: Any = None) -> dict[str, Any]:
        """The `data` of the error that this call is answered with."""
        data: dict[str, Any] = self.answer(self.request(method, params))["error"]["data"]
        return data

    def hello(self, token: str | None = None) -> "LinkWire":
        params = {"protocol": 1, "version": "test"} | ({"token": token} if token else {})
        self.call("hello", params)
        return self
