"""pygls beside our frames: its read loop alone around the same echo, and its whole JSON-RPC session.

Run as a program by `measure_game`: python bench/lsp_echo.py ADDRESS_FILE READY_FD; it says two ports.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from threading import Event
from typing import Any

import uvloop
from pygls.client import JsonRPCClient
from pygls.io_ import run_async
from pygls.protocol import JsonRPCProtocol, default_converter
from pygls.server import JsonRPCServer

ECHO = "bench/echo"


class Framed:
    """What `run_async` wants of a protocol, and no more: JSON as it came, handed to `body`."""

    def __init__(self, writer: asyncio.StreamWriter, body: Callable[["Framed", dict[str, Any]], None]) -> None:
        self._writer = writer
        self._body = body

    def structure_message(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def handle_message(self, message: dict[str, Any]) -> None:
        self._body(self, message)

    def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        self._writer.write(b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b" % (len(body), body))


def _answer(framed: Framed, message: dict[str, Any]) -> None:
    framed.send({"v": "gabp/1", "id": message["id"], "type": "response", "result": message["params"]})


async def ask_framed(port: int, measured: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Any:
    """`measured` is given what asks once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turns: list[asyncio.Future[Any]] = []
    framed = Framed(writer, lambda _, message: turns.pop().set_result(message["result"]))

    async def ask(params: dict[str, Any]) -> Any:
        turns.append(asyncio.get_running_loop().create_future())
        framed.send({"v": "gabp/1", "id": "1", "type": "request", "method": "tools/call", "params": params})
        return await turns[0]

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(run_async(Event(), reader, framed))
        result = await measured(ask)
        reading.cancel()
    writer.close()
    return result


async def ask_session(port: int, measured: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> Any:
    client = JsonRPCClient()
    await client.start_tcp("127.0.0.1", port)

    async def ask(params: dict[str, Any]) -> Any:
        found: Future[Any] = client.protocol.send_request(ECHO, params)
        return await asyncio.wrap_future(found)

    result = await measured(ask)
    client.protocol.writer.close()
    await client.stop()
    return result


# -- the other process --


async def _serve_framed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await run_async(Event(), reader, Framed(writer, _answer))
    writer.close()


async def _serve_session(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    server = JsonRPCServer(JsonRPCProtocol, default_converter)

    @server.feature(ECHO)
    def echo(params: Any) -> Any:
        return params

    server.protocol.set_writer(writer)
    await run_async(Event(), reader, server.protocol)
    writer.close()


def _say(ports: list[int]) -> None:
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(" ".join(map(str, ports)))
    os.write(int(sys.argv[2]), b"ready\n")


async def _main() -> None:
    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (_serve_framed, _serve_session)]
    _say([each.sockets[0].getsockname()[1] for each in servers])
    await servers[0].serve_forever()


if __name__ == "__main__":
    uvloop.run(_main())
