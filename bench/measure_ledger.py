"""The ledger's verification, and a restart with many tickets."""

import contextlib
import hashlib
import os
import sqlite3
import time

import uvloop

import processes
from bascule.admin.protocol import VerifyResult
from bascule.bridge_list import tables_of
from bascule.daemon.compose import Daemon
from bascule.daemon.config import from_values
from bascule.daemon.logs import DaemonLog
from bascule.daemon.opening import open_store
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock
from bascule.foundation.deferred import Deferred
from bascule.kernel.call import LOCAL, Call, agent_principal
from ends_frames import FrameClient, as_user
from gabp import codec
from processes import Server
from report import Section, Settings, middle, millis, rate, ratio

TICKETS = (10_000, 100_000)
QUICK_TICKETS = (500,)
# Sent before the next are: the journal commits them together.
_AT_ONCE = 500
_UNLIMITED = 10**9


def fill(state: str, tickets: int) -> None:
    """A store with so many tickets, every second one answered, made by the house itself."""
    config = from_values(
        {
            "port": 0,
            "durability": "relaxed",
            "calls_per_second": _UNLIMITED,
            "burst_calls": _UNLIMITED,
            "max_open_tickets": _UNLIMITED,
            "max_kept_messages": _UNLIMITED,
            "max_kept_bytes": _UNLIMITED,
            "max_inbox_messages": _UNLIMITED,
            "max_inbox_messages_per_sender": _UNLIMITED,
            "max_inbox_bytes_per_sender": _UNLIMITED,
            "log_level": "error",
        }
    )

    async def inside() -> None:
        clock = SystemClock()
        log = DaemonLog(clock, path=paths.log_file(state), form="off", level="error")
        daemon = Daemon(config, state, clock, log, open_store("relaxed", state, log, tables_of()))
        call = daemon.gate.call

        async def all_of(principal, method: str, params: list[dict]) -> list:
            answers = [call(Call(principal, method, codec.encode(each), door="link")) for each in params]
            return [await each if isinstance(each, Deferred) else each for each in answers]

        await all_of(LOCAL, "agents.register", [{"agentId": "Jerry"}])
        for _ in range(0, tickets, _AT_ONCE):
            sent = await all_of(LOCAL, "messages.send", [{"agentId": "Jerry", "payload": "x" * 200}] * _AT_ONCE)
            replies = [{"ticketId": each.ticket_id, "payload": "done"} for each in sent[::2]]
            await all_of(agent_principal("Jerry"), "replies.post", replies)
        await daemon.close()
        log.close()

    uvloop.run(inside())


def verify(state: str) -> VerifyResult:
    async def ask(client: FrameClient) -> VerifyResult:
        answer = await client.call("ledger.verify", b"{}")
        return codec.decode(answer.result, VerifyResult)

    result = as_user(state, ask)
    if not result.ok:
        raise RuntimeError(f"ledger.verify: {result.faults}")
    return result


def hash_alone(state: str) -> float:
    """Seconds to read the rows and hash them, and nothing else: the limit of any verification in Python."""
    connection = sqlite3.connect(f"file:{paths.database_file(state)}?mode=ro", uri=True)
    try:
        began = time.perf_counter()
        previous = bytes(32)
        for _, body in connection.execute("SELECT hash, body FROM ledger ORDER BY seq"):
            previous = hashlib.sha256(previous + body).digest()
        return time.perf_counter() - began
    finally:
        connection.close()


def _killed(server: Server) -> None:
    server.process.kill()
    server.process.wait()


class Runs:
    """Starts with one store, and what its ledger's verification did."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.clean: list[float] = []
        self.unclean: list[float] = []
        self.verified: list[float] = []
        self.limits: list[float] = []
        self.records = 0
        self.memory = 0

    def once(self) -> None:
        with processes.bascule(self.state, durability="fsync") as server:
            self.clean.append(server.started_s)
            self.memory = processes.memory_bytes(server.pid) or 0
            result = verify(self.state)
            self.records = result.records
            self.verified.append(result.records / result.seconds)
            _killed(server)
        with processes.bascule(self.state, durability="fsync") as server:
            self.unclean.append(server.started_s)
        self.limits.append(self.records / hash_alone(self.state))


def ledger(settings: Settings) -> Section:
    empty: list[float] = []
    runs: dict[int, Runs] = {}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        for tickets in QUICK_TICKETS if settings.quick else TICKETS:
            runs[tickets] = Runs(os.path.join(directory, f"{tickets}"))
            os.mkdir(runs[tickets].state, 0o700)
            fill(runs[tickets].state, tickets)
        for number in range(settings.few_rounds):
            with processes.bascule(os.path.join(directory, f"empty-{number}"), durability="fsync") as server:
                empty.append(server.started_s)
            for each in runs.values():
                each.once()
                settings.progress()
    result = Section("ledger", "Ledger and restart", ("", "", "compared with"))
    for each in runs.values():
        speed, limit = middle(each.verified), middle(each.limits)
        result.add(
            f"`ledger.verify`, {each.records:,} records",
            f"{rate(speed)} records/s",
            f"{ratio(speed / limit)} of reading and hashing alone",
        )
        result.keep("verify", records=each.records, per_second=speed, limit_per_second=limit)
    result.add("start to ready, empty store", millis(middle(empty) * 1000), "")
    for tickets, each in runs.items():
        for label, times in (
            (f"start to ready, {tickets:,} tickets", each.clean),
            ("the same after kill -9, file checked", each.unclean),
        ):
            against = f"{ratio(middle(times) / middle(empty))} of an empty store"
            result.add(label, millis(middle(times) * 1000), against)
        result.add(f"memory when ready, {tickets:,} tickets", f"{each.memory / 2**20:.0f} MiB", "")
        result.keep(
            "restart",
            tickets=tickets,
            empty_s=middle(empty),
            clean_s=middle(each.clean),
            unclean_s=middle(each.unclean),
            memory_bytes=each.memory,
        )
    result.notes.append(
        f"Medians of {settings.few_rounds}. Ready means that the sockets answer; the interpreter's own start is "
        "included. Every second ticket is answered, so there are three ledger records for two tickets."
    )
    return result
