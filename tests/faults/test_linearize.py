"""The checker of histories, checked: right ones are explained, planted bugs are not."""

import itertools
import math
import os
import random
from typing import Any

import pytest
from linearize import DOUBT, Box, Model, Op, explain

LONG = bool(os.environ.get("BASCULE_LONG"))
HISTORIES = 1_000 if LONG else 100
TICKETS = ("t1", "t2", "t3")
RIGHT = Model()


def some_call(chance: random.Random) -> tuple[object, ...]:
    ticket = chance.choice(TICKETS)
    calls = [
        ("send", ticket, chance.choice("ab"), chance.random() < 0.8),
        ("send", ticket, "a", True),
        ("take", chance.choice((1, 2))),
        ("take", 2),
        ("ack", ticket),
        ("ack", *chance.sample(TICKETS, 2)),
        ("reply", ticket, chance.choice("xy")),
        ("cancel", ticket),
        ("wait", ticket),
        ("show", ticket),
        ("unread",),
    ]
    return chance.choice(calls)


def simulate(model: Model, chance: random.Random, *, clients: int, calls: int, crashes: int) -> tuple[list[Op], bool]:
    """A history of that many clients at once, and whether any answer differs from the right one for the order taken."""
    box = right = Box()
    moment, visible = 0.0, False
    history: list[Op] = []
    # Calls under way; those that have happened have their answer.
    open_: list[dict[str, Any]] = []
    falls = chance.sample(range(1, calls), crashes)
    while calls or open_:
        moment += 1
        if calls in falls and (clients > 1 or not open_):
            falls.remove(calls)
            history += [Op(each["call"], DOUBT, each["began"], math.inf, box.life) for each in open_]
            open_.clear()
            history.append(Op(("crash",), None, moment, moment + 1, box.life))
            box, _ = model.crash(box)
            right, _ = RIGHT.crash(right)
            moment += 1
            continue
        waiting = [each for each in open_ if "answer" not in each]
        answered = [each for each in open_ if "answer" in each]
        if calls and len(open_) < clients and (not open_ or chance.random() < 0.4):
            open_.append({"call": some_call(chance), "began": moment})
            calls -= 1
        elif waiting and (not answered or chance.random() < 0.5):
            each = chance.choice(waiting)
            name, *given = each["call"]
            box, each["answer"] = getattr(model, name)(box, *given)
            right, answer = getattr(RIGHT, name)(right, *given)
            visible |= each["answer"] != answer
        else:
            each = chance.choice(answered)
            open_.remove(each)
            history.append(Op(each["call"], each["answer"], each["began"], moment, box.life))
    return history, visible


# -- bugs, one each -------------------------------------------------------------------------------


class LosesASendInACrash(Model):
    def crash(self, box):
        box, answer = super().crash(box)
        return box._replace(tickets=box.tickets[:-1]), answer


class LosesAnAckInACrash(Model):
    def crash(self, box):
        box, answer = super().crash(box)
        for each in box.tickets:
            if each.status == "delivered":
                box = box.put(each._replace(status="pending", acked=False))
        return box, answer


class LosesAReplyInACrash(Model):
    def crash(self, box):
        box, answer = super().crash(box)
        for each in box.tickets:
            box = box.put(each._replace(replies=each.replies[:1]))
        return box, answer


class KeepsLeasesOverACrash(Model):
    def crash(self, box):
        return Box(box.life + 1, box.tickets), None


class ForgetsWhatItCancelled(Model):
    def crash(self, box):
        box, answer = super().crash(box)
        for each in box.tickets:
            if each.status == "cancelled":
                box = box.put(each._replace(status="pending"))
        return box, answer


class ReadsTheDayBefore(Model):
    """A show that sees what was, not what is."""

    def show(self, box, ticket_id):
        ticket = box.find(ticket_id)
        return (box, ("pending", False, ())) if ticket is not None else super().show(box, ticket_id)


class CallsEveryReplyTheFirst(Model):
    def reply(self, box, ticket_id, word):
        box, answer = super().reply(box, ticket_id, word)
        return box, "first" if answer == "more" else answer


class TakesRepliesToTheCancelled(Model):
    def reply(self, box, ticket_id, word):
        ticket = box.find(ticket_id)
        if ticket is not None and ticket.status == "cancelled":
            return box.put(ticket._replace(status="responded", replies=(word,))), "first"
        return super().reply(box, ticket_id, word)


class DropsTheSecondReply(Model):
    def reply(self, box, ticket_id, word):
        after, answer = super().reply(box, ticket_id, word)
        return (box if answer == "more" else after), answer


class CountsARetryTwice(Model):
    def reply(self, box, ticket_id, word):
        ticket = box.find(ticket_id)
        if ticket is not None and ticket.replies[-1:] == (word,):
            return box.put(ticket._replace(replies=(*ticket.replies, word))), "more"
        return super().reply(box, ticket_id, word)


class CancelsTheAnswered(Model):
    def cancel(self, box, ticket_id):
        ticket = box.find(ticket_id)
        if ticket is not None and ticket.status == "responded":
            return box.put(ticket._replace(status="cancelled")), "cancelled"
        return super().cancel(box, ticket_id)


