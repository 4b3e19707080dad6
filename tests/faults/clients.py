"""Clients that write down what they asked and what they were told, over link and over HTTP."""

import asyncio
import json
import math
import random
import time
from collections.abc import Callable
from typing import Any

from linearize import DOUBT, Op

from bascule.foundation import paths
from gabp.content_length import FrameReader, frame
from patience import PATIENCE

LOST = (ConnectionError, EOFError, asyncio.IncompleteReadError)


class Refusal(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Link:
    """One link connection, one call at a time."""

    path = staticmethod(paths.link_socket)

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader(max_body_bytes=1 << 23)
        self._came: list[bytes] = []

    async def hello(self, token: str | None) -> None:
        await self.ask("hello", {"protocol": 1, "version": "test"} | ({"token": token} if token else {}))

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self._writer.write(frame(json.dumps(message).encode()))
        while not self._came:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError
            self._came += self._frames.feed(data)
        answer = json.loads(self._came.pop(0))
        if "error" in answer:
            raise Refusal(answer["error"]["data"]["code"])
        return answer["result"]

    def close(self) -> None:
        self._writer.close()


class Http(Link):
    """The same methods on the HTTP socket."""

    path = staticmethod(paths.http_socket)
    routes = {
        "messages.send": ("POST", "/agents/{agentId}/send"),
        "inbox.take": ("GET", "/agents/{agentId}/inbox"),
        "inbox.ack": ("POST", "/agents/{agentId}/inbox/ack"),
        "agents.heartbeat": ("POST", "/agents/{agentId}/heartbeat"),
        "replies.post": ("POST", "/replies"),
        "replies.wait": ("GET", "/replies/{ticketId}"),
        "tickets.cancel": ("POST", "/tickets/{ticketId}/cancel"),
        "tickets.show": ("GET", "/tickets/{ticketId}"),
    }

    async def hello(self, token: str | None) -> None:
        self._who = f"Authorization: Bearer {token}\r\n" if token else ""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        verb, path = self.routes[method]
        rest = {name: value for name, value in params.items() if f"{{{name}}}" not in path}
        path = path.format(**params)
        body = b""
        if verb == "GET":
            path += "?" + "&".join(f"{name}={value}" for name, value in rest.items()) if rest else ""
        else:
            body = json.dumps(rest).encode()
        head = f"{verb} {path} HTTP/1.1\r\nHost: localhost\r\n{self._who}Content-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        status = int(lines[0].split()[1])
        length = next((line.split()[1] for line in lines if line.startswith("content-length:")), "0")
        data = await self._reader.readexactly(int(length))
        answer = json.loads(data) if data else None
        if status >= 400:
            raise Refusal(answer["error"]["code"])
        return "stored" if method == "replies.post" else answer


class Scene:
    """The daemon as the clients find it: which life it is in, and whether it is up."""

    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir
        self.life = 0
        self.up = asyncio.Event()
        self.up.set()
        # Every crash: when, until when it was up again, and which life it ended.
        self.crashes: list[tuple[float, float, int]] = []


class Client:
    """One principal over one kind of connection; comes back after a crash."""

    def __init__(self, scene: Scene, kind: type[Link], handle: str, token: str | None) -> None:
        self._scene = scene
        self._kind = kind
        # Whose inbox this is about.
        self._handle = handle
        self._token = token
        self._link: Link | None = None
        self._life = 0

    async def act(self, call: tuple[Any, ...], wait_ms: int = 0) -> Op:
        async with asyncio.timeout(PATIENCE):
            link = self._link or await self._connect()
            life, began = self._life, time.perf_counter()
            try:
                answer = await self._ask(link, call, wait_ms)
            except LOST:
                self.close()
                return Op(call, DOUBT, began, math.inf, life)
            return Op(call, answer, began, time.perf_counter(), life)

    async def _connect(self) -> Link:
        while True:
            await self._scene.up.wait()
            self._life = self._scene.life
            try:
                link = self._kind(*await asyncio.open_unix_connection(self._kind.path(self._scene.state_dir)))
                await link.hello(self._token)
            except (*LOST, FileNotFoundError):
                # It went down again meanwhile; whoever did that says when it is back.
                await asyncio.sleep(0.01)
                continue
            self._link = link
            return link

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _ask(self, link: Link, call: tuple[Any, ...], wait_ms: int) -> Any:
        name, *given = call
        try:
            return await getattr(self, f"_{name}")(link.ask, given, wait_ms)
        except Refusal as refusal:
            return {"conflict": "conflict", "not_found": "unknown"}[refusal.code]

    async def _send(self, ask: Callable[..., Any], given: list[Any], _wait_ms: int) -> Any:
        ticket_id, body, expects = given
        message = {"agentId": self._handle, "ticketId": ticket_id, "payload": body, "expectReply": expects}
        await ask("messages.send", message)
        return "ok"

    async def _take(self, ask: Callable[..., Any], given: list[Any], wait_ms: int) -> Any:
        taken = await ask("inbox.take", {"agentId": self._handle, "max": given[0], "waitMs": wait_ms})
        return tuple((item["ticketId"], item["attempts"]) for item in taken["messages"]) if taken else ()

    async def _ack(self, ask: Callable[..., Any], given: list[Any], _wait_ms: int) -> Any:
        return tuple((await ask("inbox.ack", {"agentId": self._handle, "ticketIds": given}))["acked"])

    async def _reply(self, ask: Callable[..., Any], given: list[Any], _wait_ms: int) -> Any:
        stored = await ask("replies.post", {"ticketId": given[0], "payload": given[1]})
        return stored if stored == "stored" else "first" if stored["first"] else "more"

    async def _cancel(self, ask: Callable[..., Any], given: list[Any], _wait_ms: int) -> Any:
        return (await ask("tickets.cancel", {"ticketId": given[0]}))["status"]

    async def _wait(self, ask: Callable[..., Any], given: list[Any], wait_ms: int) -> Any:
        view = await ask("replies.wait", {"ticketId": given[0], "waitMs": wait_ms})
        if view is None:
            return None
        replies = [each["payload"] for each in view.get("replies", ())]
        return view["status"], tuple(replies or ([view["payload"]] if "payload" in view else ()))

    async def _show(self, ask: Callable[..., Any], given: list[Any], _wait_ms: int) -> Any:
        view = await ask("tickets.show", {"ticketId": given[0]})
        return view["status"], "ackedAt" in view, tuple(each["payload"] for each in view.get("replies", ()))

    async def _unread(self, ask: Callable[..., Any], _given: list[Any], _wait_ms: int) -> Any:
        return (await ask("agents.heartbeat", {"agentId": self._handle})).get("unread", 0)


def senders_call(chance: random.Random, tickets: list[str]) -> tuple[Any, ...]:
    ticket = chance.choice(tickets)
    send = ("send", ticket, chance.choice("aab"), chance.random() < 0.9)
    return chance.choice([send, send, send, ("cancel", ticket), ("wait", ticket), ("show", ticket)])


def receivers_call(chance: random.Random, tickets: list[str]) -> tuple[Any, ...]:
    ticket = chance.choice(tickets)
    take = ("take", chance.choice((1, 2)))
    reply = ("reply", ticket, chance.choice("xy"))
    some = ("ack", *chance.sample(tickets, chance.choice((1, 2))))
    return chance.choice([take, take, take, some, reply, reply, ("show", ticket), ("wait", ticket), ("unread",)])
