"""Agents that send, wait, take, acknowledge, answer, withdraw and register all at once until their daemon is dead.

Everything that has an effect is written down before it is asked for, and what was answered after it: `History` is
what the clients know, and what `checker` holds the next daemon to.
"""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from voices import Answer, Doors, Http, Lost

RECEIVERS = ("Jerry", "Tom")
# Short, so that leases end, waits give up and deadlines pass while a daemon lives for a fraction of a second.
WAIT_MS = 40
HURRY_MS = 15
SETTINGS = {"lease_ms": 60, "max_open_tickets": 100_000, "max_inbox_messages": 100_000}


@dataclass
class Act:
    """One call with an effect. `outcome`: ok, refused, or lost (nobody knows)."""

    kind: str
    by: str
    about: str
    content: Any = None
    outcome: str = "lost"
    answer: Any = None


@dataclass
class History:
    acts: list[Act] = field(default_factory=list)
    # What somebody was told about a ticket: its status, and the payload of its first reply if it has one.
    reported: list[tuple[str, str, Any]] = field(default_factory=list)
    # What was handed over: ticket, to whom, payload.
    handed: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)

    def of(self, kind: str, *outcomes: str) -> list[Act]:
        return [act for act in self.acts if act.kind == kind and (not outcomes or act.outcome in outcomes)]

    async def act(self, call: Awaitable[Answer], kind: str, by: str, about: str, content: Any = None) -> Act:
        act = Act(kind, by, about, content)
        self.acts.append(act)
        answer = await call
        act.outcome = "ok" if answer.ok else "refused"
        act.answer = answer.content
        return act


