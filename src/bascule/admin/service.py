"""Status, cleaning up and reading the ledger."""

import asyncio
import os
from collections.abc import Callable
from time import perf_counter

import msgspec

from bascule.admin import approvals, events, stop
from bascule.admin import passkey_protocol as passkeys
from bascule.admin import protocol as rows
from bascule.admin.all_events import AllEvents
from bascule.admin.consent import Consent
from bascule.admin.console import Console
from bascule.admin.declared import AdminDeclared
from bascule.admin.doctor import Doctor, Examine
from bascule.admin.enrolment import Enrolment
from bascule.admin.history import MetricsHistory
from bascule.admin.ledger_search import Query, parse_query
from bascule.admin.passkeys import Passkeys
from bascule.admin.person import Person
from bascule.admin.ports import Anchors, Everything
from bascule.admin.protocol import (
    BackupResult,
    GcParams,
    GcResult,
    LedgerRecord,
    LedgerSearchParams,
    LedgerSearchResult,
    LedgerShowParams,
    LedgerTailParams,
    StatusResult,
    VerifyProgress,
    VerifyResult,
)
from bascule.admin.proving import Proving
from bascule.admin.records import DaemonFact
from bascule.admin.replay import Replayer
from bascule.admin.rulebook import Rulebook
from bascule.admin.stopping import Stopping
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import InvalidRequest, Overloaded
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, Collect, Gauge
from bascule.kernel.call import Call, Principal
from bascule.kernel.event_ring import EventRing
from bascule.kernel.gate import Gate
from bascule.kernel.identity.proof_records import ProofWalk
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, LedgerReader, LedgerRow, Log
from bascule.kernel.ledger import Segment, Verifier, read_record
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing

# Rows hashed per step of the walk; the writer thread takes commits in between.
_VERIFY_PAGE = 5_000
# How far back `show` looks; a ledger's tail is read, its depth is exported.
_SHOW_SCAN = 200_000
# How much one `search` reads before it says where to go on: about a second of the store's thread, in steps of a page.
SEARCH_SCAN = 100_000
# Verifications followed at once; each walks the whole ledger.
MAX_FOLLOWED = 4
# Steps that a slow reader may be behind; the rest is left out, the result never.
_MAX_PROGRESS_WAITING = 16

# Larger numbers are no record's; SQLite's integers end at 19 digits.
_MAX_NUMBER_DIGITS = 18

StatusSource = Callable[[Principal], StatusResult]


