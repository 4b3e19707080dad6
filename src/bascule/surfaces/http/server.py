"""A listening socket for HTTP: its connections, their clock and their end."""

import asyncio
import contextlib
import os
import socket
import ssl

from bascule.surfaces.http.app import App
from bascule.surfaces.http.connection import HEAD_SECONDS, HttpConnection
from bascule.surfaces.http.tls_accept import TlsServer

BACKLOG = 4_096
# Ten thousand agents that wait, with some room; a process that may open fewer files takes fewer (daemon.descriptors).
MAX_CONNECTIONS = 12_000
# How often a door looks whose time is over. What it looks for takes ten seconds and more.
SWEEP_SECONDS = 1.0
# What is being answered when the daemon stops has this long to be read.
STOP_SECONDS = 5.0


class ConnectionLimit:
    """Connections that several doors may have together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    def take(self) -> bool:
        """Whether there was a place; it is to be given back."""
        if self._taken >= self._most:
            return False
        self._taken += 1
        return True

    def give_back(self) -> None:
        self._taken -= 1


class HttpDoor:
    """One listening socket and the application behind it."""

    def __init__(
        self,
        app: App,
        sock: socket.socket,
        *,
        room: ConnectionLimit | None = None,
        max_connections: int | None = None,
        peer_uid: int | None = None,
        backlog: int = BACKLOG,
        tls: tuple[str, str | None] | None = None,
    ) -> None:
        """`max_connections` is how many of the places in `room` this door may take; `peer_uid` is whose connections
        are taken on a unix socket, ours when it is not given; `tls` are the files of certificate and key."""
        self.app = app
        self.loop = asyncio.get_running_loop()
        # Moves once per sweep: to read the real clock for each request would cost more than it says.
        self.now = 0.0
        self.peer_uid = os.getuid() if peer_uid is None else peer_uid
        self._sock = sock
        self._room = room
        self._max_connections = MAX_CONNECTIONS if max_connections is None else min(MAX_CONNECTIONS, max_connections)
        self._backlog = backlog
        self._tls = _tls(*tls) if tls is not None else None
        self.connections: set[HttpConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._server: asyncio.AbstractServer | TlsServer | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        loop, sock = self.loop, self._sock
        if sock.family == socket.AF_UNIX:
            self._server = await loop.create_unix_server(self.make_connection, sock=sock, backlog=self._backlog)
        elif self._tls is None:
            self._server = await loop.create_server(self.make_connection, sock=sock, backlog=self._backlog)
        else:
            self._server = TlsServer(
                sock, self._tls, self.make_connection, self.app.tasks, backlog=self._backlog, seconds=HEAD_SECONDS
            )

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Let what is being answered go out, and close every connection."""
        if self._server is None:
            return
        self._server.close()
        if self._timer is not None and not self.connections:
            self._timer.cancel()
        if seconds:
            for connection in list(self.connections):
                connection.shutdown()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()
        for connection in list(self.connections):
            connection.abort()
        await self.app.tasks.close()
        await self._server.wait_closed()

    # -- its connections --

    def make_connection(self) -> asyncio.Protocol:
        """What a new connection is given to."""
        return HttpConnection(self)

    def entered(self, connection: HttpConnection) -> bool:
        """Whether there is room for it."""
        if len(self.connections) >= self._max_connections or not (self._room is None or self._room.take()):
            return False
        self.connections.add(connection)
        self._empty.clear()
        if self._timer is None:
            self._sweep()
        return True

    def left(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        if self._room is not None:
            self._room.give_back()
        if not self.connections:
            self._empty.set()

    def _sweep(self) -> None:
        self._timer = None
        if not self.connections:
            return
        self._timer = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        # What is due is measured from the last look: nobody is cut before its time.
        for connection in [each for each in self.connections if each.due <= self.now]:
            connection.overdue()
        self.now = self.loop.time()


def _tls(cert: str, key: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
