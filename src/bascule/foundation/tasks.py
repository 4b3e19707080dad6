"""Tasks that outlive the call that started them: kept, named, their faults reported, and ended when their owner stops.

What ends with one function belongs into an `asyncio.TaskGroup` there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError

# How often a task is cancelled at the end: it may swallow the first.
CANCELS = 2
# What a task gets to end after each: a process to be killed, a connection to be closed.
CANCEL_SECONDS = 5.0

T = TypeVar("T")


class Tasks:
    def __init__(self, report: Callable[[str, BaseException], object]) -> None:
        # Gets the name of a task and the exception that ended it.
        self._report = report
        # In the order of their start.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, work: Coroutine[Any, Any, T], name: str) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def answer(self, work: Coroutine[Any, Any, T], name: str, *, detached: bool = False) -> Deferred[T]:
        """The result of a task of its own. Cancelling it cancels the task, unless that is `detached`."""
        later: Deferred[T] = Deferred()
        task = self.start(_settle(later, work), name)

        def ended(_: "asyncio.Task[None]") -> None:
            # Cancelled, maybe before its first step: then the work has not begun.
            later.cancel()
            work.close()

        task.add_done_callback(ended)
        if not detached:
            later.add_done_callback(lambda _: task.cancel() if task is not asyncio.current_task() else None)
        return later

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        # A refusal is the answer of somebody who waits for it.
        if error is not None and not isinstance(error, BasculeError):
            self._report(task.get_name(), error)

    async def close(self, seconds: float = 0.0, *, cancel_seconds: float = CANCEL_SECONDS) -> None:
        """Let tasks end for so long, then cancel what is left, the oldest first. What does not end is reported."""
        if self._tasks and seconds:
            await asyncio.wait(self._tasks, timeout=seconds)
        for _ in range(CANCELS):
            # A task that is cancelled before its first step never runs, and what it was to go on with is not ended.
            await asyncio.sleep(0)
            left = list(self._tasks)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=cancel_seconds)
        for task in list(self._tasks):
            self._report(task.get_name(), TimeoutError(f"cancelled {CANCELS} times, and it goes on"))


async def _settle(later: Deferred[T], work: Coroutine[Any, Any, T]) -> None:
    try:
        result = await work
    except Exception as error:  # noqa: BLE001 - it is the caller's answer
        if not later.done():
            later.set_exception(error)
        return
    if not later.done():
        later.set_result(result)