class HandsOverTwiceWithinALease(Model):
    def take(self, box, most):
        free = [each for each in box.tickets if each.waits][:most]
        for each in free:
            box = box.put(each._replace(leased=True, attempts=each.attempts + 1))
        return box, tuple((each.ticket_id, each.attempts + 1) for each in free)


class HandsOverTheNewestFirst(Model):
    def take(self, box, most):
        turned = box._replace(tickets=box.tickets[::-1])
        after, answer = super().take(turned, most)
        return after._replace(tickets=after.tickets[::-1]), answer


class HandsOverMoreThanAsked(Model):
    def take(self, box, most):
        return super().take(box, most + 1)


class HandsOverWhatWasAcknowledged(Model):
    def ack(self, box, *ticket_ids):
        after, answer = super().ack(box, *ticket_ids)
        return after._replace(
            tickets=tuple(each._replace(acked=False, status="pending") for each in box.tickets)
        ), answer


class ForgetsToCountAttempts(Model):
    def take(self, box, most):
        box, answer = super().take(box, most)
        return box, tuple((ticket_id, 0) for ticket_id, _ in answer)


class LetsAnIdMeanTwoThings(Model):
    def send(self, box, ticket_id, body, expects):
        box, _ = super().send(box, ticket_id, body, expects)
        return box, "ok"


class ForgetsTheWaiting(Model):
    """A wait that is not told of an end that was there before it began."""

    def wait(self, box, ticket_id):
        box, answer = super().wait(box, ticket_id)
        return box, answer if answer == "unknown" else None


class AnswersWithTheLastReply(Model):
    def wait(self, box, ticket_id):
        box, answer = super().wait(box, ticket_id)
        if isinstance(answer, tuple) and len(answer[1]) > 1:
            return box, (answer[0], answer[1][::-1])
        return box, answer


class CountsTheAcknowledgedAsUnread(Model):
    def unread(self, box):
        return box, len(box.tickets)


BUGS = [each for each in Model.__subclasses__() if each.__module__ == __name__]


def test_right_histories_are_explained_each_and_every_one():
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        history, _ = simulate(
            RIGHT, chance, clients=chance.choice((1, 3, 5)), calls=18, crashes=chance.choice((0, 1, 2))
        )
        order = explain(history, RIGHT)
        assert order is not None, (seed, history)
        assert {op for op in history if op.answer is not DOUBT} <= set(order)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found_in_every_history_where_it_shows_and_in_no_other(bug):
    shown = 0
    for seed in itertools.count():
        # One client: there is only one order, so an answer that is wrong in it cannot be explained by another.
        history, visible = simulate(bug(), random.Random(seed), clients=1, calls=20, crashes=2)
        assert (explain(history, RIGHT) is None) == visible, history
        shown += visible
        if shown == HISTORIES // 33:
            break


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found_among_calls_at_once_too(bug):
    """Many a wrong answer has an excuse there; not all have."""
    histories = (simulate(bug(), random.Random(seed), clients=3, calls=20, crashes=2)[0] for seed in range(5_000))
    assert any(explain(history, RIGHT) is None for history in histories)


def test_there_are_more_than_ten_kinds_of_bugs():
    assert len(BUGS) >= 18


# -- told by hand ---------------------------------------------------------------------------------


def history_of(*lines: tuple[object, ...]) -> list[Op]:
    """(began, ended, call, answer), one life."""
    return [Op(call, answer, began, ended) for began, ended, call, answer in lines]


def test_calls_at_once_may_have_happened_in_either_order():
    send = (0, 1, ("send", "t1", "a", True), "ok")
    reply, cancel = ("reply", "t1", "x"), ("cancel", "t1")
    for answers in (("first", "conflict"), ("conflict", "cancelled")):
        at_once = [(2, 9, reply, answers[0]), (3, 8, cancel, answers[1])]
        assert explain(history_of(send, *at_once), RIGHT) is not None
    both = [(2, 9, reply, "first"), (3, 8, cancel, "cancelled")]
    assert explain(history_of(send, *both), RIGHT) is None


def test_one_after_the_other_means_that_order():
    send = (0, 1, ("send", "t1", "a", True), "ok")
    assert explain(history_of(send, (2, 3, ("show", "t1"), "unknown")), RIGHT) is None
    assert explain(history_of((0, 4, send[2], "ok"), (2, 3, ("show", "t1"), "unknown")), RIGHT) is not None


def test_a_call_in_doubt_may_have_happened_or_not_but_not_both():
    doubt = Op(("send", "t1", "a", True), DOUBT, 0, math.inf)
    crash = Op(("crash",), None, 2, 3)
    there = Op(("show", "t1"), ("pending", False, ()), 4, 5, 1)
    gone = Op(("show", "t1"), "unknown", 6, 7, 1)
    assert explain([doubt, crash, there], RIGHT) is not None
    assert explain([doubt, crash, gone], RIGHT) is not None
    assert explain([doubt, crash, there, gone], RIGHT) is None
    # What was asked of a life that is over does not happen in the next one.
    assert explain([doubt, crash, gone, there._replace(began=8, ended=9)], RIGHT) is None


def test_what_was_answered_is_never_in_doubt():
    sent = Op(("send", "t1", "a", True), "ok", 0, 1)
    crash = Op(("crash",), None, 2, 3)
    assert explain([sent, crash, Op(("show", "t1"), "unknown", 4, 5, 1)], RIGHT) is None
