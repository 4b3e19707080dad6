"""Executions: what runs now, for whom, and how it is stopped (contract 5.9)."""

import asyncio
import contextlib
import uuid
from collections.abc import Iterator
from typing import Any, Final

from bascule.desktop.errors import Code, DesktopError, invalid
from bascule.desktop.protocol import Meta
from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.evidence import Folder
from bascule.programs.desktop_host.expecting import Expected
from bascule.programs.desktop_host.peers import Client, PeerId
from bascule.programs.desktop_host.ports import Halt

# Requests one process may have under way; the screen is one.
MAX_PER_PEER: Final = 64
# And one of those it speaks for: an agent that waits for everything must leave room for the others.
MAX_PER_CLIENT: Final = 16
# How long an abort waits for the execution to have ended; its events end at once.
ABORT_SECONDS: Final = 5.0
MAX_TRACE_LINES: Final = 2_000


class Execution:
    """One request on its way. `trace` goes to `trace.jsonl`: names, sizes, outcomes; never a typed text."""

    # What its client says the act is about.
    expected: Expected | None = None

    def __init__(self, client: Client, request_id: str, method: str, clock: Clock, timeout_ms: int) -> None:
        self.id = str(uuid.uuid4())
        self.timeout_ms = timeout_ms
        self.client = client
        self.request_id = request_id
        self.method = method
        self.halt = Halt()
        self.folder: Folder | None = None
        self.trace: list[dict[str, Any]] = []
        self._clock = clock
        self.began = clock.monotonic()
        self.at = rfc3339(clock.wall_ms())
        self.finished = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None
        # What it did is done, and is being written down: nothing is left to abort.
        self.ending = False

    def elapsed_ms(self) -> int:
        return round((self._clock.monotonic() - self.began) * 1000)

    def note(self, step: str, **fields: Any) -> None:
        if len(self.trace) < MAX_TRACE_LINES:
            self.trace.append({"ms": self.elapsed_ms(), "step": step, **fields})

    def stop(self) -> None:
        """No event after this; the request answers DESKTOP_ABORTED."""
        self.halt.set()
        # Cancelled while it writes its record, it would leave without an answer.
        if self.task is not None and not self.task.done() and not self.ending:
            self.task.cancel()


class Executions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: dict[str, Execution] = {}

    def __len__(self) -> int:
        return len(self._running)

    @contextlib.contextmanager
    def running(self, client: Client, meta: Meta, method: str) -> Iterator[Execution]:
        request_id = meta.request_id
        mine = [each for each in self._running.values() if each.client == client]
        if any(each.request_id == request_id for each in mine):
            raise invalid("meta.requestId is in use by a request that has not ended", requestId=request_id)
        most = MAX_PER_PEER if client.name is None else MAX_PER_CLIENT
        if len(mine) >= most:
            raise DesktopError(Code.HOST_NOT_READY, f"{most} requests are under way: wait for one to end")
        execution = Execution(client, request_id, method, self._clock, meta.timeout_ms)
        execution.task = asyncio.current_task()
        self._running[execution.id] = execution
        try:
            yield execution
        finally:
            del self._running[execution.id]
            execution.finished.set()

    def find(self, client: Client, name: str) -> Execution | None:
        """By executionId or requestId, of this client alone."""
        mine = (each for each in self._running.values() if each.client == client and not each.ending)
        return next((each for each in mine if name in (each.id, each.request_id)), None)

    async def abort(self, execution: Execution) -> None:
        execution.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABORT_SECONDS):
                await execution.finished.wait()

    async def abort_all(self, peer: PeerId | None = None) -> int:
        found = [each for each in self._running.values() if peer in (None, each.client.peer)]
        for each in found:
            each.halt.set()
        count = sum(not each.ending for each in found)
        await asyncio.gather(*map(self.abort, found))
        return count
