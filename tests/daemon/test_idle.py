"""A daemon that nobody asks anything sleeps, and has loaded nothing that nobody asked for."""

import json
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from living import Living, eventually, short_dir
from wires import Caller, Wire, request

from bascule.bridge_list import tables_of
from bascule.broker.limits import BrokerLimits
from bascule.stores.sqlite import SqliteStore
from bascule.testing.house import House

WINDOW_SECONDS = 2.0
# Well above what was measured (0.5 wake-ups and 0.06 ms per second); before the daemon slept: 22 and 2 ms.
MOST_WAKE_UPS = 4 * WINDOW_SECONDS
MOST_CPU_MS = 1.0 * WINDOW_SECONDS
# 60 were measured; what the machine adds differs.
MOST_MEMORY_MIB = 66
MOST_SETTLED_BYTES = 3_000

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")


@pytest.fixture(scope="module")
def daemon():
    """Nobody asks it anything, in whatever order these tests run."""
    with short_dir() as folder, Living(f"{folder}/s", mcp="on") as living:
        yield living


@pytest.fixture
def asked():
    with short_dir() as folder, Living(f"{folder}/s", mcp="on") as living:
        yield living


def of_threads(daemon, name):
    return [
        (task / name).read_text()
        for task in Path(f"/proc/{daemon.process.pid}/task").iterdir()
        # A thread may end meanwhile.
        if (task / name).exists()
    ]


def status(text, field):
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(field)))


def woken(daemon):
    return sum(status(text, "voluntary_ctxt_switches") for text in of_threads(daemon, "status"))


def cpu_ms(daemon):
    return sum(int(text.split()[0]) for text in of_threads(daemon, "schedstat")) / 1e6


def has_loaded_the_sdk(daemon):
    """The SDK's models are native code, and the kernel knows what a process has loaded."""
    return "pydantic_core" in Path(f"/proc/{daemon.process.pid}/maps").read_text()


@linux_only
def test_an_idle_daemon_hardly_wakes_and_hardly_computes(daemon):
    def quiet():
        """A window in which nothing of the start is left to do: there are such windows, one after the other."""
        wakes, used = woken(daemon), cpu_ms(daemon)
        time.sleep(WINDOW_SECONDS)
        return woken(daemon) - wakes <= MOST_WAKE_UPS and cpu_ms(daemon) - used <= MOST_CPU_MS

    eventually(lambda: quiet() and quiet(), "two quiet windows in a row")


@linux_only
def test_an_idle_daemon_is_small(daemon):
    assert status(of_threads(daemon, "status")[0], "VmRSS") / 1024 <= MOST_MEMORY_MIB


@linux_only
def test_mcp_is_loaded_by_the_first_who_ask_for_it_and_nobody_else_waits(asked):
    agents = [Caller(asked).register(name) for name in ("Ann", "Ben")]
    assert Caller(asked).get("/agents").status == 200
    assert not has_loaded_the_sdk(asked)
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting}).encode()
    more = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]

    def ask(agent):
        with Wire(asked.tcp) as wire:
            return wire.ask("POST", "/mcp", agent.headers + more, body)

    # One who leaves before its answer, and two who stay.
    with Wire(asked.tcp) as gone:
        gone.send(request("POST", "/mcp", agents[0].headers + more, body))
    with ThreadPoolExecutor() as threads:
        greetings = [threads.submit(ask, agent) for agent in agents]
        while not all(each.done() for each in greetings):
            assert Caller(asked).get("/agents").status == 200
        assert [each.result().status for each in greetings] == [200, 200]
    assert has_loaded_the_sdk(asked)


@linux_only
def test_a_stop_while_it_loads_is_a_clean_stop(asked):
    agent = Caller(asked).register("Ann")
    with Wire(asked.tcp) as wire:
        wire.send(request("POST", "/mcp", [*agent.headers, ("Content-Type", "application/json")], b"{}"))
        eventually(lambda: has_loaded_the_sdk(asked), "the SDK is being loaded")
        assert asked.stop() == 0
    assert "Traceback" not in asked.log() + asked.terminal()
    assert '"event":"stopped"' in asked.log()


@pytest.mark.parametrize(("payload", "fits"), [("done", True), ("x" * 2_048, False)])
def test_a_settled_ticket_takes_little_memory(tmp_path, payload, fits):
    limits = BrokerLimits(max_open_tickets=10**6, max_kept_messages=10**6)
    asks = 300
    with House(
        store=SqliteStore(str(tmp_path / "db"), durability="relaxed", tables=tables_of()), limits=limits
    ) as house:
        for name in ("Tom", "Jerry"):
            house.register(name)

        def ask():
            sent = house.call("agent:Tom", "messages.send", {"agentId": "Jerry", "payload": payload})
            house.call("agent:Jerry", "replies.post", {"ticketId": sent["ticketId"], "payload": payload})

        for _ in range(asks):
            ask()
        house.log.clear()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(asks):
                ask()
            house.log.clear()
            each = (tracemalloc.get_traced_memory()[0] - before) / asks
        finally:
            tracemalloc.stop()
    assert (each <= MOST_SETTLED_BYTES) is fits
