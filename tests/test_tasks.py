"""foundation.tasks: tasks that outlive the call that started them."""

import asyncio
import contextlib
import gc

import pytest

from bascule.foundation.errors import NotFound
from bascule.foundation.tasks import CANCELS, Tasks


def owned(story):
    """Run a story with tasks, end them, and say what was reported."""
    reported = []

    async def inside():
        tasks = Tasks(lambda name, error: reported.append((name, error)))
        try:
            return await story(tasks)
        finally:
            await tasks.close()

    return asyncio.run(inside()), reported


async def forever(ended):
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(True)


async def fail(error):
    raise error


async def succeed():
    return 7


def test_a_failure_is_one_callers_answer_and_ends_nothing_else():
    async def story(tasks):
        with pytest.raises(ValueError, match="mine"):
            await tasks.answer(fail(ValueError("mine")), "fails")
        return await tasks.answer(succeed(), "succeeds")

    assert owned(story) == (7, [])


def test_a_fault_that_nobody_waits_for_is_reported_with_the_name_of_its_task():
    fault = ValueError("lost")

    async def story(tasks):
        await asyncio.wait([tasks.start(fail(fault), "works"), tasks.start(fail(NotFound("refused")), "refuses")])

    assert owned(story) == (None, [("works", fault)])


@pytest.mark.parametrize("detached", [True, False])
def test_work_that_nobody_wants_any_more_ends_unless_it_is_detached(detached):
    async def story(tasks):
        ended = []
        later = tasks.answer(forever(ended), "works", detached=detached)
        await asyncio.sleep(0)
        later.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        return list(ended)

    assert owned(story)[0] == ([] if detached else [True])


def test_what_still_goes_on_ends_with_its_owner():
    ended = []

    async def story(tasks):
        later = tasks.answer(forever(ended), "works", detached=True)
        await asyncio.sleep(0)
        return later

    assert owned(story)[0].cancelled()
    assert ended == [True]


def test_tasks_that_end_in_time_are_not_cancelled_and_the_rest_is_the_oldest_first():
    ended = []

    async def work(name, going):
        try:
            await going.wait()
            ended.append(f"{name} finished")
        except asyncio.CancelledError:
            ended.append(f"{name} cancelled")
            raise

    async def story(tasks):
        going = asyncio.Event()
        for name in "abc":
            tasks.start(work(name, asyncio.Event()), name)
        tasks.start(work("d", going), "d")
        await asyncio.sleep(0)
        going.set()
        await tasks.close(0.01)

    assert owned(story) == (None, [])
    assert ended == ["d finished", "a cancelled", "b cancelled", "c cancelled"]


def test_a_task_that_swallows_a_cancel_is_cancelled_again():
    swallowed = []

    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(True)
                if len(swallowed) == CANCELS:
                    raise

    async def story(tasks):
        tasks.start(stubborn(), "stubborn")
        await asyncio.sleep(0)
        await tasks.close(cancel_seconds=0.01)

    owned(story)
    assert len(swallowed) == CANCELS


def test_an_answer_whose_task_never_took_a_step_is_settled_and_its_work_is_ended(recwarn):
    async def story(tasks):
        closed = tasks.answer(forever([]), "closed at once", detached=True)
        await tasks.close()
        left = tasks.answer(forever([]), "left at once")
        left.cancel()
        await tasks.close()
        return closed

    later, reported = owned(story)
    assert later.cancelled()
    assert reported == []
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_what_a_task_starts_while_it_is_cancelled_ends_too():
    ended = []

    async def story(tasks):
        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                tasks.start(forever(ended), "starts late")

        tasks.start(work(), "works")
        await asyncio.sleep(0)
        await tasks.close()

    assert owned(story) == (None, [])
    assert ended == [True]


def test_a_task_that_does_not_end_is_reported():
    async def story(tasks):
        going = asyncio.Event()

        async def stubborn():
            while not going.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await going.wait()

        tasks.start(stubborn(), "stubborn")
        await asyncio.sleep(0)
        await tasks.close(cancel_seconds=0.01)
        going.set()

    _, [(name, error)] = owned(story)
    assert name == "stubborn"
    assert isinstance(error, TimeoutError)
