"""Clients by the thousand, in a process of their own: honest, slow, greedy and heavy ones.

Run as a program by `load_scenes`. Every line on stdin is an order, `{"do": "hold", ...}`; every order is answered
with one line on stdout. What an order opened stays open until another ends it.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvloop

from bascule import __version__
from bascule.foundation import paths
from bascule.foundation.agreement import PROTOCOL_VERSION
from ends_frames import Envelope, encode
from swarm_clients import Http, Link

# Nothing here takes a minute unless it hangs.
PATIENCE_SECONDS = 90.0
# Connections being made at the same time; the backlog of the daemon's doors is 1,024.
MAX_CONNECTING = 200
_HELLO = {"protocol": PROTOCOL_VERSION, "version": __version__}
_MIB = "x" * (1024 * 1024 - 64)


class Swarm:
    def __init__(self, state: str, port: int) -> None:
        self._state = state
        self._port = port
        self._local: Link | None = None
        self._tokens: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._tickets: list[tuple[str, str, str]] = []
        self._held: list[tuple[str, asyncio.Future[Any]]] = []
        self._answered_at: list[float] = []
        self._open: list[Http] = []
        self._loris: list[Http] = []
        self._running: dict[str, list[asyncio.Future[Any]]] = {}
        self._counts: Counter[str] = Counter()

    # -- who we are --

    async def _register(self, name: str) -> None:
        if name in self._tokens:
            return
        with contextlib.suppress(FileNotFoundError):
            # By a swarm before this one.
            self._tokens[name] = paths.read_private_file(paths.token_file(self._state, name))
            return
        if self._local is None:
            self._local = await Link.connect(paths.link_socket(self._state))
            await self._local.call("hello", encode(_HELLO))
        await self._local.call("agents.register", encode({"agentId": name}))
        self._tokens[name] = paths.read_private_file(paths.token_file(self._state, name))

    async def _link(self, name: str) -> Link:
        """A connection that acts as this agent."""
        if name not in self._links:
            await self._register(name)
            client = await Link.connect(paths.link_socket(self._state))
            await client.call("hello", encode({**_HELLO, "token": self._tokens[name]}))
            self._links[name] = client
        return self._links[name]

    async def _http(self, door: str) -> Http:
        loop = asyncio.get_running_loop()
        if door == "unix":
            while True:
                try:
                    _, connection = await loop.create_unix_connection(Http, paths.http_socket(self._state))
                    break
                except BlockingIOError:
                    # The backlog is full; a blocking client would wait here.
                    await asyncio.sleep(0.01)
        else:
            _, connection = await loop.create_connection(Http, "127.0.0.1", self._port)
        return connection

    def _request(self, verb: str, path: str, token: str, body: bytes | None = None) -> bytes:
        head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {token}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + (body or b"")

    # -- long polls --

    async def send(self, agents: int, each: int) -> dict[str, Any]:
        """So many agents send so many messages; agent n asks agent n + 1."""
        names = [f"a{number}" for number in range(agents)]
        calls = []
        for number, name in enumerate(names):
            target = names[(number + 1) % agents]
            await self._register(target)
            client = await self._link(name)
            message = encode({"agentId": target, "payload": "?"})
            calls += [(name, target, client.call("messages.send", message)) for _ in range(each)]
            if len(calls) % 1_000 == 0:
                await calls[-1][2]
        for name, target, call in calls:
            self._tickets.append((name, target, json.loads(bytes((await call).result))["ticketId"]))
        return {"sent": len(self._tickets)}

    async def hold(self, door: str, wait_ms: int, copies: int = 1) -> dict[str, Any]:
        """Long polls for every ticket: a connection each over HTTP, one per agent over link."""
        began = time.monotonic()
        gate = asyncio.Semaphore(MAX_CONNECTING)

        async def one(name: str, ticket: str) -> None:
            async with gate:
                connection = await self._http(door)
                self._open.append(connection)
                request = self._request("GET", f"/replies/{ticket}?waitMs={wait_ms}", self._tokens[name])
                self._keep(ticket, connection.ask(request))

        wanted = [(name, ticket) for name, _, ticket in self._tickets for _ in range(copies)]
        if door == "link":
            for name, ticket in wanted:
                params = encode({"ticketId": ticket, "waitMs": wait_ms})
                self._keep(ticket, (await self._link(name)).call("replies.wait", params))
        else:
            async with asyncio.TaskGroup() as group:
                for name, ticket in wanted:
                    group.create_task(one(name, ticket))
        return {"asked": len(self._held), "took_s": time.monotonic() - began}

    def _keep(self, ticket: str, future: "asyncio.Future[Any]") -> None:
        future.add_done_callback(lambda _: self._answered_at.append(time.monotonic()))
        self._held.append((ticket, future))

    async def reply(self) -> dict[str, Any]:
        """Every ticket is answered with its own id; who waits must hear exactly that."""
        early = sum(future.done() for _, future in self._held)
        began = time.monotonic()
        posted = []
        for _, target, ticket in self._tickets:
            client = await self._link(target)
            posted.append(client.call("replies.post", encode({"ticketId": ticket, "payload": ticket})))
        await asyncio.wait(posted, timeout=PATIENCE_SECONDS)
        stored = time.monotonic()
        if self._held:
            await asyncio.wait([future for _, future in self._held], timeout=PATIENCE_SECONDS)
        outcomes: Counter[str] = Counter()
        for ticket, future in self._held:
            outcomes[_outcome(ticket, future)] += 1
        woken_s = max(self._answered_at, default=began) - began
        return {"early": early, "outcomes": outcomes, "stored_s": stored - began, "woken_s": woken_s}

    async def outcomes(self, seconds: float) -> dict[str, Any]:
        """How the held polls end by themselves."""
        await asyncio.wait([future for _, future in self._held], timeout=seconds)
        counts = Counter(_outcome(ticket, future) for ticket, future in self._held)
        return {"outcomes": counts, "retry_after": sum(b"retry" in _body(future) for _, future in self._held)}

    async def close(self) -> dict[str, Any]:
        """Everything this swarm holds open."""
        connections, self._open, self._held, self._tickets = self._open + self._loris, [], [], []
        for connection in connections:
            if connection.transport is not None:
                connection.transport.abort()
        for client in self._links.values():
            client.close()
        if self._local is not None:
            self._local.close()
        self._links, self._local, self._loris = {}, None, []
        await asyncio.sleep(0)
        return {"closed": len(connections)}

    # -- slow ones --

    async def loris(self, style: str, count: int, every_s: float) -> dict[str, Any]:
        """Connections that never finish: `silent`, `head`, `body` (with a good head), `stranger` (without a token)."""
        await self._register("loris")
        gate = asyncio.Semaphore(MAX_CONNECTING)
        head = self._request("POST", "/agents/loris/send", self._tokens["loris"], b"x" * 4_000)
        starts = {
            "silent": b"",
            "head": head[:20],
            "body": head[:-3_990],
            "stranger": head[:-3_990].replace(self._tokens["loris"].encode(), b"wrong"),
        }

        async def one() -> None:
            async with gate:
                connection = await self._http("tcp")
                self._loris.append(connection)
                connection.answer = asyncio.get_running_loop().create_future()
                connection.silent = style == "silent"
                connection.transport.write(starts[style])

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        if "loris" not in self._running:
            self._run("loris", self._trickle(every_s))
        return {"open": len(self._loris)}

    async def _trickle(self, every_s: float) -> None:
        """A byte now and then, so that no idle timer of a naive server ever fires."""
        turns = 50
        for turn in itertools.cycle(range(turns)):
            await asyncio.sleep(every_s / turns)
            for connection in self._loris[turn::turns]:
                if connection.lost_at is None and not connection.silent:
                    connection.transport.write(b"x")

    async def cut(self, seconds: float) -> dict[str, Any]:
        """Wait until the daemon has ended all of them; how long the oldest of them lived."""
        deadline = time.monotonic() + seconds
        while any(each.lost_at is None for each in self._loris) and time.monotonic() < deadline:  # noqa: ASYNC110 - thousands end, each by itself
            await asyncio.sleep(0.02)
        await self.stop("loris")
        lived = sorted(each.lost_at - each.began for each in self._loris if each.lost_at is not None)
        answers = Counter(_outcome("", each.answer) for each in self._loris if each.answer is not None)
        left = len(self._loris) - len(lived)
        return {"cut": len(lived), "left": left, "longest_s": max(lived, default=0.0), "said": answers}

    # -- the good client --

    async def measure(self, what: str, seconds: float, pause_s: float) -> dict[str, Any]:
        """One act after the other with a pause between them; how long each took, in milliseconds."""
        act = await getattr(self, f"_{what}")()
        for _ in range(5):
            await act()
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.perf_counter()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await act()
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(pause_s)
        times.sort()
        return {
            "count": len(times),
            "p50_ms": times[len(times) // 2],
            "p99_ms": times[len(times) * 99 // 100],
            "max_ms": times[-1],
        }

    async def _ask(self) -> Callable[[], Any]:
        """A whole ask over link: send, hand-over, reply, wake."""
        good, echo = await self._link("good"), await self._link("echo")
        if echo.on_other is None:
            echo.on_other = lambda item: _echo(echo, item)
            await echo.call("inbox.stream", encode({"agentId": "echo"}))
        send = encode({"agentId": "echo", "payload": "x" * 1024})

        async def ask() -> None:
            ticket = json.loads(bytes((await good.call("messages.send", send)).result))["ticketId"]
            reply = await good.call("replies.wait", encode({"ticketId": ticket, "waitMs": 60_000}))
            assert json.loads(bytes(reply.result))["status"] == "responded"

        return ask

    async def _fresh(self) -> Callable[[], Any]:
        """A small HTTP call on a connection of its own, as a helper makes it."""
        await self._register("good")
        request = self._request("POST", "/agents/good/heartbeat", self._tokens["good"], b"{}")

        async def beat() -> None:
            connection = await self._http("tcp")
            status, _ = await connection.ask(request)
            connection.transport.abort()
            assert status == 200, status

        return beat

    # -- greedy ones --

    async def flood(self, door: str, connections: int, window: int) -> dict[str, Any]:
        """One principal calls as fast as it can on so many connections until `stop`."""
        await self._register("flooder")
        for _ in range(connections):
            if door == "link":
                client = await Link.connect(paths.link_socket(self._state))
                await client.call("hello", encode({**_HELLO, "token": self._tokens["flooder"]}))
                self._run("flood", self._flood_link(client, window))
            else:
                self._run("flood", self._flood_http(await self._http("tcp")))
        return {}

    async def _flood_link(self, client: Link, window: int) -> None:
        """`window` requests in one write, then the next as soon as the last of them is answered."""
        params = encode({"agentId": "flooder"})
        try:
            while True:
                calls = client.calls("agents.heartbeat", params, window)
                for answer in await asyncio.gather(*calls, return_exceptions=True):
                    self._counts["refused" if isinstance(answer, Exception) else "ok"] += 1
        finally:
            client.close()

    async def _flood_http(self, connection: Http) -> None:
        request = self._request("POST", "/agents/flooder/heartbeat", self._tokens["flooder"], b"{}")
        try:
            while True:
                status, _ = await connection.ask(request)
                self._counts["ok" if status == 200 else str(status)] += 1
        finally:
            connection.transport.abort()

    # -- heavy ones --

    async def heavy(self, senders: int) -> dict[str, Any]:
        """Agents that send 1 MiB at a time to one that takes and acknowledges, until `stop`."""
        sink = await self._link("sink")

        def take(item: Envelope) -> None:
            if item.method == "inbox.item":
                ticket = json.loads(bytes(item.params))["item"]["ticketId"]
                sink.call("inbox.ack", encode({"agentId": "sink", "ticketIds": [ticket]}))

        sink.on_other = take
        await sink.call("inbox.stream", encode({"agentId": "sink"}))
        for number in range(senders):
            self._run("heavy", self._send_heavy(await self._link(f"heavy{number}")))
        return {}

    async def _send_heavy(self, client: Link) -> None:
        message = encode({"agentId": "sink", "payload": _MIB, "expectReply": False})
        while True:
            try:
                await client.call("messages.send", message)
                self._counts["ok"] += 1
            except RuntimeError:
                # Over a quota: what everybody would do.
                self._counts["refused"] += 1
                await asyncio.sleep(0.05)

    # -- what runs until it is stopped --

    def _run(self, name: str, work: Any) -> None:
        self._running.setdefault(name, []).append(asyncio.ensure_future(work))

    async def stop(self, name: str) -> dict[str, Any]:
        running = self._running.pop(name, [])
        for each in running:
            each.cancel()
        for ended in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        counts, self._counts = self._counts, Counter()
        return {"counts": counts}


def _echo(client: Link, envelope: Envelope) -> None:
    if envelope.method == "inbox.item":
        item = json.loads(bytes(envelope.params))["item"]
        client.call("replies.post", encode({"ticketId": item["ticketId"], "payload": item["payload"]}))


def _body(future: "asyncio.Future[Any]") -> bytes:
    if not future.done() or future.cancelled() or future.exception() is not None:
        return b""
    answer = future.result()
    return answer[1] if isinstance(answer, tuple) else bytes(answer.result)


def _outcome(ticket: str, future: "asyncio.Future[Any]") -> str:
    """`replied` for exactly the reply to this ticket, else what it was."""
    if not future.done():
        return "open"
    if future.cancelled():
        return "cancelled"
    error = future.exception()
    if error is not None:
        return "lost" if isinstance(error, OSError) else str(error)[:120]
    answer = future.result()
    if isinstance(answer, tuple) and answer[0] != 200:
        return str(answer[0])
    answers = json.loads(_body(future) or b"null")
    return (
        "replied"
        if answers and answers.get("status") == "responded" and answers.get("payload") == ticket
        else f"{answers}"
    )


async def serve(swarm: Swarm) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        order = json.loads(line)
        try:
            answer = await getattr(swarm, order.pop("do"))(**order)
        except Exception as error:  # noqa: BLE001 - whoever gave the order hears what went wrong
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(Swarm(sys.argv[1], int(sys.argv[2]))))
    os._exit(0)


if __name__ == "__main__":
    main()
