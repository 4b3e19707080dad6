"""Calls that a person is asked about: held, told where to look, carried out once."""

import msgspec
import pytest
from felling import PASSPHRASE, POLICY, Grove, later, policy, stricter

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import ApprovalRequired, Conflict, Forbidden, InvalidRequest, Overloaded, PolicyDenied
from bascule.kernel.consent.limits import ConsentLimits
from bascule.kernel.policy.decision import Decision
from bascule.kernel.resolution import Resolution
from bascule.testing.stores import HeldStore


@pytest.fixture
def grove():
    grove = Grove().set_person()
    yield grove
    grove.house.close()


# -- waiting --


def test_a_waiting_call_is_executed_when_a_person_approves_it(grove):
    call = grove.begin()
    assert not call.done
    assert grove.cut == []
    (view,) = grove.pending()
    assert (view["principal"], view["method"], view["state"]) == ("agent:Jerry", "tree.cut", "pending")
    assert view["waiting"] == 1
    grove.decide()
    assert call.result() == "felled"
    assert grove.cut == ["oak"]
    assert grove.pending() == []
    assert [outcome for _, outcome in grove.records("tree.cut")] == ["approval_required", "begun", "ok"]


def test_a_caller_whose_slice_is_over_hears_the_id_and_the_next_identical_call_spends_the_grant(grove):
    call = grove.begin()
    grove.house.advance(25)
    with pytest.raises(ApprovalRequired) as held:
        call.result()
    approval_id = held.value.details["approvalId"]
    assert approval_id == grove.pending()[0]["approvalId"]
    assert held.value.message == "a tree is felled once"
    grove.decide()
    assert grove.cut == [], "nothing runs without a waiting caller"
    assert grove.begin().result() == "felled"
    assert grove.cut == ["oak"]
    assert not grove.begin().done, "one grant, one call"
    assert grove.cut == ["oak"]


def test_calls_over_link_and_mcp_are_held_longer_than_http(grove):
    assert not grove.begin().done
    from bascule.kernel import passage
    from bascule.kernel.consent import limits

    assert passage.SLICES == {"link": limits.MCP_SLICE_SECONDS, "mcp": limits.MCP_SLICE_SECONDS}
    # Below what clients wait: HTTP libraries 30 s, MCP clients 60 s.
    assert (limits.HTTP_SLICE_SECONDS, limits.MCP_SLICE_SECONDS) == (25, 45)


def test_a_call_is_held_no_longer_than_the_limit():
    grove = Grove(consent_limits=ConsentLimits(hold_seconds=2)).set_person()
    call = grove.begin()
    grove.house.advance(1.9)
    assert not call.done
    grove.house.advance(0.1)
    with pytest.raises(ApprovalRequired):
        call.result()
    grove.house.close()


def test_no_is_reported_with_its_reason_and_nothing_happens(grove):
    call = grove.begin()
    grove.decide("denied", reason="it is 300 years old")
    with pytest.raises(PolicyDenied, match="a person said no: it is 300 years old"):
        call.result()
    assert grove.cut == []


def test_identical_calls_join_one_question_and_one_of_them_is_executed(grove):
    calls = [grove.begin() for _ in range(64)]
    (view,) = grove.pending()
    assert view["waiting"] == 64
    grove.decide()
    refusals = [call.later.exception() for call in calls]
    assert refusals.count(None) == 1
    lost = [refusal for refusal in refusals if refusal is not None]
    assert all(isinstance(each, Conflict) and "another identical one" in each.message for each in lost)
    assert grove.cut == ["oak"]
    assert grove.pending() == [], "nobody is asked again by itself"


def test_a_caller_that_leaves_leaves_a_question_and_nothing_runs(grove):
    call = grove.begin()
    call.cancel()
    assert grove.pending()[0].get("waiting", 0) == 0
    grove.decide()
    assert grove.cut == []
    assert grove.begin().result() == "felled"


def test_without_a_person_the_answer_comes_at_once_and_says_how_to_set_one():
    grove = Grove()
    with pytest.raises(ApprovalRequired) as held:
        grove.begin().result()
    assert "no person is set on this machine" in held.value.hint
    assert "bascule person set" in held.value.hint
    grove.set_person()
    grove.decide()
    assert grove.begin().result() == "felled"
    grove.house.close()


def test_nothing_is_reported_before_the_question_is_on_disk():
    store = HeldStore(hold=False)
    grove = Grove(store=store)
    store.hold = True
    call = grove.begin()
    assert not call.done
    grove.house.run(store.finish_all)
    with pytest.raises(ApprovalRequired):
        call.result()
    grove.house.close()


def test_a_stopping_daemon_answers_waiting_clients(grove):
    call = grove.begin()
    grove.house.run(grove.house.desk.end)
    with pytest.raises(ApprovalRequired):
        call.result()


