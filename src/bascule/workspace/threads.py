"""Where the workspace's slow work is done: files and checkpoints block, and the loop must not."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# Runs of one space take turns, so this many spaces are worked in at once; a disk serves no more at a time.
MAX_THREADS = 4


class Threads:
    def __init__(self, workers: int = MAX_THREADS) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="workspace")

    def begin(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **options))

    async def do(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await self.begin(work, *args, **options)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
