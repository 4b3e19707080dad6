"""GABP envelopes: `gabp/1` requests, responses and events, one per Content-Length frame.

`Mode.STRICT` takes what the published envelope schema allows and nothing else. `Mode.COMPAT` also takes what real
peers are seen to send: unknown fields, ids that are no UUIDs, an `error` of null beside a `result`, a `timestamp` in
events. What we write ourselves is always strict, and ASCII: some mods count characters where the frame counts bytes.

A broken frame ends the connection (`FrameError`): behind a wrong length nothing is a header. A body that is no JSON
ends it too (`BadMessage.fatal`). JSON that is no envelope costs that message alone.
"""

import re
from enum import Enum
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from gabp.codec import MAX_ANSWER_DEPTH, BadJson, Decoder, Raw, decode, encode
from gabp.content_length import (
    DEFAULT_MAX_BODY_BYTES,
    DEFAULT_MAX_HEADER_BYTES,
    FrameError,
    FrameReader,
    Oversized,
)

VERSION: Final = "gabp/1"
# As `content_length.frame` writes it with this content type; made once, because every message is framed.
_FRAME: Final = b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b"
# The envelope schema wants a UUID in every response, also in one to a message whose id cannot be read.
NIL_ID: Final = "00000000-0000-0000-0000-000000000000"
# A UUID has 36; peers with ids of their own stay far below.
MAX_ID_CHARS = 128
# Methods and channels are names, kept in tables and logs; the registry's longest has 20 characters.
MAX_NAME_CHARS = 256

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
VERSION_MISMATCH: Final = -32200
INVALID_TYPE: Final = -32201
MISSING_FIELD: Final = -32202
INVALID_VALUE: Final = -32203

_ABSENT: Final = Raw(b"")
_NO_PARAMS: Final = Raw(b"{}")
# What the text of a JSON object begins with.
_OBJECT: Final = ord("{")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# gabp.md section 5 and the envelope schema; the registry (section 1.1) also allows digits, "_" and "-".
_METHOD_STRICT: Final = re.compile(r"[a-z]+(?:/[a-z]+)+")
_METHOD_COMPAT: Final = re.compile(r"[a-z][a-z0-9_-]*(?:/[a-z][a-z0-9_-]*)+")
# Of a body that was skipped only excerpts are left: where such a field stands in it is not known.
_ANY_ID: Final = re.compile(rb'"id"\s*:\s*"([^"\\]{1,%d})"' % MAX_ID_CHARS)
_ANY_TYPE: Final = re.compile(rb'"type"\s*:\s*"(request|response|event)"')
# Strings of one text in which escapes are looked for; each costs some microseconds on the event loop.
MAX_UNESCAPED_STRINGS = 50_000
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Mode(Enum):
    STRICT = "strict"
    COMPAT = "compat"


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    code: int
    message: str = ""
    # Kept as it came: a mod's own details are often the only ones.
    data: Any = UNSET


class Request(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="request"):
    """`params` is the text of a JSON object, not judged yet."""

    v: str
    id: str
    method: str
    params: Raw = _NO_PARAMS


class Response(msgspec.Struct, frozen=True, tag_field="type", tag="response"):
    """Exactly one of `result` and `error` after `parse`; a result of null is `Raw(b"null")`."""

    v: str
    id: str
    result: Raw = _ABSENT
    error: ErrorBody | UnsetType | None = UNSET


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="event"):
    v: str
    id: str
    channel: str
    seq: int
    payload: Raw
    # Where the published schemas contradict each other: in the event's, not in the envelope's.
    timestamp: Any = None


