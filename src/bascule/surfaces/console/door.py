"""A listening socket of the console: nothing that another user's program sends is looked at."""

import asyncio
import socket
from collections.abc import Callable

from bascule.kernel.rows import Shape
from bascule.surfaces.console.app import ConsoleApp
from bascule.surfaces.http.connection import HttpConnection
from bascule.surfaces.http.server import ConnectionLimit, HttpDoor

# At each of the two addresses: a browser opens six, and a person has a few browsers.
MAX_CONNECTIONS = 64
# Whether the program at the other end may talk to us, by the addresses of both ends: ours, then its. None: not known.
PeerCheck = Callable[[tuple[str, int], tuple[str, int]], bool | None]
# The kernel's table is read in pages, and a row may move between two of them. Who is in none of so many readings is not
# on this machine.
LOOKS = 20
LOOK_SECONDS = 0.01


class ConsoleDoor(HttpDoor):
    def __init__(
        self,
        app: ConsoleApp,
        sock: socket.socket,
        *,
        peer_check: PeerCheck,
        room: ConnectionLimit | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(app, sock, room=room, max_connections=max_connections)
        self.peer_check = peer_check
        # As many again may wait to be known.
        self.unknown: set[UnknownPeer] = set()
        self.max_unknown = max_connections

    def make_connection(self) -> asyncio.Protocol:
        return UnknownPeer(self)

    async def stop(self, *arguments: float) -> None:
        for peer in list(self.unknown):
            peer.abort()
        await super().stop(*arguments)

    def end_session(self, session_id: str) -> None:
        """What a session holds open ends with it: its streams and waits.

        Not its other calls: the one that signs in or out ends its own session, and its answer still has to go out.
        """
        for connection in list(self.connections):
            request = connection.current
            if request is None or request.session is None or request.session.session_id != session_id:
                continue
            mounted = request.endpoint.mounted
            if mounted is not None and mounted.row.shape is not Shape.REPLY:
                connection.abort()


class UnknownPeer(asyncio.Protocol):
    """A connection until the kernel has said whose it is. Then it becomes an `HttpConnection`, or is cut.

    Where the kernel cannot be asked for one connection its table is read, which takes tens of milliseconds on a busy
    machine: a thread does it. A transport of uvloop that is
    paused in `connection_made` reads nevertheless: what comes meanwhile is kept here, one piece at most.
    """

    _transport: asyncio.Transport

    def __init__(self, door: ConsoleDoor) -> None:
        self._door = door
        self._came = b""
        self._looks = LOOKS
        self._ends: tuple[tuple[str, int], tuple[str, int]]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # ours are never others
        self._transport = transport
        door = self._door
        if len(door.unknown) >= door.max_unknown:
            transport.abort()
            return
        door.unknown.add(self)
        here, there = (transport.get_extra_info(name) for name in ("sockname", "peername"))
        if here is None or there is None:
            # It is gone already.
            transport.abort()
            return
        self._ends = (here[:2], there[:2])
        self._look()

    def _look(self) -> None:
        if not self._transport.is_closing():
            door = self._door
            door.loop.run_in_executor(None, door.peer_check, *self._ends).add_done_callback(self._looked)

    def data_received(self, data: bytes) -> None:
        self._came += data
        self._transport.pause_reading()

    def eof_received(self) -> None:
        self.abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._door.unknown.discard(self)

    def abort(self) -> None:
        self._transport.abort()

    def _looked(self, answer: "asyncio.Future[bool | None]") -> None:
        known = False if answer.cancelled() or answer.exception() is not None else answer.result()
        self._looks -= 1
        if known is None and self._looks:
            self._door.loop.call_later(LOOK_SECONDS, self._look)
        elif known:
            self._become_http()
        else:
            self._transport.abort()

    def _become_http(self) -> None:
        self._door.unknown.discard(self)
        transport = self._transport
        if transport.is_closing():
            return
        connection = HttpConnection(self._door)
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._came and not transport.is_closing():
            connection.data_received(self._came)
        if not transport.is_closing():
            transport.resume_reading()
