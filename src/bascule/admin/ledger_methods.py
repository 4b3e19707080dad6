"""The ledger behind its method rows: its newest records, those of one subject, a search, and the check of all of it."""

import asyncio
import contextlib
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from bascule.admin.ledger_search import Query, parse_query
from bascule.admin.ports import Anchors
from bascule.admin.protocol import (
    LedgerRecord,
    LedgerSearchParams,
    LedgerSearchResult,
    LedgerShowParams,
    LedgerTailParams,
    VerifyProgress,
    VerifyResult,
)
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Overloaded, StorageFull
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call
from bascule.kernel.identity.proof_records import ProofWalk
from bascule.kernel.journal import Journal
from bascule.kernel.journal_ports import JournalStore, LedgerReader, LedgerRow
from bascule.kernel.ledger import Segment, Verifier, read_record
from bascule.kernel.rows import Nothing

T = TypeVar("T")
# Rows hashed per step of the walk; the writer thread takes commits in between.
_PAGE = 5_000
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


class LedgerMethods:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        anchors: Anchors,
        clock: Clock,
        tasks: Tasks,
        on_fault: Callable[[str, BaseException], object],
        search_scan: int = SEARCH_SCAN,
    ) -> None:
        self._store = store
        self._journal = journal
        self._anchors = anchors
        self._clock = clock
        self._tasks = tasks
        # Nobody is answered when one of these fails.
        self._followed = Tasks(on_fault)
        self._streams: set[Stream] = set()
        self._search_scan = search_scan

    def end(self) -> None:
        for stream in list(self._streams):
            stream.end()

    async def close(self) -> None:
        await self._followed.close()

    async def _read(self, job: Callable[[LedgerReader], T]) -> T:
        """Behind all that is committed: what another machine keeps may be shown before (`Transaction.can_wait`)."""
        if (durable := self._journal.durable()) is not None:
            # What could not be stored has no record.
            with contextlib.suppress(StorageFull):
                await durable
        return await asyncio.wrap_future(self._store.read_ledger(job))

    def tail(self, call: Call, params: LedgerTailParams) -> "asyncio.Future[list[LedgerRecord]]":
        def job(ledger: LedgerReader) -> list[LedgerRecord]:
            return [_view(row) for row in reversed(ledger.newest(params.limit, params.before))]

        return self._tasks.start(self._read(job), call.method)

    def show(self, call: Call, params: LedgerShowParams) -> "asyncio.Future[list[LedgerRecord]]":
        def job(ledger: LedgerReader) -> list[LedgerRecord]:
            found: list[LedgerRecord] = []
            if params.what.isdecimal() and len(params.what) <= _MAX_NUMBER_DIGITS:
                # A record's number; a ticket may be called by a number too.
                found += [_view(row) for row in ledger.span(int(params.what), 1) if row.seq == int(params.what)]
            before: int | None = None
            scanned = 0
            while scanned < _SHOW_SCAN and len(found) < params.limit:
                rows = ledger.newest(_PAGE, before)
                if not rows:
                    break
                scanned += len(rows)
                before = rows[-1].seq
                found.extend(view for view in map(_view, rows) if _about(view, params.what))
            return list(reversed(found[: params.limit]))

        return self._tasks.start(self._read(job), call.method)

    def search(self, call: Call, params: LedgerSearchParams) -> "asyncio.Future[LedgerSearchResult]":
        query = parse_query(params.q, self._clock.wall_ms())
        return self._tasks.start(self._search(query, params), call.method)

    async def _search(self, query: Query, params: LedgerSearchParams) -> LedgerSearchResult:
        """Page by page, so that the writer thread takes commits in between."""
        found: list[LedgerRecord] = []
        before, scanned = params.before, 0
        while scanned < self._search_scan and len(found) < params.limit:
            page = min(_PAGE, self._search_scan - scanned)
            step = _SearchStep(query, page, before, params.limit - len(found))
            views, looked_at, before = await self._read(step)
            found += views
            scanned += looked_at
            if before is None:
                break
        return LedgerSearchResult(records=found, next=before, scanned=scanned)

    def verify(self, call: Call, params: Nothing) -> "asyncio.Future[VerifyResult]":
        return self._tasks.start(self._verify(), call.method)

    async def _verify(self) -> VerifyResult:
        """Page by page, so that the writer thread takes commits in between."""
        walk = self._walk()
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

    def _walk(self) -> "Walk":
        return Walk(list(self._journal.segments.rows.values()), self._anchors)

    async def _verify_into(self, stream: Stream) -> None:
        try:
            walk = self._walk()
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
        rows = [row for row in ledger.span(self._at, _PAGE) if row.seq <= self._last] if self._at else []
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
