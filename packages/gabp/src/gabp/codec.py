"""JSON, strictly and once: the only caller of msgspec's decoders.

What msgspec 0.22 leaves open and this module closes (each pinned by a test):
- invalid UTF-8 escapes as UnicodeDecodeError, and passes unseen in skipped fields and in `Raw`: the whole
  body is checked first;
- depth is bounded only by the interpreter's recursion limit: we count it, 64 levels;
- time is bounded by bytes alone: 8 MiB hold four million values, and a number as `1e300` takes it 10 us, a thousand
  times what its bytes say. `has_too_many_values` says so beforehand, and a decoder with `max_values` refuses it;
- a query string may say `nan`: a lax conversion that gives a number that is not finite is refused.

What it already does as we want: numbers beyond the double range are refused, integers are exact at any
size up to 4300 digits and refused above, lone surrogates and a BOM are refused. Of duplicate keys the last
counts; where a digest is taken, `check_no_duplicate_keys` refuses them.
"""

import itertools
import json
import math
import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from gabp.text import escaped

T = TypeVar("T")

Raw = msgspec.Raw

# Deeper than any payload people write by hand, far from every recursion limit of a reader behind us.
MAX_DEPTH = 64
# A peer wraps what it accepted at full depth into its own answers (envelope, item, payload), so a reader of answers
# allows the wrapping too.
MAX_ANSWER_DEPTH = MAX_DEPTH + 8
# Some milliseconds to make and to write again. A table of a thousand lines with twenty columns fits.
MAX_VALUES = 20_000
# A number with an exponent of two digits or more counts as so many, and each 64 digits of one.
SLOW_AS = 20
# An unknown field may have a name as long as the body; the sentence about it stays readable.
MAX_MESSAGE_CHARS = 300

