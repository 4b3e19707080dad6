"""Ids and JSON, as strict as the daemon's, without the modules that would double the start-up time."""

from __future__ import annotations

import json
import os
import time

from bascule.foundation.agreement import is_agent_id, is_target, is_ticket_id
from bascule.local_client.exits import BadAnswer, WrongUsage

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any, NoReturn

# The daemon refuses a larger payload; reading on would only fill our memory first.
MAX_PAYLOAD_BYTES = 1024 * 1024

# The status of `approval_required`, the one error below 300: nothing went wrong, and nothing was done.
NOT_YET = 202

# More than any length needs; int() of thousands of digits is refused by Python itself, with another error.
MAX_NUMBER_CHARS = 15
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")


def agent_id(text: str) -> str:
    """The handle, or a sentence about what is wrong with it. Nothing is sent before this."""
    if not is_agent_id(text):
        raise WrongUsage(
            f"{text!r} is not a handle: use 1 to 64 of A-Z a-z 0-9 . _ - (some, like local and person, are taken)"
        )
    return text


def target_id(text: str) -> str:
    """Whom to write to: a handle, or one of another machine."""
    if not is_target(text):
        raise WrongUsage(
            f"{text!r} is not a handle: use 1 to 64 of A-Z a-z 0-9 . _ -, and for an agent of another machine "
            "handle@machine"
        )
    return text


def ticket_id(text: str) -> str:
    if not is_ticket_id(text):
        raise WrongUsage(f"{text!r} is not a ticket id: use 1 to 128 of A-Z a-z 0-9 . _ -")
    return text


def number_in_header(text: str) -> int | None:
    """Digits and nothing else: `str.isdigit` takes superscripts too, and `int` signs, spaces and underscores."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_NUMBER_CHARS else None


def chunk_size(line: bytes) -> int:
    """The size before a chunk and its extensions. A negative one would make a reader wait for ever."""
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > MAX_NUMBER_CHARS or not _HEX_DIGITS.issuperset(digits):
        raise BadAnswer("the answer's chunks are broken")
    return int(digits, 16)


def new_ticket_id() -> str:
    """A UUID that begins with the time (version 7), as the daemon's own; the `uuid` module costs 5 ms to import."""
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = raw[6] & 0x0F | 0x70
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def encode(value: Any) -> bytes:
    """Compact ASCII JSON: it passes through every pipe, whatever the locale."""
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError) as fault:
        raise WrongUsage(f"this cannot be written as JSON: {fault}") from None
    return text.encode("ascii")


def decode(data: bytes | str) -> Any:
    """JSON in UTF-8 with finite numbers; anything else is a ValueError."""
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode_answer(data: bytes) -> Any:
    try:
        return decode(data)
    except ValueError as fault:
        raise BadAnswer(f"the daemon's answer is not JSON ({fault}): is something else listening there?") from None


def decode_argument(text: str, option: str) -> Any:
    """JSON a person typed behind an option."""
    try:
        return decode(text)
    except ValueError as fault:
        raise WrongUsage(f"{option} is not JSON: {fault}") from None


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    # float() makes an infinity of 1e999: nothing we could write to the daemon, and nobody meant it.
    value = float(text)
    if value - value != 0:
        raise ValueError("a number is too large")
    return value


# Made once: `json.dumps` with options makes one for each value.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constants, parse_float=_finite)
