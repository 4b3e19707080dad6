"""What becomes of a game: a table, walked by a test cell by cell."""

from enum import StrEnum
from typing import Final

from bascule.game.protocol import GameState


class Turn(StrEnum):
    START = "start"
    WELCOMED = "welcomed"
    LOST = "lost"
    # Not reached in time, or refused.
    GAVE_UP = "gave_up"
    CONNECT = "connect"
    STOP = "stop"
    # The process ended, or an attached game was let go.
    ENDED = "ended"


_S = GameState
NEXT: Final[dict[GameState, dict[Turn, GameState]]] = {
    _S.STOPPED: {Turn.START: _S.STARTING},
    _S.STARTING: {
        Turn.WELCOMED: _S.LIVE,
        Turn.GAVE_UP: _S.FAILED,
        Turn.STOP: _S.STOPPING,
        Turn.ENDED: _S.STOPPED,
    },
    _S.LIVE: {Turn.LOST: _S.RECONNECTING, Turn.STOP: _S.STOPPING, Turn.ENDED: _S.STOPPED},
    _S.RECONNECTING: {
        Turn.WELCOMED: _S.LIVE,
        Turn.GAVE_UP: _S.FAILED,
        Turn.STOP: _S.STOPPING,
        Turn.ENDED: _S.STOPPED,
    },
    _S.STOPPING: {Turn.ENDED: _S.STOPPED},
    _S.FAILED: {Turn.CONNECT: _S.STARTING, Turn.STOP: _S.STOPPING, Turn.ENDED: _S.STOPPED},
}


def after(state: GameState, turn: Turn) -> GameState | None:
    """None when that cannot happen then."""
    return NEXT[state].get(turn)
