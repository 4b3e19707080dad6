"""CPU per call, in one process: dispatch with all its gates, the broker, the ledger, a store in memory.

No socket, no frame: what is left is what the house itself costs. The budget is for the call, so the time
is CPU time of the process, the log's writer thread included, not of the clock on the wall.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from bascule.daemon.compose import Daemon
from bascule.daemon.config import from_values
from bascule.daemon.logs import DaemonLog
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock
from bascule.foundation.deferred import Deferred
from bascule.kernel.call import LOCAL, Call, Principal, agent_principal
from bascule.stores.memory import MemoryStore
from gabp import codec
from processes import scratch
from report import Section, Settings, micros, middle, ratio

# docs/architecture.md: an allowed `message` call costs at most this much.
BUDGET_US = 15.0
# As many as fit into the log's queue, so that no line is lost and every line is paid for.
CALLS = 2_000
ASKER, RECEIVER = "Tom", "Jerry"
PAYLOAD = "x" * 1024
_UNLIMITED = 10**12
# Rarely enough that looking is no cost of its own.
_LOOK_SECONDS = 0.02


@contextmanager
def house(directory: str, *, logging: bool) -> Iterator[tuple[Daemon, DaemonLog]]:
    config = from_values(
        {
            "port": 0,
            "durability": "memory",
            "calls_per_second": _UNLIMITED,
            "burst_calls": _UNLIMITED,
            "max_open_tickets": _UNLIMITED,
            "max_kept_messages": _UNLIMITED,
            "max_kept_bytes": _UNLIMITED,
            "max_inbox_messages": _UNLIMITED,
            "max_inbox_messages_per_sender": _UNLIMITED,
            "max_inbox_bytes_per_sender": _UNLIMITED,
            "max_inbox_bytes": _UNLIMITED,
        }
    )
    clock = SystemClock()
    log = DaemonLog(clock, path=paths.log_file(directory), form="off", level="info" if logging else "error")
    try:
        yield Daemon(config, directory, clock, log, MemoryStore(reopens=False)), log
    finally:
        log.close()


def raw(**params: object) -> codec.Raw:
    return codec.Raw(codec.encode(params))


class Bench:
    """One house, and the calls of an ask made one kind at a time."""

    def __init__(self, daemon: Daemon, log: DaemonLog) -> None:
        self._daemon = daemon
        self._log = log
        self._log_path = paths.log_file(daemon.state_dir)
        self._marks = 0
        self._read = 0
        self.spent: dict[str, float] = {}
        for name in (ASKER, RECEIVER):
            daemon.gate.call(Call(LOCAL, "agents.register", raw(agentId=name), door="link"))

    async def round(self) -> None:
        asker, receiver = agent_principal(ASKER), agent_principal(RECEIVER)
        send = [raw(agentId=RECEIVER, payload=PAYLOAD)] * CALLS
        sent = await self._measure("messages.send", asker, send)
        ids = [each.ticket_id for each in sent]
        await self._measure("inbox.take", receiver, [raw(agentId=RECEIVER)] * CALLS)
        await self._measure("inbox.ack", receiver, [raw(agentId=RECEIVER, ticketIds=[each]) for each in ids])
        await self._measure("replies.post", receiver, [raw(ticketId=each, payload=PAYLOAD) for each in ids])
        await self._measure("replies.wait", asker, [raw(ticketId=each) for each in ids])
        await self._measure("agents.heartbeat", receiver, [raw(agentId=RECEIVER)] * CALLS)

    async def _measure(self, method: str, principal: Principal, params: list[codec.Raw]) -> list:
        call = self._daemon.gate.call
        gc.collect()
        before = time.process_time()
        answers = [call(Call(principal, method, each, door="link")) for each in params]
        for index, answer in enumerate(answers):
            if isinstance(answer, Deferred):
                answers[index] = await answer
        self._log_written()
        self.spent[method] = (time.process_time() - before) / len(params) * 1e6
        return answers

    def _log_written(self) -> None:
        """The writer thread wakes by itself; its work belongs to the calls that caused it."""
        self._marks += 1
        mark = f"mark {self._marks}"
        # Lines are written in order, so behind this one there is nothing left to do.
        self._log(mark, level="error")
        while mark.encode() not in self._new_lines():
            time.sleep(_LOOK_SECONDS)

    def _new_lines(self) -> bytes:
        with open(self._log_path, "rb") as file:
            file.seek(self._read)
            text = file.read()
        # The last line may be half written.
        self._read += text.rfind(b"\n") + 1
        return text


def run(directory: str, *, logging: bool) -> dict[str, float]:
    async def inside() -> dict[str, float]:
        with house(directory, logging=logging) as (daemon, log):
            bench = Bench(daemon, log)
            # The first round pays for caches, the second is what a running daemon pays.
            await bench.round()
            await bench.round()
            return bench.spent

    return uvloop.run(inside())


def cpu(settings: Settings) -> Section:
    quiet: list[dict[str, float]] = []
    logged: list[dict[str, float]] = []
    for _ in range(settings.rounds):
        for runs, logging in ((quiet, False), (logged, True)):
            with scratch(settings.directory) as directory:
                runs.append(run(directory, logging=logging))
            settings.progress()
    result = Section(
        "cpu", "CPU of one call, without transport", ("", "log off", "log on", f"log on / budget of {BUDGET_US:.0f} us")
    )
    for method in quiet[0]:
        off = middle([run[method] for run in quiet])
        on = middle([run[method] for run in logged])
        result.add(f"`{method}`", micros(off), micros(on), ratio(on / BUDGET_US))
        result.keep(method, off_us=off, on_us=on)
    result.notes.append(
        f"{CALLS} calls in a row with a payload of 1 KiB, durability `memory`, policy `standard`; process CPU time, "
        "so with the log on its writer thread is included. `replies.wait` finds its ticket answered."
    )
    return result
