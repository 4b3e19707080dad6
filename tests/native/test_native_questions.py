"""Where a client cannot ask, a person is asked at the desk: one yes is good for one call."""

import time

import pytest

from bascule.foundation.errors import ApprovalRequired, BasculeError, PolicyDenied
from bascule.testing.house import House
from patience import PATIENCE

PROJECT = "/projects/project"
PUSH = "git push origin main"


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        made.call("local", "native.mode", {"client": "codex", "mode": "enforce"})
        yield made


def settled(house, pending):
    end = time.monotonic() + PATIENCE
    while not pending.done and time.monotonic() < end:
        house.advance(0.01)
    return pending.result()


def before(house, command, client="codex", call_id="t1"):
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "cwd": PROJECT,
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": call_id,
    }
    return settled(house, house.begin("local", "native.before", {"client": client, "event": event}))


def waiting(house):
    """The one question that is open."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := house.call("local", "approvals.list", {}):
            return found[0]
        house.advance(0.01)
    raise AssertionError("nobody was asked")


def decide(house, approval_id, decision):
    return house.call("person", "approvals.decide", {"approvalId": approval_id, "decision": decision})


def ask(house, question):
    return settled(house, house.begin("local", "native.question", question))


def test_a_yes_lets_exactly_that_call_through_once(house):
    answer = before(house, PUSH)
    assert answer["output"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    with pytest.raises(ApprovalRequired):
        ask(house, answer["question"])
    decide(house, waiting(house)["approvalId"], "approved")
    # The agent tries the same again, under another id.
    assert ask(house, before(house, PUSH, call_id="t2")["question"])["record"] == "answered"
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH, call_id="t3")["question"])


def test_a_yes_is_for_no_other_command(house):
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH)["question"])
    decide(house, waiting(house)["approvalId"], "approved")
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, "git push --force")["question"])


def test_a_no_stays_a_no(house):
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH)["question"])
    decide(house, waiting(house)["approvalId"], "denied")
    with pytest.raises(BasculeError):
        ask(house, before(house, PUSH, call_id="t2")["question"])


def test_a_question_has_nothing_in_it_that_differs_when_the_agent_tries_again(house):
    assert before(house, PUSH, call_id="t1")["question"] == before(house, PUSH, call_id="t2")["question"]


@pytest.mark.parametrize(("client", "command"), [("codex", "npm test"), ("codex", "rm -rf /"), ("claude", PUSH)])
def test_only_what_asks_and_cannot_be_asked_by_the_client_comes_to_the_desk(house, client, command):
    house.call("local", "native.mode", {"client": "claude", "mode": "enforce"})
    assert "question" not in before(house, command, client)


def test_nobody_is_asked_while_hooks_only_observe(house):
    house.call("local", "native.mode", {"client": "codex", "mode": "observe"})
    assert "question" not in before(house, PUSH)


def test_a_question_of_a_denied_call_is_refused_and_never_shown(house):
    question = {"client": "codex", "kind": "shell", "cwd": PROJECT, "command": "rm -rf /"}
    with pytest.raises(PolicyDenied):
        ask(house, question)
    assert house.call("local", "approvals.list", {}) == []
