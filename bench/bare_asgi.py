"""The limit for HTTP: an application that reads its request and answers as many bytes as the path asks for.

Served by the same uvicorn with the same settings as Bascule's doors; `/4096` answers 4096 bytes.
"""

import asyncio
import os
import socket
import sys

import uvicorn
import uvloop


async def app(scope, receive, send) -> None:
    while (await receive()).get("more_body"):
        continue
    body = b"x" * int(scope["path"][1:])
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Server(uvicorn.Server):
    """Says into a pipe when it listens."""

    def __init__(self, config: uvicorn.Config, ready: int) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        os.write(self._ready, b"ready\n")


def main() -> None:
    config = uvicorn.Config(
        app,
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
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(str(sock.getsockname()[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Server(config, int(sys.argv[2])).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
