"""A method is one row. HTTP routes, link methods, MCP tools, docs and OpenAPI are derived from the rows."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, cast, get_args

import msgspec

from bascule.kernel.call import Call, Grade
from bascule.kernel.route import Route

if TYPE_CHECKING:
    # The types of handlers. Rows are read by clients and docs, which load nothing of this.
    from asyncio import Future
    from collections.abc import Coroutine

    from bascule.foundation.deferred import Deferred
    from bascule.foundation.stream import Stream
    from bascule.kernel.effects import RecordedEffect
    from bascule.kernel.journal import Transaction
    from bascule.kernel.resolution import Resolution

P = TypeVar("P", bound=msgspec.Struct)
R = TypeVar("R")
Answer: TypeAlias = "R | Deferred[R] | Future[R]"
# A param that is passed on: with very many values it stays the JSON text that it is (`kernel.mounted.ParamsReader`).
# "string or structured JSON body" (broker spec 4.2).
Payload: TypeAlias = Annotated[Any, msgspec.Meta(extra={"passed_on": True})]
# What a person at the console must show for a call: always the same, or depending on its params.
Proof: TypeAlias = Grade | Callable[[Any], Grade]


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


# Looking, ending what is under way, and what the user of this machine does about it.
_WHILE_STOPPED = frozenset({Effect.READ, Effect.PROCESS_CONTROL, Effect.ADMIN})


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
    # The caller that started the run or command, or opened the space, that a parameter names.
    STARTER = "starter"
    # The daemon's user at their own machine: `local` or the person, never a named agent.
    LOCAL = "local"
    PERSON = "person"
    # A page of the console, whatever it has shown: never a named agent.
    BROWSER = "browser"
    # Another machine of the mesh, or an agent there: no door of this machine leads to such a method.
    NODE = "node"


class Who(msgspec.Struct, frozen=True):
    """Whose call it may be; checked before policy, so that no rule can open another's inbox."""

    kind: WhoKind
    field: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}({self.field})" if self.field else self.kind.value


ANYONE = Who(WhoKind.ANYONE)
LOCAL_USER = Who(WhoKind.LOCAL)
PERSON_ONLY = Who(WhoKind.PERSON)
BROWSER_PAGE = Who(WhoKind.BROWSER)
OTHER_NODE = Who(WhoKind.NODE)


def self_(field: str) -> Who:
    return Who(WhoKind.SELF, field)


def party(field: str) -> Who:
    return Who(WhoKind.PARTY, field)


def starter(field: str) -> Who:
    return Who(WhoKind.STARTER, field)


def always(_params: Any) -> bool:
    """For `stopped`: also while everything is stopped, as being there and acknowledging."""
    return True


def never(_params: Any) -> bool:
    """For `stopped`: not while everything is stopped, whatever the effect says."""
    return False


def words_need_proof(params: Any) -> Grade:
    """signed in; fresh with a `reason`, which an agent reads as the person's word"""
    return Grade.FRESH if params.reason else Grade.SIGNED_IN


class Consent(StrEnum):
    """What a rule that says `ask` means for a method."""

    # A person cannot be asked about it: the call is refused.
    NEVER = "never"
    # The caller waits a while, then calls again.
    HOLD = "hold"
    # The run waits, and goes on by itself.
    PAUSE = "pause"


class Http(NamedTuple):
    """One verb and path that reach a method. Names in braces are wire names of its parameters."""

    verb: str
    path: str
    status: int = 200
    # Of the broker spec.
    section: str = ""
    max_body: int = 0


