"""Wayland's wire format, without a socket: requests into bytes and descriptors, bytes and descriptors into events.

A message is the object's id, its size with the opcode, and its arguments, each in words of 32 bits in the byte order of
the machine. Descriptors travel beside the bytes, in their order ("The Wayland Protocol", section "Wire Format").
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

# In a signature each letter is an argument: int, uint, fixed, string, object, new id, array, h for a descriptor. What a
# capital stands for may be nothing.
# The size of a message is 16 bits of its header.
MAX_MESSAGE_BYTES: Final = 0xFFFF
_HEADER: Final = struct.Struct("=II")
_WORD: Final = 4
_FIXED: Final = 256.0


class BadWire(Exception):
    """The other side does not speak Wayland, or not the interfaces that we know."""


class Message(NamedTuple):
    object_id: int
    opcode: int
    arguments: tuple[Any, ...]


def encode(object_id: int, opcode: int, signature: str, arguments: Sequence[Any]) -> tuple[bytes, list[int]]:
    """The bytes of one request, and the descriptors that go with it."""
    body = bytearray()
    descriptors: list[int] = []
    for kind, value in zip(signature, arguments, strict=True):
        if kind == "h":
            descriptors.append(value)
        elif kind in _PACKED:
            body += _PACKED[kind](value)
        else:
            raise BadWire(f"no argument is of the kind {kind!r}")
    size = _HEADER.size + len(body)
    if size > MAX_MESSAGE_BYTES:
        raise BadWire(f"a request of {size} bytes is longer than {MAX_MESSAGE_BYTES}: send its content by a descriptor")
    return _HEADER.pack(object_id, size << 16 | opcode) + body, descriptors


def _padded(data: bytes) -> bytes:
    return struct.pack("=I", len(data)) + data + bytes(-len(data) % _WORD)


def _string(text: str) -> bytes:
    if "\0" in text:
        raise BadWire("a string cannot hold a NUL")
    return _padded(text.encode() + b"\0")


_PACKED: Final[dict[str, Callable[[Any], bytes]]] = {
    "i": struct.Struct("=i").pack,
    **dict.fromkeys("uno", struct.Struct("=I").pack),
    "O": lambda value: struct.pack("=I", value or 0),
    "f": lambda value: struct.pack("=i", round(value * _FIXED)),
    "s": _string,
    "S": lambda value: _padded(b"") if value is None else _string(value),
    "a": lambda value: _padded(bytes(value)),
}


class Decoder:
    """Events out of whatever pieces a socket gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()

    def feed(self, data: bytes, descriptors: Iterable[int] = ()) -> None:
        self._buffer += data
        self._descriptors.extend(descriptors)

    def next(self, signature_of: Callable[[int, int], str | None]) -> Message | None:
        """The next whole event; None: more bytes are needed. What `signature_of` does not know has no arguments."""
        if len(self._buffer) < _HEADER.size:
            return None
        object_id, word = _HEADER.unpack_from(self._buffer)
        size, opcode = word >> 16, word & 0xFFFF
        if size < _HEADER.size or size % _WORD:
            raise BadWire(f"a message says that it has {size} bytes")
        if len(self._buffer) < size:
            return None
        body = bytes(self._buffer[_HEADER.size : size])
        del self._buffer[:size]
        signature = signature_of(object_id, opcode)
        if signature is None:
            return Message(object_id, opcode, ())
        return Message(object_id, opcode, tuple(self._arguments(signature, body)))

    def left_over(self) -> list[int]:
        """Descriptors that came and belong to no event that was read: to be closed."""
        left = list(self._descriptors)
        self._descriptors.clear()
        return left

    def _arguments(self, signature: str, body: bytes) -> Iterable[Any]:
        at = 0
        for kind in signature:
            if kind == "h":
                if not self._descriptors:
                    raise BadWire("a descriptor was announced and did not come")
                yield self._descriptors.popleft()
                continue
            if at + _WORD > len(body):
                raise BadWire("a message ends inside an argument")
            (word,) = struct.unpack_from("=I", body, at)
            at += _WORD
            if kind in "sSa":
                if at + word > len(body):
                    raise BadWire("a message ends inside an argument")
                data = body[at : at + word]
                at += word + -word % _WORD
                yield data if kind == "a" else _text(data)
            elif kind in "if":
                (number,) = struct.unpack_from("=i", body, at - _WORD)
                yield number if kind == "i" else number / _FIXED
            else:
                yield word
        if at != len(body):
            raise BadWire(f"a message has {len(body)} bytes of arguments, and {at} were expected")


def _text(data: bytes) -> str | None:
    """A string says its length with the NUL behind it; without any it is nothing."""
    if not data:
        return None
    if data[-1]:
        raise BadWire("a string has no end")
    # A window's title is whatever its program says, and a wrong byte in it is no reason to go.
    return data[:-1].decode("utf-8", "replace")
