"""JSON-RPC 2.0 envelopes, as link speaks them: one decode on the way in, concatenation on the way out.

Batches are not taken: frames are cheap, and a batch would need one answer for many deadlines.
"""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Final, Literal, NoReturn

import msgspec

from gabp.codec import (
    MAX_ANSWER_DEPTH,
    MAX_DEPTH,
    MAX_VALUES,
    BadJson,
    Raw,
    decoder,
    encode,
    has_few_brackets,
    has_too_many_values,
)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class RpcError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class Request(msgspec.Struct, frozen=True, gc=False):
    """`params` is JSON text not judged yet: decode it through `wire.codec`."""

    id: int | str
    method: str
    params: Raw


class Notification(msgspec.Struct, frozen=True, gc=False):
    method: str
    params: Raw


class Response(msgspec.Struct, frozen=True):
    """Exactly one of `result` and `error`; a result of null is `Raw(b"null")`.

    `id` is None when the peer could not read the id of what it answers.
    """

    id: int | str | None
    result: Raw | None
    error: RpcError | None


class BadEnvelope(Exception):
    """Not a message; `code` and `id` are what the error response to it carries."""

    def __init__(self, code: int, message: str, id: int | str | None) -> None:  # noqa: A002 - JSON-RPC's name
        super().__init__(message)
        self.code = code
        self.message = message
        self.id = id


_ABSENT: Final = Raw(b"")
_NO_PARAMS: Final = Raw(b"{}")


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: Raw = _ABSENT
    result: Raw = _ABSENT
    error: Raw = _ABSENT


class _OnlyId(msgspec.Struct, frozen=True):
    id: int | str | None = None


_ERROR: Final = decoder(RpcError, max_depth=MAX_ANSWER_DEPTH, max_values=MAX_VALUES)
_ENVELOPE: Final = decoder(_Envelope, max_depth=MAX_ANSWER_DEPTH)
_ONLY_ID: Final = decoder(_OnlyId, max_depth=MAX_ANSWER_DEPTH)


_FLAT: Final = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.NoneType,
    msgspec.inspect.EnumType,
    msgspec.inspect.LiteralType,
)


class Requests:
    """Requests of known methods, decoded in one pass straight into their params.

    What is not exactly that (another method, a notification, an error of any kind) is None: `parse` and the
    method's own decoder then say what it is, or what is wrong with it.
    """

    __slots__ = ("_decode", "_kinds")

    def __init__(self, params: Mapping[str, type]) -> None:
        kinds = {
            msgspec.defstruct(
                f"Request{number}",
                [("jsonrpc", Literal["2.0"]), ("id", int | str), ("params", type_)],
                tag_field="method",
                tag=method,
                forbid_unknown_fields=True,
                frozen=True,
                gc=False,
            ): method
            for number, (method, type_) in enumerate(params.items())
        }
        # The method, and the fields of its params in which JSON may be nested.
        self._kinds = {kind: (method, _nesting(params[method])) for kind, method in kinds.items()}
        self._decode = msgspec.json.Decoder(reduce(or_, kinds)).decode

    def read(self, body: bytes) -> tuple[int | str, str, Any] | None:
        """Id, method and params."""
        try:
            if has_too_many_values(body):
                return None
            if not body.isascii():
                body.decode()
            request: Any = self._decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        method, nesting = self._kinds[type(request)]
        params = request.params
        for name in nesting:
            value = getattr(params, name)
            # Text and nothing have no depth, and that is what nearly every message has.
            if value and type(value) is not str and not has_few_brackets(body, MAX_DEPTH):
                return None
        return request.id, method, params


def _nesting(params: type) -> tuple[str, ...]:
    """Which fields of a params Struct can hold more levels than the Struct itself."""
    fields = msgspec.structs.fields(params)
    return tuple(field.name for field in fields if not _is_flat(msgspec.inspect.type_info(field.type)))


def _is_flat(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return all(map(_is_flat, kind.types))
    if isinstance(kind, msgspec.inspect.Metadata):
        return _is_flat(kind.type)
    return isinstance(kind, _FLAT)


def parse(body: bytes) -> Request | Notification | Response:
    try:
        envelope = _ENVELOPE.decode(body)
    except BadJson as error:
        _refuse(body, error.message, PARSE_ERROR if error.malformed else INVALID_REQUEST)
    method = envelope.method
    if method is msgspec.UNSET:
        return _response(envelope, body)
    if envelope.result is not _ABSENT or envelope.error is not _ABSENT:
        _refuse(body, "a message with `method` has neither `result` nor `error`")
    params = envelope.params
    if params is _ABSENT:
        params = _NO_PARAMS
    elif memoryview(params)[0] not in b"{[":
        _refuse(body, "`params` must be an object or an array")
    id_ = envelope.id
    if id_ is msgspec.UNSET:
        return Notification(method, params)
    if id_ is None:
        _refuse(body, "the `id` of a request must be a string or an integer")
    return Request(id_, method, params)


def _response(envelope: _Envelope, body: bytes) -> Response:
    id_ = envelope.id
    if id_ is msgspec.UNSET:
        _refuse(body, "neither `method` nor `id`: not a request, a notification or a response")
    if envelope.params is not _ABSENT:
        _refuse(body, "a response has no `params`")
    if (envelope.result is _ABSENT) == (envelope.error is _ABSENT):
        _refuse(body, "a response has exactly one of `result` and `error`")
    if envelope.error is not _ABSENT:
        try:
            return Response(id_, None, _ERROR.decode(envelope.error))
        except BadJson as error:
            _refuse(body, f"`error`: {error.message}")
    if id_ is None:
        _refuse(body, "the `id` of a response with a result must be a string or an integer")
    return Response(id_, envelope.result, None)


def _refuse(body: bytes, message: str, code: int = INVALID_REQUEST) -> NoReturn:
    id_: int | str | None = None
    if code == INVALID_REQUEST:
        if body.lstrip()[:1] == b"[":
            message = "batches are not supported: send one message per frame"
        try:
            id_ = _ONLY_ID.decode(body).id
        except BadJson:
            # No id can be read from it; JSON-RPC 2.0 section 5 answers null then.
            id_ = None
    raise BadEnvelope(code, message, id_)


def request(id: int | str, method: str, params_bytes: bytes) -> bytes:  # noqa: A002 - JSON-RPC's name
    return b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}' % (encode(id), encode(method), params_bytes)


def notification(method: str, params_bytes: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params_bytes)


def response(id: int | str, result_bytes: bytes) -> bytes:  # noqa: A002 - JSON-RPC's name
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(id), result_bytes)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A response that is encoded in one pass, together with what it answers."""

    jsonrpc: Literal["2.0"]
    id: int | str
    result: Any


class Message(msgspec.Struct, frozen=True, gc=False):
    """A notification that is encoded in one pass, together with its params."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Any


def error_response(id: int | str | None, code: int, message: str, data: Any = None) -> bytes:  # noqa: A002 - JSON-RPC's name
    error = RpcError(code, message, data)
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (encode(id), encode(error))
