"""The client for scripts and the command line: the same verbs, blocking."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from bascule.admin.approvals import ApprovalView
from bascule.admin.protocol import StatusResult
from bascule.broker.protocol import (
    AgentParams,
    AgentView,
    BroadcastResult,
    ConversationView,
    Event,
    EventsParams,
    GatherResult,
    RegisterResult,
    ReplyResult,
    SendResult,
    TicketView,
)
from bascule.client import starting
from bascule.client.blocking import BlockingConnection, run
from bascule.client.desktop import SyncDesktop
from bascule.client.desktop_verbs import DesktopVerbs
from bascule.client.door import link_path
from bascule.client.durations import Duration, seconds
from bascule.client.faults import ClientClosed, ConnectionLost, NotRunning
from bascule.client.feeds import ApprovalFeed, EventFeed, Feed, InboxFeed, Opened
from bascule.client.games import SyncGame
from bascule.client.identity import Identity, registration
from bascule.client.messages import SyncMessage
from bascule.client.playing import AttachOptions, Playing, attach, list_games
from bascule.client.spaces import SyncSpace, absolute
from bascule.client.steps import FirstOf, Params, Pause, Program, Reconnect, Request
from bascule.client.verbs import RETRY_SECONDS, AskOptions, Reply, SendOptions, Verbs
from bascule.client.work import Work, open_space
from bascule.foundation import paths
from bascule.foundation.backoff import Backoff
from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import InvalidRequest, Overloaded, Unavailable
from bascule.game.protocol import GameStatus
from bascule.kernel.rows import Nothing

T = TypeVar("T")


class SyncClient:
    """A connection to the daemon that comes back when it is used.

        with SyncClient.connect() as client:
            print(client.ask("Jerry", "tell me a joke", timeout=30).payload)

    Verbs, durations and retries are those of `Client`. For one thread at a time. Unlike `Client` it does nothing
    between calls: an agent that must stay online reads `messages()`, or uses `serve`.
    """

    def __init__(self, state: str, identity: Identity, retry_seconds: float) -> None:
        """Not connected yet: use `SyncClient.connect`."""
        self._state = state
        self._path = link_path(state)
        self._identity = identity
        self._retry_seconds = retry_seconds
        self._verbs = Verbs(retry_seconds=retry_seconds)
        self._clock = SystemClock()
        self._connection: BlockingConnection | None = None
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
    ) -> Self:
        """Connect; the arguments are those of `Client.connect`."""
        state = paths.state_dir(state_dir)
        if register and agent is None:
            raise InvalidRequest("register=True needs the handle", hint='connect(agent="Jerry", register=True)')
        wanted = None
        if register and agent is not None:
            wanted = registration(agent, type, metadata, heartbeat, exclusive=exclusive, groups=groups)
        client = cls(state, Identity(state, agent, token, wanted), seconds(retry))
        client._begin(start_daemon=start_daemon)
        return client

    @property
    def principal(self) -> str:
        """Who the daemon takes this client for: `local`, or `agent:<handle>`."""
        return self._identity.principal

    @property
    def agent_id(self) -> str | None:
        """The handle this client acts as; None for `local`."""
        return self._identity.agent_id

    def register(
        self,
        agent_id: str,
        *,
        type: str = "agent",  # noqa: A002 - the spec's name
        metadata: dict[str, Any] | None = None,
        heartbeat: Duration | None = None,
        exclusive: bool = False,
        groups: Iterable[str] | None = None,
    ) -> RegisterResult:
        """Register a handle and act as it from now on."""
        wanted = registration(agent_id, type, metadata, heartbeat, exclusive=exclusive, groups=groups)
        connection = self._live(self._retry_seconds)
        return run(self._identity.become(wanted), connection.execute)

    # -- messages --

    def send(self, agent_id: str, payload: Any, **options: Unpack[SendOptions]) -> SendResult:
        return self._do(self._verbs.send(agent_id, payload, **options))

    def ask(self, agent_id: str, payload: Any, **options: Unpack[AskOptions]) -> Reply:
        return self._do(self._verbs.ask(agent_id, payload, **options))

    def wait(self, ticket_id: str, timeout: Duration | None = None) -> Reply:
        return self._do(self._verbs.wait(ticket_id, timeout))

    def wait_any(self, ticket_ids: Iterable[str], timeout: Duration | None = None) -> tuple[str, Reply]:
        return self._do(self._verbs.wait_any(ticket_ids, timeout))

    def reply(self, ticket_id: str, payload: Any, metadata: dict[str, Any] | None = None) -> ReplyResult:
        return self._do(self._verbs.reply(ticket_id, payload, metadata))

    def cancel(self, ticket_id: str, reason: str | None = None) -> TicketView:
        return self._do(self._verbs.cancel(ticket_id, reason))

    def gather(
        self,
        ticket_ids: Iterable[str],
        *,
        count: int | None = None,
        timeout: Duration | None = None,
    ) -> GatherResult:
        """The answers to several tickets at once: all of them, or the first `count`. `done` says whether they came."""
        return self._do(self._verbs.gather(ticket_ids, count, timeout))

    def broadcast(
        self,
        payload: Any,
        *,
        agent_ids: Iterable[str] | None = None,
        type: str | None = None,  # noqa: A002 - the spec's name
        metadata: dict[str, Any] | None = None,
        timeout: Duration | None = None,
        expect_reply: bool = True,
        broadcast_id: str | None = None,
        conversation_id: str | None = None,
    ) -> BroadcastResult:
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
        return self._do(program)

    def messages(self) -> Iterator[SyncMessage]:
        """Messages for this agent, as they come; see `Client.messages`."""
        agent_id = self.agent_id
        if agent_id is None:
            raise InvalidRequest(
                "only an agent has an inbox", hint="connect with agent=..., or register() a handle first"
            )
        feed = InboxFeed(self._clock)
        request = Request("inbox.stream", AgentParams(agent_id=agent_id), Any)

        def ack(ticket_id: str) -> None:
            self._do(self._verbs.ack(agent_id, ticket_id))
            feed.done(ticket_id)

        def reply(ticket_id: str, payload: Any, metadata: dict[str, Any] | None) -> ReplyResult:
            result = self.reply(ticket_id, payload, metadata)
            feed.done(ticket_id)
            return result

        return (SyncMessage(item, ack, reply) for item in self._stream(lambda _: request, feed))

    # -- what there is --

    def agents(
        self,
        *,
        type: str | None = None,  # noqa: A002 - the spec's name
        status: str | None = None,
    ) -> list[AgentView]:
        return self._do(self._verbs.agents(type, status))

    def tickets(self, *, status: str | None = None, agent_id: str | None = None, limit: int = 100) -> list[TicketView]:
        return self._do(self._verbs.tickets(status, agent_id, limit))

    def ticket(self, ticket_id: str) -> TicketView:
        return self._do(self._verbs.ticket(ticket_id))

    def conversation(self, conversation_id: str, *, limit: int = 100) -> ConversationView:
        return self._do(self._verbs.conversation(conversation_id, limit))

    def status(self) -> StatusResult:
        return self._do(self._verbs.status())

    def call(self, method: str, params: Params | None = None, result_type: Any = Any) -> Any:
        """Any method by its name. The answer is plain JSON values unless `result_type` says otherwise."""
        return self._do(self._verbs.call(method, params or {}, result_type))

    def events(self, *, after: int | None = None, agent_id: str | None = None) -> Iterator[Event]:
        """Lifecycle events as they happen; see `Client.events`."""
        feed = EventFeed(self._clock)

        def opening(connection: BlockingConnection) -> Request:
            status: StatusResult = connection.request("daemon.status", Nothing(), StatusResult)
            behind = feed.opens((status.pid, status.started_at), after)
            return Request("events.stream", EventsParams(after=behind, agent_id=agent_id), Any)

        return self._stream(opening, feed)

    def approvals(self) -> Iterator[ApprovalView]:
        """Questions to the person: those that wait, then each as it comes and as it is answered."""
        return self._stream(lambda _: Request("approvals.stream", Nothing(), Any), ApprovalFeed())

    @property
    def desktop(self) -> SyncDesktop:
        """The windows of this machine, once a person has enabled them."""
        return SyncDesktop(DesktopVerbs(self._verbs, self._clock.monotonic), self._do)

    def space(self, path: str = ".", *, name: str | None = None) -> SyncSpace:
        """The space of a directory, opened if need be: run operations and commands there."""
        view = self._do(open_space(self._verbs, absolute(path), name))
        return SyncSpace(
            view,
            Work(self._verbs, view.space_id),
            self._do,
            lambda opening, feed: self._stream(lambda _: opening(), feed),
        )

    def games(self) -> list[GameStatus]:
        """The games there are, and what becomes of them."""
        return self._do(list_games(self._verbs)).games

    def game(self, game_id: str) -> SyncGame:
        """A game by its id; nothing is asked until something is done with it."""
        return SyncGame(game_id, Playing(self._verbs, game_id), self._do, self._stream)

    def attach_game(self, game_id: str, **options: Unpack[AttachOptions]) -> SyncGame:
        """A game that somebody else started and games.toml does not name. Options: see `AttachOptions`."""
        self._do(attach(self._verbs, game_id, options))
        return self.game(game_id)

    # -- the connection --

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; iterations over messages and events end."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _do(self, program: Program[T]) -> T:
        return run(program, self._execute)

    def _execute(self, step: Request | FirstOf | Pause | Reconnect) -> Any:
        match step:
            case Pause():
                return time.sleep(step.seconds)
            case Reconnect():
                return self._live(step.within)
            case Request() | FirstOf():
                if self._connection is None:
                    raise ConnectionLost("this client is not connected", sent=False)
                return self._connection.execute(step)

    def _stream(self, opening: Callable[[BlockingConnection], Request], feed: Feed[T]) -> Iterator[T]:
        """What arrives on a stream, which is opened again whenever it broke off."""
        pauses = Backoff()
        while not self._closed:
            try:
                connection = self._live(None)
                opened = Opened(feed)
                id_ = connection.open_stream(opening(connection), opened)
                pauses = Backoff()
                try:
                    while not self._closed:
                        item = feed.take()
                        if item is not None:
                            yield item
                        elif feed.finished:
                            return
                        elif opened.over:
                            break
                        else:
                            connection.receive(None)
                finally:
                    with suppress(ConnectionLost):
                        connection.close_stream(id_)
            except ConnectionLost:
                time.sleep(next(pauses))
            except (Overloaded, Unavailable) as busy:
                time.sleep(max(busy.retry_after or 0.0, next(pauses)))

    def _live(self, within: float | None) -> BlockingConnection:
        """The connection, made again if need be; `NotRunning` when that takes too long."""
        if self._closed:
            raise ClientClosed
        if self._connection is not None and self._connection.open:
            return self._connection
        deadline = None if within is None else self._clock.monotonic() + within
        pauses = Backoff()
        while True:
            try:
                return self._open()
            except (NotRunning, ConnectionLost):
                pause = next(pauses)
            except (Overloaded, Unavailable) as busy:
                pause = max(busy.retry_after or 0.0, next(pauses))
            if deadline is not None:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    raise NotRunning(self._path, "nobody answers")
                pause = min(pause, left)
            time.sleep(pause)

    def _open(self) -> BlockingConnection:
        connection = BlockingConnection(self._path)
        try:
            run(self._identity.introduce(), connection.execute)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _begin(self, *, start_daemon: bool) -> None:
        """The first connection: nobody there is an error at once, unless we may start the daemon."""
        try:
            self._open()
        except NotRunning as away:
            if not start_daemon:
                raise
            complaint = starting.start(self._state)
            try:
                # Another program may have been quicker to start it, and ours then complained.
                self._live(starting.JOIN_SECONDS)
            except NotRunning:
                raise NotRunning(self._path, f"it could not be started: {complaint}") from away
        except ConnectionLost:
            # It went away while we introduced ourselves. A handle registered meanwhile has its token stored.
            self._live(self._retry_seconds)
