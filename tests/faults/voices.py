"""HTTP and link to a daemon that may die in the middle of a word."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Self

from bascule.foundation import paths
from gabp.content_length import FrameReader, frame
from patience import PATIENCE

_DEAD = (ConnectionError, asyncio.IncompleteReadError, FileNotFoundError)


class Lost(Exception):
    """The daemon went away before it answered: what was asked may have happened, or not."""


class Answer(NamedTuple):
    status: int
    content: Any

    @property
    def ok(self) -> bool:
        return self.status in (200, 204)


class Http:
    """One caller over `http.sock`, a connection at a time."""

    def __init__(self, path: str, token: str | None = None) -> None:
        self._path = path
        self.token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, verb: str, path: str, body: Any = None) -> Answer:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._ask(verb, path, body)
        except _DEAD as error:
            await self.close()
            raise Lost from error

    async def _ask(self, verb: str, path: str, body: Any) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path)
        reader, writer = self._streams
        head = [f"{verb} {path} HTTP/1.1", "Host: localhost"]
        if self.token is not None:
            head.append(f"Authorization: Bearer {self.token}")
        data = json.dumps(body).encode() if body is not None else b""
        if verb == "POST":
            head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
        writer.write("\r\n".join([*head, "", ""]).encode() + data)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        status = int(lines[0].split()[1])
        length = next((int(line[15:]) for line in lines if line.lower().startswith("content-length:")), 0)
        text = await reader.readexactly(length) if length else b""
        return Answer(status, json.loads(text) if text else None)

    async def close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            await _hang_up(writer)


class Link:
    """One link connection; call from as many tasks as you like."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._feeds: dict[int, asyncio.Queue[Any]] = {}
        self._listening = asyncio.ensure_future(self._listen())

    async def call(self, method: str, params: Any) -> Answer:
        answer = await self._request(method, params)
        if "error" in answer:
            return Answer(400, answer["error"])
        return Answer(200, answer["result"])

    async def feed(self, method: str, params: Any) -> AsyncIterator[Any]:
        """Items of a stream until it ends; leaving the loop cancels it."""
        number = next(self._ids)
        items = self._feeds[number] = asyncio.Queue()
        answer = await self._request(method, params, number)
        if "error" in answer:
            return
        try:
            while (item := await items.get()) is not None:
                yield item
        finally:
            del self._feeds[number]
            self._send({"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": number}})

    async def _request(self, method: str, params: Any, number: int | None = None) -> Any:
        number = number or next(self._ids)
        if self._listening.done():
            raise Lost
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE):
            return await future

    def _send(self, message: Any) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(json.dumps(message).encode()))

    async def _listen(self) -> None:
        frames = FrameReader(max_body_bytes=8 * 1024 * 1024)
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 16):
                for message in map(json.loads, frames.feed(data)):
                    self._take(message)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Lost())
        for feed in self._feeds.values():
            feed.put_nowait(None)

    def _take(self, message: Any) -> None:
        if "id" in message:
            future = self._waiting.pop(message["id"])
            if not future.done():
                future.set_result(message)
            return
        feed = self._feeds.get(message["params"]["stream"])
        if feed is not None:
            ended = message["method"].endswith(".end")
            feed.put_nowait(None if ended else message["params"].get("item"))

    async def close(self) -> None:
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        for future in self._waiting.values():
            # Nobody is left to hear it.
            if future.done() and not future.cancelled():
                future.exception()
        await _hang_up(self._writer)


class Doors:
    """Every connection to one daemon, closed together."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._open: list[Http | Link] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._open:
            await each.close()

    def stored_token(self, name: str) -> str | None:
        """What the daemon left for whoever registers it."""
        try:
            return paths.read_private_file(paths.token_file(self._state, name))
        except FileNotFoundError:
            return None

    def http(self, token: str | None = None) -> Http:
        http = Http(paths.http_socket(self._state), token)
        self._open.append(http)
        return http

    async def link(self, token: str | None = None) -> Link:
        try:
            link = Link(*await asyncio.open_unix_connection(paths.link_socket(self._state)))
        except _DEAD as error:
            raise Lost from error
        self._open.append(link)
        content = {"protocol": 1, "version": "test"} | ({"token": token} if token else {})
        answer = await link.call("hello", content)
        assert answer.ok, answer
        return link


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
