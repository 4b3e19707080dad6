"""uvicorn, set up for a local daemon: our sockets, our connections, our stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from bascule.surfaces.http.http import KEEP_ALIVE_SECONDS, ConnectionLimit, HttpConnection

BACKLOG = 4_096


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Sleep until it is stopped; uvicorn's own looks ten times a second."""
        await self.on_tick(0)
        await self.stopping.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon's lifecycle: it stops the services first, then the doors."""
        yield


def _config(
    app: Callable[..., Any], http: Callable[..., HttpConnection] = HttpConnection, **more: Any
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        # Only ever called.
        http=cast("type[HttpConnection]", http),
        ws="none",
        lifespan="off",
        loop="none",
        interface="asgi3",
        log_config=None,
        # Each broken request of anybody would be a warning on our terminal.
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
        backlog=BACKLOG,
        **more,
    )


class HttpDoor:
    """One listening socket and the application behind it."""

    def __init__(
        self,
        app: Callable[..., Any],
        sock: socket.socket,
        *,
        room: ConnectionLimit,
        max_connections: int | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        """`max_connections` is how many of the places in `room` this door may take."""
        http = partial(HttpConnection, room=room, max_connections=max_connections)
        self._server = _Server(_config(app, http, ssl_certfile=tls_cert, ssl_keyfile=tls_key))
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._server.serve(sockets=[self._sock]))
        await self._server.listening.wait()

    async def stop(self) -> None:
        self._server.stopping.set()
        if self._task is not None:
            await asyncio.wait({self._task})


class SideDoor:
    """A small listening socket that comes and goes, for peers of one user.

    Without uvicorn's server around it, which wakes ten times a second for each: there may be a hundred of these.
    """

    def __init__(
        self, app: Callable[..., Any], sock: socket.socket, *, peer_uid: int, max_connections: int, backlog: int
    ) -> None:
        self._config = _config(app)
        self._state = ServerState()
        self._sock = sock
        self._peer_uid = peer_uid
        self._max_connections = max_connections
        self._backlog = backlog
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        self._config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, sock=self._sock, backlog=self._backlog)

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
            for connection in list(self._state.connections):
                connection.transport.abort()
            await self._server.wait_closed()

    def _connection(self) -> HttpConnection:
        return HttpConnection(
            config=self._config,
            server_state=self._state,
            app_state={},
            peer_uid=self._peer_uid,
            max_connections=self._max_connections,
        )