class Admin:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        clock: Clock,
        anchors: Anchors,
        collect_all: Collect,
        status: StatusSource,
        ledger_days: int,
        person: Person,
        passkeys: Passkeys,
        enrolment: Enrolment,
        proving: Proving,
        consent: Consent,
        console: Console,
        rulebook: Rulebook,
        history: MetricsHistory,
        examine: Examine,
        on_fault: Callable[[str, BaseException], object],
        all_events: EventRing,
        facts: Table[DaemonFact],
        gate: Gate,
        everything: Everything,
        log: Log,
        search_scan: int = SEARCH_SCAN,
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._anchors = anchors
        self._collect_all = collect_all
        self._status = status
        self._ledger_days = ledger_days
        self.person = person
        self.passkeys = passkeys
        self.enrolment = enrolment
        self.proving = proving
        self.all_events = AllEvents(all_events)
        # Who asked for it is answered with its fault.
        self._tasks = Tasks(lambda _name, _error: None)
        # Nobody is answered when one of these fails.
        self._followed = Tasks(on_fault)
        self._streams: set[Stream] = set()
        self._search_scan = search_scan
        self.consent = consent
        self.console = console
        self.rulebook = rulebook
        self.history = history
        self.doctor = Doctor(examine, clock, self._tasks)
        self.replayer = Replayer(store, rulebook, self._tasks)
        self.stopping = Stopping(
            facts=facts, gate=gate, journal=journal, clock=clock, tasks=self._tasks, everything=everything, log=log
        )
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
                rows.LEDGER_SEARCH.bind(self.search),
                rows.LEDGER_VERIFY.bind(self.verify),
                rows.LEDGER_VERIFY_STREAM.bind(self.verify_stream),
                rows.PERSON_SET.bind(self.person.set),
                rows.PERSON_UNLOCK.bind(self.person.unlock),
                rows.PERSON_STATUS.bind(self.person.status),
                passkeys.PERSON_CHALLENGE.bind(self.proving.challenge),
                passkeys.PERSON_PROVE.bind(self.proving.prove),
                passkeys.PASSKEYS_LIST.bind(self.passkeys.list_passkeys),
                passkeys.PASSKEYS_INVITE.bind(self.enrolment.invite),
                passkeys.PASSKEYS_BEGIN.bind(self.enrolment.begin),
                passkeys.PASSKEYS_FINISH.bind(self.enrolment.finish),
                passkeys.PASSKEYS_CONFIRM.bind(self.enrolment.confirm),
                passkeys.PASSKEYS_REVOKE.bind(self.passkeys.revoke),
                rows.METRICS_HISTORY.bind(self.history.show),
                rows.DAEMON_DOCTOR.bind(self.doctor.look),
                approvals.APPROVALS_LIST.bind(self.consent.list_approvals),
                approvals.APPROVALS_SHOW.bind(self.consent.show),
                approvals.APPROVALS_PICTURE.bind(self.consent.picture),
                approvals.APPROVALS_DECIDE.bind(self.consent.decide),
                approvals.APPROVALS_STREAM.bind(self.consent.stream),
                approvals.POLICY_SHOW.bind(self.rulebook.show),
                approvals.POLICY_EXPLAIN.bind(self.rulebook.explain),
                approvals.POLICY_REPLAY.bind(self.replayer.replay),
                approvals.POLICY_ACCEPT.bind(self.rulebook.accept),
                *self.console.methods(),
                events.EVENTS_ALL.bind(self.all_events.stream),
                stop.ADMIN_STOP.bind(self.stopping.stop),
                stop.ADMIN_RESUME.bind(self.stopping.resume),
            ],
            gauges=[
                Gauge("bascule_approvals_pending", "Questions that wait for the person.", self.consent.pending),
                Gauge("bascule_stopped", "1 while everything is stopped.", lambda: self.stopping.is_stopped),
                Gauge("bascule_ledger_records", "Number of the newest ledger record.", lambda: self._journal.chain.seq),
            ],
            collect=self.collect,
            sweep=self.sweep,
            end=self.end,
            waiting=lambda: self.console.pairings.waiting,
            close=self.close,
        )

    def end(self) -> None:
        self.consent.end()
        self.console.pairings.end()
        for stream in list(self._streams):
            stream.end()

    async def close(self) -> None:
        await self.consent.close()
        await self._followed.close()
        await self._tasks.close()

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
        self.console.sessions.expire()
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
            # Committed first: no record of a key is dropped before the next one is there.
            self.passkeys.keep(tx.forget_before)
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

    def search(self, call: Call, params: LedgerSearchParams) -> "asyncio.Future[LedgerSearchResult]":
        query = parse_query(params.q, self._clock.wall_ms())
        return self._tasks.start(self._search(query, params), call.method)

    async def _search(self, query: Query, params: LedgerSearchParams) -> LedgerSearchResult:
        """Page by page, so that the writer thread takes commits in between."""
        found: list[LedgerRecord] = []
        before, scanned = params.before, 0
        while scanned < self._search_scan and len(found) < params.limit:
            page = min(_VERIFY_PAGE, self._search_scan - scanned)
            step = _SearchStep(query, page, before, params.limit - len(found))
            views, looked_at, before = await asyncio.wrap_future(self._store.read_ledger(step))
            found += views
            scanned += looked_at
            if before is None:
                break
        return LedgerSearchResult(records=found, next=before, scanned=scanned)

    def verify(self, call: Call, params: Nothing) -> "asyncio.Future[VerifyResult]":
        return self._tasks.start(self._verify(), "ledger.verify")

    async def _verify(self) -> VerifyResult:
        """Page by page, so that the writer thread takes commits in between."""
        walk = Walk(list(self._journal.segments.rows.values()), self._anchors)
        while not await asyncio.wrap_future(self._store.read_ledger(walk.step)):
            continue
        return walk.result()

    def verify_stream(self, call: Call, params: Nothing) -> Stream:
        if len(self._streams) >= MAX_FOLLOWED:
            raise Overloaded(
                f"{MAX_FOLLOWED} verifications are followed already", hint="wait for one of them", retry_after=5.0
            )

        def left() -> None:
            self._streams.discard(stream)
            task.cancel()

        stream = Stream(on_close=left)
        self._streams.add(stream)
        task = self._followed.start(self._verify_into(stream), call.method)
        return stream

    async def _verify_into(self, stream: Stream) -> None:
        try:
            walk = Walk(list(self._journal.segments.rows.values()), self._anchors)
            while not await asyncio.wrap_future(self._store.read_ledger(walk.step)):
                if stream.waiting < _MAX_PROGRESS_WAITING:
                    stream.push(VerifyProgress(done=walk.done, total=walk.total))
            stream.push(VerifyProgress(done=walk.done, total=walk.total, result=walk.result()))
        finally:
            self._streams.discard(stream)
            stream.end()


