"""The link door with the whole house behind it, on a transport without a socket."""

import asyncio
import gc
import socket
from typing import Any

from bascule.kernel.identity.principals import identify
from bascule.kernel.identity.tokens import hash_token
from bascule.kernel.link_protocol import McpRequest
from bascule.surfaces.fair_share import FairShare
from bascule.surfaces.link import LinkConnection, LinkConnections
from bascule.surfaces.mcp.link_sessions import LinkSessions
from bascule.surfaces.mcp.tools import toolsets_of
from bascule.testing.house import House
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameReader, frame

# A house remembers; after so many inputs the next one begins.
INPUTS_PER_HOUSE = 500
_BAD = ("internal",)


class _Transport(asyncio.Transport):
    """Takes what is written and says whose socket it is: our own."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self.written = bytearray()
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._sock if name == "socket" else default

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        """What is fed is all there is."""

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    abort = close


class _Scene:
    def __init__(self) -> None:
        self.house = House()
        self.inputs = 0
        self._sock, self._other = socket.socketpair()
        self._connections = LinkConnections()
        self._faults: list[dict[str, Any]] = []
        self.house._loop.set_exception_handler(lambda _loop, context: self._faults.append(context))
        self.house.register("Jerry")
        self.house.tokens.add("Jerry", hash_token("jerry"))
        # One for all connections, as in a daemon: it takes milliseconds and memory to make.
        self._requests = jsonrpc.Requests(
            {name: each.params for name, each in self.house.gate.methods.items()} | {"mcp.request": McpRequest}
        )
        self._mcp_sessions = LinkSessions(self.house.gate, self.house._log, toolsets_of())

    def close(self) -> None:
        self.house._loop.run_until_complete(self._mcp_sessions.close())
        self.house.close()
        self._sock.close()
        self._other.close()

    def take(self, pieces: list[bytes]) -> None:
        transport = _Transport(self._sock)
        connection = self.house.run(lambda: self._opened(transport))
        for piece in pieces:
            if not transport.closing:
                self.house.run(lambda piece=piece: connection.data_received(piece))
        self.house.run(lambda: connection.connection_lost(None))
        assert not self._connections.all
        assert not self._faults, self._faults
        self._check_answers(bytes(transport.written))
        for event, fields in self.house.log:
            assert fields["level"] != "error", (event, fields)
        self.house.log.clear()

    def _opened(self, transport: _Transport) -> LinkConnection:
        connection = LinkConnection(
            self.house.gate,
            self._identify,
            self._connections,
            self.house.clock,
            log=self.house._log,
            requests=self._requests,
            turns=FairShare(on_fault=lambda error: self._faults.append({"exception": error})),
            mcp_sessions=self._mcp_sessions,
        )
        connection.connection_made(transport)
        assert connection in self._connections.all
        return connection

    def _identify(self, token: str | None) -> Any:
        return identify("link", None, self.house.tokens, hash_token("local"), auth_on=True, token=token)

    def _check_answers(self, written: bytes) -> None:
        reader = FrameReader(max_body_bytes=1 << 26)
        for body in reader.feed(written):
            message = jsonrpc.parse(body)
            if isinstance(message, jsonrpc.Response) and message.error is not None:
                data = message.error.data
                assert not isinstance(data, dict) or data.get("code") not in _BAD, codec.encode(data)
        assert not reader.mid_frame


_scene: list[_Scene] = []


def link_door(data: bytes) -> None:
    if not _scene or _scene[0].inputs >= INPUTS_PER_HOUSE:
        while _scene:
            _scene.pop().close()
        gc.collect()
        _scene.append(_Scene())
    scene = _scene[0]
    scene.inputs += 1
    if data[:1] == b"\x00":
        # Whole frames, as most inputs should be: what is inside them is the question.
        scene.take([frame(text) for text in data[1:].split(b"\n")])
    else:
        scene.take([data[1:]])
