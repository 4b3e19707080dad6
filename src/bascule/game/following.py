"""Who follows a game as it happens, for as long as they like: over restarts of the game too."""

from collections.abc import Hashable
from typing import Final

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, Overloaded
from bascule.foundation.stream import Stream
from bascule.game.game import BRIDGE_CHANNEL, Game
from bascule.game.games import Games
from bascule.game.protocol import GameEvent, GameStreamParams, names_in
from bascule.kernel.call import Call, Principal
from gabp.errors import GameError

# Of one principal at all games together: a program that forgets to close what it opened is told before others notice.
MAX_STREAMS_EACH: Final = 64


class Following:
    def __init__(self, games: Games, *, max_each: int = MAX_STREAMS_EACH) -> None:
        self._games = games
        self._max_each = max_each
        self._open: dict[Principal, set[Stream]] = {}

    def stream(self, call: Call, params: GameStreamParams) -> Stream:
        found = self._games.find(params.game_id)
        mine = self._open.setdefault(call.principal, set())
        if len(mine) >= self._max_each:
            raise Overloaded(f"{self._max_each} streams of games are open already", hint="close one", retry_after=5.0)
        # Not the principal: what a stream hears ends with it, what was asked for by `games.events` does not.
        client = object()
        stream: Stream

        def closed() -> None:
            mine.discard(stream)
            if not mine:
                self._open.pop(call.principal, None)
            self._games.answer(found.unsubscribe(client), "games.stream")

        named = names_in(params.channels)
        stream = found.events.stream(tuple(named), params.since, on_close=closed)
        mine.add(stream)
        self._subscribe(found, client, named, stream)
        return stream

    def _subscribe(self, found: Game, client: Hashable, named: list[str], stream: Stream) -> None:
        work = found.subscribe(client, named) if named else found.subscribe_to_all(client)

        def subscribed(answer: Deferred[list[str]]) -> None:
            if answer.cancelled():
                return
            error = answer.exception()
            if error is None:
                if answer.result():
                    stream.push(_note(found, f"the game has no such channel (yet): {', '.join(answer.result())}"))
            elif isinstance(error, GameError):
                # Asked for again at the next connect; what others hear of these channels comes all the same.
                stream.push(_note(found, f"not subscribed: {error.message}", error.code))
            elif isinstance(error, BasculeError):
                stream.push(_note(found, error.message))
                stream.end()

        self._games.answer(work, "games.stream").add_done_callback(subscribed)

    def end_of(self, principal: Principal) -> None:
        """A handle was revoked or taken over: end its streams."""
        for stream in list(self._open.get(principal, ())):
            stream.end()


def _note(found: Game, message: str, code: int | None = None) -> GameEvent:
    return GameEvent(
        cursor=found.events.cursor, channel=BRIDGE_CHANNEL, at_ms=found.now_ms(), code=code, message=message
    )
