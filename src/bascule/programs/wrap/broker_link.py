"""The broker's side of a wrapped program: its registration, its bell, its messages, and what its end means."""

import asyncio
import os
import time
from typing import Any

from bascule.admin.protocol import StatusResult
from bascule.broker.protocol import (
    MAX_LIST,
    HeartbeatResult,
    InboxAckResult,
    InboxItem,
    InboxTakeResult,
    InboxWatchResult,
    SkipRung,
    TicketStatus,
    TicketView,
)
from bascule.client.client import Client
from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.errors import BasculeError
from bascule.local_client.bell import line
from bascule.terminals import tmux

# The broker spec's own example.
HEARTBEAT_SECONDS = 30.0
# A daemon that is switched off comes back when somebody needs it; we look now and then.
JOIN_AGAIN_SECONDS = 5.0
# What a program's end may cost the person who waits for the prompt.
LAST_WORDS_SECONDS = 2.0
# The name senders see in `delivery.by`.
BELL = "bridge-wrap"


class BrokerLink:
    """One agent's connection; every wait goes on when the daemon comes back."""

    def __init__(
        self, state: str, handle: str, *, type_: str, metadata: dict[str, Any], groups: list[str] | None = None
    ) -> None:
        self.handle = handle
        self._state = state
        self._type = type_
        self._metadata = metadata
        self._groups = groups
        self._client: Client | None = None
        self._joined_at = time.time()

    @property
    def client(self) -> Client:
        assert self._client is not None, "join first"
        return self._client

    async def join(self, *, start_daemon: bool) -> None:
        """Register. The handle is this program's alone: a second wrapper of the same name is refused."""
        self._client = await Client.connect(
            self._state,
            self.handle,
            start_daemon=start_daemon,
            register=True,
            type=self._type,
            metadata=self._metadata,
            heartbeat=HEARTBEAT_SECONDS,
            exclusive=True,
            groups=self._groups,
        )
        self._joined_at = time.time()

    async def attach(self) -> None:
        """Act as an agent that registered by itself, with its stored token; its record stays as it is."""
        self._client = await Client.connect(self._state, self.handle)

    async def join_sometime(self) -> None:
        """The same, for as long as it takes."""
        while self._client is None:
            await asyncio.sleep(JOIN_AGAIN_SECONDS)
            try:
                await self.join(start_daemon=False)
            except BasculeError:
                # Still away, just starting, or the name is taken: none of these is for ever.
                continue

    async def broker_url(self) -> str | None:
        """Where the daemon's TCP door is, when it has one. Our own programs take it for the name of its socket."""
        status: StatusResult = await self.client.call("daemon.status", {}, StatusResult)
        return status.doors.get("tcp")

    async def beat(self) -> None:
        """A heartbeat for as long as the program lives."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self.client.call("agents.heartbeat", {"agentId": self.handle}, HeartbeatResult)
            except BasculeError:
                # The daemon is away; the client comes back by itself, and its connection is a sign of life.
                continue

    async def unread(
        self, *, wait_seconds: float = 0.0, skip: SkipRung = SkipRung.NONE, record: bool = False
    ) -> InboxWatchResult | None:
        """What waits; None after `wait_seconds`, or when another bell of this name took over."""
        params = {
            "agentId": self.handle,
            "waitMs": min(int(wait_seconds * 1000), MAX_WAIT_MS),
            "by": BELL,
            "skipRung": skip.value,
            "record": record,
        }
        seen: InboxWatchResult | None = await self.client.call("inbox.watch", params, InboxWatchResult | None)
        return None if seen is None or seen.superseded else seen

    def bell_line(self, seen: InboxWatchResult) -> str:
        return line(self.handle, {"unread": seen.unread, "from": seen.from_})

    async def take(self) -> InboxItem | None:
        params = {"agentId": self.handle, "waitMs": 0, "max": 1}
        taken: InboxTakeResult | None = await self.client.call("inbox.take", params, InboxTakeResult | None)
        return taken.messages[0] if taken and taken.messages else None

    async def ack(self, ticket_id: str) -> None:
        await self.client.call("inbox.ack", {"agentId": self.handle, "ticketIds": [ticket_id]}, InboxAckResult)

    async def reply(self, ticket_id: str, payload: Any, metadata: dict[str, Any]) -> None:
        await self.client.reply(ticket_id, payload, metadata)

    async def leave(self, exit_code: int) -> None:
        """The program is gone: fail the waits for its answer now, and not when the time is over."""
        if self._client is None:
            return
        try:
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._answer_open(exit_code)
        except (TimeoutError, BasculeError):
            # The daemon is away; the senders' own deadlines will tell them.
            pass
        finally:
            await self._client.close()

    async def _answer_open(self, exit_code: int) -> None:
        views = await self.client.call(
            "tickets.list",
            {"status": TicketStatus.DELIVERED.value, "agentId": self.handle, "limit": MAX_LIST},
            list[TicketView],
        )
        text = f"{self.handle} ended ({_how(exit_code)}) before it answered this message"
        metadata = {"status": "failed", "reason": "agent ended", "exitCode": exit_code}
        for view in views:
            if view.expect_reply and self._is_ours(view):
                await self.reply(view.ticket_id, text, metadata)

    def _is_ours(self, view: TicketView) -> bool:
        """Received in this program's life: an earlier one's are not ours to give up."""
        from datetime import datetime  # noqa: PLC0415 - only at the end, and only when something is open

        return view.acked_at is not None and datetime.fromisoformat(view.acked_at).timestamp() >= self._joined_at - 1.0


def _how(exit_code: int) -> str:
    if exit_code > 128:
        import signal  # noqa: PLC0415 - loaded by asyncio anyway; the name is needed here only

        try:
            return f"killed by {signal.Signals(exit_code - 128).name}"
        except ValueError:
            pass
    return f"exit code {exit_code}"


def metadata_here() -> dict[str, Any]:
    """What others may want to know about where the program runs."""
    return {"cwd": os.getcwd(), "wrapper": BELL, **tmux.session_here()}
