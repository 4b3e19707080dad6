"""How the HTTP servers beside Bascule are run: one uvicorn, set up to do as little as it can."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
import uvloop


class Server(uvicorn.Server):
    """Says into a pipe when it listens."""

    def __init__(self, config: uvicorn.Config, ready: int) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        os.write(self._ready, b"ready\n")


def run(make_app: Callable[[str], Any]) -> None:
    """Serve what `make_app` makes for its address; argv: the file the address is written to, and the pipe."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(address)
    config = uvicorn.Config(
        make_app(address),
        http="httptools",
        ws="none",
        lifespan="off",
        loop="none",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        backlog=1024,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Server(config, int(sys.argv[2])).serve(sockets=[sock]))
