"""Link messages over HTTP, for another broker at `BRIDGE_BROKER_URL`: the same calls, one connection each.

It stands where `doors.link.LinkSocket` stands, so that reconnecting, repeating and expiring are written once.
`hello` becomes a question to /status with the token it names; `$/cancel` closes that call's connection, which
releases its waiter in the daemon.

Never blocks but for `connect`, which on loopback succeeds or fails at once.
"""

from __future__ import annotations

import fcntl
import os
import selectors

from bascule import places
from bascule.doors.exits import BadAnswer, ConnectionLost, DoorError
from bascule.doors.http import MAX_ANSWER_BYTES, MAX_HEAD_BYTES, PROTOCOL_VERSION, connect
from bascule.doors.values import NOT_YET, chunk_size, decode, decode_answer, encode, number_in_header

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import socket
    from typing import Any

    from bascule.doors.http import Door

# Loopback accepts at once, or its queue is full and we come back later.
CONNECT_SECONDS = 1.0
_PIECE_BYTES = 256 * 1024
# A chunk's size line: hex digits and, rarely, an extension.
_MAX_CHUNK_LINE_BYTES = 256
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~")

_GAME = "/v1/games/{gameId}"
_ON_THE_DESKTOP = (
    "observe find waitUntil click doubleClick rightClick typeText hotkey scroll drag setValue focusWindow abort"
)
# What the tools use of the daemon's tables; held equal to them by a test.
ROUTES = {
    "hello": ("GET", "/status"),
    "agents.register": ("POST", "/agents/register"),
    "agents.heartbeat": ("POST", "/agents/{agentId}/heartbeat"),
    "agents.list": ("GET", "/agents"),
    "messages.send": ("POST", "/agents/{agentId}/send"),
    "messages.broadcast": ("POST", "/broadcast"),
    "replies.post": ("POST", "/replies"),
    "replies.wait": ("GET", "/replies/{ticketId}"),
    "replies.gather": ("POST", "/replies/gather"),
    "inbox.take": ("GET", "/agents/{agentId}/inbox"),
    "inbox.ack": ("POST", "/agents/{agentId}/inbox/ack"),
    "tickets.list": ("GET", "/tickets"),
    "tickets.show": ("GET", "/tickets/{ticketId}"),
    "tickets.cancel": ("POST", "/tickets/{ticketId}/cancel"),
    "conversations.show": ("GET", "/conversations/{conversationId}"),
    "events.recent": ("GET", "/events/recent"),
    "events.stream": ("GET", "/events"),
    "spaces.open": ("POST", "/v1/spaces"),
    "spaces.list": ("GET", "/v1/spaces"),
    "runs.start": ("POST", "/v1/spaces/{spaceId}/runs"),
    "runs.wait": ("GET", "/v1/spaces/{spaceId}/runs/{runId}/wait"),
    "runs.diff": ("GET", "/v1/spaces/{spaceId}/runs/{runId}/diff"),
    "runs.undo": ("POST", "/v1/spaces/{spaceId}/runs/{runId}/undo"),
    "runs.commit": ("POST", "/v1/spaces/{spaceId}/runs/{runId}/commit"),
    "files.read": ("GET", "/v1/spaces/{spaceId}/files/{path...}"),
    "processes.start": ("POST", "/v1/spaces/{spaceId}/processes"),
    "processes.list": ("GET", "/v1/spaces/{spaceId}/processes"),
    "processes.logs": ("GET", "/v1/processes/{processId}/logs"),
    "processes.stop": ("POST", "/v1/processes/{processId}/stop"),
    "games.list": ("GET", "/v1/games"),
    "games.show": ("GET", _GAME),
    "games.status": ("GET", f"{_GAME}/status"),
    "games.start": ("POST", f"{_GAME}/start"),
    "games.connect": ("POST", f"{_GAME}/connect"),
    "games.stop": ("POST", f"{_GAME}/stop"),
    "games.kill": ("POST", f"{_GAME}/kill"),
    "games.tools": ("GET", f"{_GAME}/tools"),
    "games.tool": ("GET", f"{_GAME}/tools/{{tool...}}"),
    "games.call": ("POST", f"{_GAME}/call"),
    "games.events": ("GET", f"{_GAME}/events"),
    "games.resources": ("GET", f"{_GAME}/resources"),
    "games.resource": ("GET", f"{_GAME}/resource"),
    "games.state": ("GET", f"{_GAME}/state"),
    "games.setState": ("PUT", f"{_GAME}/state"),
    "games.attention": ("GET", f"{_GAME}/attention"),
    "games.acknowledge": ("POST", f"{_GAME}/attention"),
    "desktop.windows": ("GET", "/v1/desktop/windows"),
    **{f"desktop.{name}": ("POST", f"/v1/desktop/{name}") for name in _ON_THE_DESKTOP.split()},
}


