"""Methods of a bridge that fells trees: one whose effect is in the store, one whose effect is outside of it."""

import asyncio

import msgspec

from bascule.bridge_list import presets_of, rows_of
from bascule.foundation.deferred import Deferred
from bascule.kernel.journal import Table
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.text import load_policy
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Acts, Changes, Effect, Params
from bascule.testing.house import House

PASSPHRASE = {"passphrase": "correct horse battery staple"}


class TreeParams(Params, frozen=True, kw_only=True):
    path: str
    force: bool = False


def acts(name, effect=Effect.WRITE, **columns):
    return Acts[TreeParams, str](name, "For these tests.", effect=effect, **columns)


def changes(name, **columns):
    return Changes[TreeParams, str](name, "For these tests.", effect=Effect.WRITE, **columns)


CUT, RESOLVED, BURN = acts("tree.cut"), acts("tree.resolved"), acts("tree.burn")
WATER, PRUNE = acts("tree.water", Effect.MESSAGE), acts("tree.prune", Effect.MESSAGE, behind=True)
MARK, NEVER = changes("tree.mark", asks=True), changes("tree.never")
ROWS = (CUT, MARK, RESOLVED, NEVER, BURN, WATER, PRUNE)
POLICY = """
version = 1
extends = "standard"
[[rule]]
name = "trees-ask"
decision = "ask"
reason = "a tree is felled once"
suggestion = "Prune it instead"
methods = ["tree.cut", "tree.mark", "tree.resolved", "tree.never"]
[[rule]]
name = "no-fire"
decision = "deny"
reason = "no fire in the forest"
methods = ["tree.burn"]
"""


EFFECTS = {each.name: each.effect for each in (*rows_of(), *ROWS)}


def policy(text):
    return load_policy(text, EFFECTS, EFFECTS, presets_of())


class Mark(msgspec.Struct, frozen=True):
    path: str


class Grove:
    """A house with trees in it."""

    def __init__(self, **settings):
        self.cut = []
        self.effects = []
        self.answer = "felled"
        self.resolution = Resolution(summary="cut", preview="a drawing", bound={"rings": 1})
        self.marks = Table("tickets", Mark)
        methods = (
            *(each.bind(self._cut) for each in (CUT, BURN, WATER)),
            *(each.bind(self._cut, resolve=lambda call, params: self.resolution) for each in (RESOLVED, PRUNE)),
            *(each.bind(self._mark) for each in (MARK, NEVER)),
        )
        self.house = House(policy=policy(POLICY), methods=methods, **settings)

    def _cut(self, call, params, effect):
        self.cut.append(params.path)
        self.effects.append(effect)
        effect.details["rings"] = 7
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer

    def _mark(self, call, params, tx):
        tx.put(self.marks, params.path, Mark(params.path))
        tx.subject = params.path
        if isinstance(self.answer, Exception):
            raise self.answer
        return "marked"

    def set_person(self):
        self.house.call("local", "person.set", PASSPHRASE)
        return self

    def begin(self, method="tree.cut", path="oak", principal="agent:Jerry", **params):
        return self.house.begin(principal, method, {"path": path, **params})

    def pending(self):
        return self.house.call("person", "approvals.list")

    def decide(self, decision="approved", approval_id=None, **more):
        approval_id = approval_id or self.pending()[0]["approvalId"]
        return self.house.call("person", "approvals.decide", {"approvalId": approval_id, "decision": decision, **more})

    def records(self, method=None):
        return [
            (record["method"], record["outcome"])
            for record in self.house.ledger()
            if method is None or record["method"] == method
        ]


def later(value):
    """An answer that comes in its own time."""
    answer = Deferred()
    asyncio.get_running_loop().call_soon(answer.set_result, value)
    return answer


def stricter(decision=Decision.ASK):
    return Verdict(decision, "the-bridge", "the bridge knows better")
