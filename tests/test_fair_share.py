"""Whose turn it is on the one loop."""

import asyncio

import pytest
import uvloop

from bascule.surfaces.fair_share import LARGE_BYTES, FairShare
from patience import PATIENCE


@pytest.fixture
def run():
    def inside(scene):
        async def main():
            async with asyncio.timeout(PATIENCE):
                await scene(FairShare(calls_per_turn=2, on_fault=pytest.fail))

        asyncio.run(main())

    return inside


def later(turns, who, done, name, size=0):
    """A connection that is not let in waits and asks again, as doors do."""

    def go_on():
        if turns.take(who, size):
            done.append(name)
        else:
            turns.wait(who, size, go_on)

    go_on()


async def until(done, count):
    while len(done) < count:  # noqa: ASYNC110 - turns of the loop are what is counted
        await asyncio.sleep(0)


def test_a_share_is_had_at_once_and_the_rest_comes_in_later_turns_in_order(run):
    async def scene(turns):
        done = []
        for number in range(7):
            later(turns, "Tom", done, number)
        assert done == [0, 1]
        await asyncio.sleep(0)
        assert done == [0, 1, 2, 3]
        await until(done, 7)
        assert done == list(range(7))

    run(scene)


def test_a_turn_that_takes_long_does_not_renew_the_share():
    """On the daemon's own loop, whose time moves on within a turn."""

    async def scene():
        turns = FairShare(calls_per_turn=2, on_fault=pytest.fail)
        let_in = []
        for _ in range(3):
            let_in.append(turns.take("Tom"))
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 0.002:
                pass
        assert let_in == [True, True, False]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())


def test_who_would_have_to_wait_is_known_before_it_asks(run):
    async def scene(turns):
        done = []
        assert not turns.is_spent("Tom")
        for number in range(3):
            later(turns, "Tom", done, number)
        assert turns.is_spent("Tom")
        assert not turns.is_spent("Jerry")
        await until(done, 3)
        assert not turns.is_spent("Tom")
        turns.over_quota("Tom")
        assert turns.is_spent("Tom")
        assert not turns.is_spent("Jerry")

    run(scene)


def test_somebody_else_is_not_kept_waiting(run):
    async def scene(turns):
        done = []
        for number in range(20):
            later(turns, "Tom", done, number)
        later(turns, "Jerry", done, "Jerry")
        assert done == [0, 1, "Jerry"]

    run(scene)


def test_a_later_request_does_not_overtake_an_earlier_one_of_its_caller(run):
    async def scene(turns):
        done = []
        for number in range(5):
            later(turns, "Tom", done, number)
        await asyncio.sleep(0)
        later(turns, "Tom", done, "late")
        await until(done, 6)
        assert done == [0, 1, 2, 3, 4, "late"]

    run(scene)


def test_large_ones_of_all_principals_come_one_by_one_and_take_turns(run):
    async def scene(turns):
        done = []
        size = LARGE_BYTES + 1
        for name in ("Tom", "Tom", "Jerry"):
            later(turns, name, done, name, size)
        assert done == ["Tom"]
        later(turns, "Tom", done, "small")
        assert done == ["Tom", "small"]
        await until(done, 3)
        await until(done, 4)
        assert sorted(done[2:]) == ["Jerry", "Tom"]

    run(scene)


def test_a_caller_over_its_quota_pauses_and_then_goes_on(run):
    async def scene(turns):
        done = []
        turns.over_quota("Tom")
        later(turns, "Tom", done, "Tom")
        later(turns, "Jerry", done, "Jerry")
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == ["Jerry"]
        await until(done, 2)

    run(scene)


def test_a_task_that_was_cancelled_while_it_waited_leaves_the_line_moving(run):
    async def scene(turns):
        assert turns.take("Tom")
        assert turns.take("Tom")
        first = asyncio.ensure_future(turns.turn("Tom"))
        second = asyncio.ensure_future(turns.turn("Tom"))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert first.cancelled()

    run(scene)


def test_a_callback_that_fails_is_reported_and_the_others_go_on():
    """Before, the line stayed marked as being served: nobody behind it was called until somebody new waited."""

    async def scene():
        faults, done = [], []
        turns = FairShare(calls_per_turn=1, on_fault=faults.append)

        def fail():
            raise ZeroDivisionError

        for who in ("Ann", "Bob"):
            assert turns.take(who)
        turns.wait("Ann", 0, fail)
        later(turns, "Ann", done, "Ann")
        later(turns, "Bob", done, "Bob")
        await until(done, 2)
        assert sorted(done) == ["Ann", "Bob"]
        assert [type(error) for error in faults] == [ZeroDivisionError]

    async def bounded():
        async with asyncio.timeout(PATIENCE):
            await scene()

    asyncio.run(bounded())
