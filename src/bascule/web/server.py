"""uvicorn, told what a local daemon needs: our sockets, our stop, a deadline for every request head."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from bascule.transports.peercred import peer_of

# (reliability) A head takes microseconds on loopback; who needs longer holds a descriptor for nothing.
HEAD_SECONDS = 10.0
# Idle keep-alive connections; helpers close theirs, libraries come back within seconds.
KEEP_ALIVE_SECONDS = 30
# Below the usual 20,000 open files, with room for the store, the log and the links.
MAX_CONNECTIONS = 12_000
BACKLOG = 1_024


class _Protocol(HttpToolsProtocol):
    """One HTTP connection: refused when it is not ours, cut when its head does not come."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own type
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family == socket.AF_UNIX and peer_of(sock).uid != os.getuid():
            transport.abort()
            return
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._arm()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._disarm()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_too_slow)

    def _disarm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_too_slow(self) -> None:
        self._head_timer = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the daemon's lifecycle: it stops the services first, then the doors."""
        yield


class HttpDoor:
    """One listening socket and the application behind it."""

    def __init__(
        self,
        app: Callable[..., Any],
        sock: socket.socket,
        *,
        tls_cert: str | None = None,
        tls_key: str | None = None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=5,
            backlog=BACKLOG,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        )
        self._server = _Server(config)
        self._sock = sock
        self._task: asyncio.Task[None] | None = None

    async def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._server.serve(sockets=[self._sock]))
        await self._server.listening.wait()

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.wait({self._task})
