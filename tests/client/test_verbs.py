"""The programs by themselves: steps out, answers in, no socket and no real time."""

from datetime import timedelta

import pytest

from bascule.broker.protocol import ReplyView, TicketStatus
from bascule.client.durations import milliseconds, seconds
from bascule.client.faults import ConnectionLost, NotRunning, OutcomeUnknown, ReplyTimeout
from bascule.client.steps import FirstOf, Pause, Reconnect, Request
from bascule.client.verbs import ANSWER_SECONDS, PATIENCE_SECONDS, RETRY_SECONDS, SLICE_SECONDS, Verbs
from bascule.foundation.errors import Overloaded
from bascule.testing.clock import FakeClock

LOST = ConnectionLost("gone", sent=True)
UNSENT = ConnectionLost("gone", sent=False)
AWAY = NotRunning("/s/link.sock", "nobody answers")
REPLY = ReplyView(ticket_id="t", status=TicketStatus.RESPONDED, payload="yes")


class Shell:
    """Carries out a program: pauses pass on the fake clock, and `answer` says the rest."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.verbs = Verbs(self.clock)
        self.began = self.clock.monotonic()
        self.steps: list[object] = []

    def run(self, program, answer):
        try:
            step = next(program)
            while True:
                self.steps.append(step)
                if isinstance(step, Pause):
                    self.clock.advance(step.seconds)
                    step = program.send(None)
                    continue
                answered = answer(step)
                step = program.throw(answered) if isinstance(answered, Exception) else program.send(answered)
        except StopIteration as done:
            return done.value

    def spent(self) -> float:
        return self.clock.monotonic() - self.began

    def count(self, kind) -> int:
        return sum(isinstance(step, kind) for step in self.steps)


@pytest.fixture
def shell():
    return Shell()


def test_a_send_is_tried_for_its_ten_seconds_and_then_unknown(shell):
    def answer(step):
        return None if isinstance(step, Reconnect) else LOST

    with pytest.raises(OutcomeUnknown):
        shell.run(shell.verbs.send("bob", "hi"), answer)
    assert RETRY_SECONDS - 1.25 <= shell.spent() <= RETRY_SECONDS
    sends = {step.params.ticket_id for step in shell.steps if isinstance(step, Request)}
    assert len(sends) == 1


def test_a_send_that_never_left_is_not_unknown(shell):
    with pytest.raises(NotRunning):
        shell.run(shell.verbs.send("bob", "hi"), lambda step: AWAY if isinstance(step, Reconnect) else UNSENT)


def test_a_send_gives_the_daemon_no_longer_than_it_has_itself(shell):
    shell.run(shell.verbs.send("bob", "hi"), lambda _: "sent")
    assert shell.steps[0].within == RETRY_SECONDS


def test_a_read_waits_as_long_as_the_connection_lives(shell):
    shell.run(shell.verbs.call("ledger.verify", {}, dict), lambda _: {})
    assert shell.steps[0].within is None


def test_a_read_without_an_answer_is_never_unknown(shell):
    with pytest.raises(NotRunning):
        shell.run(shell.verbs.status(), lambda step: AWAY if isinstance(step, Reconnect) else LOST)


def test_a_busy_daemon_sets_the_pace(shell):
    answers = iter([Overloaded("busy", retry_after=3.0), Overloaded("busy", retry_after=3.0), "sent"])
    assert shell.run(shell.verbs.send("bob", "hi"), lambda _: next(answers)) == "sent"
    assert shell.spent() == pytest.approx(6.0)


def test_a_wait_is_cut_into_slices_and_ends_at_its_own_time(shell):
    def answer(step):
        (request,) = step.requests
        shell.clock.advance(request.params.wait_ms / 1000)
        return 0, None

    with pytest.raises(ReplyTimeout) as caught:
        shell.run(shell.verbs.wait("t", timedelta(seconds=130)), answer)
    assert caught.value.ticket_status is None
    waits = [step.requests[0] for step in shell.steps]
    assert [request.params.wait_ms for request in waits] == [60_000, 60_000, 10_000]
    assert waits[0].within == SLICE_SECONDS + ANSWER_SECONDS


def test_a_wait_without_a_limit_outlives_restarts(shell):
    answers = iter([LOST, None, LOST, None, (0, None), (0, REPLY)])
    assert shell.run(shell.verbs.wait("t", None), lambda _: next(answers)) is REPLY
    assert shell.count(Reconnect) == 2


def test_a_wait_without_a_limit_ends_with_our_patience_and_names_its_ticket(shell):
    def answer(step):
        return AWAY if isinstance(step, Reconnect) else LOST

    with pytest.raises(NotRunning) as caught:
        shell.run(shell.verbs.wait("t", None), answer)
    assert caught.value.details["ticketIds"] == ["t"]
    assert shell.steps[-1].within == PATIENCE_SECONDS


def test_an_ask_listens_a_little_longer_than_the_ticket_lives(shell):
    def answer(step):
        if isinstance(step, Request):
            assert (step.params.timeout_ms, step.params.wait_ms) == (5_000, 7_000)
            return type("Sent", (), {"ticket_id": "t", "reply": None})
        assert isinstance(step, FirstOf)
        assert step.requests[0].params.wait_ms == 7_000
        return 0, ReplyView(ticket_id="t", status=TicketStatus.TIMEOUT)

    with pytest.raises(ReplyTimeout) as caught:
        shell.run(shell.verbs.ask("bob", "hi", timeout=5), answer)
    assert (caught.value.ticket_id, caught.value.ticket_status) == ("t", "timeout")


def test_durations_are_seconds_or_timedeltas():
    assert seconds(1.5) == seconds(timedelta(milliseconds=1500)) == 1.5
    assert milliseconds(timedelta(seconds=2)) == milliseconds(2) == 2000
    assert milliseconds(0.0001) == 1
    assert milliseconds(None) is None
