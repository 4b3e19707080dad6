"""The game bridge behind its method rows."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from msgspec import UNSET

from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Overloaded
from bascule.game import rows
from bascule.game.attaching import attached_settings
from bascule.game.catalog import KnownTool, check_arguments
from bascule.game.declared import GameDeclared
from bascule.game.following import Following
from bascule.game.game import Game
from bascule.game.games import Games
from bascule.game.judging import SET_STATE, TRUST_RULE, JudgedTool, Judging
from bascule.game.pins import Pins
from bascule.game.protocol import (
    Acknowledged,
    AcknowledgeParams,
    AttachParams,
    AttentionView,
    CallToolParams,
    CallToolResult,
    EventPage,
    GameDetails,
    GameEventsParams,
    GameParams,
    GamesList,
    GameStartParams,
    GameState,
    GameStateView,
    GameStatus,
    GetStateParams,
    ResourceContent,
    ResourceParams,
    ResourcesPage,
    ResourcesParams,
    SetStateParams,
    StateChanged,
    Subscribed,
    ToolDetail,
    ToolParams,
    ToolsPage,
    ToolsParams,
    ToolView,
    UnsubscribeParams,
    names_in,
)
from bascule.game.reading import piece_of
from bascule.game.refusals import act, answer_with, or_refuse
from bascule.kernel.bridge import Bridge, Gauge
from bascule.kernel.call import Call, agent_principal
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.journal import Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Nothing
from bascule.wire.canonical import canonical
from gabp import messages
from gabp.codec import Raw
from gabp.envelopes import to_json
from gabp.kept import KeptResult
from gabp.words import bounded_names, bounded_resources

# Games get their own `stop_timeout` first; the daemon's end is not put off for longer than this.
CLOSE_SECONDS = 5.0
# Of what a game printed, in `show`.
MAX_OUTPUT_CHARS = 4_000


class GameBridge:
    def __init__(
        self,
        *,
        games: Games,
        store: JournalStore,
        clock: Clock,
    ) -> None:
        self.games = games
        self.pins = Pins(store, clock)
        self._judging = Judging(self.pins)
        self.following = Following(games)

    # -- what is mounted --

    def bridge(self) -> Bridge:
        return Bridge(
            declared=GameDeclared(),
            service=self,
            methods=[
                rows.GAMES_LIST.bind(self.list_games),
                rows.GAMES_STATUS.bind(self.status),
                rows.GAMES_SHOW.bind(self.show),
                rows.GAMES_START.bind(self.start),
                rows.GAMES_CONNECT.bind(self.connect),
                rows.GAMES_ATTACH.bind(self.attach),
                rows.GAMES_STOP.bind(self.stop, resolve=self._resolve_end),
                rows.GAMES_KILL.bind(self.kill, resolve=self._resolve_end),
                rows.GAMES_TOOLS.bind(self.list_tools),
                rows.GAMES_TOOL.bind(self.show_tool),
                rows.GAMES_CALL.bind(self.call_tool, resolve=self._resolve_call),
                rows.GAMES_EVENTS.bind(self.read_events),
                rows.GAMES_STREAM.bind(self.following.stream),
                rows.GAMES_UNSUBSCRIBE.bind(self.unsubscribe),
                rows.GAMES_RESOURCES.bind(self.list_resources),
                rows.GAMES_RESOURCE.bind(self.read_resource),
                rows.GAMES_STATE.bind(self.get_state),
                rows.GAMES_SET_STATE.bind(self.set_state, resolve=self._resolve_set_state),
                rows.GAMES_ATTENTION.bind(self.attention),
                rows.GAMES_ACKNOWLEDGE.bind(self.acknowledge),
            ],
            gauges=[
                Gauge("bascule_games_running", "Games that are not stopped.", lambda: len(self.games.running())),
            ],
            open=self.open,
            stop=self.stop_with_everything,
            forget_agent=self.forget_agent,
            end=self.end,
            close=self.close,
        )

    async def open(self) -> None:
        await self.games.__aenter__()

    def end(self) -> None:
        """Answer the callers that wait for an event, also of a game that is stopped."""
        for each in self.games.known():
            each.events.end()

    def forget_agent(self, agent_id: str) -> None:
        """A handle was revoked or taken over: end its subscriptions."""
        client = agent_principal(agent_id)
        self.following.end_of(client)
        for each in self.games.known():
            if each.subscriptions.of(client):
                self.games.answer(each.unsubscribe(client), "games.unsubscribe")

    def stop_with_everything(self, _tx: Transaction) -> Awaitable[str]:
        return self.games.stop_all()

    async def close(self) -> None:
        """End the games that we started, and let go of the others."""
        await self.games.end(CLOSE_SECONDS)
        await self.games.__aexit__(None, None, None)

    # -- games --

    def list_games(self, call: Call, params: Nothing) -> GamesList:
        listed = self.games.list()
        return GamesList(games=listed, problem=self.games.settings_problem)

    def status(self, call: Call, params: GameParams) -> GameStatus:
        return self.games.status(params.game_id)

    def show(self, call: Call, params: GameParams) -> GameDetails:
        found = self.games.find(params.game_id)
        settings = found.settings
        welcome = found.welcome if found.state is GameState.LIVE else None
        capabilities = welcome.capabilities if welcome is not None else messages.Capabilities()
        return GameDetails(
            status=self.games.status(found.id),
            # Without its arguments and environment: people put keys there.
            command=settings.command,
            cwd=settings.cwd,
            mode=settings.mode,
            call_timeout_ms=int(settings.call_timeout * 1000),
            methods=bounded_names(capabilities.methods),
            channels=bounded_names(capabilities.events),
            extensions=bounded_names(sorted(capabilities.extensions))
            if isinstance(capabilities.extensions, dict)
            else [],
            output=found.process.output()[-MAX_OUTPUT_CHARS:] if found.process is not None else "",
        )

    def start(self, call: Call, params: GameStartParams, effect: RecordedEffect) -> Deferred[GameStatus]:
        seconds = params.wait_ms / 1000
        return self._life(call, self.games.start(params.game_id, seconds, started_by=call.principal), effect)

    def connect(self, call: Call, params: GameStartParams, effect: RecordedEffect) -> Deferred[GameStatus]:
        found = self.games.find(params.game_id)
        seconds = params.wait_ms / 1000
        if found.state is GameState.STOPPED and found.settings.command is None:
            return self._life(call, self.games.start(found.id, seconds, started_by=call.principal), effect)
        return self._life(call, self.games.connect(found.id, seconds), effect)

    def attach(self, call: Call, params: AttachParams, effect: RecordedEffect) -> Deferred[GameStatus]:
        """Not in games.toml: for as long as the daemon lives, or until it is stopped."""
        settings = attached_settings(params)
        seconds = params.wait_ms / 1000
        return self._life(call, self.games.attach(params.game_id, settings, seconds, by=call.principal), effect)

    def stop(self, call: Call, params: GameParams, effect: RecordedEffect) -> Deferred[GameStatus]:
        return self._life(call, self.games.stop(params.game_id), effect)

    def kill(self, call: Call, params: GameParams, effect: RecordedEffect) -> Deferred[GameStatus]:
        return self._life(call, self.games.stop(params.game_id, kill=True), effect)

    def _resolve_end(self, call: Call, params: GameParams) -> Resolution:
        return self._judging.end(call, params, self.games.find(params.game_id))

    def _life(self, call: Call, work: Coroutine[Any, Any, GameStatus], effect: RecordedEffect) -> Deferred[GameStatus]:
        def noted(status: GameStatus) -> GameStatus:
            effect.details |= {"state": str(status.state)}
            if status.pid is not None:
                effect.details["pid"] = status.pid
            return status

        return self.games.answer(work, call.method).mapped(noted)

    # -- tools --

    def list_tools(self, call: Call, params: ToolsParams) -> ToolsPage:
        found = self.games.find(params.game_id)
        found.require_live()
        wanted = [
            known
            for name, known in sorted(found.catalog.tools.items())
            if (params.prefix is None or name.startswith(params.prefix))
            and (params.query is None or _mentions(known.tool, params.query.casefold()))
        ]
        rest = [known for known in wanted if params.cursor is None or known.tool.name > params.cursor]
        shown = rest[: params.limit]
        return ToolsPage(
            game_id=found.id,
            tools=[
                ToolView(
                    name=known.tool.name,
                    title=known.tool.title,
                    description=known.tool.description,
                    tags=_listed(known.tool.tags),
                    deprecated=known.tool.deprecated is True,
                    parameters=known.parameters,
                    schema_hash=known.schema_hash,
                    pin=self.pins.compare(found.pinned_as, known.tool.name, known.schema_hash),
                    destructive=known.is_destructive,
                )
                for known in shown
            ],
            total=len(wanted),
            next_cursor=shown[-1].tool.name if len(shown) < len(rest) else None,
        )

    def show_tool(self, call: Call, params: ToolParams) -> ToolDetail:
        found, known = self._tool(params.game_id, params.tool)
        tool = known.tool
        return ToolDetail(
            game_id=found.id,
            name=tool.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
            tags=_listed(tool.tags),
            deprecated=tool.deprecated is True,
            version=tool.version if isinstance(tool.version, str) else None,
            schema_hash=known.schema_hash,
        )

    def _resolve_call(self, call: Call, params: CallToolParams) -> Resolution:
        found, known = self._tool(params.game_id, params.tool)
        # A person is not asked about what the game would not even be sent.
        or_refuse(lambda: check_arguments(known, params.arguments))
        return self._judging.call_tool(call, params, found, known)

    def call_tool(self, call: Call, params: CallToolParams, effect: RecordedEffect) -> Deferred[CallToolResult]:
        found = self.games.find(params.game_id)
        effect.details |= {"tool": params.tool, "bytes": len(canonical(params.arguments))}
        self._pin(call, params, found, effect)
        seconds = None if params.timeout_ms is None else params.timeout_ms / 1000

        def ask() -> Deferred[Raw | KeptResult]:
            return found.call_tool(
                call.principal, params.tool, params.arguments, seconds, inline_bytes=params.inline_bytes
            )

        def to_result(result: Raw | KeptResult) -> CallToolResult:
            inline, kept = (UNSET, result) if isinstance(result, KeptResult) else (result, None)
            return CallToolResult(game_id=found.id, tool=params.tool, executed="yes", result=inline, resource=kept)

        return act(ask, to_result, effect)

    def _pin(self, call: Call, params: CallToolParams | SetStateParams, found: Game, effect: RecordedEffect) -> None:
        """What was judged is what is called: between the two lies a commit, and a mod may list anew at any time."""
        target: JudgedTool = effect.resolution.resolved
        now = or_refuse(lambda: self._judging.hash_of(params, found))
        if now != target.schema_hash:
            effect.details["executed"] = "no"
            raise Conflict(
                "the tool has changed since this call was judged; it was not called",
                hint="call again: it is judged as it is now",
                details={"executed": "no"},
            )
        tool = params.tool if isinstance(params, CallToolParams) else SET_STATE
        # "Trust this game" is one answer, and not one for each of its tools.
        pinned = {**(target.trusted if effect.timed_rule == TRUST_RULE else {}), tool: now}

        def pin(tx: Transaction) -> None:
            for name, schema_hash in pinned.items():
                self.pins.pin(tx, found.pinned_as, name, schema_hash, call.principal)

        effect.changes.append(pin)

    def _tool(self, game_id: str, name: str) -> tuple[Game, KnownTool]:
        found = self.games.find(game_id)
        return found, or_refuse(lambda: found.tool(name))

    # -- events --

    def read_events(self, call: Call, params: GameEventsParams) -> Deferred[EventPage]:
        """A caller that names channels is subscribed to them from now on; earlier events are there if others were."""
        found = self.games.find(params.game_id)
        named = names_in(params.channels)
        channels = named or found.announced()
        own_channels = found.subscriptions.of(call.principal)
        answer: Deferred[EventPage] = Deferred()
        if all(each in own_channels for each in channels):
            self._wait(found, params, tuple(named), [], answer)
            return answer
        subscribing = answer_with(self.games.answer(found.subscribe(call.principal, channels), call.method), list)

        def subscribed(_: Deferred[list[str]]) -> None:
            error = None if subscribing.cancelled() else subscribing.exception()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif subscribing.cancelled():
                answer.cancel()
            else:
                self._wait(found, params, tuple(named), subscribing.result(), answer)

        subscribing.add_done_callback(subscribed)
        return answer

    @staticmethod
    def _wait(
        found: Game, params: GameEventsParams, wanted: tuple[str, ...], unknown: list[str], answer: Deferred[EventPage]
    ) -> None:
        """Without a task, so that who waits is answered the moment it comes, or the house closes."""
        try:
            waiting = found.events.wait(params.since, wanted, params.limit)
        except Overloaded as error:
            answer.set_exception(error)
            return

        def over() -> None:
            if not waiting.done():
                waiting.set_result(found.events.page(params.since, wanted, params.limit))

        if not waiting.done():
            timer = asyncio.get_running_loop().call_later(min(params.wait_ms, MAX_WAIT_MS) / 1000, over)
            waiting.add_done_callback(lambda _: timer.cancel())

        def came(_: Deferred[EventPage]) -> None:
            if not answer.done() and not waiting.cancelled():
                page = waiting.result()
                answer.set_result(EventPage(events=page.events, cursor=page.cursor, unknown=unknown))

        waiting.add_done_callback(came)
        answer.add_done_callback(lambda _: waiting.cancel())

    def unsubscribe(self, call: Call, params: UnsubscribeParams) -> Deferred[Subscribed]:
        found = self.games.find(params.game_id)

        async def unsubscribed() -> Subscribed:
            await found.unsubscribe(call.principal, params.channels or None)
            return Subscribed(game_id=found.id, channels=found.subscriptions.of(call.principal))

        return answer_with(self.games.answer(unsubscribed(), call.method), lambda answer: answer)

    # -- resources --

    def list_resources(self, call: Call, params: ResourcesParams) -> Deferred[ResourcesPage]:
        found = self.games.find(params.game_id)
        asked = messages.ResourcesListParams(pattern=_or_unset(params.pattern), namespace=_or_unset(params.namespace))
        return answer_with(
            or_refuse(lambda: found.list_resources(call.principal, asked)),
            lambda result: ResourcesPage(game_id=found.id, resources=bounded_resources(result.resources)),
        )

    def read_resource(self, call: Call, params: ResourceParams) -> Deferred[ResourceContent]:
        found = self.games.find(params.game_id)
        kept = found.large.size_of(params.uri)
        uri = params.uri if kept is None else f"{params.uri}?offset={params.offset}&length={params.limit}"
        return answer_with(
            or_refuse(lambda: found.read_resource(call.principal, uri)),
            lambda result: piece_of(result, params, kept=kept),
        )

    # -- state and attention --

    def get_state(self, call: Call, params: GetStateParams) -> Deferred[GameStateView]:
        found = self.games.find(params.game_id)
        components = names_in(params.components) or None
        asked = messages.StateGetParams(components=_or_unset(components), player_id=_or_unset(params.player_id))
        return answer_with(
            or_refuse(lambda: found.get_state(call.principal, asked)),
            lambda result: GameStateView(game_id=found.id, state=result.state, timestamp=result.timestamp),
        )

    def _resolve_set_state(self, call: Call, params: SetStateParams) -> Resolution:
        return self._judging.set_state(call, params, self.games.find(params.game_id))

    def set_state(self, call: Call, params: SetStateParams, effect: RecordedEffect) -> Deferred[StateChanged]:
        found = self.games.find(params.game_id)
        self._pin(call, params, found, effect)
        asked = messages.StateSetParams(
            updates={name: Raw(to_json(value)) for name, value in params.updates.items()},
            player_id=_or_unset(params.player_id),
            validate=params.validate or UNSET,
        )

        def to_result(result: messages.StateSetResult) -> StateChanged:
            return StateChanged(game_id=found.id, applied=result.applied, errors=_listed(result.errors))

        return act(lambda: found.set_state(call.principal, asked), to_result, effect)

    def attention(self, call: Call, params: GameParams) -> AttentionView:
        found = self.games.find(params.game_id)
        found.require_live()
        return AttentionView(game_id=found.id, attention=found.attention)

    def acknowledge(self, call: Call, params: AcknowledgeParams, effect: RecordedEffect) -> Deferred[Acknowledged]:
        found = self.games.find(params.game_id)

        def to_result(result: messages.AttentionAckResult) -> Acknowledged:
            return Acknowledged(
                game_id=found.id,
                acknowledged=result.acknowledged,
                attention_id=result.attention_id or params.attention_id,
                attention=result.current_attention,
            )

        return act(lambda: found.acknowledge(call.principal, params.attention_id), to_result, effect)


def _mentions(tool: messages.Tool, query: str) -> bool:
    return any(query in (text or "").casefold() for text in (tool.name, tool.title, tool.description))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
