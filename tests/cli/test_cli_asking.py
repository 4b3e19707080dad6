"""A command whose call asks: it waits as long as its question does, and no longer."""

import argparse
import threading

import pytest

from bascule.cli import asking
from bascule.foundation.errors import ApprovalRequired, NotFound


def waits(approval_id):
    return ApprovalRequired("why", details={"approvalId": approval_id})


class Daemon:
    """Answers a call with what was put down for it, each held for as long as it is said."""

    principal = "local"

    def __init__(self, *answers, listed=()):
        self._answers = list(answers)
        self._listed = listed
        self._slow = threading.Event()
        self.calls = 0
        self.asked_for = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._slow.set()

    def call(self, method, _params):
        if method == "approvals.list":
            self.asked_for += 1
            return list(self._listed)
        self.calls += 1
        held, answer = self._answers.pop(0)
        self._slow.wait(held)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def ask(monkeypatch):
    """`ask(daemon)`: one call; what was held counts as held after a tenth of a second."""
    monkeypatch.setattr(asking, "HELD_SECONDS", 0.1)
    monkeypatch.setattr(asking, "LOOK_SECONDS", 0.05)

    def ask(daemon, **options):
        monkeypatch.setattr(asking, "connect", lambda _: daemon)
        return asking.ask_held(argparse.Namespace(), "desktop.click", {}, **options)

    return ask


def test_what_is_answered_at_once_needs_no_second_connection(ask):
    daemon = Daemon((0, {"done": True}))
    assert ask(daemon) == {"done": True}
    assert (daemon.calls, daemon.asked_for) == (1, 0)


def test_the_same_question_is_waited_for_slice_after_slice(ask):
    daemon = Daemon((0.2, waits("apr_1")), (0.2, waits("apr_1")), (0, "clicked"))
    assert ask(daemon) == "clicked"
    assert daemon.calls == 3


def test_a_question_that_nobody_answered_in_its_time_is_not_asked_for_ever(ask):
    with pytest.raises(ApprovalRequired):
        ask(Daemon((0.2, waits("apr_1")), (0.2, waits("apr_2")), (0, "clicked")))


def test_where_nobody_can_be_asked_it_is_said_once_and_not_in_a_loop(ask):
    daemon = Daemon((0, waits("apr_1")), (0, "clicked"))
    with pytest.raises(ApprovalRequired):
        ask(daemon)
    assert daemon.calls == 1


def test_a_refusal_is_raised_where_the_command_can_tell_it(ask):
    with pytest.raises(NotFound):
        ask(Daemon((0.2, NotFound("no such element"))))


@pytest.mark.parametrize(
    "other",
    [{"principal": "agent:Jerry"}, {"method": "desktop.hotkey"}, {"state": "approved"}, {"waiting": 0}],
)
def test_a_command_shows_only_its_own_question_at_the_terminal(ask, other):
    mine = {
        "approvalId": "apr_1",
        "principal": "local",
        "method": "desktop.click",
        "state": "pending",
        "waiting": 1,
        "reason": "why",
    }
    with pytest.raises(asking.NotWaiting) as not_waiting:
        ask(Daemon((60, "never"), listed=[mine]), wait=False)
    assert "bascule approvals approve apr_1" in not_waiting.value.hint
    daemon = Daemon((0.3, "clicked"), listed=[mine | other])
    assert ask(daemon, wait=False) == "clicked"
    assert daemon.asked_for
