"""What both ends of a GABP session share: bytes in, happenings out; own moves in, bytes out. No socket, no clock.

`receive` never raises: what a peer does wrong is a happening like what it does right. `Broken` is the last one; the
shell sends what `take` still holds, then closes.
"""

import os
from typing import Any, ClassVar, Final

import msgspec

from gabp import envelopes, messages
from gabp.codec import BadJson, Decoder, Raw, decode, decoder
from gabp.envelopes import Mode
from gabp.errors import ErrorCode
from gabp.json_schema import Schema
from gabp.states import IllegalMove, Move, Side, State, after

# Members of an Enum class are slow to read, and this one is read for every message.
_CLOSED: Final = State.CLOSED

# decisions.md: "10 s per frame"; kept by the shell, which has the clock.
FRAME_SECONDS = 10.0


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Each a number a test may set."""

    # Of a request, and of an answer that is neither a tool's result nor a resource's content.
    max_message_bytes: int = messages.MAX_MESSAGE_BYTES
    # Of what a mod sends to a bridge.
    max_receive_bytes: int = messages.MAX_RECEIVE_BYTES
    max_header_bytes: int = 8 * 1024
    # Requests of one session not answered yet. A hundred agents that each have two are fewer.
    max_in_flight: int = 256
    # Ids of calls given up whose late answers are let pass in silence.
    max_forgotten: int = 1_024
    # Channels of one session; each costs a table entry and a number.
    max_channels: int = 256


class Noted(msgspec.Struct, frozen=True):
    """Something the peer does that a strict session would not take; for the log."""

    text: str


class Broken(msgspec.Struct, frozen=True):
    """The session is over because of what the peer sent."""

    code: int
    message: str


class Session:
    """One end. Subclasses say which."""

    side: ClassVar[Side]

    def __init__(self, mode: Mode = Mode.COMPAT, limits: SessionLimits | None = None) -> None:
        self.mode = mode
        self.limits = limits or SessionLimits()
        self.state = State.NEW
        is_bridge = self.side is Side.BRIDGE
        self._reader = envelopes.Reader(
            mode,
            max_body_bytes=self.limits.max_receive_bytes if is_bridge else self.limits.max_message_bytes,
            max_header_bytes=self.limits.max_header_bytes,
            # A mod cuts off who asks for too much; a bridge loses only that one answer.
            max_skipped_bytes=messages.MAX_SKIPPED_BYTES if is_bridge else 0,
        )
        self._out: list[bytes] = []
        self._happened: list[Any] = []

    @property
    def mid_frame(self) -> bool:
        """A frame has begun and not ended: the shell's clock runs."""
        return self._reader.mid_frame

    @property
    def frames_read(self) -> int:
        """That clock begins anew with every frame, also with one that begins in the read that ends another."""
        return self._reader.frames_read

    @property
    def closed(self) -> bool:
        return self.state is _CLOSED

    @property
    def speaks(self) -> bool:
        """There is something to `take`."""
        return bool(self._out)

    def take(self) -> bytes:
        """What is to be sent now."""
        out, self._out = self._out, []
        return out[0] if len(out) == 1 else b"".join(out)

    def receive(self, data: bytes) -> list[Any]:
        if self.state is _CLOSED:
            return []
        failure: str | None = None
        try:
            received = self._reader.feed(data)
        except envelopes.BrokenStream as broken:
            received, failure = broken.messages, broken.message
        for message in received:
            if self.closed:
                # Ended by an earlier one: nothing after a violation is dispatched.
                break
            self._handle(message)
        if failure is not None and not self.closed:
            self.break_off(ErrorCode.PARSE_ERROR, f"the framing is broken: {failure}")
        happened, self._happened = self._happened, []
        return happened

    def end_of_stream(self) -> list[Any]:
        """The peer has closed its side."""
        if not self.closed:
            if self.mid_frame:
                self.break_off(ErrorCode.PARSE_ERROR, "the stream ended inside a frame")
            else:
                self.end()
        happened, self._happened = self._happened, []
        return happened

    def frame_overdue(self) -> list[Any]:
        """Told by the shell when a frame took too long."""
        if not self.closed:
            self.break_off(ErrorCode.PARSE_ERROR, f"a frame took longer than {FRAME_SECONDS:g} s to arrive")
        happened, self._happened = self._happened, []
        return happened

    def end(self) -> None:
        self.state = State.CLOSED

    def break_off(self, code: ErrorCode, message: str) -> None:
        """Only a mod can say why: a bridge sends nothing but requests."""
        if self.side is Side.MOD:
            self._send(envelopes.error_response(envelopes.NIL_ID, code, message))
        self.end()
        self._happened.append(Broken(int(code), message))

    # -- for subclasses --

    def _handle(self, message: envelopes.Message | envelopes.BadMessage) -> None:
        raise NotImplementedError

    def _move(self, move: Move) -> None:
        """A move of our own."""
        following = after(self.state, self.side, move)
        if following is None:
            raise IllegalMove(f"a {self.side} cannot send a {move} in a session that is {self.state}")
        self.state = following

    def _send(self, frame: bytes) -> None:
        self._out.append(frame)

    def _happen(self, happening: object) -> None:
        self._happened.append(happening)

    def _violation(self, text: str) -> None:
        """Not ours to answer: ends a strict session, and is noted in another."""
        if self.mode is Mode.STRICT:
            self.break_off(ErrorCode.INVALID_REQUEST, text)
        else:
            self._happen(Noted(text))

    def _shaped(self, text: Raw, shape: Decoder[Any], schemas: dict[str, Schema], name: str, where: str) -> Any:
        """Decoded, and in a strict session checked against the published schema; BadJson says what is wrong."""
        if self.mode is Mode.STRICT and name in schemas:
            problems = schemas[name].problems(decode(text), where)
            if problems:
                raise BadJson("; ".join(problems))
        return shape.decode(text)


PARAM_DECODERS: Final[dict[str, Decoder[Any]]] = {
    name: decoder(method.params) for name, method in messages.METHODS.items()
}
RESULT_DECODERS: Final[dict[str, Decoder[Any]]] = {
    name: decoder(method.result) for name, method in messages.METHODS.items() if method.result is not None
}


def new_id() -> str:
    """A UUID of random bits (version 4), in a third of the time that `uuid` takes."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def channel_matches(wanted: str, channel: str) -> bool:
    """`attention/*` is every channel below attention: what GABS asks for."""
    return wanted == channel or (wanted.endswith("/*") and channel.startswith(wanted[:-1]))