class Workload:
    def __init__(self, state: str, history: History, chance: random.Random) -> None:
        self._doors = Doors(state)
        self.history = history
        self._chance = chance
        self._number = itertools.count()
        # No two runs in one directory may use the same ids.
        self._run = f"{chance.getrandbits(32):08x}"

    async def run(self, gone: int, seconds: float) -> bool:
        """Until the daemon is gone; False when it still lives after `seconds`."""
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(gone, over.set)
        async with self._doors, asyncio.TaskGroup() as group:
            work = group.create_task(self._work())
            try:
                async with asyncio.timeout(seconds):
                    await over.wait()
            except TimeoutError:
                work.cancel()
            finally:
                loop.remove_reader(gone)
            # What a dead daemon answered is still in the sockets: everybody reads it, then meets the end.
        return over.is_set()

    async def _work(self) -> None:
        try:
            for name in ("Ada", *RECEIVERS):
                if name not in self.history.tokens:
                    # With what an earlier life may have left for it, as our own client does.
                    await self._register(self._doors.http(self._doors.stored_token(name)), name)
        except Lost:
            return
        actors: list[Callable[[], Awaitable[None]]] = [
            self._ask_over_http,
            self._ask_over_link,
            self._poll,
            self._poll,
            self._follow_inbox,
            self._newcomers,
            self._look,
            self._sweep,
        ]
        async with asyncio.TaskGroup() as group:
            for actor in actors:
                group.create_task(self._until_lost(actor))

    async def _until_lost(self, actor: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(Lost):
            await actor()

    def _name(self, kind: str) -> str:
        return f"{kind}-{self._run}-{next(self._number)}"

    async def _register(self, http: Http, name: str) -> str | None:
        asked = http.ask("POST", "/agents/register", {"agentId": name, "type": "test"})
        act = await self.history.act(asked, "register", "local", name)
        if act.outcome == "ok":
            self.history.tokens[name] = act.answer.get("agentToken") or http.token
        return self.history.tokens.get(name)

    def _report(self, ticket: str, content: Any, reply: str = "payload") -> None:
        if content is not None:
            self.history.reported.append((ticket, content["status"], content.get(reply)))

    # -- who asks --

    def _message(self) -> dict[str, Any]:
        """What a send says beside its payload; every kind of ticket comes up."""
        kind = self._chance.random()
        if kind < 0.15:
            return {"expectReply": False}
        return {"timeoutMs": HURRY_MS} if kind < 0.35 else {"conversationId": "c"} if kind < 0.5 else {}

    async def _ask_over_http(self) -> None:
        http = self._doors.http(self.history.tokens["Ada"])
        while True:
            ticket, target = self._name("a"), self._chance.choice(RECEIVERS)
            body = {"payload": {"ask": ticket}, "ticketId": ticket, **self._message()}
            asked = http.ask("POST", f"/agents/{target}/send", body)
            sent = await self.history.act(asked, "send", "Ada", ticket, (target, body))
            if sent.outcome == "ok" and self._chance.random() < 0.2:
                asked = http.ask("POST", f"/tickets/{ticket}/cancel", {"reason": "test"})
                act = await self.history.act(asked, "cancel", "Ada", ticket)
                if act.outcome == "ok":
                    self._report(ticket, act.answer, "response")
            elif sent.outcome == "ok":
                self._report(ticket, (await http.ask("GET", f"/replies/{ticket}?waitMs={WAIT_MS}")).content)

    async def _ask_over_link(self) -> None:
        link = await self._doors.link()
        while True:
            if self._chance.random() < 0.2:
                name = self._name("b")
                body = {"payload": {"ask": name}, "broadcastId": name, "agentIds": list(RECEIVERS)}
                await self.history.act(link.call("messages.broadcast", body), "broadcast", "local", name, body)
                continue
            ticket, target = self._name("l"), self._chance.choice(RECEIVERS)
            body = {"payload": {"ask": ticket}, "ticketId": ticket, **self._message()}
            asked = link.call("messages.send", {"agentId": target, **body})
            sent = await self.history.act(asked, "send", "local", ticket, (target, body))
            if sent.outcome != "ok":
                continue
            if self._chance.random() < 0.3:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WAIT_MS / 1000):
                        async for _event, view in link.feed("replies.stream", {"ticketId": ticket}):
                            self._report(ticket, view)
            else:
                answer = await link.call("replies.wait", {"ticketId": ticket, "waitMs": WAIT_MS})
                self._report(ticket, answer.content)

    # -- who answers --

    async def _poll(self) -> None:
        http = self._doors.http(self.history.tokens["Jerry"])
        while True:
            taken = (await http.ask("GET", f"/agents/Jerry/inbox?waitMs={WAIT_MS}&max=3")).content
            for item in taken["messages"] if taken else ():
                await self._deal("Jerry", item, lambda body: http.ask("POST", "/replies", body), self._ack_by(http))

    def _ack_by(self, http: Http) -> Callable[[str], Awaitable[Answer]]:
        return lambda ticket: http.ask("POST", "/agents/Jerry/inbox/ack", {"ticketIds": [ticket]})

    async def _follow_inbox(self) -> None:
        """Tom reads a stream; now and then it goes away with messages in its hands."""
        link = await self._doors.link(self.history.tokens["Tom"])

        def reply(body: Any) -> Awaitable[Answer]:
            return link.call("replies.post", body)

        def ack(ticket: str) -> Awaitable[Answer]:
            return link.call("inbox.ack", {"agentId": "Tom", "ticketIds": [ticket]})

        while True:
            left = self._chance.randrange(1, 12)
            async for item in link.feed("inbox.stream", {"agentId": "Tom"}):
                await self._deal("Tom", item, reply, ack)
                left -= 1
                if not left:
                    break
            # A stream that ended by itself is the daemon's end.
            await link.call("agents.heartbeat", {"agentId": "Tom"})

    async def _deal(
        self,
        name: str,
        item: Any,
        reply: Callable[[Any], Awaitable[Answer]],
        ack: Callable[[str], Awaitable[Answer]],
    ) -> None:
        ticket = item["ticketId"]
        self.history.handed.append((ticket, name, item["payload"]))
        kind = self._chance.random()
        if kind < 0.25:
            # Taken and forgotten: it comes again when the lease is over.
            return
        if kind < 0.5 or not item["expectReply"]:
            await self.history.act(ack(ticket), "ack", name, ticket)
        if kind > 0.4 and item["expectReply"]:
            for _ in range(2 if kind > 0.9 else 1):
                body = {"ticketId": ticket, "payload": self._name("r")}
                await self.history.act(reply(body), "reply", name, ticket, body["payload"])

    # -- the rest --

    async def _newcomers(self) -> None:
        while True:
            name = self._name("n")
            http = self._doors.http()
            http.token = await self._register(http, name)
            await http.ask("POST", f"/agents/{name}/heartbeat", {})
            await http.close()

    async def _look(self) -> None:
        """What was shown once must still be so afterwards."""
        http = self._doors.http()
        while True:
            sent = self.history.of("send", "ok")
            mine = [act for act in sent if act.by == "local"]
            if not mine:
                await http.ask("GET", "/status")
                continue
            ticket = self._chance.choice(mine[-20:]).about
            answer = await http.ask("GET", f"/tickets/{ticket}")
            if answer.ok:
                self._report(ticket, answer.content, "response")

    async def _sweep(self) -> None:
        link = await self._doors.link()
        while True:
            await link.call("daemon.gc", {"dryRun": False})
            await asyncio.sleep(0.005)