def test_questions_beyond_the_limit_are_refused_with_its_name():
    grove = Grove(consent_limits=ConsentLimits(max_pending=2)).set_person()
    for path in ("ash", "elm"):
        grove.begin(path=path)
    with pytest.raises(Overloaded) as refused:
        grove.begin(path="oak")
    assert refused.value.details["limit"] == "max_pending"
    assert not grove.begin(path="oak", principal="agent:Tom").done
    grove.house.close()


# -- what is decided besides --


def test_what_is_allowed_or_denied_is_not_asked(grove):
    assert grove.begin("tree.water").result() == "felled"
    with pytest.raises(PolicyDenied, match="no fire"):
        grove.begin("tree.burn")
    assert grove.pending() == []


def test_a_method_nobody_can_be_asked_about_is_refused(grove):
    with pytest.raises(PolicyDenied) as refused:
        grove.begin("tree.never")
    assert refused.value.hint == "Prune it instead"
    assert grove.pending() == []
    assert grove.records("tree.never") == [("tree.never", "policy_denied")]


def test_a_policy_that_changed_while_the_caller_waited_is_obeyed(grove):
    call = grove.begin()
    grove.house.gate.policy = policy('version = 1\nextends = "restrictive"')
    grove.decide()
    with pytest.raises(PolicyDenied):
        call.result()
    assert grove.cut == []


def test_an_effect_in_the_store_spends_its_grant_in_the_same_transaction():
    store = HeldStore(hold=False)
    grove = Grove(store=store).set_person()
    call = grove.begin("tree.mark")
    store.batches.clear()
    grove.decide()
    assert call.result() == "marked"
    tables = [{table for table, _, _ in batch.changes} for batch in store.batches]
    assert tables == [{"approvals"}, {"approvals", "tickets"}]
    grove.house.close()


def test_a_refusal_of_the_method_itself_gives_the_grant_back(grove):
    call = grove.begin("tree.mark")
    grove.answer = InvalidRequest("no such tree")
    grove.decide()
    with pytest.raises(InvalidRequest):
        call.result()
    grove.answer = "felled"
    assert grove.begin("tree.mark").result() == "marked"


# -- what the bridge draws --


def test_a_bridge_draws_its_calls_and_what_it_draws_is_made_visible(grove):
    grove.resolution = Resolution(summary="cut\nit", preview="+ add\x1b[31m\u202e")
    grove.begin("tree.resolved")
    view = grove.house.call("local", "approvals.show", {"approvalId": grove.pending()[0]["approvalId"]})
    assert view["preview"] == "+ add⟨ESC⟩[31m⟨U+202E⟩"
    assert view["summary"] == "cut⟨LF⟩it"


def test_a_call_that_resolves_to_something_else_is_not_what_was_approved(grove):
    call = grove.begin("tree.resolved")
    grove.resolution = Resolution(summary="cut", preview="another drawing", bound={"rings": 2})
    grove.decide()
    with pytest.raises(Conflict, match="has changed since"):
        call.result()
    assert grove.cut == []


def begin_renewing(grove, **renewed):
    """A call whose handler compares with the world by itself. Its bridge would resolve it to something else by now."""
    first = Resolution(summary="cut", preview="a drawing", bound={"rings": 1})

    async def renew():
        return msgspec.structs.replace(first, **renewed)

    grove.resolution = msgspec.structs.replace(first, renew=renew)
    call = grove.begin("tree.resolved")
    grove.resolution = Resolution(summary="cut", preview="another drawing", bound={"rings": 2})
    return call


def test_a_call_whose_handler_compares_is_renewed_after_the_answer_and_not_resolved_again(grove):
    call = begin_renewing(grove)
    grove.decide()
    assert call.result() == "felled"
    assert grove.cut == ["oak"]


@pytest.mark.parametrize("renewed", [{"verdict": stricter(Decision.DENY)}, {"bound": {"rings": 3}}])
def test_what_a_call_is_renewed_to_is_judged_again(grove, renewed):
    call = begin_renewing(grove, **renewed)
    grove.decide()
    with pytest.raises((PolicyDenied, Conflict)):
        call.result()
    assert grove.cut == []


def test_a_policy_that_denies_by_now_is_heard_before_a_call_is_renewed(grove):
    call = begin_renewing(grove)
    grove.house.gate.policy = policy(POLICY.replace('"tree.burn"', '"tree.*"'))
    grove.decide()
    with pytest.raises(PolicyDenied):
        call.result()
    assert grove.cut == []


