"""uvicorn, told what a local daemon needs: our sockets, our connections, our stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from bascule.web.http import KEEP_ALIVE_SECONDS, HttpConnection

BACKLOG = 4_096


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
            http=HttpConnection,
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
