"""The gates and their order: look up, decode, quota, who, decide, record, act, record."""

import asyncio
import functools

import msgspec
import pytest

from bascule.audit.journal import Journal, Table
from bascule.audit.ledger import read_record
from bascule.call import LOCAL, PERSON, Call, agent_principal
from bascule.dispatch import Dispatch
from bascule.errors import (
    Conflict,
    Forbidden,
    Internal,
    InvalidRequest,
    NotFound,
    Overloaded,
    PolicyDenied,
    StorageFull,
)
from bascule.policy.decision import Decision
from bascule.policy.engine import Policy, preset, rules_digest
from bascule.policy.rules import Rule
from bascule.protocols.methods import (
    ANYONE,
    LOCAL_USER,
    PERSON_ONLY,
    Effect,
    Params,
    Record,
    Row,
    Shape,
    party,
    self_,
)
from bascule.stream import Stream
from bascule.testing.clock import FakeClock
from bascule.testing.stores import HeldStore

JERRY = agent_principal("Jerry")
SPOCK = agent_principal("Spock")
PATIENCE = 10.0


class Ask(Params, frozen=True, kw_only=True):
    agent_id: str = "Jerry"
    ticket_id: str | None = None
    number: int = 0


class Thing(msgspec.Struct, frozen=True):
    text: str


def row(name, **columns):
    settings = {"effect": Effect.MESSAGE, "who": ANYONE, "record": Record.JOINED, "result": str} | columns
    return Row(name=name, summary="For these tests.", params=Ask, **settings)


ROWS = (
    row("write"),
    row("write.self", who=self_("agent_id")),
    row("write.party", who=party("ticket_id")),
    row("write.local", who=LOCAL_USER),
    row("write.person", who=PERSON_ONLY),
    row("admin", effect=Effect.ADMIN),
    row("read", effect=Effect.READ, record=Record.NONE),
    row("read.self", effect=Effect.READ, record=Record.NONE, who=self_("agent_id")),
    row("read.party", effect=Effect.READ, record=Record.NONE, who=party("ticket_id")),
    row("wait", effect=Effect.READ, record=Record.NONE, shape=Shape.WAIT),
    row("stream", effect=Effect.READ, record=Record.NONE, shape=Shape.STREAM),
)


class Scene:
    """A dispatch whose every neighbour writes down that it was asked."""

    def __init__(self, *, policy=None, hold=False):
        self.asked = []
        self.log = []
        self.observed = []
        self.abandoned = []
        self.overloaded = False
        self.answer = "answer"
        self.store = HeldStore(hold=hold)
        self.journal = Journal(self.store, FakeClock(), on_anchor=lambda _: None)
        self.journal.start()
        self.table = Table("tickets", Thing)
        self.dispatch = Dispatch(
            policy=policy or preset("standard"),
            journal=self.journal,
            quota=self,
            parties=self._parties,
            seen=lambda principal: self.asked.append(f"seen {principal}"),
            log=lambda event, *, level="info", **fields: self.log.append((event, level, fields)),
            observe=lambda method, outcome, seconds: self.observed.append((method, outcome, seconds >= 0)),
        )
        handlers = {each.name: self._write if each.record is Record.JOINED else self._read for each in ROWS}
        self.dispatch.mount(ROWS, handlers, {"wait": lambda *taken: self.abandoned.append(taken)})

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
        return self.dispatch.call(Call(principal, method, params, door="testing"))

    def ledger(self):
        rows = self.store.read_ledger(lambda ledger: ledger.span(0, 100)).result()
        return [(record.method, record.outcome, record.subject, record.rule) for record in map(read_record, rows)]


@pytest.fixture
def scene():
    return Scene()


def on_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


# -- the order --