def test_a_bridge_may_be_stricter_than_the_policy_and_never_milder(grove):
    allowed = policy('version = 1\nextends = "standard"\n[[rule]]\nname = "all"\ndecision = "allow"\nreason = "r"')
    grove.house.gate.policy = allowed
    assert grove.begin("tree.resolved").result() == "felled"
    grove.resolution = Resolution(summary="s", preview="p", verdict=stricter())
    assert not grove.begin("tree.resolved").done
    grove.resolution = Resolution(summary="s", preview="p", verdict=stricter(Decision.DENY))
    with pytest.raises(PolicyDenied, match="the bridge knows better"):
        grove.begin("tree.resolved")
    grove.house.gate.policy = policy(
        'version = 1\nextends = "standard"\n[[rule]]\nname = "all"\ndecision = "deny"\nreason = "r"'
    )
    grove.resolution = Resolution(summary="s", preview="p", verdict=stricter(Decision.ALLOW))
    with pytest.raises(PolicyDenied):
        grove.begin("tree.resolved")


def test_resolving_a_call_may_take_its_time(grove):
    resolution = Resolution(summary="s", preview="slow")
    grove.house.gate.methods["tree.resolved"] = grove.house.gate.methods["tree.resolved"]._replace(
        resolve=lambda call, params: later(resolution)
    )
    call = grove.begin("tree.resolved")
    assert not call.done
    grove.decide()
    assert call.result() == "felled"


def test_a_call_whose_resolving_is_given_up_is_given_up_and_asks_nobody(grove):
    given_up = Deferred()
    grove.house.gate.methods["tree.resolved"] = grove.house.gate.methods["tree.resolved"]._replace(
        resolve=lambda call, params: given_up
    )
    call = grove.begin("tree.resolved")
    grove.house.run(given_up.cancel)
    assert call.later.cancelled()
    assert grove.pending() == []


# -- only the person --


@pytest.mark.parametrize("principal", ["local", "agent:Jerry", "agent:Tom"])
@pytest.mark.parametrize("method", ["approvals.decide", "policy.accept"])
def test_nobody_but_the_person_approves_denies_or_accepts(grove, principal, method):
    grove.begin()
    params = {
        "approvals.decide": {"approvalId": grove.pending()[0]["approvalId"], "decision": "approved"},
        "policy.accept": {"digest": "0" * 64},
    }
    with pytest.raises(Forbidden, match="only the person"):
        grove.house.call(principal, method, params[method])
    assert grove.cut == []
    assert (method, "forbidden") in grove.records()


def test_an_agent_does_not_even_see_what_others_ask(grove):
    grove.begin()
    for method in ("approvals.list", "approvals.stream", "policy.show"):
        with pytest.raises(Forbidden):
            grove.house.call("agent:Jerry", method)


# -- timed rules, at the door --


def test_a_timed_rule_lets_the_same_call_through_and_the_ledger_names_it(grove):
    grove.begin()
    offer = grove.house.call("local", "approvals.show", {"approvalId": grove.pending()[0]["approvalId"]})["offers"][0]
    made = grove.decide(scope="rule", offer=1, minutes=60)["rule"]
    assert made["text"] == offer["text"]
    assert grove.begin().result() == "felled"
    assert grove.begin().result() == "felled"
    assert not grove.begin(path="elm").done
    assert not grove.begin(force=True).done
    assert not grove.begin(principal="agent:Tom").done
    decided = next(record for record in grove.house.ledger() if record["method"] == "approvals.decide")
    assert decided["details"]["rule"] == made["text"]
    assert {record["rule"] for record in grove.house.ledger() if record["outcome"] == "begun"} >= {made["ruleId"]}
    grove.house.advance(3_600)
    assert not grove.begin().done


def test_a_revoked_agent_takes_its_timed_rules_with_it(grove):
    grove.house.register("Jerry")
    grove.begin()
    grove.decide(scope="rule", offer=1, minutes=60)
    assert grove.begin().result() == "felled"
    grove.house.call("person", "agents.revoke", {"agentId": "Jerry"})
    grove.house.register("Jerry")
    assert not grove.begin().done, "the next Jerry is somebody else"


# -- following --


def test_a_follower_gets_whole_questions_and_answers(grove):
    grove.begin(path="ash")
    stream = grove.house.call("local", "approvals.stream")
    grove.begin(path="elm")
    grove.decide("denied")
    items = stream.items()
    assert [(item["state"], item["summary"]) for item in items] == [
        ("pending", 'tree.cut {"path":"ash"}'),
        ("pending", 'tree.cut {"path":"elm"}'),
        ("denied", 'tree.cut {"path":"ash"}'),
    ]
    assert "path: ash" in items[0]["preview"]
    stream.close()


def test_unlocking_is_what_makes_a_connection_the_persons(grove):
    connection = grove.house.connect("Tom")
    grove.house.call("local", "person.unlock", PASSPHRASE, connection=connection)
    assert connection.unlocked_for() == 15 * 60
    grove.house.advance(15 * 60)
    assert connection.unlocked_for() is None
