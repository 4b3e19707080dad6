"""The host's door: Content-Length frames of JSON-RPC 2.0 on a unix socket, one object per connection."""

import asyncio
import os
import socket
from typing import Final

from bascule.desktop.errors import Code, DesktopError, invalid
from bascule.desktop.extensions import Stopped
from bascule.desktop.host_methods import METHODS, STOPPED
from bascule.foundation.tasks import Tasks
from bascule.kernel.faults import EventLog, log_fault
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.peers import NoSuchPeer, PeerId, identify, program_of
from bascule.programs.desktop_host.service import Host
from bascule.transports.framed import FramedConnection
from bascule.transports.peercred import Peer
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameError

# A million characters of text, each up to four bytes, as JSON.
MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
# Requests open on one connection. What one client may have is counted with the executions.
MAX_IN_FLIGHT: Final = 256
# Beyond them, for what is answered at once: who has too much under way must still be able to abort and to stop.
MAX_AT_ONCE: Final = 64


class HostServer:
    """All connections, their tasks, and the processes at their ends."""

    def __init__(self, host: Host, log: EventLog, *, allowed: tuple[str, ...] = ()) -> None:
        self.host = host
        self.log = log
        # Programs that may connect; empty: every one of this user's.
        self.allowed = allowed
        self.tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        self._watched: dict[PeerId, int] = {}
        self.connections: set[HostConnection] = set()
        self.on_last_gone: asyncio.Event = asyncio.Event()
        host.on_stopped = self._stopped

    def connection(self) -> "HostConnection":
        return HostConnection(self)

    def watch(self, peer: PeerId, descriptor: int | None) -> None:
        """What a process was allowed dies with it, also when another holds its connection open."""
        if descriptor is None:
            return
        if peer in self._watched:
            os.close(descriptor)
            return
        self._watched[peer] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, peer)

    def _ended(self, peer: PeerId) -> None:
        descriptor = self._watched.pop(peer)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self.tasks.start(self.host.peer_gone(peer), "a peer is gone")

    def _stopped(self, aborted: int, by: PeerId | None) -> None:
        """The connection that asked has an answer; the others must learn that they may no longer act."""
        body = jsonrpc.notification(STOPPED, codec.encode(Stopped(aborted=aborted)))
        for connection in self.connections:
            if by is None or connection.peer != by:
                connection.send(body)

    async def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        await self.host.executions.abort_all()
        await self.tasks.close()
        loop = asyncio.get_running_loop()
        for descriptor in self._watched.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched.clear()


class HostConnection(FramedConnection):
    """Requests run beside each other: an abort must not wait for what it aborts."""

    def __init__(self, server: HostServer) -> None:
        super().__init__(max_body_bytes=MAX_FRAME_BYTES)
        self._server = server
        self.peer: PeerId | None = None
        self._open: dict[int | str, Execution | None] = {}

    def on_open(self, peer: Peer | None) -> None:
        assert self._transport is not None
        sock: socket.socket = self._transport.get_extra_info("socket")
        if peer is None or peer.uid != os.getuid():
            self._server.log("refused", level="warning", uid=peer.uid if peer else None)
            self.close()
            return
        try:
            self.peer, descriptor = identify(sock)
        except NoSuchPeer as error:
            self._server.log("refused", level="warning", reason=str(error))
            self.close()
            return
        if self._server.allowed and program_of(peer.pid) not in self._server.allowed:
            self._server.log("refused", level="warning", pid=peer.pid, reason="not in the list of programs")
            if descriptor is not None:
                os.close(descriptor)
            self.close()
            return
        self._server.watch(self.peer, descriptor)
        self._server.connections.add(self)

    def on_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - why it ended changes nothing here
        self._server.connections.discard(self)
        # Nobody hears the answer: nothing more is done for it, and no key stays down.
        for execution in self._open.values():
            if execution is not None:
                execution.stop()
        if not self._server.connections:
            self._server.on_last_gone.set()

    def on_bad_frame(self, error: FrameError) -> None:
        self._refuse(None, invalid(str(error)))

    def on_frame(self, body: bytes) -> None:
        try:
            message = jsonrpc.parse(body)
        except jsonrpc.BadEnvelope as error:
            self._refuse(error.id, invalid(error.message))
            return
        if not isinstance(message, jsonrpc.Request):
            # A notification has no answer to carry a refusal, so it does nothing; an answer was not asked for.
            return
        if message.id in self._open:
            self._refuse(message.id, invalid(f"request id {message.id!r} is in use on this connection"))
            return
        row = METHODS.get(message.method)
        most = MAX_IN_FLIGHT + (MAX_AT_ONCE if row is not None and row.at_once else 0)
        if len(self._open) >= most:
            self._refuse(message.id, DesktopError(Code.HOST_NOT_READY, f"{most} requests are open here: try again"))
            return
        self._open[message.id] = None
        self._server.tasks.start(self._answer(message), message.method)

    async def _answer(self, request: jsonrpc.Request) -> None:
        assert self.peer is not None

        def began(execution: Execution) -> None:
            self._open[request.id] = execution

        try:
            result = await self._server.host.handle(self.peer, request.method, request.params, began)
            self.send(jsonrpc.response(request.id, codec.encode(result)))
        except DesktopError as error:
            self._refuse(request.id, error)
        finally:
            self._open.pop(request.id, None)

    def _refuse(self, id_: int | str | None, error: DesktopError) -> None:
        # Contract 3.3: the code is a string, with `retryable` and `details` beside it.
        self.send(b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (codec.encode(id_), codec.encode(error.body())))
