"""The asyncio client."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import closing
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from bascule.admin.protocol import StatusResult
from bascule.broker.protocol import (
    AgentView,
    BroadcastResult,
    ConversationView,
    Event,
    GatherResult,
    RegisterResult,
    ReplyResult,
    SendResult,
    TicketView,
)
from bascule.client import starting
from bascule.client.connection import Connection, run
from bascule.client.desktop import Desktop
from bascule.client.desktop_verbs import DesktopVerbs
from bascule.client.door import link_path
from bascule.client.durations import Duration, seconds
from bascule.client.faults import ClientClosed, ConnectionLost, NotRunning
from bascule.client.feeds import Feed
from bascule.client.games import Game
from bascule.client.identity import Identity, registration
from bascule.client.messages import Message
from bascule.client.playing import AttachOptions, Playing, attach, list_games
from bascule.client.spaces import Space, absolute
from bascule.client.steps import FirstOf, Params, Pause, Program, Reconnect, Request
from bascule.client.streams import EventReader, InboxReader, Opening, StreamReader
from bascule.client.verbs import RETRY_SECONDS, AskOptions, Reply, SendOptions, Verbs
from bascule.client.work import Work, open_space
from bascule.foundation import paths
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import InvalidRequest, Overloaded, Unavailable
from bascule.foundation.tasks import Tasks
from bascule.game.protocol import GameStatus

T = TypeVar("T")


class Client:
    """A connection to the daemon that comes back by itself.

        async with Client.connect(agent="Jerry", register=True, type="script") as client:
            reply = await client.ask("Spock", "is it logical?", timeout=30)

    Durations are seconds or a `timedelta`. When the daemon restarts, sends and replies are repeated with their
    ticket id for up to 10 s, waits and streams go on, and other effects raise `OutcomeUnknown`. Between calls the
    client reconnects by itself, so that an agent stays online. Belongs to the event loop it was connected on.
    """

    def __init__(self, state: str, identity: Identity, retry_seconds: float) -> None:
        """Not connected yet: use `Client.connect`."""
        self._state = state
        self._path = link_path(state)
        self._identity = identity
        self._retry_seconds = retry_seconds
        self._verbs = Verbs(retry_seconds=retry_seconds)
        self._clock = SystemClock()
        self._connection: Connection | None = None
        # Who needs the connection hears why there is none; if nobody does, it is no fault.
        self._tasks = Tasks(lambda _name, _error: None)
        self._returning: asyncio.Task[Connection] | None = None
        self._readers: WeakSet[InboxReader | EventReader | StreamReader[Any]] = WeakSet()
        self._closed = False

    @classmethod
    def connect(
        cls,
        state_dir: str | None = None,
        agent: str | None = None,
        token: str | None = None,
        *,
        start_daemon: bool = False,
        register: bool = False,
        type: str = "agent",  # noqa: A002 - the spec's name
        metadata: dict[str, Any] | None = None,
        heartbeat: Duration | None = None,
        exclusive: bool = False,
        groups: Iterable[str] | None = None,
        retry: Duration = RETRY_SECONDS,
    ) -> "Connecting":
        """Connect: `await` it, or use it with `async with`.

        Without `agent` and `token` the client is `local`. With `agent` it acts as that handle, by the token the
        daemon stored when the handle was registered here. `register` registers the handle first (`type`,
        `metadata`, `heartbeat`), or comes back to it and replaces what was registered; `exclusive` refuses that
        while another connection acts as it. `groups` are queues it shares with others. `retry` is how long what may
        be repeated is.
        """
        state = paths.state_dir(state_dir)
        if register and agent is None:
            raise InvalidRequest("register=True needs the handle", hint='connect(agent="Jerry", register=True)')
        wanted = None
        if register and agent is not None:
            wanted = registration(agent, type, metadata, heartbeat, exclusive=exclusive, groups=groups)
        client = cls(state, Identity(state, agent, token, wanted), seconds(retry))
        return Connecting(client, start_daemon=start_daemon)

    @property
    def principal(self) -> str:
        """Who the daemon takes this client for: `local`, or `agent:<handle>`."""
        return self._identity.principal

    @property
    def agent_id(self) -> str | None:
        """The handle this client acts as; None for `local`."""
        return self._identity.agent_id

    async def register(
        self,
        agent_id: str,
        *,
        type: str = "agent",  # noqa: A002 - the spec's name
        metadata: dict[str, Any] | None = None,
        heartbeat: Duration | None = None,
        exclusive: bool = False,
        groups: Iterable[str] | None = None,
    ) -> RegisterResult:
        """Register a handle and act as it from now on. Do it before other calls: they act as the present handle."""
        wanted = registration(agent_id, type, metadata, heartbeat, exclusive=exclusive, groups=groups)
        connection = await self._live(self._retry_seconds)
        return await run(self._identity.become(wanted), connection.execute)

    # -- messages --

    async def send(self, agent_id: str, payload: Any, **options: Unpack[SendOptions]) -> SendResult:
        """Send a message; do not wait for the reply. Options: see `SendOptions`."""
        return await self._do(self._verbs.send(agent_id, payload, **options))

    async def ask(self, agent_id: str, payload: Any, **options: Unpack[AskOptions]) -> Reply:
        """Send a message and wait for its reply. Options: see `AskOptions`.

        Raises `ReplyTimeout` or `TicketCancelled`, which carry the ticket id.
        """
        return await self._do(self._verbs.ask(agent_id, payload, **options))

    async def wait(self, ticket_id: str, timeout: Duration | None = None) -> Reply:  # noqa: ASYNC109 - of the ticket
        """Wait for the reply to a ticket; without `timeout` until the ticket's own time is over."""
        return await self._do(self._verbs.wait(ticket_id, timeout))

    async def wait_any(
        self,
        ticket_ids: Iterable[str],
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the tickets
    ) -> tuple[str, Reply]:
        """Wait for the first reply to any of several tickets; a ticket that ended otherwise raises like `wait`."""
        return await self._do(self._verbs.wait_any(ticket_ids, timeout))

    async def reply(self, ticket_id: str, payload: Any, metadata: dict[str, Any] | None = None) -> ReplyResult:
        """Answer a ticket addressed to this agent."""
        return await self._do(self._verbs.reply(ticket_id, payload, metadata))

    async def cancel(self, ticket_id: str, reason: str | None = None) -> TicketView:
        """Withdraw a ticket that this client sent and that is not settled."""
        return await self._do(self._verbs.cancel(ticket_id, reason))

    async def gather(
        self,
        ticket_ids: Iterable[str],
        *,
        count: int | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the wait
    ) -> GatherResult:
        """The answers to several tickets at once: all of them, or the first `count`. `done` says whether they came."""
        return await self._do(self._verbs.gather(ticket_ids, count, timeout))

    async def broadcast(
        self,
        payload: Any,
        *,
        agent_ids: Iterable[str] | None = None,
        type: str | None = None,  # noqa: A002 - the spec's name
        metadata: dict[str, Any] | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the tickets
        expect_reply: bool = True,
        broadcast_id: str | None = None,
        conversation_id: str | None = None,
    ) -> BroadcastResult:
        """Send one message to these agents, or to everyone online (of one type), one ticket each."""
        program = self._verbs.broadcast(
            payload,
            agent_ids=agent_ids,
            type_=type,
            metadata=metadata,
            timeout=timeout,
            expect_reply=expect_reply,
            broadcast_id=broadcast_id,
            conversation_id=conversation_id,
        )
        return await self._do(program)

    async def messages(self) -> AsyncIterator[Message]:
        """Messages for this agent, as they come, at least once each.

        Each is yours for its lease (60 s): `await message.reply(...)` or `await message.ack()` within that time,
        or it is offered again. At most 32 unacknowledged messages are out at a time.
        """
        with closing(self.inbox()) as reader:
            while (message := await reader.next()) is not None:
                yield message

    def inbox(self) -> InboxReader:
        """The same messages for several tasks to take from with `next()`, until it is closed."""
        agent_id = self.agent_id
        if agent_id is None:
            raise InvalidRequest(
                "only an agent has an inbox", hint="connect with agent=..., or register() a handle first"
            )

        async def ack(ticket_id: str) -> None:
            await self._do(self._verbs.ack(agent_id, ticket_id))

        reader = InboxReader(self._live_unless, agent_id, self._clock, ack, self.reply)
        self._readers.add(reader)
        return reader

    # -- what there is --

    async def agents(
        self,
        *,
        type: str | None = None,  # noqa: A002 - the spec's name
        status: str | None = None,
    ) -> list[AgentView]:
        return await self._do(self._verbs.agents(type, status))

    async def tickets(
        self, *, status: str | None = None, agent_id: str | None = None, limit: int = 100
    ) -> list[TicketView]:
        """Tickets, newest first, without payloads."""
        return await self._do(self._verbs.tickets(status, agent_id, limit))

    async def ticket(self, ticket_id: str) -> TicketView:
        """One ticket; with payload and replies if this client is one of its sides."""
        return await self._do(self._verbs.ticket(ticket_id))

    async def conversation(self, conversation_id: str, *, limit: int = 100) -> ConversationView:
        return await self._do(self._verbs.conversation(conversation_id, limit))

    async def status(self) -> StatusResult:
        return await self._do(self._verbs.status())

    async def call(self, method: str, params: Params | None = None, result_type: Any = Any) -> Any:
        """Any method by its name. The answer is plain JSON values unless `result_type` says otherwise."""
        return await self._do(self._verbs.call(method, params or {}, result_type))

    async def events(self, *, after: int | None = None, agent_id: str | None = None) -> AsyncIterator[Event]:
        """Lifecycle events as they happen, `after` an id first, for as far back as the daemon remembers.

        A reader that is too slow gets an event `stream.overflow` in place of what it missed; one
        that outlives the daemon gets `stream.restarted`, and ids begin again.
        """
        with closing(EventReader(self._live_unless, self._clock, after, agent_id)) as reader:
            self._readers.add(reader)
            while (event := await reader.next()) is not None:
                yield event

    async def space(self, path: str = ".", *, name: str | None = None) -> Space:
        """The space of a directory, opened if need be: run operations and commands there."""
        view = await self._do(open_space(self._verbs, absolute(path), name))
        return Space(view, Work(self._verbs, view.space_id), self._do, self._follow)

    async def games(self) -> list[GameStatus]:
        """The games there are, and what becomes of them."""
        return (await self._do(list_games(self._verbs))).games

    def game(self, game_id: str) -> Game:
        """A game by its id; nothing is asked until something is done with it."""

        def stream(opening: Opening, feed: Feed[Any]) -> StreamReader[Any]:
            reader: StreamReader[Any] = StreamReader(self._live_unless, opening, feed)
            self._readers.add(reader)
            return reader

        return Game(game_id, Playing(self._verbs, game_id), self._do, stream)

    async def attach_game(self, game_id: str, **options: Unpack[AttachOptions]) -> Game:
        """A game that somebody else started and games.toml does not name. Options: see `AttachOptions`."""
        await self._do(attach(self._verbs, game_id, options))
        return self.game(game_id)

    @property
    def desktop(self) -> Desktop:
        """The windows of this machine, once a person has enabled them."""
        return Desktop(DesktopVerbs(self._verbs, self._clock.monotonic), self._do)

    def _follow(self, opening: Callable[[], Request], feed: Feed[Any]) -> StreamReader[Any]:
        async def ask(_: Connection) -> Request:
            return opening()

        reader: StreamReader[Any] = StreamReader(self._live_unless, ask, feed)
        self._readers.add(reader)
        return reader

    # -- the connection --

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; iterations over messages and events end."""
        self._closed = True
        for reader in list(self._readers):
            reader.close()
        await self._tasks.close()
        if self._connection is not None:
            await self._connection.closed()

    async def _do(self, program: Program[T]) -> T:
        return await run(program, self._execute)

    async def _execute(self, step: Request | FirstOf | Pause | Reconnect) -> Any:
        match step:
            case Pause():
                return await asyncio.sleep(step.seconds)
            case Reconnect():
                return await self._live(step.within)
            case Request() | FirstOf():
                if self._connection is None or self._closed:
                    raise ConnectionLost("this client is not connected", sent=False)
                return await self._connection.execute(step)

    async def _live(self, within: float | None) -> Connection:
        """The connection, made again if need be; `NotRunning` when that takes too long."""
        if self._closed:
            raise ClientClosed
        if self._connection is not None and self._connection.open:
            return self._connection
        returning = self._return()
        done, _ = await asyncio.wait((returning,), timeout=within)
        if not done:
            raise NotRunning(self._path, "nobody answers")
        if returning.cancelled():
            raise ClientClosed
        return returning.result()

    async def _live_unless(self, stopped: "asyncio.Future[None]") -> Connection:
        """The same for a stream, which waits as long as it takes or until it is stopped."""
        if self._connection is None or not self._connection.open:
            await asyncio.wait((self._return(), stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            raise NotRunning(self._path, "the stream was stopped")
        return await self._live(None)

    def _return(self) -> "asyncio.Task[Connection]":
        if self._returning is None or self._returning.done():
            self._returning = self._tasks.start(self._come_back(), "reconnect")
        return self._returning

    async def _come_back(self) -> Connection:
        pauses = Backoff()
        while True:
            try:
                return await self._open()
            except (NotRunning, ConnectionLost):
                pause = next(pauses)
            except (Overloaded, Unavailable) as busy:
                pause = max(busy.retry_after or 0.0, next(pauses))
            await asyncio.sleep(pause)

    async def _open(self) -> Connection:
        connection = await Connection.to(self._path, self._lost)
        try:
            await run(self._identity.introduce(), connection.execute)
        except BaseException:
            await connection.closed()
            raise
        self._connection = connection
        return connection

    def _lost(self, connection: Connection) -> None:
        # An agent that waits for nothing is online only while it is connected: come back without being asked.
        if connection is self._connection and not self._closed:
            self._return()

    async def _begin(self, *, start_daemon: bool) -> None:
        """The first connection: nobody there is an error at once, unless we may start the daemon."""
        try:
            await self._open()
        except NotRunning as away:
            if not start_daemon:
                raise
            complaint = await asyncio.to_thread(starting.start, self._state)
            try:
                # Another program may have been quicker to start it, and ours then complained.
                await self._live(starting.JOIN_SECONDS)
            except NotRunning:
                raise NotRunning(self._path, f"it could not be started: {complaint}") from away
        except ConnectionLost:
            # It went away while we introduced ourselves. A handle registered meanwhile has its token stored.
            await self._live(self._retry_seconds)


class Connecting:
    """A client about to connect: `await` it, or enter it with `async with`."""

    def __init__(self, client: Client, *, start_daemon: bool) -> None:
        self._client = client
        self._start_daemon = start_daemon

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connected().__await__()

    async def __aenter__(self) -> Client:
        return await self._connected()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self._client.close()

    async def _connected(self) -> Client:
        try:
            await self._client._begin(start_daemon=self._start_daemon)  # noqa: SLF001 - the other half of `Client`
        except BaseException:
            await self._client.close()
            raise
        return self._client
