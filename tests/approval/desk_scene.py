"""A desk with a clock that moves when a test says so, on a store that can hold or fail its writes."""

import heapq
from itertools import count

from bascule.kernel.asking import create_question
from bascule.kernel.call import PERSON, Call, agent_principal
from bascule.kernel.call_log import CallLog
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.questions import params_and_digest
from bascule.kernel.consent.records import Question
from bascule.kernel.effects import Effects
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.ledger import read_record
from bascule.kernel.policy.engine import load
from bascule.kernel.refusals import Refusals
from bascule.kernel.rows import Effect, Operation, Params
from bascule.testing.clock import FakeClock
from bascule.testing.stores import HeldStore

JERRY = agent_principal("Jerry")
TOM = agent_principal("Tom")


class Cut(Params, frozen=True, kw_only=True):
    path: str = "x"
    force: bool = False


class Deep(Params, frozen=True, kw_only=True):
    env: dict[str, str] = {}


def row(name, *, params=Cut, effect=Effect.WRITE):
    return Operation[params, str](name, "For these tests.", effect=effect)


ROWS = (row("tree.cut"), row("tree.burn"), row("tree.look", effect=Effect.READ))
POLICY = """
version = 1
[[rule]]
name = "reads"
decision = "allow"
reason = "looking is free"
effects = ["read"]
[[rule]]
name = "cutting-asks"
decision = "ask"
reason = "cutting is forever"
suggestion = "Prune it instead"
methods = ["tree.cut"]
[[rule]]
name = "no-fire"
decision = "deny"
reason = "no fire in the forest"
methods = ["tree.burn"]
"""


class Timers:
    """A heap of deadlines, as the broker's."""

    def __init__(self, clock):
        self._clock = clock
        self._heap = []
        self._order = count()

    def after_ms(self, ms, what):
        entry = [what]
        heapq.heappush(self._heap, (self._clock.monotonic() + ms / 1000, next(self._order), entry))
        return entry

    def call_off(self, entry):
        entry[0] = None

    def advance(self, seconds):
        until = self._clock.monotonic() + seconds
        while self._heap and self._heap[0][0] <= until:
            when, _, entry = heapq.heappop(self._heap)
            if entry[0] is not None:
                self._clock.move_to(max(when, self._clock.monotonic()))
                entry[0](when)
        self._clock.move_to(until)

    def open(self):
        return sum(1 for _, _, entry in self._heap if entry[0] is not None)


class Forest:
    """One life of a desk at a time; `restart` begins the next on the same store."""

    def __init__(self, *, limits=None, hold=False, has_person=True):
        self.clock = FakeClock()
        self.store = HeldStore(hold=hold)
        self.limits = limits
        self.has_person = has_person
        self.log = []
        self.policy = load(POLICY, [each.name for each in ROWS], {each.name: each.effect for each in ROWS})
        self.live()

    def live(self):
        self.timers = Timers(self.clock)
        self.journal = Journal(self.store, self.clock, on_anchor=lambda _: None)
        self.desk = Desk(
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            timers=self.timers,
            has_person=lambda: self.has_person,
            log=self.note,
            key=b"testing",
            limits=self.limits,
        )
        self.effects = Effects(store=self.store, journal=self.journal, clock=self.clock, desk=self.desk)
        self.gate = Gate(
            policy=self.policy,
            journal=self.journal,
            refusals=Refusals(self.journal, self.clock, self.timers),
            quota=None,
            call_log=CallLog(self.note, lambda *_: None),
            desk=self.desk,
            effects=self.effects,
        )
        self.gate.connect(parties=None, seen=None, starters={})
        self.gate.mount_operations(ROWS)
        self.journal.start()

    def note(self, event, **fields):
        self.log.append((event, fields))

    def restart(self, *, down=0.0):
        self.clock.advance(down)
        self.live()
        self.unknown = self.effects.recover()
        tx = Transaction()
        self.died = self.desk.begin_life(tx)
        self.journal.commit(tx, PERSON, "daemon.start")

    def question(self, principal=JERRY, method="tree.cut", params=None, **more):
        text, digest = params_and_digest(params or Cut())
        fields = {
            "rule": "cutting-asks",
            "reason": "cutting is forever",
            "summary": "cut",
            "preview": "cut x",
        }
        fields |= {"principal": principal, "method": method, "digest": digest, "params_json": text}
        return Question(**(fields | more))

    def ask(self, *args, **more):
        return create_question(self.journal, self.desk, self.question(*args, **more))[0]

    def decide(self, approval, approve=True, **more):
        tx = Transaction()
        with tx:
            decided, rule = self.desk.decide(tx, approval.approval_id, approve=approve, **more)
        self.journal.commit(tx, PERSON, "approvals.decide")
        return rule if rule is not None else decided

    def approve(self, approval, **more):
        return self.decide(approval, **more)

    def spend(self, approval):
        tx = Transaction()
        with tx:
            self.desk.spend(tx, approval.approval_id)
        self.journal.commit(tx, JERRY, "tree.cut", "begun")

    def grant(self, principal=JERRY, method="tree.cut", params=None, run_id=None):
        return self.desk.grant_for(principal, method, params_and_digest(params or Cut())[1], run_id)

    def state(self, approval):
        return self.desk.find(approval.approval_id).state.value

    def advance(self, seconds):
        self.timers.advance(seconds)

    def call(self, principal=JERRY):
        return Call(principal, "runs.start", None, door="testing")

    def ledger(self):
        rows = self.store.read_ledger(lambda ledger: ledger.span(0, 1_000)).result()
        return [read_record(each) for each in rows]

    def outcomes(self):
        return [(record.method, record.outcome) for record in self.ledger()]
