"""A fifth bridge, whole: one method with a route, one tool, one rule, one table, and a port of the broker."""

import msgspec

from bascule.audit.journal import Table, Transaction
from bascule.call import Call
from bascule.kernel.bridge import Bridge, Gauge, Lent, Ports
from bascule.kernel.declared import Declared
from bascule.kernel.ports import COUNT_MAIL
from bascule.policy.decision import Decision
from bascule.policy.rules import Example, Rule
from bascule.protocols.methods import Changes, Effect, Http, Params, Result
from bascule.protocols.tool import ADDS, COUNT, STRING, Tool


class MarkParams(Params, frozen=True, kw_only=True):
    name: str


class MarkResult(Result, frozen=True, kw_only=True):
    name: str
    count: int
    # Of the broker.
    agents: int


class Mark(msgspec.Struct, frozen=True):
    count: int


PUT = Changes[MarkParams, MarkResult](
    "marks.put", "Make a mark.", Http("POST", "/v1/marks/{name}"), effect=Effect.MESSAGE
)
NO_SECRETS = Rule(
    name="no-secret-marks",
    decision=Decision.DENY,
    reason="a secret mark is not a mark",
    methods=("marks.put",),
    params={"name": "secret"},
    match=(Example(principal="agent:Jerry", method="marks.put", params={"name": "secret"}),),
    not_match=(Example(principal="agent:Jerry", method="marks.put", params={"name": "oak"}),),
)
TOOL = Tool(
    name="put_mark",
    toolset="agents",
    uses=("marks.put",),
    method="marks.put",
    title="Make a mark",
    description="Make a mark.",
    arguments={"name": STRING},
    required=("name",),
    result={"name": STRING, "count": COUNT, "agents": COUNT},
    always=("name", "count", "agents"),
    hints=ADDS,
)


class ToyDeclared(Declared):
    name = "toy"
    rows = (PUT,)
    made_by = "toy_bridge:make_toy"

    def tools(self) -> tuple[Tool, ...]:
        return (TOOL,)

    def rules(self) -> dict[str, tuple[Rule, ...]]:
        return {"standard": (NO_SECRETS,)}

    def tables(self) -> dict[str, type[msgspec.Struct]]:
        return {"marks": Mark}


class Toy:
    def __init__(self, lent: Lent, ports: Ports) -> None:
        self._count_mail = ports.need(COUNT_MAIL)
        self._marks: Table[Mark] = Table("marks", Mark)
        self._marks.rows.update(lent.store.load("marks", Mark))

    def bridge(self) -> Bridge:
        return Bridge(
            declared=ToyDeclared(),
            service=self,
            methods=[PUT.bind(self.put)],
            gauges=[Gauge("bascule_marks", "Marks.", lambda: len(self._marks.rows))],
        )

    def put(self, call: Call, params: MarkParams, tx: Transaction) -> MarkResult:
        old = self._marks.rows.get(params.name)
        mark = Mark(1 if old is None else old.count + 1)
        tx.put(self._marks, params.name, mark)
        tx.subject = params.name
        return MarkResult(name=params.name, count=mark.count, agents=self._count_mail().agents)


def make_toy(lent: Lent, ports: Ports) -> Bridge:
    return Toy(lent, ports).bridge()