class HttpSocket:
    """Calls under way, each on its own connection; what came back is read with `receive`."""

    def __init__(self, door: Door, state: str) -> None:
        self._door = door
        self._token: str | None = None
        self._selector = selectors.DefaultSelector()
        self._exchanges: dict[int, Exchange] = {}
        self._names = Names(state)
        # Nothing waits here: sending goes on in `receive`, when the selector says so.
        self.unsent = bytearray()
        # Known now whether anybody listens; the first call uses it.
        self._spare: socket.socket | None = self._connect()

    def fileno(self) -> int:
        """The selector's own descriptor: readable when one of its connections has something for us."""
        return self._selector.fileno()

    def close(self) -> None:
        for number in list(self._exchanges):
            self._drop(number)
        if self._spare is not None:
            self._spare.close()
        self._names.release()
        self._selector.close()

    def send(self, message: dict[str, Any]) -> None:
        params = message["params"]
        if message["method"] == "$/cancel":
            self._drop(params["id"])
            return
        number, method = message["id"], message["method"]
        if method == "hello":
            self._token = params.get("token")
            params = {}
        taken = method == "agents.register" and not self._names.take(params["agentId"])
        # A handle that another session holds is not ours to touch; asking for the status only keeps the order.
        request = self._request("hello", {}) if taken else self._request(method, params)
        sock, self._spare = self._spare or self._connect(), None
        exchange = Exchange(sock, number, method, params)
        self._exchanges[number] = exchange
        exchange.taken = taken
        exchange.unsent += request
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, exchange)

    def flush(self) -> None:
        """`receive` does it."""

    def receive(self) -> list[dict[str, Any]]:
        """What has arrived since; ConnectionLost when one of the connections broke."""
        messages: list[dict[str, Any]] = []
        for key, _ in self._selector.select(0):
            exchange: Exchange = key.data
            try:
                if exchange.unsent:
                    exchange.flush()
                    if not exchange.unsent:
                        self._selector.modify(exchange.sock, selectors.EVENT_READ, exchange)
                messages += exchange.receive()
            except DoorError:
                if not messages:
                    raise
                # First what did arrive; the broken connection says the same again.
                break
            if exchange.done:
                self._settle(exchange)
        return messages

    def _settle(self, exchange: Exchange) -> None:
        self._drop(exchange.number)
        if exchange.method == "agents.register" and not exchange.taken:
            self._names.keep(exchange.params["agentId"], granted=exchange.granted)

    def _drop(self, number: int) -> None:
        exchange = self._exchanges.pop(number, None)
        if exchange is not None:
            self._selector.unregister(exchange.sock)
            exchange.sock.close()

    def _connect(self) -> socket.socket:
        sock = connect(self._door, CONNECT_SECONDS)
        sock.setblocking(False)
        return sock

    def _request(self, method: str, params: dict[str, Any]) -> bytes:
        verb, path = ROUTES[method]
        rest = dict(params)
        for name in params:
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", _quoted(rest.pop(name)))
            elif f"{{{name}...}}" in path:
                # A path within the path: its slashes stay.
                steps = "/".join(map(_quoted, str(rest.pop(name)).split("/")))
                path = path.replace(f"{{{name}...}}", steps)
        if verb == "GET" and rest:
            path += "?" + "&".join(f"{name}={_quoted(value)}" for name, value in rest.items())
        lines = [f"{verb} {path} HTTP/1.1", f"Host: {self._door.host}", "Connection: close"]
        lines.append(f"Bascule-Protocol: {PROTOCOL_VERSION}")
        lines += self._door.authorization(self._token)
        body = b""
        if verb != "GET":
            body = encode(rest)
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class Exchange:
    """One request and its answer; bytes in, link messages out."""

    def __init__(self, sock: socket.socket, number: int, method: str, params: dict[str, Any]) -> None:
        self.sock = sock
        self.number = number
        self.method = method
        self.params = params
        self.unsent = bytearray()
        self.taken = False
        self.done = False
        self.granted = False
        self._buffer = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: Body | None = None
        self._text = b""

    def flush(self) -> None:
        try:
            sent = self.sock.send(self.unsent)
        except (BlockingIOError, InterruptedError):
            return
        except (BrokenPipeError, ConnectionResetError):
            # A daemon that refuses a large body answers before it has read it all; the answer is there.
            self.unsent.clear()
            return
        except OSError as fault:
            if _wants_more(fault):
                return
            raise ConnectionLost(f"the connection to the daemon broke: {fault.strerror or fault}") from None
        del self.unsent[:sent]

    def receive(self) -> list[dict[str, Any]]:
        try:
            data = self.sock.recv(_PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as fault:
            if _wants_more(fault):
                return []
            raise ConnectionLost(f"the connection to the daemon broke: {fault.strerror or fault}") from None
        return self.feed(data)

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Bytes as they come; none at the end of the connection."""
        opened = False
        if self._body is None:
            self._buffer += data
            if not self._read_head():
                if not data:
                    raise ConnectionLost("the daemon closed the connection before it answered")
                return []
            opened = True
            data, at_end = bytes(self._buffer), not data
        else:
            at_end = not data
        assert self._body is not None
        self._text += self._body.feed(data)
        if len(self._text) > MAX_ANSWER_BYTES:
            raise BadAnswer(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
        if at_end and not self._body.complete:
            raise ConnectionLost("the daemon closed the connection in the middle of its answer")
        if self.method == "events.stream" and self._status == 200:
            return [*([self._result({})] if opened else []), *self._events()]
        self.done = self._body.complete
        return [self._answer()] if self.done else []

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise BadAnswer("what listens there does not answer in HTTP: is it Bascule?")
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = lines[0].partition(" ")
        status = number_in_header(rest[:3])
        if not version.startswith("HTTP/1.") or status is None:
            raise BadAnswer("what listens there does not answer in HTTP: is it Bascule?")
        self._status = status
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self._headers[name.strip().lower()] = value.strip()
        length = number_in_header(self._headers.get("content-length", ""))
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            self._body = Body(chunked=True)
        elif self._status == 204 or length is not None:
            self._body = Body(0 if self._status == 204 else length)
        else:
            raise BadAnswer("the answer does not say how long it is: is it Bascule that listens there?")
        return True

    def _events(self) -> list[dict[str, Any]]:
        messages = []
        *blocks, self._text = self._text.replace(b"\r", b"").split(b"\n\n")
        for block in blocks:
            data = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
            if data:
                item = decode_answer(b"\n".join(data))
                params = {"stream": self.number, "item": item if isinstance(item, dict) else {}}
                messages.append({"jsonrpc": "2.0", "method": "events.item", "params": params})
        return messages

    def _answer(self) -> dict[str, Any]:
        if self.taken:
            name = self.params["agentId"]
            return self._error({"code": "conflict", "message": f"{name} is another session of this user"})
        if self._status >= 300 or self._status == NOT_YET:
            return self._error(self._fault())
        self.granted = True
        if self.method == "replies.post":
            # 204: over HTTP the daemon does not say more.
            return self._result({"ticketId": self.params["ticketId"], "status": "responded"})
        return self._result(decode_answer(self._text) if self._text else None)

    def _fault(self) -> dict[str, Any]:
        try:
            value = decode(self._text)
        except ValueError:
            value = None
        fault = value.get("error") if isinstance(value, dict) else None
        fault = dict(fault) if isinstance(fault, dict) else {"message": f"the daemon answered {self._status}"}
        after = number_in_header(self._headers.get("retry-after", ""))
        if after is not None:
            fault["retryAfterMs"] = after * 1000
        return fault

    def _result(self, value: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.number, "result": value}

    def _error(self, data: dict[str, Any]) -> dict[str, Any]:
        error = {"code": -32000, "message": data.get("message"), "data": data}
        return {"jsonrpc": "2.0", "id": self.number, "error": error}


def _wants_more(fault: OSError) -> bool:
    """TLS: part of a record is there, or a record without a byte for us; by name, for `ssl` is costly to load."""
    return type(fault).__name__ in {"SSLWantReadError", "SSLWantWriteError"}


class Body:
    """Takes the framing off: a length, or chunks."""

    def __init__(self, length: int | None = None, *, chunked: bool = False) -> None:
        self._left = length or 0
        self._chunked = chunked
        self._line = bytearray()
        # Between two chunks stands an empty line.
        self._after_chunk = False
        self.complete = length == 0 and not chunked

    def feed(self, data: bytes) -> bytes:
        out = bytearray()
        while data and not self.complete:
            if self._chunked and not self._left:
                data = self._size_line(data)
                continue
            take = data[: self._left]
            data = data[len(take) :]
            out += take
            self._left -= len(take)
            self._after_chunk = self._chunked and not self._left
            self.complete = not self._chunked and not self._left
        return bytes(out)

    def _size_line(self, data: bytes) -> bytes:
        end = data.find(b"\n")
        self._line += data if end < 0 else data[:end]
        if len(self._line) > _MAX_CHUNK_LINE_BYTES:
            raise BadAnswer("the answer's chunks are broken")
        if end < 0:
            return b""
        line = bytes(self._line).strip()
        self._line.clear()
        if self._after_chunk and not line:
            self._after_chunk = False
            return data[end + 1 :]
        self._left = chunk_size(line)
        # The last chunk; trailers do not interest us.
        self.complete = self._left == 0
        return data[end + 1 :]


class Names:
    """Which handles the HTTP sessions of this user hold.

    The daemon gives a handle to one link connection only; HTTP has no connection to give it to, and a token
    file can be read twice. So two sessions started alike ask each other, through a lock in the state directory.
    """

    def __init__(self, state: str) -> None:
        self._state = state
        self._locks: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """False when another session holds it."""
        if name in self._locks:
            return True
        folder = os.path.join(self._state, "held")
        file = os.path.basename(places.token_file(self._state, name)).removesuffix(".token") + ".lock"
        try:
            if not os.path.isdir(folder):
                os.mkdir(folder, 0o700)
            lock = os.open(os.path.join(folder, file), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            # No state directory here: no token is shared either, and the daemon refuses a live handle by itself.
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._locks[name] = lock
        return True

    def keep(self, name: str, *, granted: bool) -> None:
        """The daemon has spoken: one handle is held at a time."""
        for other in [each for each in self._locks if (each != name) == granted]:
            os.close(self._locks.pop(other))

    def release(self) -> None:
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()


def _quoted(value: Any) -> str:
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in str(value).encode())
