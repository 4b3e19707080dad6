"""The ledger's verification, and a restart with many tickets."""

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import time

import uvloop

import processes
from asks import FrameClient, encode
from bascule import __version__, places
from bascule.call import LOCAL, Call, agent_principal
from bascule.clock import SystemClock
from bascule.daemon.compose import Daemon, open_store
from bascule.daemon.config import Config
from bascule.daemon.logs import DaemonLog
from bascule.protocols.house import VerifyResult
from bascule.protocols.link import PROTOCOL_VERSION
from bascule.wire import codec
from processes import Server
from report import Section, Settings, middle, millis, rate, ratio

TICKETS = 10_000
LONG_TICKETS = 100_000
QUICK_TICKETS = 500
# Sent before the next are: the journal commits them together.
_AT_ONCE = 500
_UNLIMITED = 10**9


def fill(state: str, tickets: int) -> None:
    """A store with so many tickets, every second one answered, made by the house itself."""
    config = Config(
        port=0,
        durability="relaxed",
        calls_per_second=_UNLIMITED,
        burst_calls=_UNLIMITED,
        max_open_tickets=_UNLIMITED,
        max_kept_messages=_UNLIMITED,
        max_kept_bytes=_UNLIMITED,
        max_inbox_messages=_UNLIMITED,
        log_level="error",
    )

    async def inside() -> None:
        clock = SystemClock()
        log = DaemonLog(clock, path=places.log_file(state), form="off", level=config.log_level)
        daemon = Daemon(config, state, clock, log, open_store(config, state, log))
        call = daemon.dispatch.call

        async def all_of(principal, method: str, params: list[dict]) -> list:
            answers = [call(Call(principal, method, codec.encode(each), door="link")) for each in params]
            return [await each if isinstance(each, asyncio.Future) else each for each in answers]

        await all_of(LOCAL, "agents.register", [{"agentId": "Jerry"}])
        for _ in range(0, tickets, _AT_ONCE):
            sent = await all_of(LOCAL, "messages.send", [{"agentId": "Jerry", "payload": "x" * 200}] * _AT_ONCE)
            replies = [{"ticketId": each.ticket_id, "payload": "done"} for each in sent[::2]]
            await all_of(agent_principal("Jerry"), "replies.post", replies)
        await daemon.close()
        log.close()

    uvloop.run(inside())


def verify(state: str) -> VerifyResult:
    async def ask() -> VerifyResult:
        client = await FrameClient.connect(places.link_socket(state))
        await client.call("hello", encode({"protocol": PROTOCOL_VERSION, "version": __version__}))
        answer = await client.call("ledger.verify", b"{}")
        return codec.decode(answer.result, VerifyResult)

    result = uvloop.run(ask())
    if not result.ok:
        raise RuntimeError(f"ledger.verify: {result.faults}")
    return result


def hash_alone(state: str) -> float:
    """Seconds to read the rows and hash them, and nothing else: the limit of any verification in Python."""
    connection = sqlite3.connect(f"file:{places.database_file(state)}?mode=ro", uri=True)
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


def ledger(settings: Settings) -> Section:
    tickets = QUICK_TICKETS if settings.quick else LONG_TICKETS if settings.long else TICKETS
    empty: list[float] = []
    clean: list[float] = []
    unclean: list[float] = []
    checked: list[float] = []
    limits: list[float] = []
    records = 0
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        os.mkdir(state, 0o700)
        fill(state, tickets)
        for number in range(settings.rounds):
            with processes.bascule(os.path.join(directory, f"empty-{number}"), durability="fsync") as server:
                empty.append(server.started_s)
            with processes.bascule(state, durability="fsync") as server:
                clean.append(server.started_s)
                verified = verify(state)
                records = verified.records
                checked.append(records / verified.seconds)
                _killed(server)
            with processes.bascule(state, durability="fsync") as server:
                unclean.append(server.started_s)
            limits.append(records / hash_alone(state))
            settings.progress()
    result = Section("ledger", "Ledger and restart", ("", "", "compared with"))
    result.add(
        f"`ledger.verify`, {records:,} records",
        f"{rate(middle(checked))} records/s",
        f"{ratio(middle(checked) / middle(limits))} of reading and hashing alone",
    )
    for label, times in (
        ("start to ready, empty store", empty),
        (f"start to ready, {tickets:,} tickets", clean),
        ("the same after kill -9, file checked", unclean),
    ):
        against = "" if times is empty else f"{ratio(middle(times) / middle(empty))} of an empty store"
        result.add(label, millis(middle(times) * 1000), against)
    result.keep("verify", per_second=middle(checked), limit_per_second=middle(limits))
    result.keep("restart", tickets=tickets, empty_s=middle(empty), clean_s=middle(clean), unclean_s=middle(unclean))
    result.notes.append(
        "Ready means that the sockets answer; the interpreter's own start is included. Every second ticket is "
        "answered, so there are three ledger records for two tickets."
    )
    return result
