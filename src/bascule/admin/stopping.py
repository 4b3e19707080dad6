"""Everything stops at once; the state outlives the daemon, and only a person ends it."""

import asyncio
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Final

import msgspec

from bascule.admin.ports import Everything
from bascule.admin.records import HALT_KEY, DaemonFact
from bascule.admin.stop_protocol import StopParams, StoppedBridge, StopResult
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import StorageFull
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call
from bascule.kernel.faults import log_fault
from bascule.kernel.gate import Gate
from bascule.kernel.halt import Halt
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import Log
from bascule.kernel.rows import Nothing
from gabp import codec

# A command is killed within milliseconds and a game gets its own time to end; after this the answer says that the
# rest is still ending, which goes on without anybody waiting.
END_SECONDS: Final = 15.0
_STILL: Final = f"still ending after {END_SECONDS:.0f} s"


class Stopping:
    def __init__(
        self,
        *,
        facts: Table[DaemonFact],
        gate: Gate,
        journal: Journal,
        clock: Clock,
        tasks: Tasks,
        everything: Everything,
        log: Log,
        seconds: float = END_SECONDS,
    ) -> None:
        self._facts = facts
        self._gate = gate
        self._journal = journal
        self._clock = clock
        self._tasks = tasks
        self._everything = everything
        self._log = log
        self._seconds = seconds
        if (fact := facts.rows.get(HALT_KEY)) is not None:
            # Before any door opens.
            gate.halt = codec.decode(fact.text.encode(), Halt)

    @property
    def is_stopped(self) -> bool:
        return self._gate.halt is not None

    def stop(self, call: Call, params: StopParams, tx: Transaction) -> "asyncio.Future[StopResult]":
        """At once: it waits neither for the disk nor for what it ends. Again: what is left is ended again."""
        halt = self._gate.halt or Halt(by=str(call.principal), at=self._clock.wall_ms(), reason=params.reason)
        # What a full disk does not take counts for as long as we live.
        self._gate.stop(halt)
        if HALT_KEY not in self._facts.rows:
            tx.put(self._facts, HALT_KEY, DaemonFact(codec.encode(halt).decode(), halt.at))
        endings = self._everything.stop(tx)
        tx.subject = "everything"
        tx.details = {"process": getattr(call.connection, "peer", None)}
        if params.reason:
            tx.details["reason"] = params.reason
        stored = self._store(call, tx)
        return self._tasks.start(self._answer(halt, stored, endings), call.method)

    def _store(self, call: Call, tx: Transaction) -> Transaction:
        return self._journal.commit(tx, call.principal, call.method)

    async def _answer(self, halt: Halt, stored: Transaction, endings: Mapping[str, Awaitable[str]]) -> StopResult:
        over = [self._tasks.start(self._settled(each), f"stop {name}") for name, each in endings.items()]
        if over:
            await asyncio.wait(over, timeout=self._seconds)
        results = [
            StoppedBridge(bridge=name, text=task.result() if task.done() else _STILL)
            for name, task in zip(endings, over, strict=True)
        ]
        try:
            await stored
        except StorageFull as error:
            raise StorageFull(
                f"everything is stopped, but a restart of the daemon would not know it: {error.message}",
                hint="free space on the disk that holds the state directory, then stop once more",
                details={"stopped": True, "results": [msgspec.to_builtins(each) for each in results]},
            ) from error
        return StopResult(stopped=True, at=rfc3339(halt.at), by=halt.by, results=results)

    def resume(self, call: Call, params: Nothing, tx: Transaction) -> StopResult:
        halt = self._gate.halt
        if halt is None:
            return StopResult(stopped=False)
        tx.put(self._facts, HALT_KEY, None)
        self._everything.resume(tx)
        tx.subject = "everything"
        tx.details = {"process": getattr(call.connection, "peer", None), "stopped_by": halt.by}
        # Not before it is on disk: what a crash would stop again must not have begun.
        tx.after.append(partial(self._resumed, halt))
        return StopResult(stopped=False, at=rfc3339(halt.at), by=halt.by)

    def _resumed(self, halt: Halt) -> None:
        # Unless it was stopped again while this was on its way to the disk.
        if HALT_KEY not in self._facts.rows and self._gate.halt is halt:
            self._gate.halt = None

    async def _settled(self, ending: Awaitable[str]) -> str:
        """In words, even when it fails: the other bridges are stopped all the same."""
        try:
            return await ending
        except Exception as error:  # noqa: BLE001 - the answer is an id, and how the other bridges ended
            return f"failed: internal error {log_fault(self._log, error)}; `bascule logs` shows it"
