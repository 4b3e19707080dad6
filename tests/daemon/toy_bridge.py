"""A fifth bridge, whole: a method with a route, a command, a toolset, a rule, a table, a setting, a port of the broker.

What it adds to `bascule` and to `bascule doctor` is in `toy_commands` and `toy_checks`, which no daemon imports.
"""

import msgspec

from bascule.foundation.errors import Conflict
from bascule.kernel.bridge import Bridge, Gauge, KernelServices, Ports
from bascule.kernel.call import Call
from bascule.kernel.declared import Commands, Declared
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule
from bascule.kernel.ports import COUNT_MAIL
from bascule.kernel.rows import Changes, Effect, Http, Params, Result
from bascule.kernel.settings import Count, Settings
from bascule.kernel.tool import ADDS, INTEGER, STRING, Arguments, Retry, Session, Toolset, given, tool
from bascule.kernel.tool import Result as ToolResult


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


class ToySettings(Settings, frozen=True, kw_only=True):
    # Marks that are kept.
    max_marks: Count = 100


class PutMarkArguments(Arguments, frozen=True, kw_only=True):
    name: str


@tool(
    "put_mark",
    "Make a mark",
    "Make a mark.",
    uses=("marks.put",),
    hints=ADDS,
    retry=Retry.NEVER,
    result={"name": STRING, "count": INTEGER, "agents": INTEGER},
    always=("name", "count", "agents"),
)
async def put_mark(me: Session, arguments: PutMarkArguments) -> ToolResult:
    return ToolResult(await me.call("marks.put", given(arguments)))


class ToyDeclared(Declared):
    name = "toy"
    rows = (PUT,)
    made_by = "toy_bridge:make_toy"
    checked_by = "toy_checks:CHECKS"
    commands = (Commands("toy_commands", ("marks",)),)

    def toolset(self) -> Toolset:
        return Toolset(name="marks", sentence="make marks", by_default=True, tools=(put_mark,))

    def settings(self) -> type[Settings]:
        return ToySettings

    def rules(self) -> dict[str, tuple[Rule, ...]]:
        return {"standard": (NO_SECRETS,)}

    def tables(self) -> dict[str, type[msgspec.Struct]]:
        return {"marks": Mark}


class Toy:
    def __init__(self, kernel: KernelServices, ports: Ports) -> None:
        self._most = kernel.config.of(ToySettings).max_marks
        self._count_mail = ports.need(COUNT_MAIL)
        self._marks: Table[Mark] = Table("marks", Mark)
        self._marks.rows.update(kernel.store.load("marks", Mark))

    def bridge(self) -> Bridge:
        return Bridge(
            declared=ToyDeclared(),
            service=self,
            methods=[PUT.bind(self.put)],
            gauges=[Gauge("bascule_marks", "Marks.", lambda: len(self._marks.rows))],
        )

    def put(self, call: Call, params: MarkParams, tx: Transaction) -> MarkResult:
        old = self._marks.rows.get(params.name)
        if old is None and len(self._marks.rows) >= self._most:
            raise Conflict(f"there are {self._most} marks already")
        mark = Mark(1 if old is None else old.count + 1)
        tx.put(self._marks, params.name, mark)
        tx.subject = params.name
        return MarkResult(name=params.name, count=mark.count, agents=self._count_mail().agents)


def make_toy(kernel: KernelServices, ports: Ports) -> Bridge:
    return Toy(kernel, ports).bridge()
