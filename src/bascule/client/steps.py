"""What a program may ask of the shell that carries it out.

A program is a generator: it yields steps and is sent their results, or has their errors thrown into it. So
everything that is decided about retries, waiting and identity is written once, without a socket, and both
clients do the same.
"""

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")

Params: TypeAlias = msgspec.Struct | Mapping[str, Any]


class Request(NamedTuple):
    """One call. Answers the typed result; raises the daemon's error or `ConnectionLost`."""

    method: str
    params: Params
    result: Any
    # Seconds after which no answer counts as a lost connection; None: as long as the connection lives.
    within: float | None = None


class FirstOf(NamedTuple):
    """Several calls at once. Answers the index and result of one that is done; the others are withdrawn."""

    requests: tuple[Request, ...]


class Pause(NamedTuple):
    seconds: float


class Reconnect(NamedTuple):
    """Have a live connection again, or raise `NotRunning` when the time is over."""

    within: float


Step: TypeAlias = Request | FirstOf | Pause | Reconnect
Program: TypeAlias = Generator[Step, Any, T]
