"""A message as its receiver sees it, with the two ways to be done with it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from bascule.broker.protocol import InboxItem, ReplyResult

AckLater: TypeAlias = Callable[[str], Awaitable[None]]
ReplyLater: TypeAlias = Callable[[str, Any, dict[str, Any] | None], Awaitable[ReplyResult]]
AckNow: TypeAlias = Callable[[str], None]
ReplyNow: TypeAlias = Callable[[str, Any, dict[str, Any] | None], ReplyResult]


class Received:
    """What was sent, and by whom."""

    def __init__(self, item: InboxItem) -> None:
        self.item = item
        self.ticket_id = item.ticket_id
        # The verified sender; what it says about itself is in `metadata`.
        self.from_ = item.from_
        self.payload = item.payload
        self.metadata = item.metadata
        self.expect_reply = item.expect_reply
        # The sender stopped waiting; a reply is still stored, as late.
        self.timed_out = item.timed_out
        self.conversation_id = item.conversation_id
        self.created_at = item.created_at
        self.reply_by = item.reply_by
        # More than 1: it was handed out before and not acknowledged.
        self.attempts = item.attempts
        # Seconds after which the daemon offers it again unless it is acknowledged or answered.
        self.lease_seconds = item.lease_ms / 1000

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ticket_id} from {self.from_}>"


class Message(Received):
    """A message in an asyncio program."""

    def __init__(self, item: InboxItem, ack: AckLater, reply: ReplyLater) -> None:
        super().__init__(item)
        self._ack = ack
        self._reply = reply

    async def ack(self) -> None:
        """Delivered: it will not be offered again."""
        await self._ack(self.ticket_id)

    async def reply(self, payload: Any, metadata: dict[str, Any] | None = None) -> ReplyResult:
        """Answer it, which acknowledges it too."""
        return await self._reply(self.ticket_id, payload, metadata)


class SyncMessage(Received):
    """A message in a program that blocks."""

    def __init__(self, item: InboxItem, ack: AckNow, reply: ReplyNow) -> None:
        super().__init__(item)
        self._ack = ack
        self._reply = reply

    def ack(self) -> None:
        """Delivered: it will not be offered again."""
        self._ack(self.ticket_id)

    def reply(self, payload: Any, metadata: dict[str, Any] | None = None) -> ReplyResult:
        """Answer it, which acknowledges it too."""
        return self._reply(self.ticket_id, payload, metadata)
