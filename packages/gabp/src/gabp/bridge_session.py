"""The bridge's end of a GABP session: hello, requests in flight, events in order."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from gabp import envelopes, messages, schemas
from gabp.codec import BadJson, Raw, decoder
from gabp.envelopes import Mode, to_json
from gabp.errors import ErrorCode, GameError, RequestTooLarge, TooManyRequests, UnreadableAnswer, from_peer
from gabp.session import (
    RESULT_DECODERS,
    Noted,
    Session,
    SessionLimits,
    channel_matches,
    new_id,
)
from gabp.states import Move, Side, State, after

# The one state in which the table lets the bridge ask and the mod tell, and it stays in it: asked for every message.
_OPEN: Final = State.OPEN
_GREETING: Final = State.GREETING
# Whose results may have any size up to the receive limit: they are kept, and read piece by piece.
_MAY_BE_LARGE: Final = frozenset({messages.TOOLS_CALL, messages.RESOURCES_READ})

_attention: Final = decoder(messages.Attention)


class Welcomed(msgspec.Struct, frozen=True):
    welcome: messages.Welcome


class Refused(msgspec.Struct, frozen=True):
    """The mod does not want this session; it is closed."""

    error: GameError


class Answered(msgspec.Struct, frozen=True):
    """`value` is the method's result Struct, or `Raw` where any JSON is one; or there is an error."""

    id: str
    method: str
    value: Any
    error: GameError | None = None


class Came(msgspec.Struct, frozen=True):
    """An event. `missed` others of its channel did not reach us before it."""

    channel: str
    seq: int
    payload: Raw
    missed: int = 0


