"""Bridges, put together around one journal, one desk, one policy and one gate.

What a daemon and a test's house have in common: both pass a list of bridges, and the implementations of what they need.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from bascule import __version__
from bascule.admin.history import MetricsHistory
from bascule.admin.ports import Everything, PolicySource
from bascule.admin.protocol import StatusResult, StoppedView
from bascule.admin.records import PERSON_KEY, DaemonFact
from bascule.admin.rulebook import Rulebook
from bascule.admin.service import StatusSource
from bascule.bridge_list import presets_of, rows_of
from bascule.daemon.metrics import BUCKETS
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.emergency import EmergencyStop
from bascule.foundation.text import one_line
from bascule.foundation.timers import Timers
from bascule.kernel.bridge import Bridge, Collect, KernelServices, Port, Ports, Provided
from bascule.kernel.call import DAEMON, LOCAL, PERSON, Principal
from bascule.kernel.call_log import CallLog, Observe
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.consent.ports import Pictures
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.declared import Declared, Make
from bascule.kernel.effects import BegunRow, Effects
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.kernel.faults import log_fault
from bascule.kernel.gate import Gate, Quota
from bascule.kernel.identity.proofs import Proofs
from bascule.kernel.identity.sessions import Sessions
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.kernel.ledger import ANCHOR_EVERY_MS, SEGMENT_RECORDS, Anchor
from bascule.kernel.policy.engine import Policy
from bascule.kernel.ports import COUNT_MAIL, PARTIES, PROOFS, SEEN, SESSIONS
from bascule.kernel.refusals import Refusals
from bascule.kernel.retention import GcItem
from bascule.kernel.rows import Bound, Shape
from bascule.kernel.settings import Config

# Slow cleaning: remembered ids, long-gone agents, last signs of life. Minutes are fine for all of it, and the end of
# the ledger is anchored with it.
SWEEP_EVERY_MS = ANCHOR_EVERY_MS

# What the house bridge, which is the daemon's own methods, needs of all this.
FACTS: Port[Table[DaemonFact]] = Port("facts")
RULEBOOK: Port[Rulebook] = Port("rulebook")
COLLECT_ALL: Port[Collect] = Port("collect all")
STATUS: Port[StatusSource] = Port("status")
DAEMON_ID: Port[str] = Port("daemon id")
HISTORY: Port[MetricsHistory] = Port("metrics history")
EVERYTHING: Port[Everything] = Port("everything")


class Composition:
    """Made in order, on a running event loop. `recover` begins its life."""

    def __init__(
        self,
        bridges: Iterable[Declared],
        config: Config,
        *,
        store: JournalStore,
        clock: Clock,
        log: Log,
        key: bytes,
        on_anchor: Callable[[Anchor], None],
        policy_file: PolicySource,
        setting: str,
        state_dir: str = "",
        auth: str = "on",
        quota: Quota,
        observe: Observe,
        provided: Iterable[Provided] = (),
        make: Mapping[str, Make] | None = None,
        pictures: Pictures | None = None,
        consent_limits: ConsentLimits | None = None,
        segment_records: int = SEGMENT_RECORDS,
        policy: Policy | None = None,
        methods: Iterable[Bound] = (),
    ) -> None:
        """`setting` names a preset, and `policy` goes before it. `make` takes the place of `Declared.make` by a
        bridge's name; `methods` are more than the bridges', or in place of theirs."""
        declared, methods = tuple(bridges), tuple(methods)
        self.store = store
        self.clock = clock
        self.log = log
        self.state_dir = state_dir
        # What `daemon.status` says.
        self.doors: dict[str, str] = {}
        # Why there is no console where one was wanted.
        self.console_problem: str | None = None
        self.ledger_problem: str | None = None
        self.started_at = clock.wall_ms()
        self._started = clock.monotonic()
        self.sessions = Sessions(clock)
        self.proofs = Proofs(clock, key, _daemon_id(key))
        self._auth = auth
        self.timers = Timers(clock, partial(log_fault, log))
        self.history = MetricsHistory(clock, BUCKETS)
        self.events = EventRing(clock)
        self.emergency = EmergencyStop()
        # Called when the end of a stop is durable.
        self.on_resumed: list[Callable[[], None]] = []
        self.facts: Table[DaemonFact] = Table("house", DaemonFact)
        self.facts.rows.update(store.load("house", DaemonFact))
        self.journal = Journal(store, clock, on_anchor=on_anchor, segment_records=segment_records)
        self.desk = Desk(
            store=store,
            journal=self.journal,
            clock=clock,
            timers=self.timers,
            has_person=self.has_person,
            log=log,
            key=key,
            limits=consent_limits,
            pictures=pictures,
        )
        self.desk.on_news.append(self._publish_approval)
        self.effects = Effects(store=store, journal=self.journal, clock=clock, desk=self.desk)
        rows = (*rows_of(declared), *(each.row for each in methods))
        self.rulebook = Rulebook(
            facts=self.facts,
            file=policy_file,
            setting=setting,
            rows=rows,
            presets=presets_of(declared),
            clock=clock,
            log=log,
            desk=self.desk,
        )
        self.refusals = Refusals(self.journal, clock, self.timers)
        self.gate = Gate(
            policy=policy or self.rulebook.policy,
            desk=self.desk,
            effects=self.effects,
            journal=self.journal,
            refusals=self.refusals,
            quota=quota,
            call_log=CallLog(log, observe),
            proofs=self.proofs,
        )
        kernel = KernelServices(
            store=store,
            journal=self.journal,
            clock=clock,
            timers=self.timers,
            log=log,
            desk=self.desk,
            gate=self.gate,
            events=self.events,
            emergency=self.emergency,
            config=config,
            key=key,
            forget_agent=self._forget_agent,
        )
        self.bridges: dict[str, Bridge] = {}
        self.ports = Ports(provided)
        self.ports.add(
            [
                FACTS.provided_by(self.facts),
                RULEBOOK.provided_by(self.rulebook),
                COLLECT_ALL.provided_by(self.collect),
                STATUS.provided_by(self._status),
                SESSIONS.provided_by(self.sessions),
                PROOFS.provided_by(self.proofs),
                DAEMON_ID.provided_by(_daemon_id(key)),
                HISTORY.provided_by(self.history),
                EVERYTHING.provided_by(AllBridges(self.bridges, self.on_resumed)),
            ]
        )
        for each in declared:
            bridge = ((make or {}).get(each.name) or each.make)(kernel, self.ports)
            self.bridges[each.name] = bridge
            self.ports.add(bridge.provides)
        self.journal.start()
        self.gate.connect(
            parties=self.ports.need(PARTIES),
            seen=self.ports.need(SEEN),
            starters={field: who for bridge in self.bridges.values() for field, who in bridge.starters.items()},
        )
        self.gate.mount_operations(row for row in rows if row.shape is Shape.OPERATION)
        self.gate.mount(methods)
        replaced = {each.row.name for each in methods}
        for bridge in self.bridges.values():
            self.gate.mount((each for each in bridge.methods if each.row.name not in replaced), bridge.complete)
        self.rulebook.on_change = self._change_policy
        self.timers.after_ms(SWEEP_EVERY_MS, self._sweep)

    @property
    def policy(self) -> Policy:
        """The one in force."""
        return self.gate.policy

    def has_person(self) -> bool:
        return PERSON_KEY in self.facts.rows

    # -- its life --

    def recover(self) -> list[BegunRow]:
        """What had begun when the last life ended; each bridge goes on from there."""
        self.events.publish(Fact(kind=Kind.DAEMON, event="started"))
        unknown = self.effects.recover([each.on_unknown for each in self.bridges.values() if each.on_unknown])
        for bridge in self.bridges.values():
            if bridge.recover is not None:
                bridge.recover()
        return unknown

    async def open(self) -> None:
        """What needs more than being made; `close` is called by the same task."""
        for bridge in self.bridges.values():
            if bridge.open is not None:
                await bridge.open()

    def end(self) -> None:
        """Every call that waits is answered before the doors close."""
        self.desk.end()
        self.events.publish(Fact(kind=Kind.DAEMON, event="stopping"))
        self.events.end()
        for bridge in self.bridges.values():
            if bridge.end is not None:
                bridge.end()

    def waiting(self) -> int:
        return sum(bridge.waiting() for bridge in self.bridges.values() if bridge.waiting is not None)

    async def close(self) -> None:
        """Effects that have begun end first; of the bridges the last made is closed first, before those it needs."""
        await self.gate.close()
        for bridge in reversed(self.bridges.values()):
            if bridge.close is not None:
                await bridge.close()

    def collect(self, tx: Transaction, *, dry_run: bool) -> list[GcItem]:
        """What is past its retention; removed through `tx` unless it is only asked about."""
        every = [bridge.collect for bridge in self.bridges.values() if bridge.collect is not None]
        return [item for collect in every for item in collect(tx, dry_run=dry_run)]

    def _status(self, principal: Principal) -> StatusResult:
        mail = self.ports.need(COUNT_MAIL)()
        return StatusResult(
            version=__version__,
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            started_at=rfc3339(self.started_at),
            uptime_s=round(self.clock.monotonic() - self._started, 3),
            state_dir=self.state_dir,
            doors=self.doors,
            durability=self.store.durability,
            policy=self.policy.name,
            auth=self._auth,
            person=self.has_person(),
            agents_online=mail.agents_online,
            agents=mail.agents,
            tickets_open=mail.tickets_open,
            tickets=mail.tickets,
            ledger_records=self.journal.chain.seq,
            ledger_head=self.journal.chain.head.hex(),
            ledger_problem=self.ledger_problem,
            console_problem=self.console_problem,
            principal=principal,
            stopped=self._stopped(principal),
        )

    def _stopped(self, principal: Principal) -> StoppedView | None:
        halt = self.gate.halt
        if halt is None:
            return None
        # Words of the user, for the user.
        reason = halt.reason if principal in (LOCAL, PERSON) else None
        return StoppedView(at=rfc3339(halt.at), by=halt.by, reason=reason)

    def _sweep(self, _now: float) -> None:
        self.timers.after_ms(SWEEP_EVERY_MS, self._sweep)
        self.journal.anchor_growth("time")
        self.timers.tidy()
        items: list[GcItem] = []
        with Transaction() as tx:
            for bridge in self.bridges.values():
                if bridge.sweep is not None:
                    items += bridge.sweep(tx)
            items += self.collect(tx, dry_run=False)
        if tx.puts:
            tx.details = {item.what: item.count for item in items if item.count}
            self.journal.commit(tx, DAEMON, "daemon.sweep")

    def _forget_agent(self, agent_id: str) -> None:
        self.gate.end_agent(agent_id)
        self.desk.end_agent(agent_id)
        for bridge in self.bridges.values():
            if bridge.forget_agent is not None:
                bridge.forget_agent(agent_id)

    def _change_policy(self, policy: Policy) -> None:
        self.gate.policy = policy
        self.events.publish(Fact(kind=Kind.DAEMON, event="policy", text=one_line(policy.name)))

    def _publish_approval(self, approval: Approval) -> None:
        asked, state = approval.question, approval.state
        self.events.publish(
            Fact(
                kind=Kind.APPROVAL,
                event="asked" if state is ApprovalState.PENDING else state.value,
                id=approval.approval_id,
                principal=asked.principal,
                status=state.value,
                # Made visible when the question was.
                text=asked.summary,
            )
        )


class AllBridges:
    """For what concerns every bridge at once."""

    def __init__(self, bridges: Mapping[str, Bridge], on_resumed: Iterable[Callable[[], None]]) -> None:
        # Both filled as the daemon is made.
        self._bridges = bridges
        self._on_resumed = on_resumed

    def stop(self, tx: Transaction) -> Mapping[str, Awaitable[str]]:
        endings: dict[str, Awaitable[str]] = {}
        for name, each in self._bridges.items():
            if each.stop is not None:
                try:
                    endings[name] = each.stop(tx)
                except Exception as error:  # noqa: BLE001 - the others are stopped all the same, and it is reported
                    endings[name] = _raise(error)
        return endings

    def resume(self, tx: Transaction) -> None:
        for each in self._bridges.values():
            if each.resume is not None:
                each.resume(tx)
        tx.after += self._on_resumed


async def _raise(error: Exception) -> str:
    raise error


def _daemon_id(key: bytes) -> str:
    """The same in every life of one state directory, another one elsewhere; it says nothing of the key."""
    return "dmn_" + hashlib.sha256(b"bascule daemon id\0" + key).hexdigest()[:20]