_BOM: Final = b"\xef\xbb\xbf"
_STRING: Final = re.compile(rb'"[^"]*"')
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_TO_STEPS: Final = bytes.maketrans(b"[]", b"\x01\xff")
_FAST_ROUNDS: Final = 6
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_PATH: Final = re.compile(r" - at `\$(?P<path>[^`]*)`\Z")
# A whole text of a form, as our patterns say it: Python's `$` alone would let a line feed through.
_ANCHORED: Final = re.compile(r"matching regex '\^(.*)\$(?:\(\?!\\\\n\))?'")
_KEY_PATH: Final = re.compile(r" - at `key` in `\$(?P<path>[^`]*)`\Z")
_HIGH_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB]")
_BETWEEN_VALUES: Final = (b",", b"[", b"{")
# Digits as 0, both letters of an exponent as e.
_TO_NUMBERS: Final = bytes.maketrans(b"123456789E", b"000000000e")
# 64 digits of one number, and exponents of two digits or more.
_SLOW: Final = (b"0" * 64, b"0e00", b"0e+00", b"0e-00")
_REFUSALS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class BadJson(Exception):
    """Not JSON as we take it, or JSON of another shape than the receiver expects."""

    def __init__(self, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.message = message
        # True: no JSON text at all (JSON-RPC's parse error); False: JSON, but not the expected one.
        self.malformed = malformed


class TooManyValues(BadJson):
    """It would take the reader too long."""

    def __init__(self, most: int) -> None:
        super().__init__(f"JSON has more than {most} values: send fewer, or all of it as one text")


class Decoder(Generic[T]):
    """A reusable decoder of one type; making one costs far more than using it."""

    __slots__ = ("_decode", "_max_depth", "_max_values", "_type")

    def __init__(self, type_: Any, *, max_depth: int = MAX_DEPTH, max_values: int | None = None) -> None:
        self._type = type_
        self._decode = msgspec.json.Decoder(type_, strict=True).decode
        self._max_depth = max_depth
        self._max_values = max_values

    def decode(self, data: bytes | Raw) -> T:
        if type(data) is not bytes:
            data = bytes(data)
        if self._max_values is not None and has_too_many_values(data, self._max_values):
            raise TooManyValues(self._max_values)
        try:
            if not data.isascii():
                data.decode()
            result: T = self._decode(data)
        except _REFUSALS as error:
            raise _bad_json(error, data, self._type) from None
        # After the parser, which refuses a flood of quotes or brackets sooner than we could count it.
        if not has_few_brackets(data, self._max_depth):
            _check_depth(data, self._max_depth)
        return result


def is_plain(data: bytes) -> bool:
    """UTF-8, and with too few brackets to be nested too deeply: nothing is left to check beside the parser."""
    return (data.isascii() or _is_utf8(data)) and has_few_brackets(data, MAX_DEPTH)


def has_few_brackets(data: bytes, limit: int) -> bool:
    """At most `limit` brackets open: it cannot be nested deeper.

    Found one by one, because most data has a few, and `bytes.count` looks at each byte: a microsecond per KiB.
    """
    for bracket in (b"{", b"["):
        at = data.find(bracket)
        while at >= 0:
            limit -= 1
            if limit < 0:
                return False
            at = data.find(bracket, at + 1)
    return True


def has_too_many_values(data: bytes, most: int = MAX_VALUES) -> bool:
    """Whether this text has more than `most` values, where an empty list counts twice; of what is not JSON it says the
    same as quickly."""
    if b"\0" in data:
        # Not JSON in UTF-8. A reader that guesses UTF-16 would see other commas than we do.
        return True
    if SLOW_AS * len(data) <= most * len(b"1e10,"):
        return False
    # Texts are left out. Backslashes are in texts alone, and there they come in pairs from the left.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in data else data
    if plain.count(b'"') > 4 * most:
        # A name and a value have two quotes each: so many texts need not be cut out to be counted.
        return True
    bare = b"".join(plain.split(b'"')[::2])
    found = sum(map(bare.count, _BETWEEN_VALUES))
    numbers = bare.translate(_TO_NUMBERS) if found <= most else b""
    for slow in _SLOW:
        # One after the other: to look for an exponent in megabytes of digits takes long by itself.
        if found > most:
            return True
        found += SLOW_AS * numbers.count(slow)
    return found > most


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@overload
def decoder(type_: type[T], *, max_depth: int = ..., max_values: int | None = ...) -> Decoder[T]: ...
@overload
def decoder(type_: Any, *, max_depth: int = ..., max_values: int | None = ...) -> Decoder[Any]: ...
def decoder(type_: Any, *, max_depth: int = MAX_DEPTH, max_values: int | None = None) -> Decoder[Any]:
    return Decoder(type_, max_depth=max_depth, max_values=max_values)


@overload
def decode(data: bytes | Raw, type_: type[T]) -> T: ...
@overload
def decode(data: bytes | Raw, type_: Any = ...) -> Any: ...
def decode(data: bytes | Raw, type_: Any = Any) -> Any:
    """For the odd place; where it is called often, keep a `decoder`."""
    return Decoder[Any](type_).decode(data)


def stored(type_: type[T]) -> Callable[[bytes], T]:
    """For what we encoded ourselves and a checksum vouches for: no check is made twice."""
    return msgspec.json.Decoder(type_, strict=True).decode


_encoder: Final = msgspec.json.Encoder()
encode = _encoder.encode
# Each value on a line of its own.
encode_lines = _encoder.encode_lines


@overload
def convert(obj: Any, type_: type[T], *, lax: bool = ...) -> T: ...
@overload
def convert(obj: Any, type_: Any, *, lax: bool = ...) -> Any: ...
def convert(obj: Any, type_: Any, *, lax: bool = False) -> Any:
    """Plain values to `type_`; `lax` reads numbers and booleans from strings, for query strings."""
    try:
        result = msgspec.convert(obj, type_, strict=not lax)
    except _REFUSALS as error:
        raise _bad_json(error, b"", type_) from None
    if lax:
        _check_finite(result)
    return result


def check_no_duplicate_keys(data: bytes | Raw) -> None:
    """Refuse what two parsers may read differently; run where a digest of the text's meaning is taken."""
    try:
        # Numbers stay text: they were judged by the decoder, and here only keys count.
        json.loads(
            bytes(data).decode(),
            object_pairs_hook=_refuse_duplicates,
            parse_int=_ignore,
            parse_float=_ignore,
        )
    except (ValueError, RecursionError) as error:
        raise _bad_json(error, bytes(data)) from None


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise BadJson(_readable(f"duplicate key `{key}`: give each key once"))
        seen.add(key)


def _ignore(_: str) -> None:
    return None


def _check_depth(data: bytes, limit: int) -> None:
    """Linear in the size of `data`, which is valid JSON."""
    # Escaped quotes go first, so that a string is what stands between two quotes. Of the rest only quotes
    # and brackets stay. Two quotes side by side are an empty string, or join two neighbours into one.
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_TO_SQUARE, _NOT_STRUCTURE)
    bare = _STRING.sub(b"", bare.replace(b'""', b""))
    # A round removes the innermost pairs, one level; few rounds empty what people really send.
    rounds = min(_FAST_ROUNDS, limit)
    for _ in range(rounds):
        bare = bare.replace(b"[]", b"")
        if not bare:
            return
    steps = memoryview(bare.translate(_TO_STEPS)).cast("b")
    if rounds + max(itertools.accumulate(steps), default=0) > limit:
        raise BadJson(f"JSON is nested deeper than {limit} levels: flatten it, or send it as text")


