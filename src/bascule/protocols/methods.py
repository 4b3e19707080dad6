"""A method is one row. HTTP routes, link methods, MCP tools, docs and OpenAPI are derived from the rows."""

from enum import StrEnum
from typing import Any

import msgspec


class Effect(StrEnum):
    """What a method can do to the world."""

    READ = "read"
    OBSERVE = "observe"
    MESSAGE = "message"
    WRITE = "write"
    EXEC = "exec"
    UI_CONTROL = "ui-control"
    GAME = "game"
    PROCESS_CONTROL = "process-control"
    ADMIN = "admin"


class Shape(StrEnum):
    """How an answer comes."""

    REPLY = "reply"
    # Held at most 60 s; a client that goes away releases its waiter.
    WAIT = "wait"
    # One decision when it opens; items are not calls.
    STREAM = "stream"
    # A container: its operations are calls of their own. Held until it is over.
    RUN = "run"
    # A call inside a run; no door leads to it.
    OPERATION = "operation"


class Record(StrEnum):
    """When the ledger knows."""

    # Reads, waits, streams, heartbeats: log and metrics only.
    NONE = "none"
    # In the same transaction as the effect.
    JOINED = "joined"
    # Queued before the effect, on disk within milliseconds. Ahead when a person's yes is spent on it, or its bridge
    # says that it cannot be taken back.
    BEHIND = "behind"
    # On disk before the effect, finished on disk before the answer.
    AHEAD = "ahead"


class WhoKind(StrEnum):
    ANYONE = "anyone"
    # The agent named by a parameter.
    SELF = "self"
    # A side of the ticket named by a parameter.
    PARTY = "party"
    # Whoever started the run or command, or opened the space, that a parameter names.
    STARTER = "starter"
    # The daemon's user at their own machine: `local` or the person, never a named agent.
    LOCAL = "local"
    PERSON = "person"


class Who(msgspec.Struct, frozen=True):
    """Whose call it may be; checked before policy, so that no rule can open another's inbox."""

    kind: WhoKind
    field: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}({self.field})" if self.field else self.kind.value


ANYONE = Who(WhoKind.ANYONE)
LOCAL_USER = Who(WhoKind.LOCAL)
PERSON_ONLY = Who(WhoKind.PERSON)


def self_(field: str) -> Who:
    return Who(WhoKind.SELF, field)


def party(field: str) -> Who:
    return Who(WhoKind.PARTY, field)


def starter(field: str) -> Who:
    return Who(WhoKind.STARTER, field)


class Consent(StrEnum):
    """What a rule that says `ask` means for a method."""

    # Nobody can be asked about it: the call is refused.
    NEVER = "never"
    # The caller waits a while, then calls again.
    HOLD = "hold"
    # The run waits, and goes on by itself.
    PAUSE = "pause"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the house knows about a method before it runs."""

    name: str
    # One sentence, imperative: it becomes the docs, the OpenAPI summary and the CLI help.
    summary: str
    params: type[msgspec.Struct]
    result: Any
    effect: Effect
    who: Who
    shape: Shape = Shape.REPLY
    record: Record = Record.NONE
    consent: Consent = Consent.NEVER


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """Base of what clients send us: unknown fields are refused, so a typo is an error, not a default.

    Decoded JSON has no cycles, so the garbage collector need not walk it (`gc=False`), here and below.
    """


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of what we answer. Fields at their default are left out, as in the specs' examples."""


class Nothing(Params, frozen=True, kw_only=True):
    """A method without parameters."""
