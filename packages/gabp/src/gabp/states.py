"""Who may say what in a GABP session, and when: one table for both ends.

A session is the bridge's `session/hello`, the mod's answer to it, and from then on requests one way, responses and
events the other. The bridge checks what it sends and the mod checks what comes against the same cells, and the other
way round; what has no cell is illegal, and `REFUSALS` says what a mod answers to it.
"""

from enum import StrEnum
from typing import Final

from gabp.errors import ErrorCode


class State(StrEnum):
    # Connected, nothing said.
    NEW = "new"
    # Hello is said and not answered.
    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


class Side(StrEnum):
    BRIDGE = "bridge"
    MOD = "mod"


class Move(StrEnum):
    HELLO = "hello"
    # The result of hello: what the spec calls session/welcome, a response and no method.
    WELCOME = "welcome"
    # The error of hello.
    REFUSAL = "refusal"
    REQUEST = "request"
    RESPONSE = "response"
    EVENT = "event"
    END = "end"


_ENDS: Final = {(Side.BRIDGE, Move.END): State.CLOSED, (Side.MOD, Move.END): State.CLOSED}

TRANSITIONS: Final[dict[State, dict[tuple[Side, Move], State]]] = {
    State.NEW: {(Side.BRIDGE, Move.HELLO): State.GREETING, **_ENDS},
    State.GREETING: {(Side.MOD, Move.WELCOME): State.OPEN, (Side.MOD, Move.REFUSAL): State.CLOSED, **_ENDS},
    State.OPEN: {
        (Side.BRIDGE, Move.REQUEST): State.OPEN,
        (Side.MOD, Move.RESPONSE): State.OPEN,
        (Side.MOD, Move.EVENT): State.OPEN,
        **_ENDS,
    },
    State.CLOSED: {},
}

# What a mod answers to a bridge's illegal move. An illegal response or event is nobody's question: it is noted, and
# ends a strict session.
REFUSALS: Final[dict[tuple[State, Move], tuple[ErrorCode, str]]] = {
    (State.NEW, Move.REQUEST): (ErrorCode.AUTHENTICATION_REQUIRED, "the first request must be session/hello"),
    (State.GREETING, Move.REQUEST): (ErrorCode.AUTHENTICATION_REQUIRED, "session/hello is not answered yet"),
    (State.GREETING, Move.HELLO): (ErrorCode.INVALID_REQUEST, "session/hello was said already"),
    (State.OPEN, Move.HELLO): (ErrorCode.INVALID_REQUEST, "session/hello was said already"),
}


class IllegalMove(Exception):
    """A mistake of this side's own code, caught before anything was sent."""


def after(state: State, side: Side, move: Move) -> State | None:
    """The next state; None when the move is illegal."""
    return TRANSITIONS[state].get((side, move))
