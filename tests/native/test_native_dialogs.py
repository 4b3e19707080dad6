"""A client's own dialog and the desk ask the same question: the first answer wins, the other one is closed."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from bascule.foundation.errors import ApprovalRequired, BasculeError, Conflict, PolicyDenied
from bascule.kernel.consent.desk import Desk
from bascule.kernel.consent.limits import ConsentLimits
from bascule.native.machine.processes import has_terminal
from bascule.testing.house import House
from patience import PATIENCE

PROJECT = "/projects/project"
LONG = os.environ.get("BASCULE_LONG") == "1"
ROUNDS = 100 if LONG else 10
SESSIONS = 64
ALLOW = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}


@pytest.fixture
def house():
    with House(consent_limits=ConsentLimits(max_pending=SESSIONS)) as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        made.call("local", "native.mode", {"client": "claude", "mode": "enforce"})
        # Nobody is held where nobody can answer.
        made.call("local", "person.set", {"passphrase": "correct horse battery staple"})
        yield made


def event(name, command, session="s", tool="Bash"):
    return {
        "hook_event_name": name,
        "session_id": session,
        "cwd": PROJECT,
        "tool_name": tool,
        "tool_input": {"command": command},
    }


def dialog(house, command="npm test", session="s", **more):
    params = {"client": "claude", "event": event("PermissionRequest", command, session, **more)}
    return house.call("local", "sessions.note", params)


def goes_on(house, command="npm test", session="s"):
    """The call was made: whoever sat at the client said yes."""
    return house.begin("local", "native.after", {"client": "claude", "event": event("PostToolUse", command, session)})


def until(house, ready):
    end = time.monotonic() + PATIENCE
    while not (found := ready()) and time.monotonic() < end:
        house.advance(0.001)
    return found


def questions(house):
    return house.call("local", "approvals.list", {})


def asked(house, answer):
    """The hook waits, and the desk has the question."""
    before = len(questions(house))
    pending = house.begin("local", "native.question", answer["question"])
    until(house, lambda: len(questions(house)) > before)
    return pending


def decide(house, decision="approved"):
    (approval,) = questions(house)
    house.call("person", "approvals.decide", {"approvalId": approval["approvalId"], "decision": decision})


def result(house, pending):
    until(house, lambda: pending.done)
    return pending.result()


def test_a_yes_at_the_desk_closes_the_clients_dialog(house):
    pending = asked(house, dialog(house))
    decide(house)
    assert result(house, pending)["output"]["hookSpecificOutput"] == ALLOW
    assert questions(house) == []


def test_a_no_at_the_desk_is_a_no(house):
    pending = asked(house, dialog(house))
    decide(house, "denied")
    with pytest.raises(PolicyDenied, match="a person said no"):
        result(house, pending)


@pytest.mark.parametrize("command", ["npm test", "ls", "git push origin main"])
def test_what_our_rules_allow_is_no_answer_to_a_clients_dialog(house, command):
    asked(house, dialog(house, command))
    assert len(questions(house)) == 1


def test_a_dialog_about_what_a_rule_denies_is_not_shown_at_the_desk(house):
    with pytest.raises(PolicyDenied):
        result(house, house.begin("local", "native.question", dialog(house, "rm -rf /")["question"]))
    assert questions(house) == []


def test_the_question_leaves_the_desk_when_the_client_was_answered(house):
    pending = asked(house, dialog(house))
    other = asked(house, dialog(house, "npm run build"))
    goes_on(house)
    with pytest.raises(Conflict):
        result(house, pending)
    (left,) = questions(house)
    assert "npm run build" in left["summary"]
    # A new prompt, or the end: no dialog is open any more.
    house.call("local", "sessions.note", {"client": "claude", "event": event("UserPromptSubmit", "")})
    assert questions(house) == []
    with pytest.raises(Conflict):
        result(house, other)


def test_without_that_the_desk_would_go_on_asking(house, monkeypatch):
    """The control of the test before."""
    monkeypatch.setattr(Desk, "withdraw_asked", lambda *_: None)
    asked(house, dialog(house))
    result(house, goes_on(house))
    assert len(questions(house)) == 1


def test_another_sessions_dialog_stays(house):
    asked(house, dialog(house))
    asked(house, dialog(house, session="another"))
    goes_on(house, session="another")
    assert until(house, lambda: len(questions(house)) == 1)


def test_a_yes_for_a_dialog_that_was_answered_there_is_good_for_nothing(house):
    pending = house.begin("local", "native.question", dialog(house)["question"])
    until(house, lambda: questions(house))
    # The hook has given up before the person says yes, and the client goes on without it.
    pending.cancel()
    decide(house)
    result(house, goes_on(house))
    with pytest.raises(ApprovalRequired):
        result(house, house.begin("local", "native.question", dialog(house)["question"]))


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_nobody_is_asked_where_hooks_do_not_decide(house, mode):
    house.call("local", "native.mode", {"client": "claude", "mode": mode})
    assert "question" not in dialog(house)


@pytest.mark.parametrize("tool", ["AskUserQuestion", "ExitPlanMode", "mcp__server__tool"])
def test_what_a_client_asks_its_user_is_never_answered_for_them(house, tool):
    assert "question" not in dialog(house, tool=tool)


def test_a_client_without_a_terminal_is_not_held_for_long(house):
    assert dialog(house)["waitMs"] == 25_000


@pytest.mark.parametrize(("words", "expected"), [((), True), (("-p",), False), (("--print",), False)])
def test_whether_a_person_sits_at_a_client_is_seen_at_its_process(words, expected):
    leader, follower = os.openpty()
    waits = [sys.executable, "-c", "import sys; print('here', flush=True); sys.stdin.read()", *words]
    with subprocess.Popen(waits, stdin=follower, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"here\n"
            assert has_terminal(process.pid) is expected
        finally:
            process.kill()
            os.close(leader)
            os.close(follower)


def test_a_client_that_reads_from_a_pipe_has_no_terminal():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert not has_terminal(process.pid)
        process.communicate()
    assert not has_terminal(process.pid)


def test_of_two_answers_at_once_one_counts(house):
    """64 dialogs at once; at the desk and at the client somebody says yes, in any order."""
    order = random.Random(20)
    outcomes = {"desk": 0, "client": 0}
    states = Counter()
    for number in range(ROUNDS):
        commands = [f"npm test {number}-{each}" for each in range(SESSIONS)]
        waiting = {}
        for command in commands:
            question = dialog(house, command, command)["question"]
            waiting[command] = house.begin("local", "native.question", question)
        until(house, lambda: len(questions(house)) == SESSIONS)
        ids = {each["summary"].removeprefix("claude: "): each["approvalId"] for each in questions(house)}
        acts = [(command, who) for command in commands for who in outcomes]
        order.shuffle(acts)
        for command, who in acts:
            if who == "client":
                goes_on(house, command, command)
            else:
                with contextlib.suppress(Conflict):
                    house.call("person", "approvals.decide", {"approvalId": ids[command], "decision": "approved"})
            if order.random() < 0.2:
                house.advance(0.001)
        for command, pending in waiting.items():
            try:
                assert result(house, pending)["output"]["hookSpecificOutput"] == ALLOW
                outcomes["desk"] += 1
            except BasculeError:
                outcomes["client"] += 1
            states[house.call("local", "approvals.show", {"approvalId": ids[command]})["state"]] += 1
    assert min(outcomes.values()) > 0
    # Each yes at the desk that closed a dialog was used once; no other is left to be used.
    assert states.pop("done") == outcomes["desk"]
    assert states.keys() <= {"withdrawn", "expired"}
