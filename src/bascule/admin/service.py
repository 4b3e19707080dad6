"""The daemon's own methods put together; status, backup and cleaning up are here."""

import asyncio
import os
from collections.abc import Callable

import msgspec

from bascule.admin import approvals
from bascule.admin import event_protocol as events
from bascule.admin import passkey_protocol as passkeys
from bascule.admin import protocol as rows
from bascule.admin import stop_protocol as stop
from bascule.admin.consent import Consent
from bascule.admin.console import Console
from bascule.admin.declared import AdminDeclared
from bascule.admin.doctor import Doctor, Examine
from bascule.admin.enrolment import Enrolment
from bascule.admin.event_stream import AllEvents
from bascule.admin.history import MetricsHistory
from bascule.admin.ledger_methods import LedgerMethods
from bascule.admin.passkeys import Passkeys
from bascule.admin.person import Person
from bascule.admin.ports import Anchors, Everything
from bascule.admin.protocol import (
    BackupResult,
    GcParams,
    GcResult,
    StatusResult,
)
from bascule.admin.proving import Proving
from bascule.admin.records import DaemonFact
from bascule.admin.replay import Replayer
from bascule.admin.rulebook import Rulebook
from bascule.admin.stopping import Stopping
from bascule.foundation.clock import Clock
from bascule.foundation.errors import InvalidRequest
from bascule.foundation.tasks import Tasks
from bascule.kernel.bridge import Bridge, Collect, Gauge
from bascule.kernel.call import Call, Principal
from bascule.kernel.event_ring import EventRing
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.ledger import Segment
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Nothing

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
        event_ring: EventRing,
        facts: Table[DaemonFact],
        gate: Gate,
        everything: Everything,
        log: Log,
    ) -> None:
        self._store = store
        self._journal = journal
        self._clock = clock
        self._collect_all = collect_all
        self._status = status
        self._ledger_days = ledger_days
        self.person = person
        self.passkeys = passkeys
        self.enrolment = enrolment
        self.proving = proving
        self.all_events = AllEvents(event_ring)
        # Who asked for it is answered with its fault.
        self._tasks = Tasks(lambda _name, _error: None)
        self.ledger = LedgerMethods(
            store=store, journal=journal, anchors=anchors, clock=clock, tasks=self._tasks, on_fault=on_fault
        )
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
                rows.LEDGER_TAIL.bind(self.ledger.tail),
                rows.LEDGER_SHOW.bind(self.ledger.show),
                rows.LEDGER_SEARCH.bind(self.ledger.search),
                rows.LEDGER_VERIFY.bind(self.ledger.verify),
                rows.LEDGER_VERIFY_STREAM.bind(self.ledger.verify_stream),
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
        self.ledger.end()

    async def close(self) -> None:
        await self.consent.close()
        await self.ledger.close()
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
