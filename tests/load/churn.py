"""Clients as life brings them: they ask, wait, leave in the middle, come back, hang up halfway, time out. A program.

Prints the number of acts done so far, every now and then; runs until it is ended, mostly by SIGKILL.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
from typing import Any

import uvloop

from bascule.foundation import paths
from patience import PATIENCE
from swarm import _HELLO, Http, Link, encode

ACTORS = 12
REPORT_SECONDS = 0.2
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "churn", "version": "1"},
    },
}


class Churn:
    def __init__(self, state: str, port: int, *, mcp: bool) -> None:
        self._state = state
        self._port = port
        self._mcp = mcp
        self.acts = 0
        self._names = (f"c{os.getpid()}-{number}" for number in itertools.count())

    async def link(self, name: str | None) -> Link:
        """A new connection; with a name, one that registered and acts as it."""
        client = await Link.connect(paths.link_socket(self._state))
        await client.call("hello", encode(_HELLO))
        if name is not None:
            registered = await client.call("agents.register", encode({"agentId": name}))
            token = json.loads(bytes(registered.result))["agentToken"]
            await client.call("hello", encode({**_HELLO, "token": token}))
            self.acts += 2
        return client

    async def http(self, verb: str, path: str, body: object = None, token: str | None = None) -> tuple[Http, Any]:
        _, connection = await asyncio.get_running_loop().create_connection(Http, "127.0.0.1", self._port)
        token = token or paths.read_private_file(paths.local_token_file(self._state)).strip()
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: application/json, text/event-stream\r\n"
        )
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        answer = connection.ask(head.encode() + b"\r\n" + content)
        self.acts += 1
        return connection, answer

    # -- what an actor may do --

    async def ask(self) -> None:
        """Two agents come, talk a little, and hang up."""
        asker, answerer = next(self._names), next(self._names)
        one, two = await self.link(asker), await self.link(answerer)
        for _ in range(10):
            message = {"agentId": answerer, "payload": "x" * 200, "timeoutMs": 1_800_000, "conversationId": asker}
            sent = await one.call("messages.send", encode(message))
            ticket = json.loads(bytes(sent.result))["ticketId"]
            waiting = one.call("replies.wait", encode({"ticketId": ticket, "waitMs": 60_000}))
            await two.call("inbox.take", encode({"agentId": answerer, "waitMs": 1_000}))
            await two.call("replies.post", encode({"ticketId": ticket, "payload": "y" * 200}))
            await waiting
            self.acts += 4
        one.close()
        two.close()

    async def leave_in_the_middle(self) -> None:
        """Long polls and streams of all kinds, and then the connection is gone."""
        name = next(self._names)
        client = await self.link(name)
        sent = await client.call("messages.send", encode({"agentId": name, "payload": 1}))
        ticket = json.loads(bytes(sent.result))["ticketId"]
        for method, params in (
            ("replies.wait", {"ticketId": ticket, "waitMs": 60_000}),
            ("replies.stream", {"ticketId": ticket}),
            ("inbox.stream", {"agentId": name}),
            ("inbox.take", {"agentId": name, "waitMs": 60_000}),
            ("events.stream", {}),
        ):
            client.call(method, encode(params))
            self.acts += 1
        await asyncio.sleep(random.random() * 0.02)
        client.abort()

    async def leave_http_in_the_middle(self) -> None:
        client = await self.link(None)
        name = next(self._names)
        registered = await client.call("agents.register", encode({"agentId": name}))
        token = json.loads(bytes(registered.result))["agentToken"]
        client.close()
        paths = (f"/agents/{name}/inbox?waitMs=60000", f"/agents/{name}/inbox/stream", "/events")
        opened = [await self.http("GET", path, token=token) for path in paths]
        await asyncio.sleep(random.random() * 0.02)
        for connection, _ in opened:
            connection.transport.abort()

    async def hang_up_halfway(self) -> None:
        """Half a head, half a body, half a frame."""
        token = paths.read_private_file(paths.local_token_file(self._state)).strip()
        head = f"POST /broadcast HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {token}\r\n".encode()
        for text in (head[:40], head + b"Content-Type: application/json\r\nContent-Length: 900\r\n\r\n{"):
            _, connection = await asyncio.get_running_loop().create_connection(Http, "127.0.0.1", self._port)
            connection.transport.write(text)
            await asyncio.sleep(0.001)
            connection.transport.abort()
            self.acts += 1
        client = await self.link(None)
        client.write(b"Content-Length: 5000\r\n\r\n{")
        await asyncio.sleep(0.001)
        client.abort()
        self.acts += 1

    async def nobody_answers(self) -> None:
        """Messages that time out, are cancelled, or are never fetched."""
        name = next(self._names)
        client = await self.link(name)
        for number in range(6):
            message = {"agentId": name, "payload": "z" * 500, "timeoutMs": 20 if number % 2 else 3_600_000}
            sent = await client.call("messages.send", encode(message))
            ticket = json.loads(bytes(sent.result))["ticketId"]
            if not number % 3:
                await client.call("tickets.cancel", encode({"ticketId": ticket}))
            self.acts += 2
        client.close()

    async def refused(self) -> None:
        """Calls that are wrong, over HTTP and link."""
        client = await self.link(None)
        for method in ("tickets.show", "no.such", "replies.wait"):
            with contextlib.suppress(RuntimeError):
                await client.call(method, encode({"ticketId": "none"}))
        client.close()
        connection, answer = await self.http("GET", "/replies/none", token="wrong" if random.random() < 0.1 else None)
        await answer
        connection.transport.abort()
        self.acts += 3

    async def mcp_session(self) -> None:
        """Opened and dropped, as a client that crashes leaves it."""
        if not self._mcp:
            return
        connection, answer = await self.http("POST", "/mcp", INITIALIZE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                await answer
        connection.transport.abort()

    async def act(self) -> None:
        kinds = [
            *([self.ask] * 5),
            *(self.leave_in_the_middle, self.leave_http_in_the_middle, self.hang_up_halfway),
            *(self.nobody_answers, self.refused, self.mcp_session),
        ]
        while True:
            # A daemon that is busy may refuse; a client goes on.
            with contextlib.suppress(RuntimeError, OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await random.choice(kinds)()


async def main() -> None:
    churn = Churn(sys.argv[1], int(sys.argv[2]), mcp=sys.argv[3] == "on")
    async with asyncio.TaskGroup() as group:
        for _ in range(ACTORS):
            group.create_task(churn.act())
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            sys.stdout.write(f"{churn.acts}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main())