class _StrictError(ErrorBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message: str


class _StrictRequest(Request, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="request"):
    pass


class _StrictResponse(Response, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="response"):
    error: _StrictError | UnsetType = UNSET


class _StrictEvent(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="type", tag="event"):
    v: str
    id: str
    channel: str
    seq: int
    payload: Raw


Message = Request | Response | Event

_strict: Final = Decoder[Any](_StrictRequest | _StrictResponse | _StrictEvent, max_depth=MAX_ANSWER_DEPTH).decode
_string: Final = Decoder[str](str).decode
_compat: Final = Decoder[Any](Request | Response | Event, max_depth=MAX_ANSWER_DEPTH).decode


class BadMessage(Exception):
    """Not an envelope. `code`, `message` and `id` are what an error response to it carries."""

    def __init__(self, code: int, message: str, *, id: str = NIL_ID, type: str | None = None) -> None:  # noqa: A002 - the envelope's names
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id
        # What it says it is; a response is never answered.
        self.type = type

    @property
    def fatal(self) -> bool:
        """No JSON at all: the peer's writer is broken, and the connection with it."""
        return self.code == PARSE_ERROR


class SkippedMessage(BadMessage):
    """A message above the limit, of which only the first and the last KiB were looked at."""

    def __init__(self, body: Oversized, limit: int) -> None:
        found = _ANY_TYPE.search(body)
        super().__init__(
            INVALID_VALUE,
            f"a message of {body.length} bytes is over the limit of {limit}",
            type=None if found is None else found[1].decode(),
        )
        self.length = body.length
        # Whatever looks like one, in the order in which it stands there.
        self.ids = [each.decode(errors="replace") for each in _ANY_ID.findall(body)]


class Reader:
    """Bytes in, messages out; bad ones in their place among the good."""

    __slots__ = ("_frames", "_mask", "_max_body_bytes", "_mode", "_secret")

    def __init__(
        self,
        mode: Mode = Mode.COMPAT,
        *,
        max_body_bytes: int = DEFAULT_MAX_BODY_BYTES,
        max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES,
        max_skipped_bytes: int = 0,
    ) -> None:
        self._mode = mode
        self._max_body_bytes = max_body_bytes
        self._secret = self._mask = b""
        # transport.md 2.1: "The Content-Type header MUST be application/json"; GABS and the spec's own guide omit it.
        self._frames = FrameReader(
            max_body_bytes,
            max_header_bytes,
            require_content_type=mode is Mode.STRICT,
            max_skipped_bytes=max_skipped_bytes,
        )

    def mask(self, secret: str) -> None:
        """From now on it is read as so many asterisks, wherever a peer writes it."""
        self._secret = secret.encode()
        self._mask = b"*" * len(self._secret)

    @property
    def mid_frame(self) -> bool:
        return self._frames.mid_frame

    @property
    def frames_read(self) -> int:
        return self._frames.frames_read

    def feed(self, data: bytes) -> list[Message | BadMessage]:
        """What `data` completes. Raises FrameError, whose `frames` are then the messages before the violation."""
        try:
            bodies = self._frames.feed(data)
        except FrameError as error:
            raise BrokenStream(error, self._messages(error.frames)) from None
        return self._messages(bodies)

    def _messages(self, bodies: list[bytes]) -> list[Message | BadMessage]:
        out: list[Message | BadMessage] = []
        for body in bodies:
            if type(body) is Oversized:
                out.append(SkippedMessage(body, self._max_body_bytes))
                continue
            if self._secret:
                body = body.replace(self._secret, self._mask)  # noqa: PLW2901 - nobody is to see what came
            try:
                out.append(parse(body, self._mode))
            except BadMessage as bad:
                out.append(bad)
        return out


class BrokenStream(Exception):
    """The framing is broken; `messages` are those that came whole before it, in the same read."""

    def __init__(self, error: FrameError, messages: list[Message | BadMessage]) -> None:
        super().__init__(error.message)
        self.error = error
        self.message = error.message
        self.messages = messages


def parse(body: bytes, mode: Mode = Mode.COMPAT) -> Message:
    try:
        message = _compat(body) if mode is Mode.COMPAT else _strict(body)
    except BadJson as error:
        raise _explained(body, error, mode) from None
    if _is_plain(message):
        return message  # type: ignore[no-any-return]  # the decoder's union, as annotated
    problem = _problem(message, mode)
    if problem is not None:
        code, text = problem
        raise BadMessage(code, text, id=_usable_id(message.id, mode), type=_type_of(message))
    if type(message) is _StrictEvent:
        return Event(message.v, message.id, message.channel, message.seq, message.payload)
    if isinstance(message, Response):
        return _settled(message, mode)
    return message  # type: ignore[no-any-return]  # the decoder's union, as annotated


def _is_plain(message: Any) -> bool:
    """Nearly every compat message: nothing is wrong with it, nothing is to be told apart."""
    if message.v != VERSION or not 0 < len(message.id) <= MAX_ID_CHARS:
        return False
    kind = type(message)
    if kind is Response:
        return message.error is UNSET and message.result is not _ABSENT
    if kind is Event:
        return 0 < len(message.channel) <= MAX_NAME_CHARS and message.seq >= 0
    return (
        kind is Request
        and len(message.method) <= MAX_NAME_CHARS
        and _METHOD_COMPAT.fullmatch(message.method) is not None
        and memoryview(message.params)[0] == _OBJECT
    )


def _settled(message: Response, mode: Mode) -> Response:
    """With `result` and `error` told apart."""
    error, result = message.error, message.result
    if isinstance(error, ErrorBody):
        if result is not _ABSENT and (mode is Mode.STRICT or bytes(result) != b"null"):
            raise BadMessage(
                INVALID_REQUEST, "a response has exactly one of `result` and `error`", id=message.id, type="response"
            )
        if mode is Mode.STRICT and not error.message:
            raise BadMessage(INVALID_VALUE, "`error.message` must not be empty", id=message.id, type="response")
        return Response(message.v, message.id, error=error)
    if result is _ABSENT:
        # Lib.GAB writes `result: null, error: null` for a success without a value.
        if error is not None:
            raise BadMessage(MISSING_FIELD, "a response needs `result` or `error`", id=message.id, type="response")
        return Response(message.v, message.id, Raw(b"null"))
    return Response(message.v, message.id, result)


def _problem(message: Any, mode: Mode) -> tuple[int, str] | None:
    # VERSIONING.md: a server must reject a version it does not support.
    if message.v != VERSION:
        return VERSION_MISMATCH, f"`v` is {_shown(message.v)}; this side speaks {VERSION}"
    id_ = message.id
    if mode is Mode.STRICT:
        if not _UUID.fullmatch(id_):
            return INVALID_VALUE, "`id` must be a UUID"
    elif not 0 < len(id_) <= MAX_ID_CHARS:
        return INVALID_VALUE, f"`id` must have 1 to {MAX_ID_CHARS} characters"
    if isinstance(message, Request):
        return _request_problem(message, mode)
    if isinstance(message, (Event, _StrictEvent)):
        return _event_problem(message)
    return None


def _request_problem(message: Request, mode: Mode) -> tuple[int, str] | None:
    pattern = _METHOD_STRICT if mode is Mode.STRICT else _METHOD_COMPAT
    if len(message.method) > MAX_NAME_CHARS or not pattern.fullmatch(message.method):
        return INVALID_VALUE, f"`method` must be like tools/call, not {_shown(message.method)}"
    if memoryview(message.params)[0] != _OBJECT:
        return INVALID_VALUE, "`params` must be an object"
    return None


def _event_problem(message: Any) -> tuple[int, str] | None:
    if not 0 < len(message.channel) <= MAX_NAME_CHARS:
        return INVALID_VALUE, f"`channel` must have 1 to {MAX_NAME_CHARS} characters"
    if message.seq < 0:
        return INVALID_VALUE, "`seq` must not be negative"
    return None


_REQUIRED: Final = {
    "request": ("method",),
    "response": (),
    "event": ("channel", "seq", "payload"),
}


def _explained(body: bytes, error: BadJson, mode: Mode) -> BadMessage:
    """Why the decoder refused it, as the registry's codes tell it apart."""
    if error.malformed:
        return BadMessage(PARSE_ERROR, error.message)
    try:
        found: Any = decode(body)
    except BadJson as deep:
        # Too deep for any reader: nothing in it can be trusted to be an id.
        return BadMessage(PARSE_ERROR, deep.message)
    if type(found) is not dict:
        return BadMessage(INVALID_REQUEST, f"a message is a JSON object, not {_kind(found)}")
    id_ = _usable_id(found.get("id"), mode)
    type_ = found.get("type")
    known = type_ if isinstance(type_, str) and type_ in _REQUIRED else None
    if found.get("v", VERSION) != VERSION:
        return BadMessage(
            VERSION_MISMATCH, f"`v` is {_shown(found['v'])}; this side speaks {VERSION}", id=id_, type=known
        )
    for field in ("v", "id", "type"):
        if field not in found:
            return BadMessage(MISSING_FIELD, f"`{field}` is missing", id=id_, type=known)
    if known is None:
        return BadMessage(INVALID_TYPE, f"`type` must be request, response or event, not {_shown(type_)}", id=id_)
    for field in _REQUIRED[known]:
        if field not in found:
            return BadMessage(MISSING_FIELD, f"a {known} needs `{field}`", id=id_, type=known)
    unknown = mode is Mode.STRICT and error.message.startswith("unknown field")
    return BadMessage(INVALID_REQUEST if unknown else INVALID_VALUE, error.message, id=id_, type=known)


def _usable_id(found: object, mode: Mode) -> str:
    """What an answer may carry: a strict one nothing but a UUID, a compat one whatever the peer counts by."""
    if not isinstance(found, str) or not 0 < len(found) <= MAX_ID_CHARS:
        return NIL_ID
    return found if mode is Mode.COMPAT or _UUID.fullmatch(found) else NIL_ID


def _type_of(message: object) -> str:
    match message:
        case Request():
            return "request"
        case Response():
            return "response"
        case _:
            return "event"


def _kind(found: object) -> str:
    match found:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"


def _shown(found: object) -> str:
    text = ascii_text(encode(found)).decode()
    return text if len(text) <= 60 else text[:57] + "..."


# -- writing --------------------------------------------------------------------------------------


def ascii_text(text: bytes) -> bytes:
    """JSON text with every character beyond ASCII escaped; outside of strings there are none."""
    if text.isascii():
        return text
    return _NOT_ASCII.sub(_escaped, text.decode()).encode("ascii")


def utf8_text(text: bytes) -> bytes:
    """JSON text with characters in place of `\\u` escapes, where there may be any; the rest of it as it came.

    A text of very many strings is left as it is.
    """
    if b"\\u" not in text:
        return text
    # Control characters are nowhere in JSON text. Without escaped backslashes and quotes, a quote ends a string.
    plain = text.replace(b"\\\\", b"\x00").replace(b'\\"', b"\x01")
    if plain.count(b'"') > 2 * MAX_UNESCAPED_STRINGS:
        return text
    parts = plain.split(b'"')
    for number in range(1, len(parts), 2):
        if b"\\u" in parts[number]:
            parts[number] = encode(_string(b'"%b"' % _with_escapes(parts[number])))[1:-1]
    return _with_escapes(b'"'.join(parts))


def _with_escapes(plain: bytes) -> bytes:
    return plain.replace(b"\x01", b'\\"').replace(b"\x00", b"\\\\")


def _escaped(found: re.Match[str]) -> str:
    return encode_basestring_ascii(found[0])[1:-1]


def to_json(value: Any) -> bytes:
    """Any value that msgspec can encode, as ASCII JSON."""
    return ascii_text(encode(value))


def request(id: str, method: str, params: bytes) -> bytes:  # noqa: A002 - the envelope's name
    """A whole frame; `params` is JSON text of an object, as `to_json` gives it."""
    return _framed(
        b'{"v":"gabp/1","id":%b,"type":"request","method":%b,"params":%b}' % (to_json(id), to_json(method), params)
    )


def response(id: str, result: bytes) -> bytes:  # noqa: A002 - the envelope's name
    return _framed(b'{"v":"gabp/1","id":%b,"type":"response","result":%b}' % (to_json(id), result))


def error_response(id: str, code: int, message: str, data: Any = UNSET) -> bytes:  # noqa: A002 - the envelope's name
    error = ErrorBody(code=code, message=message or "unspecified error", data=data)
    return _framed(b'{"v":"gabp/1","id":%b,"type":"response","error":%b}' % (to_json(id), to_json(error)))


def event(id: str, channel: str, seq: int, payload: bytes) -> bytes:  # noqa: A002 - the envelope's name
    return _framed(
        b'{"v":"gabp/1","id":%b,"type":"event","channel":%b,"seq":%d,"payload":%b}'
        % (to_json(id), to_json(channel), seq, payload)
    )


def _framed(body: bytes) -> bytes:
    return _FRAME % (len(body), body)
