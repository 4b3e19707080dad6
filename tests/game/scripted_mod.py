"""A mod that does what a test says, on a real socket: real peers' habits, and worse."""

import asyncio
import json
from typing import Any, Self

from gabp import envelopes
from gabp.content_length import frame
from gabp.envelopes import Mode, Reader

WELCOME: dict[str, Any] = {
    "agentId": "scripted",
    "app": {"name": "Scripted", "version": "1"},
    "capabilities": {},
    "schemaVersion": "1.0",
}
TOOL = {"name": "a/b", "title": "B", "description": "b", "inputSchema": {"type": "object"}, "outputSchema": {}}


class ScriptedMod:
    """Answers as Lib.GAB would; `answers` overrides by method, a value or a function of the request's params."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = {
            "session/hello": WELCOME,
            "tools/list": {"tools": [TOOL]},
            "attention/current": {"attention": None},
            "events/subscribe": lambda params: {"subscribed": params["channels"]},
            **{name.replace("_", "/", 1): answer for name, answer in answers.items()},
        }
        # (method, params) of everything that came, over all connections.
        self.asked: list[tuple[str, Any]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop()
        self._server.close()
        await self._server.wait_closed()

    def drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()

    def send(self, data: bytes) -> None:
        self.writers[-1].write(data)

    def methods(self) -> list[str]:
        return [method for method, _ in self.asked]

    async def _serve(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        # What a strict session sends must always be what a strict one takes.
        reader = Reader(Mode.STRICT)
        while True:
            try:
                data = await stream.read(65536)
            except (ConnectionError, asyncio.CancelledError):
                return
            if not data:
                writer.close()
                return
            for request in reader.feed(data):
                params = json.loads(bytes(request.params))
                self.asked.append((request.method, params))
                self._answer(writer, request, params)

    def _answer(self, writer: asyncio.StreamWriter, request: Any, params: Any) -> None:
        if request.method not in self.answers:
            writer.write(envelopes.error_response(request.id, -32601, f"no {request.method}"))
            return
        answer = self.answers[request.method]
        answer = answer(params) if callable(answer) else answer
        if isinstance(answer, list):
            # Whole bodies, in which $ID stands for the request's id.
            for text in answer:
                writer.write(frame(text.replace(b"$ID", request.id.encode())))
        elif answer is not None:
            writer.write(envelopes.response(request.id, envelopes.to_json(answer)))
