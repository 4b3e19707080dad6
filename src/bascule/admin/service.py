"""Status, cleaning up and reading the ledger."""

import asyncio
import os
from collections.abc import Callable
from time import perf_counter

import msgspec

from bascule.admin import approvals, events
from bascule.admin import protocol as rows
from bascule.admin.all_events import AllEvents
from bascule.admin.consent import Consent
from bascule.admin.declared import AdminDeclared
from bascule.admin.person import Person
from bascule.admin.ports import Anchors
from bascule.admin.protocol import (
    BackupResult,
    GcParams,
    GcResult,
    LedgerRecord,
    LedgerShowParams,
    LedgerTailParams,
    StatusResult,
    VerifyResult,
)
from bascule.admin.records import DaemonFact
from bascule.admin.rulebook import Rulebook
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, Collect, Gauge
from bascule.kernel.call import Call, Principal
from bascule.kernel.event_ring import EventRing
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, LedgerReader, LedgerRow
from bascule.kernel.ledger import Segment, Verifier, read_record
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing

# Rows hashed per step of the walk; the writer thread takes commits in between.
_VERIFY_PAGE = 5_000
# How far back `show` looks; a ledger's tail is read, its depth is exported.
_SHOW_SCAN = 200_000

# Larger numbers are no record's; SQLite's integers end at 19 digits.
_MAX_NUMBER_DIGITS = 18

StatusSource = Callable[[Principal], StatusResult]