def test_an_unknown_method_is_not_found_before_anything_is_asked(scene):
    with pytest.raises(NotFound, match="no method 'nothing'"):
        scene.call("nothing", b"not even json")
    assert scene.asked == []
    assert scene.observed == [("nothing", "not_found", True)]


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b'{"number":"x"}', b'{"unknown":1}', b"\xff{}", b"null"])
def test_bad_params_are_refused_before_anybody_is_asked(scene, bad):
    scene.overloaded = True
    with pytest.raises(InvalidRequest) as refused:
        scene.call("write", bad)
    assert refused.value.details == {"method": "write"}
    assert scene.asked == []
    assert scene.ledger() == []


def test_the_quota_is_asked_before_ownership(scene):
    scene.overloaded = True
    with pytest.raises(Overloaded):
        scene.call("write.party", b'{"ticketId":"t"}')
    assert scene.asked == ["quota"]
    assert scene.ledger() == []


def test_ownership_is_asked_before_the_policy():
    deny_all = Rule(name="never", decision=Decision.DENY, reason="never", principals=("*",))
    scene = Scene(policy=Policy([deny_all], "test", rules_digest([deny_all])))
    with pytest.raises(Forbidden):
        scene.call("write.self", b'{"agentId":"Jerry"}', SPOCK)
    with pytest.raises(PolicyDenied):
        scene.call("write.self", b'{"agentId":"Jerry"}', JERRY)


def test_what_passes_every_gate_is_done_and_recorded(scene):
    assert scene.call("write.party", b'{"ticketId":"t","number":7}', JERRY) == "answer"
    assert scene.asked == ["quota", "parties", "seen agent:Jerry", "act"]
    assert scene.table.rows == {"k": Thing("7")}
    assert scene.ledger() == [("write.party", "ok", "t", "message")]
    assert scene.observed == [("write.party", "ok", True)]


def test_params_that_an_edge_has_decoded_are_taken_as_they_are(scene):
    scene.call("write", Ask(number=7))
    assert scene.table.rows == {"k": Thing("7")}


def test_the_log_names_what_a_call_was_about_and_how_it_ended(scene):
    scene.call("write", b'{"ticketId":"t"}', JERRY)
    event, level, fields = scene.log[-1]
    assert (event, level) == ("call", "info")
    assert fields.pop("ms") >= 0
    assert fields == {
        "method": "write",
        "principal": "agent:Jerry",
        "door": "testing",
        "outcome": "ok",
        "subject": "t",
    }


# -- who --

OWNERSHIP = {
    "write": {LOCAL, JERRY, SPOCK, PERSON, agent_principal("Data")},
    "write.self": {JERRY},
    "write.party": {JERRY, SPOCK, PERSON},
    "write.local": {LOCAL, PERSON},
    "write.person": {PERSON},
}


@pytest.mark.parametrize("method", OWNERSHIP)
@pytest.mark.parametrize("principal", sorted(OWNERSHIP["write"]))
def test_a_call_is_for_those_its_row_names(scene, method, principal):
    params = b'{"agentId":"Jerry","ticketId":"t"}'
    if principal in OWNERSHIP[method]:
        assert scene.call(method, params, principal) == "answer"
        return
    with pytest.raises(Forbidden) as refused:
        scene.call(method, params, principal)
    assert refused.value.hint
    assert "act" not in scene.asked
    assert f"seen {principal}" not in scene.asked
    assert scene.ledger() == [(method, "forbidden", "t", None)]


@pytest.mark.parametrize("principal", ["agent:", "agent:jerry", "Jerry", "agent:Jerry ", "agent:agent:Jerry"])
def test_a_principal_that_only_looks_like_the_agent_is_not_it(scene, principal):
    with pytest.raises(Forbidden):
        scene.call("write.self", b'{"agentId":"Jerry"}', principal)


def test_a_ticket_that_is_not_there_is_not_found_rather_than_forbidden(scene):
    with pytest.raises(NotFound):
        scene.call("write.party", b'{"ticketId":"other"}', JERRY)
    assert scene.ledger() == []


# -- recorded refusals --