class Row:
    """Everything the daemon knows about a method before it runs.

    Rows are written with one of the classes below, which fix what can go together: no read spends a grant, no call
    inside a run has a route or a handler.
    """

    shape: Shape = Shape.REPLY
    record: Record = Record.NONE
    consent: Consent = Consent.NEVER
    # Where a row differs from what its effect says; see `while_stopped`.
    stopped: Callable[[Any], bool] | None = None
    # Taken however often its caller calls: who floods us must not drown the call that ends it.
    urgent: bool = False
    # What a yes holds for, where that is more than the one call: shown with the question, in place of "once".
    lasts: str | None = None
    # It only looks, so a person who has signed in need not prove it again.
    looks: bool = False
    # Of a row that is anyone's: whose call it may be when the caller is not on this machine. None: such a caller is
    # refused, so that a new row is closed to them unless it says otherwise.
    outside: Who | None = None

    def __init__(
        self, name: str, summary: str, *routes: Http, effect: Effect, who: Who, proof: Proof | None = None
    ) -> None:
        self.name = name
        # One sentence, imperative: it becomes the docs, the OpenAPI summary and the CLI help.
        self.summary = summary
        self.routes = tuple(Route(at.verb, at.path, name, at.status, at.section, at.max_body) for at in routes)
        self.effect = effect
        self.who = who
        # Of a person at the console alone: agents, `local` and unlocked link connections are judged without it.
        self.proof: Proof = self._usual_proof() if proof is None else proof

    def while_stopped(self, params: Any) -> bool:
        """Whether a call is taken while everything is stopped: by its effect, unless the row says otherwise."""
        return self.effect in _WHILE_STOPPED if self.stopped is None else self.stopped(params)

    @property
    def params(self) -> type[msgspec.Struct]:
        return cast("type[msgspec.Struct]", self._types()[0])

    @property
    def result(self) -> Any:
        """A Struct, or anything msgspec can encode: `list[View]`, `View | None`."""
        return self._types()[1]

    def _usual_proof(self) -> Grade:
        """To look and to stop things takes a person; whatever else is done in their name, their word for just that."""
        return Grade.SIGNED_IN if self.looks or self.effect is Effect.PROCESS_CONTROL else Grade.FRESH

    def _types(self) -> tuple[Any, ...]:
        # `Reads[Params, Result](...)` leaves its subscript here, after `__init__`.
        alias = getattr(self, "__orig_class__", None)
        if alias is None:
            raise TypeError(f"the row {self.name} does not say its params and result: write Reads[Params, Result](...)")
        return get_args(alias)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Bound(NamedTuple):
    """A row and its handler. Made by `bind` of a row, which mypy checks against the handler."""

    row: Row
    # None for an operation of a run, which the run executes.
    handler: Callable[..., Any] | None
    # Gives back what a wait took when its client was gone before the answer could be written.
    abandon: Callable[[Any, Any], None] | None = None
    # Finds out what a call means: which window, which tool, which files. For the policy and the person.
    resolve: Callable[[Call, Any], Any] | None = None


class Reads(Row, Generic[P, R]):
    """Changes nothing: log and metrics only."""

    looks = True

    def __init__(
        self,
        name: str,
        summary: str,
        *routes: Http,
        effect: Effect = Effect.READ,
        who: Who = ANYONE,
        proof: Proof | None = None,
        outside: Who | None = None,
    ) -> None:
        super().__init__(name, summary, *routes, effect=effect, who=who, proof=proof)
        self.outside = outside

    def bind(self, handler: "Callable[[Call, P], Answer[R]]") -> Bound:
        return Bound(self, handler)


class Waits(Reads[P, R]):
    """Held at most 60 s; a client that goes away releases its waiter."""

    shape = Shape.WAIT

    def bind(
        self, handler: "Callable[[Call, P], Answer[R]]", *, abandon: Callable[[P, Any], None] | None = None
    ) -> Bound:
        return Bound(self, handler, abandon=abandon)


class Streams(Row, Generic[P, R]):
    """One decision when it opens; its items are of the result's type."""

    shape = Shape.STREAM

    looks = True

    def __init__(self, name: str, summary: str, *routes: Http, who: Who = ANYONE, proof: Proof | None = None) -> None:
        super().__init__(name, summary, *routes, effect=Effect.READ, who=who, proof=proof)

    def bind(self, handler: "Callable[[Call, P], Stream]") -> Bound:
        return Bound(self, handler)


