"""An answer to come: told at once, once, and withdrawn at once."""

import asyncio

import pytest

from bascule.foundation.deferred import Deferred, from_future, within


def test_listeners_are_told_in_the_call_that_settles_it():
    later, notified = Deferred(), []
    later.add_done_callback(lambda each: notified.append(each.result()))
    later.set_result(7)
    assert notified == [7]
    later.add_done_callback(lambda each: notified.append("late"))
    assert notified == [7, "late"]


def test_a_deferred_is_settled_once():
    later = Deferred()
    later.set_result(7)
    for again in (lambda: later.set_result(8), lambda: later.set_exception(ValueError())):
        with pytest.raises(asyncio.InvalidStateError):
            again()
    assert later.cancel() is False
    assert (later.result(), later.cancelled()) == (7, False)


def test_a_deferred_has_no_result_before_it_is_settled():
    later = Deferred()
    for look in (later.result, later.exception):
        with pytest.raises(asyncio.InvalidStateError):
            look()


def test_an_error_is_raised_to_the_caller():
    later = Deferred()
    later.set_exception(ValueError("no"))
    assert str(later.exception()) == "no"
    with pytest.raises(ValueError, match="no"):
        later.result()


def test_cancelling_tells_too():
    later, notified = Deferred(), []
    later.add_done_callback(lambda each: notified.append(each.cancelled()))
    assert later.cancel() is True
    assert notified == [True]
    with pytest.raises(asyncio.CancelledError):
        later.result()


def test_a_listener_that_fails_keeps_nobody_else_waiting():
    async def story():
        faults, notified = [], []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
        later = Deferred()
        later.add_done_callback(lambda _: 1 / 0)
        later.add_done_callback(lambda each: notified.append(each.result()))
        later.set_result(7)
        return faults, notified

    faults, notified = asyncio.run(story())
    assert notified == [7]
    assert isinstance(faults[0], ZeroDivisionError)


def test_a_deferred_can_be_awaited_and_cancelling_the_waiter_cancels_it():
    async def story():
        good, gone = Deferred(), Deferred()
        waiting = asyncio.ensure_future(_of(good)), asyncio.ensure_future(_of(gone))
        await asyncio.sleep(0)
        good.set_result(7)
        waiting[1].cancel()
        await asyncio.wait(waiting)
        return waiting[0].result(), waiting[1].cancelled(), gone.cancelled()

    assert asyncio.run(story()) == (7, True, True)


async def _of(later):
    return await later


@pytest.mark.parametrize(
    ("settle", "seen"),
    [
        (lambda each: each.set_result(7), 14),
        (lambda each: each.set_exception(ValueError("no")), "no"),
        (lambda each: each.cancel(), "cancelled"),
    ],
)
def test_what_comes_of_it_ends_as_it_does(settle, seen):
    later = Deferred()
    mapped = later.mapped(lambda number: number * 2)
    settle(later)
    if mapped.cancelled():
        assert seen == "cancelled"
    else:
        assert (mapped.result() if mapped.exception() is None else str(mapped.exception())) == seen


@pytest.mark.parametrize("before", [True, False])
def test_a_change_that_fails_is_the_end_of_what_comes_of_it(before):
    later = Deferred()
    if before:
        later.set_result("x")
    mapped = later.mapped(int)
    if not before:
        # The one who settles it is not the one who asked for the change.
        later.set_result("x")
    with pytest.raises(ValueError, match="invalid literal"):
        mapped.result()


def test_withdrawing_what_comes_of_it_withdraws_it():
    later = Deferred()
    later.mapped(str).cancel()
    assert later.cancelled()


def test_a_future_of_the_loop_becomes_one_and_is_cancelled_with_it():
    async def story():
        loop = asyncio.get_running_loop()
        good, bad, withdrawn = loop.create_future(), loop.create_future(), loop.create_future()
        answers = [from_future(each) for each in (good, bad, withdrawn)]
        good.set_result(7)
        bad.set_exception(ValueError("no"))
        answers[2].cancel()
        await asyncio.sleep(0)
        return answers[0].result(), str(answers[1].exception()), withdrawn.cancelled()

    assert asyncio.run(story()) == (7, "no", True)


def test_waiting_for_a_while_withdraws_nothing():
    async def story():
        later = Deferred()
        early = await within(0.01, later)
        asyncio.get_running_loop().call_soon(later.set_result, 7)
        return early, later.cancelled(), await within(10, later), later.result()

    assert asyncio.run(story()) == (False, False, True, 7)
