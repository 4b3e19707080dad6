"""A gate whose every neighbour writes down that it was asked, for the tests beside it."""

import asyncio
import functools

import msgspec

from bascule.foundation.errors import NotFound, Overloaded
from bascule.foundation.timers import Timers
from bascule.kernel.call import LOCAL, Call, agent_principal
from bascule.kernel.call_log import CallLog
from bascule.kernel.consent.desk import Desk
from bascule.kernel.effects import Effects
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Table
from bascule.kernel.journal_ports import LogLine
from bascule.kernel.ledger import read_record
from bascule.kernel.refusals import Refusals
from bascule.kernel.rows import (
    LOCAL_USER,
    PERSON_ONLY,
    Changes,
    Effect,
    Params,
    Reads,
    Record,
    Streams,
    Waits,
    party,
    self_,
)
from bascule.testing.clock import FakeClock
from bascule.testing.policies import preset
from bascule.testing.stores import HeldStore
from patience import PATIENCE

JERRY = agent_principal("Jerry")
SPOCK = agent_principal("Spock")


class Ask(Params, frozen=True, kw_only=True):
    agent_id: str = "Jerry"
    ticket_id: str | None = None
    number: int = 0


class Thing(msgspec.Struct, frozen=True):
    text: str


def row(name, kind=Changes, **columns):
    settings = ({"effect": Effect.MESSAGE} if kind is Changes else {}) | columns
    return kind[Ask, str](name, "For these tests.", **settings)


ROWS = (
    row("write"),
    row("write.self", who=self_("agent_id")),
    row("write.party", who=party("ticket_id")),
    row("write.local", who=LOCAL_USER),
    row("write.person", who=PERSON_ONLY),
    row("admin", effect=Effect.ADMIN),
    row("read", Reads),
    row("read.self", Reads, who=self_("agent_id")),
    row("read.party", Reads, who=party("ticket_id")),
    row("wait", Waits),
    row("stream", Streams),
)


class Scene:
    """A gate whose every neighbour writes down that it was asked."""

    def __init__(self, *, policy=None, hold=False):
        self.asked = []
        self.log = []
        self.faults = []
        self.observed = []
        self.abandoned = []
        self.overloaded = False
        self.answer = "answer"
        self.store = HeldStore(hold=hold)
        clock = FakeClock()
        self.journal = Journal(self.store, clock, on_anchor=lambda _: None)
        timers = Timers(clock, on_fault=self.faults.append)
        self.has_person = True
        self.desk = Desk(
            store=self.store,
            journal=self.journal,
            clock=clock,
            timers=timers,
            has_person=lambda: self.has_person,
            log=self._log,
            key=b"testing",
        )
        self.effects = Effects(store=self.store, journal=self.journal, clock=clock, desk=self.desk)
        self.journal.start()
        self.table = Table("tickets", Thing)
        self.gate = Gate(
            policy=policy or preset("standard"),
            journal=self.journal,
            refusals=Refusals(self.journal, clock, timers),
            quota=self,
            desk=self.desk,
            effects=self.effects,
            call_log=CallLog(
                self._log, lambda method, outcome, seconds: self.observed.append((method, outcome, seconds >= 0))
            ),
        )
        self.gate.connect(
            parties=self._parties, seen=lambda principal: self.asked.append(f"seen {principal}"), starters={}
        )
        for each in ROWS:
            bound = each.bind(self._write if each.record is Record.JOINED else self._read)
            if each.name == "wait":
                bound = each.bind(self._read, abandon=lambda *taken: self.abandoned.append(taken))
            self.gate.mount([bound])

    def _log(self, event, *, level="info", **fields):
        if isinstance(event, LogLine):
            fields = msgspec.to_builtins(event)
            event = fields.pop("event")
        self.log.append((event, level, fields))

    def take(self, principal):
        self.asked.append("quota")
        if self.overloaded:
            raise Overloaded("too many calls", retry_after=1.0)

    def _parties(self, ticket_id):
        self.asked.append("parties")
        if ticket_id != "t":
            raise NotFound("unknown ticket")
        return JERRY, SPOCK

    def _read(self, call, params):
        self.asked.append("act")
        return self._answer()

    def _write(self, call, params, tx):
        self.asked.append("act")
        if params.number != 404:
            tx.put(self.table, "k", Thing(str(params.number)))
            tx.subject = params.ticket_id or params.agent_id
        return self._answer()

    def _answer(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer

    def call(self, method, params=b"{}", principal=LOCAL):
        return self.gate.call(Call(principal, method, params, door="testing"))

    def ledger(self):
        rows = self.store.read_ledger(lambda ledger: ledger.span(0, 100)).result()
        return [(record.method, record.outcome, record.subject, record.rule) for record in map(read_record, rows)]


def on_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run
