"""What another policy would have decided: compared where the ledger knows enough, counted where it does not."""

import pytest

from bascule.admin.replay import decided_without_params, replayed
from bascule.bridge_list import presets_of, rows_of
from bascule.foundation.errors import Forbidden, InvalidRequest
from bascule.kernel.ledger import Record
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.text import load_policy
from bascule.testing.house import House

ROWS = {row.name: row for row in rows_of()}
EFFECTS = {name: row.effect for name, row in ROWS.items()}
PRESETS = presets_of()
KNOWN = frozenset(rule.name for rules in PRESETS.values() for rule in rules)
NO_SENDING = """
version = 1
extends = "standard"
[[rule]]
name = "jerry-is-quiet"
decision = "deny"
reason = "Jerry talks too much"
principals = ["agent:Jerry"]
methods = ["messages.send"]
"""
ON_PARAMS = """
version = 1
extends = "standard"
[[rule]]
name = "nobody-writes-to-tom"
decision = "deny"
reason = "Tom sleeps"
methods = ["messages.send"]
params = { agentId = "Tom" }
"""
ASKS_PARAMS_BUT_DENIES_ALL = (
    ON_PARAMS
    + """
[[rule]]
name = "nobody-sends"
decision = "deny"
reason = "silence"
methods = ["messages.send"]
"""
)


def policy(text):
    return load_policy(text, EFFECTS, EFFECTS, PRESETS)


def record(method="messages.send", outcome="ok", rule="message", principal="agent:Jerry", **more):
    return Record(seq=1, at=0, principal=principal, method=method, outcome=outcome, rule=rule, **more)


def replay(text, *records):
    return replayed(records, policy(text), ROWS, KNOWN)


def test_a_decision_that_changes_is_named_with_its_rule():
    result = replay(NO_SENDING, record(subject="t1"), record(principal="agent:Tom"))
    assert (result.records, result.compared, result.unreadable) == (2, 2, 0)
    (changed,) = result.changed
    assert (changed.principal, changed.was, changed.now, changed.rule) == (
        "agent:Jerry",
        "allow",
        "deny",
        "jerry-is-quiet",
    )


def test_what_depends_on_params_is_counted_and_never_guessed():
    result = replay(ON_PARAMS, record(), record(method="agents.register"))
    assert (result.compared, result.unreadable, result.changed) == (1, 1, [])


def test_a_rule_on_params_that_cannot_matter_is_no_hindrance():
    result = replay(ASKS_PARAMS_BUT_DENIES_ALL, record())
    assert (result.compared, result.unreadable) == (1, 0)
    assert [each.now for each in result.changed] == ["deny"]


@pytest.mark.parametrize(
    "each",
    [
        record(principal="daemon", method="messages.send"),
        record(outcome="forbidden", rule=None),
        record(method="no.such"),
        # The end of an effect whose beginning is another record.
        record(method="workspace.shell", outcome="ok", rule="x"),
        record(outcome="conflict", rule=None),
    ],
)
def test_what_no_policy_decided_is_not_compared(each):
    result = replay(NO_SENDING, each)
    assert (result.records, result.compared, result.unreadable) == (1, 0, 0)


def test_a_denial_of_a_bridge_is_unreadable():
    result = replay(NO_SENDING, record(outcome="policy_denied", rule="desktop.keep-out"))
    assert (result.compared, result.unreadable) == (0, 1)


def test_what_a_person_allowed_was_asked_about():
    for each in (record(details={"approval": "apr_1"}), record(rule="rul_1"), record(outcome="approval_required")):
        (changed,) = replay(NO_SENDING, each).changed
        assert changed.was == "ask"


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("principal", ["local", "person", "agent:Jerry"])
def test_without_params_is_what_the_engine_says_with_any_params(preset, principal):
    """Where replay gives a decision, no params lead to another one: the engine is asked with and without some."""
    in_force = load_policy(f'version = 1\nextends = "{preset}"\n', EFFECTS, EFFECTS, PRESETS)
    samples = ({}, {"command": "rm -rf /", "path": ".env"}, {"command": "ls", "path": "a", "agentId": "x"})
    for row in ROWS.values():
        found = decided_without_params(in_force, principal, row)
        if found is None:
            continue
        verdicts = [in_force.decide(principal, row.name, row.effect, lambda each=each: each) for each in samples]
        (decision,) = {verdict.decision for verdict in verdicts}
        # Where nobody can be asked, asking is refusing.
        assert found[0] is decision or (decision is Decision.ASK and found[0] is Decision.DENY)


# -- as a method ----------------------------------------------------------------------------------


@pytest.fixture
def house():
    with House() as made:
        made.register("Jerry")
        made.register("Tom")
        for number in range(3):
            made.call("agent:Jerry", "messages.send", {"agentId": "Tom", "payload": number})
        yield made


def test_the_policy_in_force_changes_nothing_about_what_it_decided(house):
    result = house.call("local", "policy.replay")
    assert result["changed"] == []
    assert result["compared"] >= 3


def test_a_text_is_replayed_without_being_put_in_force(house):
    result = house.call("local", "policy.replay", {"text": NO_SENDING})
    assert [each["rule"] for each in result["changed"]] == ["jerry-is-quiet"] * 3
    assert house.call("agent:Jerry", "messages.send", {"agentId": "Tom", "payload": "still"})["ticketId"]
    assert house.call("local", "policy.replay", {"text": NO_SENDING, "limit": 1})["records"] == 1


def test_the_edited_file_is_what_is_replayed_when_no_text_is_given(house):
    house.policy_file.text = NO_SENDING
    assert len(house.call("local", "policy.replay")["changed"]) == 3


def test_a_text_that_is_no_policy_is_refused_with_what_to_change(house):
    with pytest.raises(InvalidRequest, match="not TOML"):
        house.call("local", "policy.replay", {"text": "[["})
    with pytest.raises(InvalidRequest, match="<= 1000"):
        house.call("local", "policy.replay", {"limit": 1_001})


def test_an_agent_may_not_replay(house):
    with pytest.raises(Forbidden):
        house.call("agent:Jerry", "policy.replay")


def test_the_policy_is_shown_rule_by_rule_in_words(house):
    rules = {rule["name"]: rule for rule in house.call("local", "policy.show")["rules"]}
    assert rules["message"] == {
        "name": "message",
        "decision": "allow",
        "text": "Everybody may call anything with the effect message.",
        "reason": "agents are here to talk to each other",
    }
    assert rules["no-admin-by-agents"]["text"] == "Every agent may not call anything with the effect admin."