class Changes(Row, Generic[P, R]):
    """Changes tables of ours; the change and its record are one transaction."""

    record = Record.JOINED

    def __init__(
        self,
        name: str,
        summary: str,
        *routes: Http,
        effect: Effect,
        who: Who = ANYONE,
        asks: bool = False,
        proof: Proof | None = None,
        stopped: Callable[[Any], bool] | None = None,
        urgent: bool = False,
        outside: Who | None = None,
        lasts: str | None = None,
    ) -> None:
        """`asks`: a rule that says `ask` puts it before the person; else such a call is refused. `stopped`: which
        calls are taken while everything is stopped, where the effect does not say it. `lasts`: see `Row.lasts`."""
        super().__init__(name, summary, *routes, effect=effect, who=who, proof=proof)
        self.consent = Consent.HOLD if asks else Consent.NEVER
        self.stopped = stopped
        self.urgent = urgent
        self.outside = outside
        self.lasts = lasts

    def bind(self, handler: "Callable[[Call, P, Transaction], Answer[R] | None]") -> Bound:
        """The handler returns None where `tx.then` makes the answer."""
        return Bound(self, handler)


class Runs(Changes[P, R]):
    """A container: its operations are calls of their own. Held until it is over."""

    shape = Shape.RUN


class Acts(Row, Generic[P, R]):
    """Acts outside of our tables."""

    def __init__(
        self,
        name: str,
        summary: str,
        *routes: Http,
        effect: Effect,
        who: Who = ANYONE,
        asks: bool = True,
        behind: bool = False,
        waits: bool = False,
        proof: Proof | None = None,
    ) -> None:
        """`behind`: its record may reach the disk some milliseconds after it begins. `waits`: it only waits for
        something, so it ends when its caller leaves."""
        super().__init__(name, summary, *routes, effect=effect, who=who, proof=proof)
        self.record = Record.BEHIND if behind else Record.AHEAD
        self.consent = Consent.HOLD if asks else Consent.NEVER
        self.shape = Shape.WAIT if waits else Shape.REPLY

    def bind(
        self,
        handler: "Callable[[Call, P, RecordedEffect], Answer[R] | Coroutine[Any, Any, R]]",
        *,
        resolve: "Callable[[Call, P], Resolution | Coroutine[Any, Any, Resolution]] | None" = None,
    ) -> Bound:
        return Bound(self, handler, resolve=resolve)


class Operation(Row, Generic[P, R]):
    """A call inside a run: no route leads to it, and the run executes it."""

    shape = Shape.OPERATION

    def __init__(self, name: str, summary: str, *, effect: Effect, recorded: bool = True, asks: bool = True) -> None:
        super().__init__(name, summary, effect=effect, who=ANYONE)
        self.record = Record.AHEAD if recorded else Record.NONE
        self.consent = Consent.PAUSE if asks else Consent.NEVER


def rows_of(module: Mapping[str, object]) -> tuple[Row, ...]:
    """The methods of a module in the order they are written in it; operations of runs are not among them."""
    return tuple(each for each in module.values() if isinstance(each, Row) and each.shape is not Shape.OPERATION)


def operations_of(module: Mapping[str, object]) -> tuple[Row, ...]:
    return tuple(each for each in module.values() if isinstance(each, Row) and each.shape is Shape.OPERATION)


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel", gc=False):
    """Base of what clients send us: unknown fields are refused, so a typo is an error, not a default.

    Decoded JSON has no cycles, so the garbage collector need not walk it (`gc=False`), here and below.
    """


class Result(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of what we answer. Fields at their default are left out, as in the specs' examples."""


class Nothing(Params, frozen=True, kw_only=True):
    """A method without parameters."""
