"""One game: what agents do in it, what its mod reports, and its state over launches and reconnects."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final

from msgspec import UNSET, structs

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Unavailable
from bascule.game.calls import Calls
from bascule.game.catalog import Catalog, KnownTool, check_arguments
from bascule.game.events import EventLog
from bascule.game.large import LargeResults
from bascule.game.life import Life, Machine
from bascule.game.link import Link
from bascule.game.ports import GameProcess
from bascule.game.protocol import MAX_CHANNELS, MAX_INLINE_BYTES, GameState
from bascule.game.settings import GameSettings
from bascule.game.states import Turn, after
from bascule.game.subscriptions import Subscriptions
from bascule.kernel.event_ring import Fact, Kind
from gabp import messages
from gabp.attention import blocked, passes, read, still_open, unreadable
from gabp.bridge_session import BridgeSession, Came
from gabp.codec import Raw
from gabp.envelopes import to_json
from gabp.errors import ErrorCode, GameError, UnreadableAnswer
from gabp.kept import KeptResult
from gabp.session import SessionLimits

# What a mod does wrong, kept for people to read.
MAX_NOTES = 32
# Of one connection in the log, which has everybody's lines: a mod that does nothing right must not push them out.
MAX_LOGGED_NOTES = 100

BRIDGE_CHANNEL: Final = "bridge/connection"


class Game:
    def __init__(
        self, game_id: str, settings: GameSettings, machine: Machine, *, limits: SessionLimits | None = None
    ) -> None:
        self.id = game_id
        self.settings = settings
        self.state = GameState.STOPPED
        # Why it is not live, for people.
        self.problem: str | None = None
        self.notes: list[str] = []
        self._noted = 0
        self.events = EventLog(machine.clock.wall_ms)
        self.subscriptions = Subscriptions()
        # Clients subscribed to every announced channel, also to those a later launch announces.
        self._subscribed_to_all: set[Hashable] = set()
        self.catalog = Catalog([])
        self._attention: messages.Attention | None = None
        self.welcome: messages.Welcome | None = None
        self.life: Life | None = None
        # Who may stop it unasked.
        self.started_by: str | None = None
        self.launches = 0
        self.connects = 0
        self._machine = machine
        self._limits = limits or SessionLimits()
        self._calls = Calls()
        self.large = LargeResults(game_id)
        self._link: Link | None = None
        # The last number of each channel, from the connection before, while the same mod runs.
        self._seen: dict[str, int] = {}
        self._attends = False
        self._relisting = False
        self._list_once_more = False
        # About attention; and something was cleared since.
        self._asking = False
        self._ask_again = False
        self._changed: list[Deferred[GameState]] = []

    # -- life --

    def begin(self, settings: GameSettings) -> Life:
        """From here on it is starting: nobody else can start it. `run` is to follow."""
        self.settings = settings
        self.problem = None
        self._seen = {}
        self.launches += 1
        self.life = Life(self.id, settings, self._machine, self)
        self.turn(Turn.START)
        return self.life

    async def run(self, life: Life) -> None:
        """One launch, from start to end. Cancelling it ends the game."""
        problem: str | None = None
        try:
            problem = await life.run()
        finally:
            self.turn(Turn.ENDED, problem)

    @property
    def pinned_as(self) -> str:
        """What was allowed of a game that we started says nothing of one that others start under the same name."""
        return self.id if self.settings.command is not None else f"{self.id}+attached"

    @property
    def process(self) -> GameProcess | None:
        return self.life.process if self.life is not None else None

    async def stop(self, *, kill: bool = False) -> None:
        """End the process, gently unless `kill`. The owner of an attached game cancels `run` instead."""
        life = self.life
        if life is None or life.process is None or self.state is GameState.STOPPED:
            return
        life.end()
        self.turn(Turn.STOP)
        if not kill:
            life.process.terminate()
            try:
                async with asyncio.timeout(self.settings.stop_timeout):
                    await self.reached(GameState.STOPPED)
                    return
            except TimeoutError:
                self._note("it did not end when asked, and was killed")
        life.process.kill()
        await self.reached(GameState.STOPPED)

    async def reached(self, *states: GameState) -> GameState:
        while self.state not in states:
            changed: Deferred[GameState] = Deferred()
            self._changed.append(changed)
            await changed
        return self.state

    @property
    def attention(self) -> messages.Attention | None:
        return self._attention

    @attention.setter
    def attention(self, item: messages.Attention | None) -> None:
        before, self._attention = self._attention, item
        if (item and item.attention_id) != (before and before.attention_id):
            self._publish("attention" if item is not None else "attention_cleared")

    def _publish(self, event: str) -> None:
        """Without the mod's own words."""
        fact = Fact(kind=Kind.GAME, event=event, id=self.id, principal=self.started_by, status=str(self.state))
        self._machine.publish(fact)

    # What a life tells.

    def turn(self, turn: Turn, problem: str | None = None) -> None:
        following = after(self.state, turn)
        if following is None:
            return
        if problem is not None or turn is Turn.ENDED:
            self.problem = problem
        if turn is Turn.ENDED:
            # A game that has ended wants nothing looked at.
            self.attention = None
        if turn is Turn.LOST:
            self.events.mark(BRIDGE_CHANNEL, f"{problem}; events until it is back are not here")
        self.state = following
        self._machine.log("game", game=self.id, state=str(following), problem=problem)
        self._publish(str(following))
        changed, self._changed = self._changed, []
        for later in changed:
            if not later.done():
                later.set_result(following)

    def new_link(self) -> Link:
        self._noted = 0
        limits = structs.replace(self._limits, max_receive_bytes=self.settings.max_receive_bytes)
        session = BridgeSession(self.settings.wire_mode, limits, seen=self._seen)
        return Link(session, on_answer=self._calls.answered, on_event=self._on_event, on_note=self._note)

    async def discover(self, link: Link) -> None:
        """Tools, attention and subscriptions, asked for at once."""
        self.welcome = link.session.welcome
        listed = link.ask(messages.TOOLS_LIST, b"{}")
        attention = (
            link.ask(messages.ATTENTION_CURRENT, b"{}") if link.session.offers(messages.ATTENTION_CURRENT) else None
        )
        for client in self._subscribed_to_all:
            self.subscriptions.add(client, self.announced())
        own = self._own_channels(link)
        wanted = sorted(self.subscriptions.wanted().union(own).difference(messages.ATTENTION_CHANNELS))
        # Apart: a mod of 1.0 that has no attention may refuse the whole list.
        subscribes = link.session.offers(messages.SUBSCRIBE)
        attended = link.subscribe([*messages.ATTENTION_CHANNELS]) if subscribes else None
        self.catalog = Catalog((await listed).tools)
        for note in self.catalog.notes:
            self._note(note)
        await self._look_after(attention)
        if attended is not None:
            await self._await_subscription(attended, "attention", quietly=not self._attends)
        if wanted and subscribes:
            await self._await_subscription(self.subscriptions.ask(link, wanted, self.announced()), "channels")

    async def _look_after(self, attention: Deferred[Any] | None) -> None:
        self.attention = None
        self._attends = False
        if attention is None:
            return
        try:
            self.attention = still_open((await attention).attention)
            self._attends = True
        except UnreadableAnswer as error:
            self.attention = unreadable(error.message)
            self._attends = True
            self._note(str(error))
        except GameError as error:
            # A mod of 1.0 has no attention.
            self._note(f"no attention: {error}")

    async def _await_subscription(self, subscribing: Awaitable[Any], what: str, *, quietly: bool = False) -> None:
        try:
            await subscribing
        except GameError as error:
            if not quietly:
                self._note(f"{what} could not be subscribed to: {error}")

    def _own_channels(self, link: Link) -> list[str]:
        welcome = link.session.welcome
        assert welcome is not None
        # Whatever it announces: mods forget to name them, and one that is not heard holds nothing back.
        own = [*messages.ATTENTION_CHANNELS]
        own += [messages.PROGRESS_CHANNEL] if welcome.extension(messages.PROGRESS) is not None else []
        own += [messages.CHANGES_CHANNEL] if welcome.extension(messages.CHANGES) is not None else []
        return own

    def opened(self, link: Link) -> None:
        self._link = link
        self.connects += 1
        self.problem = None
        if self.state is GameState.RECONNECTING:
            self.events.mark(BRIDGE_CHANNEL, "connected again; subscriptions are restored")
        self.turn(Turn.WELCOMED)
        self._calls.open(link)

    def dropped(self, why: str) -> None:
        link, self._link = self._link, None
        if link is not None:
            self._seen = link.session.seen
            link.close(why)
        self._calls.close(why)

    # -- what agents do --

    def tool(self, name: str) -> KnownTool:
        """GameError when there is none; Conflict or Unavailable when the game is not live."""
        self.require_live()
        return self.catalog.find(name)

    def call_tool(
        self,
        client: Hashable,
        name: str,
        arguments: Any,
        seconds: float | None = None,
        *,
        inline_bytes: int = MAX_INLINE_BYTES,
    ) -> Deferred[Raw | KeptResult]:
        """The tool's result as JSON text, or where it is kept. Raises GameError when it is not even sent."""
        known = self.tool(name)
        check_arguments(known, arguments)
        if self.attention is not None and self.attention.blocking and not passes(name, known.tool.tags):
            raise blocked(name, self.attention)
        params = to_json({"name": name, "arguments": arguments})
        return self._ask(
            client,
            messages.TOOLS_CALL,
            params,
            seconds,
            lambda result: self.large.seen(result, inline_bytes, self.welcome),
        )

    def read_resource(self, client: Hashable, uri: str) -> Deferred[messages.ResourcesReadResult]:
        if self.large.owns(uri):
            later: Deferred[messages.ResourcesReadResult] = Deferred()
            later.set_result(self.large.read(uri))
            return later
        return self._ask(client, messages.RESOURCES_READ, to_json(messages.ResourcesReadParams(uri=uri)))

    def list_resources(
        self, client: Hashable, params: messages.ResourcesListParams
    ) -> Deferred[messages.ResourcesListResult]:
        return self._ask(client, messages.RESOURCES_LIST, to_json(params))

    def get_state(self, client: Hashable, params: messages.StateGetParams) -> Deferred[messages.StateGetResult]:
        return self._ask(client, messages.STATE_GET, to_json(params))

    def set_state(self, client: Hashable, params: messages.StateSetParams) -> Deferred[messages.StateSetResult]:
        if self.attention is not None and self.attention.blocking and params.validate is not True:
            raise blocked(messages.STATE_SET, self.attention)
        return self._ask(client, messages.STATE_SET, to_json(params))

    def acknowledge(self, client: Hashable, attention_id: str) -> Deferred[messages.AttentionAckResult]:
        """Explicit, by id: calling again is no acknowledgement."""
        params = to_json(messages.AttentionAckParams(attention_id=attention_id))
        return self._ask(client, messages.ATTENTION_ACK, params, change=self._acknowledged)

    def _acknowledged(self, result: messages.AttentionAckResult) -> messages.AttentionAckResult:
        self.attention = still_open(result.current_attention)
        return result

    def now_ms(self) -> int:
        return self._machine.clock.wall_ms()

    def announced(self) -> list[str]:
        """The channels its mod names. Attention and progress are listened to by the bridge itself."""
        events = self.welcome.capabilities.events if self.welcome is not None else UNSET
        if not isinstance(events, list):
            return []
        return [each for each in events if each not in messages.ATTENTION_CHANNELS][:MAX_CHANNELS]

    async def subscribe_to_all(self, client: Hashable) -> list[str]:
        """What is announced now, and whatever will be, until it unsubscribes."""
        self._subscribed_to_all.add(client)
        return await self.subscribe(client, self.announced())

    async def subscribe(self, client: Hashable, channels: list[str]) -> list[str]:
        """Those the game does not have (yet); they are asked for again at every connect."""
        new = self.subscriptions.add(client, channels)
        link = self._link
        if not new or link is None:
            return []
        return await self.subscriptions.ask(link, new, self.announced())

    async def unsubscribe(self, client: Hashable, channels: list[str] | None = None) -> None:
        if channels is None:
            self._subscribed_to_all.discard(client)
        gone = self.subscriptions.remove(client, channels)
        link = self._link
        if link is not None:
            own = self._own_channels(link)
            gone = [each for each in self.subscriptions.asked_for(gone, self.announced()) if each not in own]
            if gone:
                await link.unsubscribe(gone)

    def _ask(
        self,
        client: Hashable,
        method: str,
        params: bytes,
        seconds: float | None = None,
        change: Callable[[Any], Any] | None = None,
    ) -> Deferred[Any]:
        link = self.require_live()
        if not link.session.offers(method):
            raise GameError(ErrorCode.METHOD_NOT_FOUND, f"this game's mod does not have {method}")
        return self._calls.call(client, method, params, seconds or self.settings.call_timeout, change)

    def require_live(self) -> Link:
        if self._link is not None and self.state is GameState.LIVE:
            return self._link
        why = f": {self.problem}" if self.problem else ""
        if self.state in (GameState.STARTING, GameState.RECONNECTING):
            raise Unavailable(f"{self.id} is {self.state}{why}", hint="try again in a moment", retry_after=1.0)
        raise Conflict(f"{self.id} is {self.state}{why}", hint="start it, or connect to it, first")

    @property
    def counts(self) -> tuple[int, int]:
        return self._calls.counts

    # -- events of the mod --

    def _on_event(self, came: Came) -> None:
        if came.channel in messages.ATTENTION_CHANNELS:
            self._attend(came)
        elif came.channel == messages.CHANGES_CHANNEL:
            self._list_again()
        self.events.add(came.channel, came.seq, came.payload, came.missed)

    def _attend(self, came: Came) -> None:
        item, problem = read(came.payload, came.channel)
        if problem is not None:
            self._note(f"an event of {came.channel} is not a valid attention: {problem}")
        known = self.attention is not None and self.attention.attention_id == item.attention_id
        if came.channel != messages.ATTENTION_CLEARED and item.state == "open":
            if self.attention is None or not self.attention.blocking or item.blocking:
                self.attention = item
            elif known:
                # It blocks no longer; another that does may stand behind it.
                self.attention = None
                self._ask_for_attention()
        elif known:
            self.attention = None
            self._ask_for_attention()

    def _ask_for_attention(self) -> None:
        """There may be another one behind the one that was cleared."""
        link = self._link
        if link is None or not self._attends:
            return
        # One at a time, however often the mod opens and clears: it must not make us ask without end.
        self._ask_again = self._asking
        if self._asking:
            return
        self._asking = True

        def received(later: Deferred[Any]) -> None:
            self._asking = False
            if self._ask_again:
                # What it says may be the very one that was cleared since it was asked.
                self._ask_for_attention()
            elif self.attention is None:
                error = later.exception()
                if error is None:
                    self.attention = still_open(later.result().attention)
                elif isinstance(error, UnreadableAnswer):
                    self.attention = unreadable(error.message)

        link.ask(messages.ATTENTION_CURRENT, b"{}").add_done_callback(received)

    def _list_again(self) -> None:
        link = self._link
        # One at a time. What changes while the mod answers may be missing in its answer.
        self._list_once_more = self._relisting
        if link is None or self._relisting:
            return
        self._relisting = True

        def received(later: Deferred[Any]) -> None:
            self._relisting = False
            if later.exception() is None:
                self.catalog = Catalog(later.result().tools)
            if self._list_once_more:
                self._list_again()

        link.ask(messages.TOOLS_LIST, b"{}").add_done_callback(received)

    def _note(self, text: str) -> None:
        # The mod's own words: bounded, and for the log only.
        self.notes = [*self.notes[1 - MAX_NOTES :], text[:500]]
        self._noted += 1
        if self._noted <= MAX_LOGGED_NOTES:
            self._machine.log("game_note", game=self.id, note=text[:500])
        elif self._noted == MAX_LOGGED_NOTES + 1:
            self._machine.log("game_note", game=self.id, note="more of this connection's notes are not logged")
