"""`/mcp` as two kinds of client see it: the official one, and one that says exactly which bytes go out."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, Self

import httpx2
from living import Living
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from wires import Answer, Caller, Wire, request

from patience import PATIENCE

MODES = ["auto", "legacy"]
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ACCEPT = ("Accept", "application/json, text/event-stream")
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
RECENT = "bascule://transactions/recent"


class Agent:
    """A registered agent and its ways in."""

    def __init__(self, daemon: Living, handle: str) -> None:
        self.daemon = daemon
        self.handle = handle
        self.caller = Caller(daemon).register(handle)

    @property
    def token(self) -> str:
        return self.caller.token

    def official(self, mode: str, **options: Any) -> "contextlib.AbstractAsyncContextManager[Client]":
        return official(f"http://{self.daemon.host}/mcp", self.token, mode, **options)

    def modern(self) -> "Modern":
        return Modern(self.daemon, self.token)

    def session(self) -> "Session":
        return Session(self.daemon, self.token)

    def ticket(self, ticket: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.caller.get(f"/tickets/{ticket}").json
        return shown


@contextlib.asynccontextmanager
async def official(url: str, token: str, mode: str, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(PATIENCE)) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, **options) as client,
    ):
        yield client


class Stream:
    """An answer under way, whichever form it has: the JSON-RPC messages in it, one by one."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.status, self.headers = wire.head()
        self._chunks = wire.chunks() if self.headers.get("transfer-encoding") == "chunked" else iter(())
        self._text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def message(self) -> dict[str, Any] | None:
        """The next one; None when the stream has ended."""
        if self.headers["content-type"] != "text/event-stream":
            found: dict[str, Any] = json.loads(self.wire._file.read(int(self.headers["content-length"])))
            return found
        while True:
            while "\r\n\r\n" not in self._text:
                chunk = next(self._chunks, None)
                if chunk is None:
                    return None
                self._text += chunk.decode()
            block, _, self._text = self._text.partition("\r\n\r\n")
            for line in block.split("\r\n"):
                if line.startswith("data: "):
                    message: dict[str, Any] = json.loads(line[6:])
                    return message

    def result(self) -> dict[str, Any]:
        """The answer at the end; notifications before it are passed over."""
        while (message := self.message()) is not None:
            if "id" in message:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer
        raise AssertionError("the stream ended without an answer")


class Modern:
    """2026-07-28: every request stands for itself."""

    def __init__(self, daemon: Living, token: str) -> None:
        self._daemon = daemon
        self._headers = [
            ("Host", daemon.host),
            ("Authorization", f"Bearer {token}"),
            ("Content-Type", "application/json"),
            ACCEPT,
            ("MCP-Protocol-Version", MODERN),
        ]
        self._numbers = itertools.count(1)

    def begin(self, method: str, *, meta: dict[str, Any] | None = None, **params: Any) -> Wire:
        """Send a request and leave its answer to be read."""
        wire = Wire(self._daemon.tcp, PATIENCE)
        headers = [*self._headers, ("Mcp-Method", method)]
        if name := params.get("name") or params.get("uri"):
            headers.append(("Mcp-Name", name))
        message = {
            "jsonrpc": "2.0",
            "id": next(self._numbers),
            "method": method,
            "params": {**params, "_meta": {**META, **(meta or {})}},
        }
        wire.send(request("POST", "/mcp", headers, json.dumps(message).encode()))
        return wire

    def open(self, method: str, **params: Any) -> Stream:
        return Stream(self.begin(method, **params))

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        with self.open(method, **params) as stream:
            return stream.result()

    def begin_call(self, tool: str, *, meta: dict[str, Any] | None = None, **arguments: Any) -> Wire:
        return self.begin("tools/call", meta=meta, name=tool, arguments=arguments)

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)


class Session(Modern):
    """2025-11-25: a handshake, then a session."""

    def __init__(self, daemon: Living, token: str) -> None:
        super().__init__(daemon, token)
        self._headers = self._headers[:-1]
        greeting = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        with self.open("initialize", **greeting) as stream:
            self.greeting = stream.result()
            self.session_id = stream.headers["mcp-session-id"]
        self._headers += [("Mcp-Session-Id", self.session_id), ("MCP-Protocol-Version", HANDSHAKE)]
        assert self.notify("notifications/initialized").status == 202

    def begin(self, method: str, *, meta: dict[str, Any] | None = None, **params: Any) -> Wire:
        wire = Wire(self._daemon.tcp, PATIENCE)
        self.number = next(self._numbers)
        message = {
            "jsonrpc": "2.0",
            "id": self.number,
            "method": method,
            "params": {**params, "_meta": meta} if meta else params,
        }
        wire.send(request("POST", "/mcp", self._headers, json.dumps(message).encode()))
        return wire

    def notify(self, method: str, **params: Any) -> Answer:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        with Wire(self._daemon.tcp, PATIENCE) as wire:
            return wire.ask("POST", "/mcp", self._headers, json.dumps(message).encode())

    def listen(self) -> Stream:
        """The GET that carries what the server says by itself."""
        wire = Wire(self._daemon.tcp, PATIENCE)
        wire.send(request("GET", "/mcp", self._headers))
        return Stream(wire)

    def end(self) -> Answer:
        with Wire(self._daemon.tcp, PATIENCE) as wire:
            return wire.ask("DELETE", "/mcp", self._headers)
