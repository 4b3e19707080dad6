"""The manifest of a bridge, second part: the bridge alive in a daemon. Handlers, gauges, hooks of its life, ports."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from bascule.foundation.clock import Clock
from bascule.foundation.emergency import EmergencyStop
from bascule.foundation.errors import BasculeError
from bascule.foundation.timers import Timers
from bascule.kernel.consent.desk import Desk
from bascule.kernel.declared import Declared
from bascule.kernel.effects import OnUnknown
from bascule.kernel.event_ring import EventRing
from bascule.kernel.gate import Gate
from bascule.kernel.identity.ownership import Starter
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.mounted import Complete
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Bound
from bascule.kernel.settings import Config

T = TypeVar("T")


# -- alive ----------------------------------------------------------------------------------------


class Collect(Protocol):
    def __call__(self, tx: Transaction, /, *, dry_run: bool) -> list[GcItem]:
        """What is past its retention; removed through `tx` unless it is only asked about."""


class Gauge(NamedTuple):
    """One line of /metrics."""

    name: str
    help: str
    value: Callable[[], float]


class HttpForm(NamedTuple):
    """How HTTP answers a method whose protocol has its own words for an error."""

    status: Callable[[Any], int]
    invalid: Callable[[BasculeError], Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bridge:
    """One bridge of a running daemon. A hook that is None has nothing to do."""

    declared: Declared
    # The object behind the handlers, for tests that look inside.
    service: object
    methods: Sequence[Bound]
    # What other bridges and the daemon may need of it.
    provides: Sequence["Provided"] = ()
    # Who started what a parameter names: run_id, process_id, space_id.
    starters: Mapping[str, Starter] = dataclasses.field(default_factory=dict)
    # Params of a call, with what they leave out and the bridge knows: a rule on it holds however a thing is named.
    complete: Complete | None = None
    gauges: Sequence[Gauge] = ()
    http_forms: Mapping[str, HttpForm] = dataclasses.field(default_factory=dict)
    # Called with every effect that had begun when the last life ended.
    on_unknown: OnUnknown | None = None
    # Called once at start, after `on_unknown`.
    recover: Callable[[], None] | None = None
    open: Callable[[], Awaitable[None]] | None = None
    # A handle was revoked or taken over: the next holder inherits nothing.
    forget_agent: Callable[[str], None] | None = None
    # For `daemon.gc`, and in every sweep.
    collect: Collect | None = None
    # Now and then, in a transaction of the daemon's: what no person asks for.
    sweep: Callable[[Transaction], list[GcItem]] | None = None
    # Everything is stopped, and the daemon goes on: end what is under way, now; awaiting it gives what that was, in
    # words. What must be known in the next life goes into the transaction.
    stop: Callable[[Transaction], Awaitable[str]] | None = None
    # A person lets things begin again: undo what `stop` has put in the way.
    resume: Callable[[Transaction], None] | None = None
    # The daemon stops: every call that waits is answered now.
    end: Callable[[], None] | None = None
    # How many calls are held open; after `end` the daemon gives them a moment to be answered.
    waiting: Callable[[], int] | None = None
    # Nothing that was started here is left when this returns.
    close: Callable[[], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        """Invariant I2: every declared method has a handler, and every handler a declared method."""
        declared = {row.name for row in self.declared.methods}
        if wrong := declared ^ {each.row.name for each in self.methods}:
            raise ValueError(f"{self.declared.name}: declared methods and handlers differ: {sorted(wrong)}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelServices:
    """What every bridge gets from the daemon: store, journal, clock, gate."""

    store: JournalStore
    journal: Journal
    clock: Clock
    timers: Timers
    log: Log
    desk: Desk
    gate: Gate
    # Where a bridge publishes what happened, for `events.all`.
    events: EventRing
    # Where whoever starts a process says how it is ended while the loop is held up.
    emergency: EmergencyStop
    # Each bridge takes its own Struct of it.
    config: Config
    # Keys the digests in store and ledger.
    key: bytes
    # The broker calls it; `forget_agent` of every bridge runs.
    forget_agent: Callable[[str], None]


# -- ports ----------------------------------------------------------------------------------------


class Port(Generic[T]):
    """A name for something that one bridge, or the daemon, provides and another needs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def provided_by(self, what: T) -> "Provided":
        return Provided(self, what)


class Provided(NamedTuple):
    port: Port[Any]
    what: Any


class Ports:
    """What is provided so far. Bridges are made in the order of the list: a bridge comes after those it needs."""

    def __init__(self, provided: Iterable[Provided] = ()) -> None:
        self._by_port: dict[Port[Any], Any] = {}
        self.add(provided)

    def add(self, provided: Iterable[Provided]) -> None:
        for port, what in provided:
            if port in self._by_port:
                raise ValueError(f"the port {port.name!r} is provided already")
            self._by_port[port] = what

    def need(self, port: Port[T]) -> T:
        if port not in self._by_port:
            raise LookupError(f"nobody provides the port {port.name!r}: list its bridge before those that need it")
        return cast("T", self._by_port[port])
