"""Canonical JSON (RFC 8785), the form that digests are taken over.

One documented extension: integers beyond 2**53 are written in full. RFC 8785 sends every number through a
double, which would give two different integers one digest. A double above 2**53 keeps the RFC's shortest
text, so it may share it with the integer of those digits: a field is one or the other by its schema.
"""

import hashlib
import math
from json.encoder import encode_basestring
from typing import Any, Final

# What specs show of a digest; the full one is compared.
SHORT_DIGEST_CHARS = 16

# ECMA-262 Number::toString: a value below 10**21 has no exponent, nor has one of at least 10**-6.
_MAX_PLAIN_POINT: Final = 21
_MIN_PLAIN_POINT: Final = -6


class NotCanonical(Exception):
    """A value that has no canonical JSON form; it cannot have come out of `wire.codec`."""


def canonical(obj: Any) -> bytes:
    """The one text of a decoded JSON value: dict, list, str, int, float, bool, None."""
    parts: list[str] = []
    try:
        _write(obj, parts)
        return "".join(parts).encode()
    except UnicodeEncodeError:
        raise NotCanonical("a string holds half of a surrogate pair") from None
    except RecursionError:
        raise NotCanonical("the value is nested too deeply") from None


def digest(obj: Any) -> str:
    return hashlib.sha256(canonical(obj)).hexdigest()


def _write(obj: Any, parts: list[str]) -> None:
    # Exact types: a subclass may print itself in its own way.
    kind = type(obj)
    if kind is str:
        # The C function of the standard library writes exactly the escapes of RFC 8785 section 3.2.2.2.
        parts.append(encode_basestring(obj))
    elif kind is dict:
        _write_object(obj, parts)
    elif kind is list or kind is tuple:
        comma = "["
        for item in obj:
            parts.append(comma)
            _write(item, parts)
            comma = ","
        parts.append("]" if obj else "[]")
    elif obj is None:
        parts.append("null")
    elif kind is bool:
        parts.append("true" if obj else "false")
    elif kind is int:
        parts.append(_integer(obj))
    elif kind is float:
        parts.append(_number(obj))
    else:
        raise NotCanonical(f"`{kind.__name__}` is not a JSON value")


def _write_object(obj: dict[Any, Any], parts: list[str]) -> None:
    for key in obj:
        if type(key) is not str:
            raise NotCanonical(f"an object has a key of type `{type(key).__name__}`, not `str`")
    comma = "{"
    for key in sorted(obj, key=_utf16_units):
        parts += (comma, encode_basestring(key), ":")
        _write(obj[key], parts)
        comma = ","
    parts.append("}" if obj else "{}")


def _utf16_units(key: str) -> bytes:
    # RFC 8785 section 3.2.3: names are sorted as arrays of UTF-16 code units.
    return key.encode("utf-16-be")


def _integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        raise NotCanonical("an integer has more digits than can be written") from None


def _number(value: float) -> str:
    """ECMA-262 Number::toString: the shortest digits that read back the same, which repr() also finds."""
    if not math.isfinite(value):
        raise NotCanonical("a number is not finite")
    if value == 0:
        return "0"  # and so is -0
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.digits times ten to the power of point ("n" in ECMA-262).
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= _MAX_PLAIN_POINT:
        return sign + digits + "0" * (point - count)
    if 0 < point <= _MAX_PLAIN_POINT:
        return sign + digits[:point] + "." + digits[point:]
    if _MIN_PLAIN_POINT < point <= 0:
        return sign + "0." + "0" * -point + digits
    mantissa = digits[0] + ("." + digits[1:] if count > 1 else "")
    return f"{sign}{mantissa}e{point - 1:+d}"
