"""A stream as an asyncio program reads it: it goes on where it was after the connection was lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from bascule.admin.protocol import StatusResult
from bascule.broker.protocol import AgentParams, Event, EventsParams, InboxItem, ReplyResult
from bascule.client.connection import Connection
from bascule.client.faults import ConnectionLost
from bascule.client.feeds import EventFeed, Feed, InboxFeed, Opened
from bascule.client.messages import AckLater, Message, ReplyLater
from bascule.client.steps import Request
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded, Unavailable
from bascule.kernel.rows import Nothing

T = TypeVar("T")

# Gives the live connection, however long that takes, unless the future is done before.
Live = Callable[["asyncio.Future[None]"], Awaitable[Connection]]
# Makes the opening request; it may ask something on the same connection first.
Opening = Callable[[Connection], Awaitable[Request]]


class StreamReader(Generic[T]):
    """Several tasks may call `next`; each item goes to one of them."""

    def __init__(self, live: Live, opening: Opening, feed: Feed[T]) -> None:
        self._live = live
        self._opening = opening
        self._feed = feed
        self._connection: Connection | None = None
        self._id = 0
        self._opened: Opened[T] | None = None
        self._opening_now = asyncio.Lock()
        self._news = asyncio.Event()
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def next(self) -> T | None:
        """The next item; None once the reader is stopped or closed."""
        while not self._stopped.done():
            item = self._feed.take()
            if item is not None:
                return item
            if self._feed.finished:
                return None
            if self._opened is None or self._opened.over:
                await self._open()
                continue
            self._news.clear()
            await self._news.wait()
        return None

    def stop(self) -> None:
        """Hand out no more: a waiting `next` returns None. The stream stays open."""
        if not self._stopped.done():
            self._stopped.set_result(None)
        self._news.set()

    def close(self) -> None:
        """Stop, and end the stream: whatever was not acknowledged goes to the next reader at once."""
        self.stop()
        if self._connection is not None:
            self._connection.close_stream(self._id)

    async def _open(self) -> None:
        async with self._opening_now:
            pauses = Backoff()
            while (self._opened is None or self._opened.over) and not self._stopped.done():
                try:
                    connection = await self._live(self._stopped)
                    request = await self._opening(connection)
                    opened = Opened(self._feed, self._news.set)
                    self._id = await connection.open_stream(request, opened)
                    self._connection, self._opened = connection, opened
                except ConnectionLost:
                    pause = next(pauses)
                except (Overloaded, Unavailable) as busy:
                    pause = max(busy.retry_after or 0.0, next(pauses))
                else:
                    return
                await asyncio.wait((self._stopped,), timeout=pause)


class InboxReader:
    """The messages of one agent, for one task or several, until it is closed."""

    def __init__(self, live: Live, agent_id: str, clock: Clock, ack: AckLater, reply: ReplyLater) -> None:
        self._agent_id = agent_id
        self._ack = ack
        self._reply = reply
        self._feed = InboxFeed(clock)
        self._stream: StreamReader[InboxItem] = StreamReader(live, self._opening, self._feed)

    async def next(self) -> Message | None:
        """The next message; None once the reader is stopped or closed."""
        item = await self._stream.next()
        return None if item is None else Message(item, self._acknowledge, self._answer)

    def release(self, ticket_id: str) -> None:
        """Nobody here works on it any more: when the daemon offers it again, it is handed out again."""
        self._feed.done(ticket_id)

    def stop(self) -> None:
        """Hand out no more, but keep the messages that are in work: they are still to be answered."""
        self._stream.stop()

    def close(self) -> None:
        """End the stream: whatever was not acknowledged goes to the next reader at once."""
        self._stream.close()

    async def _opening(self, _: Connection) -> Request:
        return Request("inbox.stream", AgentParams(agent_id=self._agent_id), Any)

    async def _acknowledge(self, ticket_id: str) -> None:
        await self._ack(ticket_id)
        self._feed.done(ticket_id)

    async def _answer(self, ticket_id: str, payload: Any, metadata: dict[str, Any] | None) -> ReplyResult:
        result = await self._reply(ticket_id, payload, metadata)
        self._feed.done(ticket_id)
        return result


class EventReader:
    """Lifecycle events; across restarts of the daemon, whose event ids then begin again."""

    def __init__(self, live: Live, clock: Clock, after: int | None, agent_id: str | None) -> None:
        self._after = after
        self._agent_id = agent_id
        self._feed = EventFeed(clock)
        self._stream: StreamReader[Event] = StreamReader(live, self._opening, self._feed)

    async def next(self) -> Event | None:
        return await self._stream.next()

    def close(self) -> None:
        self._stream.close()

    async def _opening(self, connection: Connection) -> Request:
        status: StatusResult = await connection.request("daemon.status", Nothing(), StatusResult)
        after = self._feed.opens((status.pid, status.started_at), self._after)
        return Request("events.stream", EventsParams(after=after, agent_id=self._agent_id), Any)
