"""The gates and their order: look up, decode, quota, who, decide, record, act, record."""

import pytest

from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, Overloaded, PolicyDenied
from bascule.kernel.call import LOCAL, PERSON, agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, rules_digest
from bascule.kernel.policy.rules import Rule
from gate_scene import JERRY, SPOCK, Ask, Scene, Thing, on_loop, row


@pytest.fixture
def scene():
    return Scene()


# -- the order --


def test_an_unknown_method_is_not_found_before_anything_is_asked(scene):
    with pytest.raises(NotFound, match="no method 'nothing'"):
        scene.call("nothing", b"not even json")
    assert scene.asked == []
    # Counted under one name: what strangers make up must not become metrics without end.
    assert scene.observed == [("unknown", "not_found", True)]


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
        "agent": "Jerry",
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


# -- rows and handlers --


def test_a_method_cannot_be_mounted_over_another(scene):
    with pytest.raises(ValueError, match="write"):
        scene.gate.mount([row("write").bind(scene._write)])


# -- decisions --


def test_a_decision_that_reads_no_params_is_made_once(scene):
    made = []
    candidates_of = scene.gate.policy._candidates_of
    scene.gate.policy._candidates_of = lambda *asked: made.append(asked) or candidates_of(*asked)
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
    scene.gate.policy = Policy([], "empty", rules_digest([]))
    with pytest.raises(PolicyDenied):
        scene.call("write")
