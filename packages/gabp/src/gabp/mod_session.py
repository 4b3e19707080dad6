"""The mod's end of a GABP session: greets, judges requests before they reach the game, answers each once."""

from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET

from gabp import envelopes, messages, schemas
from gabp.codec import BadJson, Raw
from gabp.envelopes import to_json
from gabp.errors import ErrorCode
from gabp.session import PARAM_DECODERS, Session, channel_matches, new_id
from gabp.states import REFUSALS, TRANSITIONS, Move, Side, State, after

_EMPTY: Final = b"{}"
_OPEN: Final = State.OPEN
# The table's cell for nearly every message, looked up once.
_AFTER_REQUEST: Final = TRANSITIONS[State.OPEN][Side.BRIDGE, Move.REQUEST]


class Greeted(msgspec.Struct, frozen=True):
    """A bridge said hello; answer with `welcome` or `refuse`."""

    id: str
    params: messages.HelloParams


class Asked(msgspec.Struct, frozen=True):
    """A request with sound params; answer with `answer` or `fail`."""

    id: str
    method: str
    params: Any


class ModSession(Session):
    side: ClassVar[Side] = Side.MOD

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.channels: set[str] = set()
        self._hello_id = ""
        self._unanswered: set[str] = set()

    # -- our moves --

    def welcome(self, welcome: messages.Welcome) -> None:
        self._move(Move.WELCOME)
        self._send(envelopes.response(self._hello_id, to_json(welcome)))

    def refuse(self, code: ErrorCode, message: str) -> None:
        self._move(Move.REFUSAL)
        self._send(envelopes.error_response(self._hello_id, code, message))

    def answer(self, id_: str, result: bytes) -> None:
        """Once; a second answer, or one to a request that was given up, is not sent."""
        if self._settle(id_):
            self._send(envelopes.response(id_, result))

    def fail(self, id_: str, code: int, message: str, data: Any = UNSET) -> None:
        if self._settle(id_):
            self._send(envelopes.error_response(id_, code, message, data))

    def _settle(self, id_: str) -> bool:
        if self.state is not _OPEN or id_ not in self._unanswered:
            return False
        self._unanswered.discard(id_)
        return True

    def emit(self, channel: str, seq: int, payload: bytes) -> None:
        if self.state is _OPEN:
            self._send(envelopes.event(new_id(), channel, seq, payload))

    def wants(self, channel: str) -> bool:
        return channel in self.channels or any(channel_matches(each, channel) for each in self.channels)

    # -- the bridge's moves --

    def _handle(self, message: envelopes.Message | envelopes.BadMessage) -> None:
        match message:
            case envelopes.Request():
                self._handle_request(message)
            case envelopes.Response() | envelopes.Event():
                self._violation("a bridge sends requests only")
            case envelopes.BadMessage():
                self._handle_bad(message)

    def _handle_bad(self, bad: envelopes.BadMessage) -> None:
        if bad.fatal:
            self.break_off(ErrorCode.PARSE_ERROR, bad.message)
        elif bad.type in ("response", "event"):
            # Never answered: two sides that answer each other's answers would not stop.
            self._violation(bad.message)
        else:
            self._send(envelopes.error_response(bad.id, bad.code, bad.message))

    def _handle_request(self, message: envelopes.Request) -> None:
        hello = message.method == messages.HELLO
        following = _AFTER_REQUEST if self.state is _OPEN and not hello else self._following(message, hello=hello)
        if following is None:
            return
        shape = PARAM_DECODERS.get(message.method)
        if shape is None:
            known = ", ".join(sorted(messages.METHODS))
            self._send(
                envelopes.error_response(
                    message.id, ErrorCode.METHOD_NOT_FOUND, f"no method {message.method}; there are {known}"
                )
            )
            return
        try:
            params = self._shaped(message.params, shape, schemas.PARAMS, message.method, "params")
        except BadJson as bad:
            self._send(envelopes.error_response(message.id, ErrorCode.INVALID_PARAMS, bad.message))
            return
        self._take_in(message, params, following)

    def _following(self, message: envelopes.Request, *, hello: bool) -> State | None:
        """The state that this request leads to; None when it is illegal, and told so."""
        move = Move.HELLO if hello else Move.REQUEST
        following = after(self.state, Side.BRIDGE, move)
        if following is None:
            code, text = REFUSALS[self.state, move]
            self._send(envelopes.error_response(message.id, code, text))
        return following

    def _take_in(self, message: envelopes.Request, params: Any, following: State) -> None:
        if message.method == messages.HELLO:
            self.state = following
            self._hello_id = message.id
            self._happen(Greeted(message.id, params))
            return
        if message.id in self._unanswered:
            self._violation(f"two requests with the id {message.id}")
            return
        if len(self._unanswered) >= self.limits.max_in_flight:
            self._send(
                envelopes.error_response(
                    message.id,
                    ErrorCode.TOOL_UNAVAILABLE,
                    f"{self.limits.max_in_flight} requests of this connection wait already; wait for answers first",
                    {"executed": False},
                )
            )
            return
        self._unanswered.add(message.id)
        self._happen(Asked(message.id, message.method, params))


def arguments_of(params: messages.ToolsCallParams) -> bytes:
    """GABS sends them as `parameters`."""
    for found in (params.arguments, params.parameters):
        if isinstance(found, Raw) and (text := bytes(found)) != b"null":
            return text
    return _EMPTY