class _SearchStep:
    """One page of a search, on the store's thread."""

    def __init__(self, query: Query, page: int, before: int | None, limit: int) -> None:
        self._query = query
        self._page = page
        self._before = before
        self._limit = limit

    def __call__(self, ledger: LedgerReader) -> tuple[list[LedgerRecord], int, int | None]:
        """What was found, how many were looked at, and before which to go on; None at the beginning of the ledger."""
        rows = ledger.newest(self._page, self._before)
        found: list[LedgerRecord] = []
        for looked_at, row in enumerate(rows, 1):
            if self._query.matches(read_record(row)):
                found.append(_view(row))
                if len(found) == self._limit:
                    return found, looked_at, row.seq if row.seq > ledger.bounds()[0] else None
        return found, len(rows), rows[-1].seq if len(rows) == self._page else None


class Walk:
    """A walk over the whole chain in steps; each runs beside the writer."""

    def __init__(self, segments: list[Segment], anchors: Anchors) -> None:
        self._start = perf_counter()
        self._segments = segments
        self._known, self._faults = anchors.read()
        self._verifier: Verifier | None = None
        self._proofs: ProofWalk | None = None
        self._at = self._last = self.total = 0

    def step(self, ledger: LedgerReader) -> bool:
        """True when the end is reached."""
        if self._verifier is None or self._proofs is None:
            base = ledger.base()
            self._proofs = ProofWalk(is_window=base is not None)
            self._verifier = Verifier(self._segments, self._known, base=base, look=self._proofs.look)
            # Up to the record that was the newest when we began: the chain goes on growing meanwhile.
            self._at, self._last = ledger.bounds()
            self.total = self._last - self._at + 1 if self._at else 0
        rows = [row for row in ledger.span(self._at, _VERIFY_PAGE) if row.seq <= self._last] if self._at else []
        self._verifier.feed(rows)
        if rows:
            self._at = rows[-1].seq + 1
        if rows and self._at <= self._last:
            return False
        self._verifier.finish()
        self._proofs.finish()
        return True

    @property
    def done(self) -> int:
        return self._verifier.count if self._verifier is not None else 0

    def result(self) -> VerifyResult:
        verifier, proofs = self._verifier, self._proofs
        assert verifier is not None
        assert proofs is not None
        faults = [*self._faults, *verifier.faults, *proofs.faults]
        return VerifyResult(
            ok=not faults,
            records=verifier.count,
            first=verifier.first,
            last=verifier.last,
            head=verifier.head.hex(),
            anchors=len(self._known),
            signatures=proofs.signatures,
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