def test_a_refusal_by_the_policy_names_its_rule_and_is_recorded(scene):
    with pytest.raises(PolicyDenied) as refused:
        scene.call("admin", b'{"ticketId":"t"}', JERRY)
    assert refused.value.details == {"rule": "no-admin-by-agents", "method": "admin"}
    assert refused.value.hint == "Ask the user to run the command in a terminal of their own"
    assert scene.ledger() == [("admin", "policy_denied", "t", "no-admin-by-agents")]
    assert scene.observed == [("admin", "policy_denied", True)]


def test_what_no_rule_speaks_of_is_denied():
    scene = Scene(policy=Policy([], "empty", rules_digest([])))
    with pytest.raises(PolicyDenied, match="no rule allows it"):
        scene.call("read")


@pytest.mark.parametrize(("method", "error"), [("read.self", Forbidden), ("read.party", Forbidden)])
def test_a_refused_read_is_not_recorded(scene, method, error):
    with pytest.raises(error):
        scene.call(method, b'{"agentId":"Jerry","ticketId":"t"}', LOCAL)
    assert scene.ledger() == []


def test_a_refusal_by_the_handler_undoes_what_it_had_begun_and_is_recorded(scene):
    scene.answer = Conflict("taken")
    with pytest.raises(Conflict):
        scene.call("write", b'{"ticketId":"t"}')
    assert scene.table.rows == {}
    assert scene.ledger() == [("write", "conflict", "t", None)]


def test_a_refusal_before_the_handler_named_its_subject_is_recorded_only_if_it_is_about_who(scene):
    scene.answer = Conflict("taken")
    with pytest.raises(Conflict):
        scene.call("write", b'{"ticketId":"t","number":404}')
    assert scene.ledger() == []
    scene.answer = Forbidden("not yours")
    with pytest.raises(Forbidden):
        scene.call("write", b'{"ticketId":"t","number":404}')
    assert scene.ledger() == [("write", "forbidden", "t", None)]


@on_loop
async def test_the_answer_of_a_refusal_does_not_wait_for_its_record():
    scene = Scene(hold=True)
    with pytest.raises(PolicyDenied):
        scene.call("admin", principal=JERRY)
    scene.store.finish()
    assert len(scene.ledger()) == 1


def test_a_write_that_changes_nothing_is_not_recorded(scene):
    assert scene.call("write", b'{"number":404}') == "answer"
    assert scene.ledger() == []


# -- durable first --


@on_loop
async def test_a_write_is_answered_when_it_is_durable():
    scene = Scene(hold=True)
    answer = scene.call("write")
    await asyncio.sleep(0)
    assert not answer.done()
    assert scene.observed == []
    scene.store.finish()
    assert await answer == "answer"
    assert scene.observed == [("write", "ok", True)]


@on_loop
async def test_a_read_does_not_tell_what_is_not_durable_yet():
    scene = Scene(hold=True)
    scene.call("write")
    reading = scene.call("read")
    await asyncio.sleep(0)
    assert not reading.done()
    scene.store.finish()
    assert await reading == "answer"
    assert scene.call("read") == "answer"


@on_loop
async def test_a_write_that_could_not_be_stored_is_told_so_and_counted_so():
    scene = Scene(hold=True)
    answer = scene.call("write")
    scene.store.fail()
    with pytest.raises(StorageFull):
        await answer
    assert scene.table.rows == {}
    assert scene.observed == [("write", "storage_full", True)]


@on_loop
async def test_a_client_that_leaves_takes_nothing_back():
    scene = Scene(hold=True)
    answer = scene.call("write")
    answer.cancel()
    scene.store.finish()
    await asyncio.sleep(0)
    assert scene.observed == [("write", "cancelled", True)]
    assert scene.ledger() == [("write", "ok", "Jerry", "message")]


# -- waits and streams --


