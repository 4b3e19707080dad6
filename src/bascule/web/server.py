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
from bascule.web.heads import why_refused

# (reliability) A head takes microseconds on loopback; who needs longer holds a descriptor for nothing.
HEAD_SECONDS = 10.0
# A bearer, an address and a dozen standard headers are one KiB; browsers and proxies stay below eight.
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 100
_HEAD_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
# Idle keep-alive connections; helpers close theirs, libraries come back within seconds.
KEEP_ALIVE_SECONDS = 30
# Below the usual 20,000 open files, with room for the store, the log and the links.
MAX_CONNECTIONS = 12_000
BACKLOG = 1_024


class _Protocol(HttpToolsProtocol):
    """One HTTP connection: refused when it is not ours, cut when its head does not come or does not end."""

    _head_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _refused = False
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own type
        super().connection_made(transport)
        sock = transport.get_extra_info("socket")
        foreign = sock is not None and sock.family == socket.AF_UNIX and peer_of(sock).uid != os.getuid()
        if foreign or len(self.connections) > MAX_CONNECTIONS:
            self._refused = True
            transport.abort()
            return
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        in_head = self.cycle is None or self.cycle.response_complete
        if in_head:
            self._arm()
            self._head_bytes += len(data)
        super().data_received(data)
        if in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._refuse_head()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers would join the headers behind the gate's back, and without end.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        self._head_bytes = 0
        self._in_head = False
        if self._refused:
            # What was sent behind a refused head is not for us any more.
            return
        size = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.headers) > MAX_HEADERS or size > MAX_HEAD_BYTES:
            self._refuse_head()
            return
        if said := why_refused(self.url, self.parser.get_http_version(), self.headers):
            self._refused = True
            self.send_400_response(said)
            return
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # Answered as if nothing else had been asked for; the parser reads nothing behind it.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _refuse_head(self) -> None:
        """Before any token is seen: nobody may make us hold more than this."""
        self._refused = True
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()

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
            # Each broken request of anybody would be a warning on our terminal.
            log_level="error",
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
