"""Owns the workspace's tasks: none is lost, none outlives the service, and a fault in one is logged."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from bascule.foundation.errors import BasculeError
from bascule.kernel.journal_ports import Log


class Keeper:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()

    def keep(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        # A refusal is the answer of somebody who waits for it.
        if error is not None and not isinstance(error, BasculeError):
            self._log("fault", level="error", task=task.get_name(), error=error)

    async def close(self, seconds: float) -> None:
        """Let what is under way end; what does not within this time is cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