class Admin:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        facts: Table[DaemonFact],
        clock: Clock,
        anchors: Anchors,
        collect_all: Collect,
        status: StatusSource,
        ledger_days: int,
        consent: Consent,
        rulebook: Rulebook,
        all_events: EventRing,
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._anchors = anchors
        self._collect_all = collect_all
        self._status = status
        self._ledger_days = ledger_days
        self.person = Person(facts, journal, clock, all_events)
        self.all_events = AllEvents(all_events)
        # Who asked for it hears of a fault.
        self._tasks = Tasks(lambda _name, _error: None)
        self.consent = consent
        self.rulebook = rulebook
        # When each segment was closed, in this life's clock: a jump of the wall clock must not throw records away.
        now, wall = clock.monotonic(), clock.wall_ms()
        self._closed = {
            key: now - max(0, wall - segment.closed_at) / 1000 for key, segment in journal.segments.rows.items()
        }
        journal.segments.on_change = self._segment_changed

    def bridge(self) -> Bridge:
        return Bridge(
            declared=AdminDeclared(),
            service=self,
            methods=[
                rows.DAEMON_STATUS.bind(self.status),
                rows.DAEMON_GC.bind(self.gc),
                rows.DAEMON_BACKUP.bind(self.backup),
                rows.LEDGER_TAIL.bind(self.tail),
                rows.LEDGER_SHOW.bind(self.show),
                rows.LEDGER_VERIFY.bind(self.verify),
                rows.PERSON_SET.bind(self.person.set),
                rows.PERSON_UNLOCK.bind(self.person.unlock),
                rows.PERSON_STATUS.bind(self.person.status),
                approvals.APPROVALS_LIST.bind(self.consent.list_approvals),
                approvals.APPROVALS_SHOW.bind(self.consent.show),
                approvals.APPROVALS_DECIDE.bind(self.consent.decide),
                approvals.APPROVALS_STREAM.bind(self.consent.stream),
                approvals.POLICY_SHOW.bind(self.rulebook.show),
                approvals.POLICY_EXPLAIN.bind(self.rulebook.explain),
                approvals.POLICY_ACCEPT.bind(self.rulebook.accept),
                events.EVENTS_ALL.bind(self.all_events.stream),
            ],
            gauges=[
                Gauge("bascule_approvals_pending", "Questions that wait for the person.", self.consent.pending),
                Gauge("bascule_ledger_records", "Number of the newest ledger record.", lambda: self._journal.chain.seq),
            ],
            collect=self.collect,
            sweep=self.sweep,
            end=self.consent.end,
            close=self._tasks.close,
        )

    def status(self, call: Call, params: Nothing) -> StatusResult:
        return self._status(call.principal)

    def gc(self, call: Call, params: GcParams, tx: Transaction) -> GcResult:
        items = self._collect_all(tx, dry_run=params.dry_run)
        if not params.dry_run:
            tx.subject = "gc"
            tx.details = {item.what: item.count for item in items if item.count}
        return GcResult(dry_run=params.dry_run, items=items)

    def backup(self, call: Call, params: Nothing, tx: Transaction) -> None:
        if self._store.durability == "memory":
            raise InvalidRequest(
                "nothing is on disk to be copied: the daemon runs with durability memory",
                hint="restart it with `--durability fsync` to keep things",
            )
        tx.subject = "backup"
        tx.then = lambda _: self._tasks.answer(self._back_up(), call.method)

    async def _back_up(self) -> BackupResult:
        path = await asyncio.wrap_future(self._store.back_up())
        return BackupResult(path=path, bytes=os.stat(path).st_size)

    def sweep(self, tx: Transaction) -> list[GcItem]:
        self.rulebook.look_at_file()
        return []

    def collect(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        return [*self.consent.gc(tx, dry_run=dry_run), self._gc_ledger(tx, dry_run=dry_run)]

    def _gc_ledger(self, tx: Transaction, *, dry_run: bool) -> GcItem:
        """Whole closed segments only: their summaries stay, so the rest of the chain can still be checked."""
        cut = self._clock.monotonic() - self._ledger_days * 24 * 3_600
        segments = self._journal.segments
        old = {key: each for key, each in segments.rows.items() if self._closed[key] <= cut and not each.dropped}
        if old and not dry_run:
            tx.forget_before = max(segment.last for segment in old.values()) + 1
            for key, segment in old.items():
                tx.put(segments, key, msgspec.structs.replace(segment, dropped=True))
        return GcItem(
            what="ledger segments",
            count=len(old),
            why=f"records are kept for {self._ledger_days} days (ledger_days)",
        )

    def _segment_changed(self, key: str, old: Segment | None, new: Segment | None) -> None:
        if old is None:
            self._closed[key] = self._clock.monotonic()
        elif new is None:
            del self._closed[key]

    def tail(self, call: Call, params: LedgerTailParams) -> "asyncio.Future[list[LedgerRecord]]":
        def job(ledger: LedgerReader) -> list[LedgerRecord]:
            return [_view(row) for row in reversed(ledger.newest(params.limit, params.before))]

        return asyncio.wrap_future(self._store.read_ledger(job))

    def show(self, call: Call, params: LedgerShowParams) -> "asyncio.Future[list[LedgerRecord]]":
        def job(ledger: LedgerReader) -> list[LedgerRecord]:
            found: list[LedgerRecord] = []
            if params.what.isdecimal() and len(params.what) <= _MAX_NUMBER_DIGITS:
                # A record's number; a ticket may be called by a number too.
                found += [_view(row) for row in ledger.span(int(params.what), 1) if row.seq == int(params.what)]
            before: int | None = None
            scanned = 0
            while scanned < _SHOW_SCAN and len(found) < params.limit:
                rows = ledger.newest(_VERIFY_PAGE, before)
                if not rows:
                    break
                scanned += len(rows)
                before = rows[-1].seq
                found.extend(view for view in map(_view, rows) if _about(view, params.what))
            return list(reversed(found[: params.limit]))

        return asyncio.wrap_future(self._store.read_ledger(job))

    def verify(self, call: Call, params: Nothing) -> "asyncio.Future[VerifyResult]":
        return self._tasks.start(self._verify(), "ledger.verify")

    async def _verify(self) -> VerifyResult:
        """Page by page, so that the writer thread takes commits in between."""
        walk = Walk(list(self._journal.segments.rows.values()), self._anchors)
        while not await asyncio.wrap_future(self._store.read_ledger(walk.step)):
            continue
        return walk.result()


class Walk:
    """A walk over the whole chain in steps; each runs beside the writer."""

    def __init__(self, segments: list[Segment], anchors: Anchors) -> None:
        self._start = perf_counter()
        self._segments = segments
        self._known, self._faults = anchors.read()
        self._verifier: Verifier | None = None
        self._at = self._last = 0

    def step(self, ledger: LedgerReader) -> bool:
        """True when the end is reached."""
        if self._verifier is None:
            self._verifier = Verifier(self._segments, self._known, base=ledger.base())
            # Up to the record that was the newest when we began: the chain goes on growing meanwhile.
            self._at, self._last = ledger.bounds()
        rows = [row for row in ledger.span(self._at, _VERIFY_PAGE) if row.seq <= self._last] if self._at else []
        self._verifier.feed(rows)
        if rows:
            self._at = rows[-1].seq + 1
        if rows and self._at <= self._last:
            return False
        self._verifier.finish()
        return True

    def result(self) -> VerifyResult:
        verifier = self._verifier
        assert verifier is not None
        faults = [*self._faults, *verifier.faults]
        return VerifyResult(
            ok=not faults,
            records=verifier.count,
            first=verifier.first,
            last=verifier.last,
            head=verifier.head.hex(),
            anchors=len(self._known),
            faults=faults,
            seconds=round(perf_counter() - self._start, 3),
        )


def verify(ledger: LedgerReader, segments: list[Segment], anchors: Anchors) -> VerifyResult:
    """The whole walk at once, for a stopped daemon."""
    walk = Walk(segments, anchors)
    while not walk.step(ledger):
        continue
    return walk.result()


def _view(row: LedgerRow) -> LedgerRecord:
    record = read_record(row)
    return LedgerRecord(
        seq=row.seq,
        at=rfc3339(record.at),
        principal=record.principal,
        method=record.method,
        outcome=record.outcome,
        subject=record.subject,
        rule=record.rule,
        details=record.details or {},
        hash=row.hash.hex(),
    )


def _about(record: LedgerRecord, what: str) -> bool:
    if what in (record.subject, record.method, record.principal, f"agent:{record.subject}"):
        return True
    # A handle also finds what it did and what was sent to it, alone or with others.
    to = record.details.get("to", ())
    return (
        record.principal == f"agent:{what}"
        or what in (to if isinstance(to, list) else (to,))
        or what in record.details.get("tickets", ())
    )