def _check_finite(result: object) -> None:
    values = msgspec.structs.astuple(result) if isinstance(result, msgspec.Struct) else (result,)
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise BadJson("expected a finite number, got `nan` or an infinity")


def _bad_json(error: Exception, data: bytes, type_: Any = Any) -> BadJson:
    match error:
        case msgspec.ValidationError():
            return BadJson(_readable(_with_path_first(str(error))) + _known_fields(error, type_))
        case UnicodeDecodeError():
            return BadJson(f"JSON is not valid UTF-8 (byte {error.start})", malformed=True)
        case RecursionError():
            return BadJson("JSON is nested too deeply: flatten it, or send it as text")
        case _ if data.startswith(_BOM):
            return BadJson("JSON starts with a byte order mark: send it without one", malformed=True)
        case msgspec.DecodeError() if str(error) == "Input data was truncated":
            return BadJson(_why_truncated(data), malformed=True)
        case _:
            return BadJson(_readable(str(error)), malformed=True)


def _known_fields(error: msgspec.ValidationError, type_: Any) -> str:
    """Behind the name of a field that is not known: those that are."""
    text = str(error)
    if not text.startswith("Object contains unknown field"):
        return ""
    # Only here, where somebody mistyped: it costs ten times as much as decoding.
    from gabp.field_names import fields_at  # noqa: PLC0415 - see above

    found = _PATH.search(text)
    names = fields_at(type_, found["path"] if found else "")
    return f"; there are: {', '.join(names)}" if names else ""


def _why_truncated(data: bytes) -> str:
    if not data.strip():
        return "JSON is missing: the body is empty"
    # msgspec reports `"\ud800"` as truncated, for it waits for the second half of the pair.
    if _HIGH_SURROGATE.search(data[-16:]):
        return "JSON is malformed: a string holds half of a surrogate pair"
    return "JSON is cut short: the body ends inside a value"


def _with_path_first(text: str) -> str:
    """msgspec's ``Expected `str` - at `$.agentId` `` as ``agentId: expected `str` ``, in backquotes."""
    where = ""
    if found := _KEY_PATH.search(text):
        where = f"a key of `{found['path'].removeprefix('.')}`" if found["path"] else "a key"
    elif found := _PATH.search(text):
        where = f"`{found['path'].removeprefix('.')}`"
    if found:
        text = text[: found.start()]
    text = _ANCHORED.sub(r"of the form `\1`", text)
    text = text.removeprefix("Object contains ").removeprefix("Object is ").removeprefix("Object ")
    text = text[:1].lower() + text[1:]
    return f"{where}: {text}" if where else text


def _readable(text: str) -> str:
    # Names in it are the peer's: no control characters into terminals and logs, and a bounded length.
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[:MAX_MESSAGE_CHARS] + "..."
    return escaped(text)