class BridgeSession(Session):
    side: ClassVar[Side] = Side.BRIDGE

    def __init__(
        self,
        mode: Mode = Mode.COMPAT,
        limits: SessionLimits | None = None,
        *,
        seen: Mapping[str, int] | None = None,
    ) -> None:
        """`seen`: the last sequence number of each channel in an earlier session with the same running mod."""
        super().__init__(mode, limits)
        self.welcome: messages.Welcome | None = None
        self.message_limit = self.limits.max_message_bytes
        # Some mods count characters where the frame counts bytes; ours does not.
        self._counts_bytes = False
        self.max_concurrent = self.limits.max_in_flight
        # None of a mod that lists no methods.
        self._offered: frozenset[str] | None = None
        self._hello_id = ""
        # Id to method.
        self._in_flight: dict[str, str] = {}
        # Given up; in order, so that the oldest go first.
        self._forgotten: dict[str, None] = {}
        self._wanted: set[str] = set()
        self._seen: dict[str, int] = dict(seen or {})
        # Channels whose number in `_seen` is from an earlier session.
        self._inherited = set(self._seen)

    # -- our moves --

    def hello(self, params: messages.HelloParams) -> None:
        self._move(Move.HELLO)
        self._hello_id = new_id()
        # A mod may print it in a result, an event or an error; all of that reaches agents and logs.
        self._reader.mask(params.token)
        self._send(envelopes.request(self._hello_id, messages.HELLO, to_json(params)))

    def request(self, method: str, params: bytes) -> str:
        """Its id. `params` is ASCII JSON, as `to_json` gives it; a mod that counts bytes gets UTF-8 where it must."""
        limit = self.message_limit
        if len(params) + 256 > limit and self._counts_bytes:
            params = envelopes.utf8_text(params)
        if len(params) + 256 > limit:
            raise RequestTooLarge(f"a request of {len(params)} bytes is over the game's limit of {limit}")
        if len(self._in_flight) >= self.limits.max_in_flight:
            raise TooManyRequests(f"{len(self._in_flight)} requests wait for this game already")
        if self.state is not _OPEN:
            self._move(Move.REQUEST)
        id_ = new_id()
        self._in_flight[id_] = method
        self._send(envelopes.request(id_, method, params))
        return id_

    def subscribe(self, channels: list[str]) -> str:
        id_ = self.request(messages.SUBSCRIBE, to_json(messages.ChannelsParams(channels=channels)))
        # Before the answer: the first event may overtake it.
        self._wanted.update(channels)
        return id_

    def unsubscribe(self, channels: list[str]) -> str:
        id_ = self.request(messages.UNSUBSCRIBE, to_json(messages.ChannelsParams(channels=channels)))
        self._wanted.difference_update(channels)
        for channel in [each for each in self._seen if not self._is_wanted(each)]:
            # Numbers go on without us; the next first event is no gap.
            del self._seen[channel]
            self._inherited.discard(channel)
        return id_

    def forget(self, id_: str) -> None:
        """Nobody waits for this answer any more."""
        if self._in_flight.pop(id_, None) is not None:
            self._forgotten[id_] = None
            if len(self._forgotten) > self.limits.max_forgotten:
                del self._forgotten[next(iter(self._forgotten))]

    def cancel(self, id_: str) -> bool:
        """Ask the mod to stop working on it, if it understands that."""
        if id_ not in self._in_flight or not self.cancels or self.state is not State.OPEN:
            return False
        # First, so that there is room for one more.
        self.forget(id_)
        self.forget(self.request(messages.TOOLS_CANCEL, to_json(messages.ToolsCancelParams(request_id=id_))))
        return True

    # -- what is known --

    @property
    def cancels(self) -> bool:
        return self.welcome is not None and self.welcome.extension(messages.CANCELLATION) is not None

    def _keep_to(self, theirs: messages.Limits | msgspec.UnsetType) -> None:
        """The smaller of ours and the mod's; a mod that allows next to nothing is not believed."""
        if isinstance(theirs, messages.Limits):
            if isinstance(theirs.max_message_size, int):
                self.message_limit = min(self.message_limit, max(theirs.max_message_size, 1024))
            if isinstance(theirs.max_concurrent_requests, int):
                self.max_concurrent = min(self.max_concurrent, max(theirs.max_concurrent_requests, 1))

    def offers(self, method: str) -> bool:
        """Whether the mod says it has a method; mods that list none are asked."""
        return self._offered is None or method in self._offered

    @property
    def seen(self) -> dict[str, int]:
        return dict(self._seen)

    @property
    def open_requests(self) -> int:
        return len(self._in_flight)

    # -- the mod's moves --

    def _handle(self, message: envelopes.Message | envelopes.BadMessage) -> None:
        match message:
            case envelopes.Response():
                self._handle_response(message)
            case envelopes.Event():
                self._handle_event(message)
            case envelopes.Request():
                # gabp.md: requests go from the bridge to the mod only.
                self._violation(f"the mod sent a request ({message.method}); only bridges do")
            case envelopes.BadMessage():
                self._handle_bad(message)

    def _handle_bad(self, bad: envelopes.BadMessage) -> None:
        if bad.fatal:
            self.break_off(ErrorCode.PARSE_ERROR, bad.message)
        elif isinstance(bad, envelopes.SkippedMessage):
            self._handle_skipped(bad)
        elif bad.id == self._hello_id and self.state is State.GREETING:
            self._refused(GameError(bad.code, f"the mod's answer to hello is not valid: {bad.message}"))
        elif bad.id in self._in_flight:
            method = self._in_flight.pop(bad.id)
            self._happen(Answered(bad.id, method, None, _no_answer(method, bad.code, bad.message)))
        else:
            self._violation(f"a message that is not valid: {bad.message}")

    def _handle_skipped(self, skipped: envelopes.SkippedMessage) -> None:
        """Fails the call it answers, as far as that can be known, and nothing else.

        Its own id stands in front of or behind the result in what every known mod writes. One that is not found there
        answers the only call in flight; with several, each of them keeps its deadline.
        """
        if self.state is _GREETING:
            self._refused(GameError(ErrorCode.INVALID_VALUE, f"the mod's welcome cannot be read: {skipped.message}"))
            return
        id_ = next((each for each in skipped.ids if each in self._in_flight), None)
        if id_ is None and skipped.type != "event" and len(self._in_flight) == 1:
            id_ = next(iter(self._in_flight))
        if id_ is None:
            self._happen(Noted(f"{skipped.message}; it was skipped ({skipped.type or 'what it was is not known'})"))
            return
        method = self._in_flight.pop(id_)
        error = _too_large(method, skipped.length, self.limits.max_receive_bytes)
        self._happen(Answered(id_, method, None, error))

    def _handle_response(self, message: envelopes.Response) -> None:
        id_ = message.id
        if self.state is _GREETING and id_ in (self._hello_id, envelopes.NIL_ID):
            self._handle_welcome(message)
        elif (method := self._in_flight.pop(id_, None)) is not None:
            self._happen(self._answer(id_, method, message))
        elif id_ == envelopes.NIL_ID:
            error = message.error
            text = error.message if isinstance(error, envelopes.ErrorBody) else "no reason given"
            self._happen(Noted(f"the mod could not read what we sent: {text}"))
        elif id_ in self._forgotten:
            del self._forgotten[id_]
        else:
            self._violation(f"a response to nothing we asked (id {id_})")

    def _handle_welcome(self, message: envelopes.Response) -> None:
        if isinstance(message.error, envelopes.ErrorBody):
            self._refused(from_peer(message.error.code, message.error.message, message.error.data))
            return
        try:
            welcome = self._shaped(
                message.result, RESULT_DECODERS[messages.HELLO], schemas.RESULTS, messages.HELLO, "welcome"
            )
        except BadJson as bad:
            self._refused(GameError(ErrorCode.INVALID_VALUE, f"the mod's welcome cannot be read: {bad.message}"))
            return
        self.state = after(self.state, Side.MOD, Move.WELCOME) or self.state
        self.welcome = welcome
        if isinstance(welcome.capabilities.methods, list):
            self._offered = frozenset(welcome.capabilities.methods)
        self._keep_to(welcome.capabilities.limits)
        info = welcome.server_info
        self._counts_bytes = isinstance(info, messages.ServerInfo) and info.name == messages.OUR_SERVER_NAME
        self._happen(Welcomed(welcome))

    def _refused(self, error: GameError) -> None:
        self.state = after(self.state, Side.MOD, Move.REFUSAL) or State.CLOSED
        self._happen(Refused(error))

    def _answer(self, id_: str, method: str, message: envelopes.Response) -> Answered:
        if isinstance(message.error, envelopes.ErrorBody):
            error = from_peer(message.error.code, message.error.message, message.error.data)
            return Answered(id_, method, None, error)
        size = memoryview(message.result).nbytes
        if size > self.limits.max_message_bytes and method not in _MAY_BE_LARGE:
            return Answered(id_, method, None, _too_large(method, size, self.limits.max_message_bytes))
        shape = RESULT_DECODERS.get(method)
        if shape is None:
            return Answered(id_, method, message.result)
        try:
            value = self._shaped(message.result, shape, schemas.RESULTS, method, "result")
        except BadJson as bad:
            return Answered(id_, method, None, _no_answer(method, ErrorCode.INVALID_VALUE, bad.message))
        return Answered(id_, method, value)

    def _handle_event(self, message: envelopes.Event) -> None:
        if self.state is not _OPEN and after(self.state, Side.MOD, Move.EVENT) is None:
            self._violation(f"an event ({message.channel}) before the welcome")
            return
        if not self._is_wanted(message.channel):
            # Under way when we unsubscribed, or never asked for: nobody is told.
            return
        if self.mode is Mode.STRICT and message.channel in schemas.EVENTS:
            try:
                self._shaped(message.payload, _attention, schemas.EVENTS, message.channel, "payload")
            except BadJson as bad:
                self._violation(f"an event of {message.channel} is not a valid attention: {bad.message}")
                return
        missed = self._missed(message.channel, message.seq)
        if missed is None:
            self._violation(f"event {message.seq} of {message.channel} came after a later one")
            if self.state is State.CLOSED:
                return
        if message.channel not in self._seen and len(self._seen) >= self.limits.max_channels:
            # Below `x/*` a mod can make up any number of channels; of the oldest no gap is told then.
            del self._seen[next(iter(self._seen))]
        self._seen[message.channel] = message.seq
        self._happen(Came(message.channel, message.seq, message.payload, missed or 0))

    def _missed(self, channel: str, seq: int) -> int | None:
        """How many events lie between the last one and this; None when it is no later one."""
        last = self._seen.get(channel)
        if last is None:
            # Numbers are per channel of the mod, not per subscriber: the first one seen is where we begin.
            return 0
        inherited = channel in self._inherited
        self._inherited.discard(channel)
        if seq > last:
            return seq - last - 1
        # After a reconnect a lower number is a mod that began to count anew.
        return 0 if inherited else None

    def _is_wanted(self, channel: str) -> bool:
        return channel in self._wanted or any(channel_matches(wanted, channel) for wanted in self._wanted)


def _no_answer(method: str, code: int, why: str) -> GameError:
    return UnreadableAnswer(code, f"the mod's answer to {method} cannot be read: {why}")


def _too_large(method: str, size: int, limit: int) -> GameError:
    hint = "; or raise `max_receive_bytes` in games.toml" if method in _MAY_BE_LARGE else ""
    return UnreadableAnswer(
        ErrorCode.TOOL_FAILED,
        f"the mod's answer to {method} has {size} bytes, over the limit of {limit}, and was dropped: "
        f"ask for less at once{hint}",
        {"executed": True, "size": size, "limit": limit},
    )