@on_loop
async def test_a_wait_is_counted_when_it_ends(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    answer = scene.call("wait")
    assert scene.observed == []
    future.set_result("at last")
    assert await answer == "at last"
    assert scene.observed == [("wait", "ok", True)]


@on_loop
async def test_a_wait_whose_client_left_is_counted_as_cancelled(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    scene.call("wait").cancel()
    await asyncio.sleep(0)
    assert scene.observed == [("wait", "cancelled", True)]


def test_a_stream_is_handed_to_the_edge_as_it_is(scene):
    scene.answer = Stream
    assert isinstance(scene.call("stream"), Stream)


def test_what_a_gone_client_could_not_be_told_is_given_back(scene):
    call = Call(LOCAL, "wait", Ask(), door="testing")
    scene.dispatch.call(call)
    scene.dispatch.abandoned(call, "messages")
    assert scene.abandoned == [(Ask(), "messages")]
    scene.dispatch.abandoned(call, None)
    scene.dispatch.abandoned(Call(LOCAL, "read", Ask(), door="testing"), "answer")
    assert len(scene.abandoned) == 1


# -- faults --


@pytest.mark.parametrize("method", ["read", "write"])
def test_a_fault_answers_an_id_and_only_the_log_has_the_rest(scene, method):
    scene.answer = ZeroDivisionError("a secret in a message")
    with pytest.raises(Internal) as told:
        scene.call(method)
    event, level, fields = scene.log[0]
    assert (event, level) == ("fault", "error")
    assert told.value.message == f"internal error {fields['id']}"
    assert fields["id"] in told.value.hint
    assert "secret" not in str(told.value.body())
    assert fields["error"] is scene.answer
    assert fields["error"].__traceback__ is not None
    assert scene.table.rows == {}
    assert scene.ledger() == []
    assert scene.observed == [(method, "internal", True)]


@on_loop
async def test_a_wait_that_fails_answers_an_id_too(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    answer = scene.call("wait")
    future.set_exception(ZeroDivisionError("a secret in a message"))
    with pytest.raises(Internal, match=r"internal error \w+") as told:
        await answer
    assert "secret" not in str(told.value.body())
    assert told.value.message == f"internal error {scene.log[0][2]['id']}"


# -- rows and handlers --


def test_rows_and_handlers_must_be_the_same(scene):
    one = (row("one"),)
    with pytest.raises(ValueError, match=r"rows and handlers differ: \['one'\]"):
        scene.dispatch.mount(one, {})
    with pytest.raises(ValueError, match=r"rows and handlers differ: \['two'\]"):
        scene.dispatch.mount(one, {"one": scene._write, "two": scene._write})
    assert "one" not in scene.dispatch.methods


def test_a_method_cannot_be_mounted_over_another(scene):
    with pytest.raises(ValueError, match="write"):
        scene.dispatch.mount((row("write"),), {"write": scene._write})


# -- decisions --


def test_a_decision_that_reads_no_params_is_made_once(scene):
    made = []
    candidates_of = scene.dispatch.policy._candidates_of
    scene.dispatch.policy._candidates_of = lambda *asked: made.append(asked) or candidates_of(*asked)
    for number in range(3):
        scene.call("write", b'{"number":%d}' % number, JERRY)
    assert [asked[:2] for asked in made] == [(JERRY, "write")]
    scene.call("write", principal=SPOCK)
    assert len(made) == 2


def test_a_decision_that_reads_params_is_made_for_each_call():
    rules = (
        Rule(name="write", decision=Decision.ALLOW, reason="ok", principals=("*",), methods=("write",)),
        Rule(
            name="not-seven",
            decision=Decision.DENY,
            reason="no seven",
            principals=("*",),
            methods=("write",),
            params={"number": "7"},
        ),
    )
    scene = Scene(policy=Policy(rules, "test", rules_digest(rules)))
    scene.call("write", b'{"number":6}')
    with pytest.raises(PolicyDenied, match="no seven"):
        scene.call("write", b'{"number":7}')
    scene.call("write", b'{"number":8}')


def test_a_changed_policy_counts_from_the_next_call(scene):
    scene.call("write")
    scene.dispatch.policy = Policy([], "empty", rules_digest([]))
    with pytest.raises(PolicyDenied):
        scene.call("write")
