"""All games: those of `games.toml`, each started, stopped and found by its id."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, NotFound
from bascule.foundation.tasks import Tasks
from bascule.game.game import Game
from bascule.game.life import Life, Machine
from bascule.game.protocol import GameState, GameStatus
from bascule.game.settings import GameSettings, LiveSettings
from bascule.kernel.faults import log_fault
from gabp.session import SessionLimits
from gabp.words import MAX_TITLE_CHARS, cut

# How long `start` waits for the game to be live before it answers that it is starting.
START_WAIT_SECONDS = 20.0
# Between the end of a crashed game's connection and of its process.
EXIT_SECONDS = 1.0
# How long a call may take to end once its game has ended.
CALL_SECONDS = 5.0
# Running at once. Fifty were measured; each is a process beside.
MAX_RUNNING = 64

T = TypeVar("T")


class Games(AbstractAsyncContextManager["Games"]):
    """Entered once; leaving it ends every game it started."""

    def __init__(
        self,
        settings: LiveSettings,
        machine: Machine,
        *,
        limits: SessionLimits | None = None,
        max_running: int = MAX_RUNNING,
        check_start: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_start` raises when no game may be started any more, although the call for it was admitted."""
        self._settings = settings
        self._machine = machine
        self._limits = limits
        self._max_running = max_running
        self._check_start = check_start
        self._games: dict[str, Game] = {}
        # Those a user attached to without naming them in the file; until they are let go of.
        self._attached: dict[str, GameSettings] = {}
        # Of every game that was started, by its id.
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks(lambda name, error: log_fault(machine.log, error, task=name))

    async def __aenter__(self) -> Self:
        self._machine.bridge_file.sweep()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for life in self._lives.values():
            life.cancel()
        if self._lives:
            # However long its end takes: a game's processes must not be left.
            await asyncio.wait(self._lives.values())
        # With its game a call has its answer.
        await self._tasks.close(CALL_SECONDS)

    def answer(self, work: Coroutine[Any, Any, T], name: str) -> Deferred[T]:
        """The result of work that ends with the games at the latest; cancelling it cancels the work."""
        return self._tasks.answer(work, name)

    async def end(self, seconds: float) -> None:
        """Ask every game that we started to end, all at once; what does not is ended by leaving."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for name, each in self.running().items():
                    if each.process is not None:
                        group.create_task(self.stop(name))

    def stop_all(self) -> Deferred[str]:
        """End every game that we started and let go of the others, all at once; in words, what that was."""
        names = list(self.running())
        return self.answer(self._stop_all(names), "stop all games")

    async def _stop_all(self, names: list[str]) -> str:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self.stop(name))
        return f"ended: {', '.join(names)}" if names else "no game was running"

    # -- finding --

    @property
    def settings_problem(self) -> str | None:
        """Why the file as it is now is not in force."""
        return self._settings.problem

    def find(self, game_id: str) -> Game:
        """A game of the file, or one that still runs though the file no longer names it."""
        settings = self._settings.games().get(game_id) or self._attached.get(game_id)
        known = self._games.get(game_id)
        if settings is None:
            if known is not None and known.state is not GameState.STOPPED:
                return known
            names = ", ".join(sorted(self._settings.games())) or "none"
            raise NotFound(f"no game {game_id[:64]!r}", hint=f"games.toml names: {names}")
        if known is None:
            known = self._games[game_id] = Game(game_id, settings, self._machine, limits=self._limits)
        elif known.state is GameState.STOPPED:
            known.settings = settings
        return known

    def known(self) -> Collection[Game]:
        """Whether they run or not: callers may wait at one that is stopped."""
        return self._games.values()

    def list(self) -> list[GameStatus]:
        names = set(self._settings.games()).union(
            game_id for game_id, each in self._games.items() if each.state is not GameState.STOPPED
        )
        return [self.status(name) for name in sorted(names)]

    def status(self, game_id: str) -> GameStatus:
        return self._status(self.find(game_id))

    def _status(self, found: Game) -> GameStatus:
        waiting, sent = found.counts
        live = found.state is GameState.LIVE
        welcome = found.welcome if live else None
        return GameStatus(
            game_id=found.id,
            state=found.state,
            name=found.settings.name,
            description=found.settings.description,
            problem=found.problem,
            pid=found.process.pid if found.process is not None and found.state is not GameState.STOPPED else None,
            app=cut(welcome.app.name, MAX_TITLE_CHARS) if welcome is not None else None,
            version=cut(welcome.app.version, MAX_TITLE_CHARS) if welcome is not None else None,
            transport=found.settings.transport,
            attached=found.settings.command is None,
            started_by=None if found.state is GameState.STOPPED else found.started_by,
            tools=len(found.catalog.tools) if live else 0,
            launches=found.launches,
            connects=found.connects,
            calls_waiting=waiting,
            calls_sent=sent,
            attention=found.attention.summary if found.attention is not None else None,
            cursor=found.events.cursor,
            notes=found.notes,
        )

    # -- life --

    async def attach(self, game_id: str, settings: GameSettings, wait_seconds: float, *, by: str) -> GameStatus:
        """One that somebody else started and games.toml does not name."""
        running = self._games.get(game_id)
        if game_id in self._settings.games():
            raise Conflict(
                f"games.toml has a game {game_id}", hint="attach to it by that name alone, or choose another"
            )
        if running is not None and running.state is GameState.FAILED and game_id in self._attached:
            # It was let go of already, but for its name.
            await self.stop(game_id)
        if running is not None and running.state is not GameState.STOPPED:
            raise Conflict(f"{game_id} is {running.state} already", hint="stop it first, or choose another name")
        for each in list(self._attached):
            self._forget_attached(each)
        self._attached[game_id] = settings
        try:
            return await self.start(game_id, wait_seconds, started_by=by)
        finally:
            self._forget_attached(game_id)

    def _forget_attached(self, game_id: str) -> None:
        """Forget the settings of an attached game that is stopped."""
        found = self._games.get(game_id)
        if found is None or found.state is GameState.STOPPED:
            self._attached.pop(game_id, None)

    async def start(
        self, game_id: str, wait_seconds: float = START_WAIT_SECONDS, *, started_by: str | None = None
    ) -> GameStatus:
        """Launch it, or attach to it when it has no command; returns when it is live, has failed, or is taking long."""
        found = self.find(game_id)
        self._check_start()
        if found.state is not GameState.STOPPED:
            raise Conflict(f"{game_id} is {found.state} already", hint="call it, connect to it, or stop it first")
        running = sum(not life.done() for life in self._lives.values())
        if running >= self._max_running:
            raise Conflict(f"{running} games run already, as many as may", hint="stop one of them first")
        found.started_by = started_by
        self._lives[game_id] = self._tasks.start(self._run(found, found.begin(found.settings)), f"game {game_id}")
        return await self._settled(found, wait_seconds)

    async def _run(self, found: Game, life: Life) -> None:
        try:
            await found.run(life)
        except Exception as error:  # noqa: BLE001 - a fault in one game's task must not take the others with it
            self._machine.log("game_fault", level="error", game=found.id, error=error)
            found.problem = "an internal error; the log has it"

    async def connect(self, game_id: str, wait_seconds: float = START_WAIT_SECONDS) -> GameStatus:
        """Try again to reach a game that was given up."""
        found = self.find(game_id)
        if found.state is GameState.FAILED and found.life is not None:
            found.life.connect_again()
            await found.reached(GameState.STARTING, GameState.STOPPED, GameState.LIVE)
        elif found.state is GameState.STOPPED:
            raise Conflict(f"{game_id} is not running", hint="start it first")
        return await self._settled(found, wait_seconds)

    async def _settled(self, found: Game, wait_seconds: float) -> GameStatus:
        try:
            async with asyncio.timeout(wait_seconds):
                await found.reached(GameState.LIVE, GameState.FAILED, GameState.STOPPED)
        except TimeoutError:
            # It goes on by itself; the status says how far it is.
            return self._status(found)
        if found.state is GameState.FAILED and found.process is not None:
            # A game that crashed closes its connection first, and its exit has more to say.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXIT_SECONDS):
                    await found.reached(GameState.STOPPED)
        return self._status(found)

    async def stop(self, game_id: str, *, kill: bool = False) -> GameStatus:
        """End what we started; let go of what we attached to."""
        found = self.find(game_id)
        life = self._lives.get(game_id)
        if found.process is not None:
            await found.stop(kill=kill)
        elif life is not None and not life.done():
            life.cancel()
        if life is not None:
            await asyncio.wait([life])
        self._forget_attached(game_id)
        return self._status(found)

    def running(self) -> dict[str, Game]:
        return {name: each for name, each in self._games.items() if each.state is not GameState.STOPPED}
