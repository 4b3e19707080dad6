"""The limit for a game's call: JSON behind a Content-Length, read and given back. Nothing is checked.

Run as a program by `measure_game`: python bench/bare_frames.py ADDRESS_FILE READY_FD
Started by a bridge it is the smallest mod there can be: what a call then costs more is the bridge's.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import uvloop


class Frames(asyncio.Protocol):
    """Whole bodies, one by one."""

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            size = int(self._buffer[: self._buffer.index(b"\r\n")].partition(b":")[2])
            if len(self._buffer) < end + 4 + size:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + size], self._buffer[end + 4 + size :]
            self.body(json.loads(body))

    def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        self.transport.write(b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b" % (len(body), body))

    def body(self, message: dict[str, Any]) -> None:
        result = ANSWERS.get(message["method"], message["params"])
        self.send({"v": "gabp/1", "id": message["id"], "type": "response", "result": result})


SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
TOOL = {"name": "bench/echo", "title": "Echo", "description": "Echo.", "inputSchema": SCHEMA, "outputSchema": {}}
ANSWERS: dict[str, Any] = {
    "session/hello": {
        "agentId": "bench",
        "app": {"name": "bench", "version": "1"},
        "capabilities": {"methods": ["tools/list", "tools/call"]},
        "schemaVersion": "1.0",
    },
    "tools/list": {"tools": [TOOL]},
}


async def serve(port: int, ready: Callable[[int], None], kind: type[Frames] = Frames) -> None:
    server = await asyncio.get_running_loop().create_server(kind, "127.0.0.1", port)
    ready(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def say(port: int) -> None:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(str(port))
    os.write(int(sys.argv[2]), b"ready\n")


if __name__ == "__main__":
    given = os.environ.get("GABP_SERVER_PORT")
    uvloop.run(serve(0, say) if given is None else serve(int(given), lambda _: None))
