"""A link server that does what a test tells it, for what a real daemon does only when it is unlucky."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any

from bascule.foundation import paths

# Told as an answer: end the connection without one, or say nothing at all.
HANG_UP = object()
SILENCE = object()

Answer = Callable[[dict[str, Any]], Any]


def refusal(code: str, message: str, **more: Any) -> dict[str, Any]:
    """An error answer of the house."""
    return {"error": {"code": -32000, "message": message, "data": {"code": code, "message": message, **more}}}


class ScriptedServer:
    """Answers hello by itself; `script` gives the answer to every other request, `requests` remembers them."""

    def __init__(self, script: Answer, hello: Any = None) -> None:
        self._script = script
        self._hello = hello
        self._conversations: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.requests: list[dict[str, Any]] = []
        self.state_dir = tempfile.mkdtemp(prefix="bsc")

    def params(self, method: str) -> list[Any]:
        return [request["params"] for request in self.requests if request["method"] == method]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedServer"]:
        server = await asyncio.start_unix_server(self._serve, paths.link_socket(self.state_dir))
        try:
            yield self
        finally:
            server.close()
            for writer in self._conversations.values():
                writer.close()
            await asyncio.gather(*self._conversations)
            shutil.rmtree(self.state_dir)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations[task] = writer
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            del self._conversations[task]

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        request = json.loads(await reader.readexactly(int(head.split(b":")[1])))
        self.requests.append(request)
        if "id" not in request:
            return True
        if request["method"] == "hello" and self._hello is None:
            answer: Any = {"result": {"protocol": 1, "version": "0.1.0", "principal": f"agent:{os.getpid()}"}}
        else:
            answer = self._hello if request["method"] == "hello" else self._script(request)
        if answer is HANG_UP:
            return False
        if isinstance(answer, bytes):
            writer.write(answer)
        elif answer is not SILENCE:
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}).encode()
            writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        return True
