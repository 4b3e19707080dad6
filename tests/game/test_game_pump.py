"""The game's own thread: what runs on it, for how long, in which order, and what happens when it is stuck."""

import json
import logging
import secrets
import threading
import time
from collections.abc import Generator

import pytest
from bridges_by_hand import HandBridge, pumped

from bascule_mod import Endpoint, Mod, ToolError
from bascule_mod.pump import Overdue, Pump, PumpFull, Work
from gabp import messages
from gabp.errors import ErrorCode
from patience import PATIENCE

TOKEN = secrets.token_hex(32)


def tcp() -> Endpoint:
    return Endpoint(transport="tcp", address="0", token=TOKEN)


@pytest.mark.req("GAME-SDK-3")
def test_handlers_run_on_the_thread_that_polls():
    mod = Mod("x", endpoint=tcp())
    mod.tool(lambda: threading.get_ident(), name="x/thread")  # noqa: PLW0108 - a builtin has no signature
    with mod.running(), HandBridge(mod) as bridge:
        later = bridge.send(messages.TOOLS_CALL, {"name": "x/thread"})
        assert not bridge.has(later, 0.2)
        bridge.until(later, mod.poll)
        assert json.loads(bytes(bridge.answers[later].value)) == threading.get_ident()


class Clock:
    """Time that passes when a handler says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def work(
    pump: Pump, clock: Clock, client: str, took: float, done: list, *, id_: str = "i", seconds: float = 30
) -> Work:
    def run() -> str:
        clock.now += took
        return client

    made = Work(
        client,
        id_,
        f"tool-{took}",
        run=run,
        done=lambda result, error: done.append(error or result),
        deadline=clock.now + seconds,
    )
    pump.put(made)
    return made


@pytest.mark.req("GAME-SDK-3")
def test_a_poll_ends_with_its_budget_and_goes_on_in_the_next():
    clock, done = Clock(), []
    pump = Pump(now=clock)
    for _ in range(10):
        work(pump, clock, "a", 2**-11, done)
    # A twentieth of the budget is kept back, so a fourth call of half a millisecond is not begun.
    assert [pump.poll(2) for _ in range(4)] == [3, 3, 3, 1]
    assert pump.idle


def test_what_takes_longer_than_is_left_waits_for_a_poll_of_its_own():
    clock, done = Clock(), []
    pump = Pump(now=clock)
    work(pump, clock, "a", 0.010, done)
    # Nobody knows it yet: it runs over.
    pump.poll(2)
    work(pump, clock, "a", 0.0001, done)
    work(pump, clock, "a", 0.010, done)
    began = clock.now
    assert pump.poll(2) == 1
    assert clock.now - began < 0.002
    # But it does get its turn, alone.
    assert pump.poll(2) == 1
    assert len(done) == 3


@pytest.mark.req("GABP-7.2-2")
def test_clients_take_turns():
    clock, done = Clock(), []
    pump = Pump(now=clock)
    for _ in range(50):
        work(pump, clock, "greedy", 0.001, done)
    work(pump, clock, "modest", 0.001, done)
    pump.poll(2.5)
    assert "modest" in done[:2]


def test_a_call_that_is_not_polled_for_in_time_was_not_executed():
    clock, done, stalls = Clock(), [], []
    pump = Pump(now=clock, stall_seconds=5, on_stall=stalls.append)
    pump.poll()
    work(pump, clock, "a", 0, done)
    clock.now += 4
    pump.check()
    assert done == []
    clock.now += 2
    checking = threading.Thread(target=pump.check)
    checking.start()
    checking.join(PATIENCE)
    assert isinstance(done[0], Overdue)
    assert not done[0].executed
    assert "has not called mod.poll() for 6.0 s" in done[0].message
    assert "it is at" in done[0].message
    assert pump.poll() == 0


@pytest.mark.req("GAME-SDK-4")
def test_a_deadline_ends_what_waits_and_what_steps():
    clock, done = Clock(), []
    pump = Pump(now=clock, stall_seconds=1000)
    ended = []

    def stepping() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            ended.append(True)

    steps = Work("a", "s", "steps", run=stepping, done=lambda _, error: done.append(error), deadline=clock.now + 10)
    pump.put(steps)
    pump.poll()
    work(pump, clock, "a", 0, done, seconds=10)
    clock.now += 11
    pump.check()
    assert sorted(each.executed for each in done) == [False, True]
    assert ended == []
    pump.poll()
    # Its own clean-up runs on the game's thread.
    assert ended == [True]
    assert pump.idle


@pytest.mark.req("GAME-SDK-4")
def test_the_watchdog_names_the_line_a_tool_is_stuck_at():
    stalls: list[str] = []
    release = threading.Event()
    mod = Mod("x", endpoint=tcp(), stall_seconds=0.2, request_seconds=0.5, on_stall=stalls.append)

    @mod.tool
    def hang() -> str:
        release.wait(PATIENCE)
        return "late"

    with pumped(mod), HandBridge(mod) as bridge:
        error = bridge.error(messages.TOOLS_CALL, {"name": "x/hang"})
        assert error.code == ErrorCode.TOOL_TIMEOUT
        assert error.executed == "yes"
        release.set()
        # Its late result is nobody's answer; the next call has its own.
        mod.tool(lambda: 1, name="x/next")
        assert bridge.call("x/next") == 1
    assert "x/hang has been running" in stalls[0]
    assert "threading.py" in stalls[0]


def test_a_tool_that_polls_does_not_run_others_inside_itself():
    clock, done = Clock(), []
    pump = Pump(now=clock)
    inner: list[int] = []
    pump.put(
        Work(
            "a", "1", "x", run=lambda: inner.append(pump.poll()), done=lambda *_: done.append(1), deadline=clock.now + 9
        )
    )
    work(pump, clock, "b", 0, done)
    pump.poll()
    assert inner == [0]
    assert done == [1, "b"]


def test_events_of_many_threads_keep_their_order():
    mod = Mod("x", endpoint=tcp())
    emit = mod.channel("noise")
    with pumped(mod), HandBridge(mod) as bridge:
        bridge.session.subscribe(["noise"])
        bridge.flush()
        bridge.wait(lambda: bool(bridge.answers))
        threads = [threading.Thread(target=lambda: [emit(n) for n in range(200)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        # A strict session ends at the first number that goes back.
        bridge.wait(lambda: len(bridge.events) == 1600)
        assert [event.seq for event in bridge.events] == list(range(1600))
        for thread in threads:
            thread.join(PATIENCE)


def test_an_event_above_the_message_limit_is_refused_where_it_is_made():
    mod = Mod("x")
    with pytest.raises(ValueError, match="offer it as a resource"):
        mod.emit("noise", "x" * 1_100_000)


def test_a_queue_that_is_full_refuses():
    clock, done = Clock(), []
    pump = Pump(now=clock, max_waiting=2)
    work(pump, clock, "a", 0, done)
    work(pump, clock, "b", 0, done)
    with pytest.raises(PumpFull):
        work(pump, clock, "c", 0, done)


def test_what_a_gone_bridge_asked_for_is_not_begun():
    ran: list[int] = []
    mod = Mod("x", endpoint=tcp())
    mod.tool(lambda: ran.append(1), name="x/act")
    with mod.running():
        with HandBridge(mod) as bridge:
            bridge.send(messages.TOOLS_CALL, {"name": "x/act"})
            bridge.ask(messages.TOOLS_LIST, {})
        deadline = time.monotonic() + PATIENCE
        while mod.bridges and time.monotonic() < deadline:
            time.sleep(0.01)
        mod.poll()
    assert ran == []


def test_results_that_are_no_json_are_the_tools_fault_and_say_so(caplog):
    caplog.set_level(logging.CRITICAL, "bascule.mod")
    mod = Mod("x", endpoint=tcp())
    mod.tool(lambda: threading.Lock(), name="x/lock")  # noqa: PLW0108 - a builtin has no signature
    mod.tool(lambda: "\ud800", name="x/half")

    @mod.tool
    def failing() -> None:
        raise ToolError("", {"a": 1})

    with pumped(mod), HandBridge(mod) as bridge:
        for name in ("lock", "half"):
            error = bridge.error(messages.TOOLS_CALL, {"name": f"x/{name}"})
            assert error.code == ErrorCode.TOOL_FAILED
            assert "is not valid JSON" in error.message
        error = bridge.error(messages.TOOLS_CALL, {"name": "x/failing"})
        assert (error.message, error.data) == ("x/failing failed", {"a": 1})


# -- what is fair, and what is left behind ------------------------------------------------------------


def steps(pump: Pump, clock: Clock, took: float, *, client: object = "stepper") -> Work:
    def run() -> Generator[None, None, None]:
        while True:
            clock.now += took
            yield

    made = Work(client, "s", "steps", run=run, done=lambda *_: None, deadline=clock.now + 30)
    pump.put(made)
    return made


def test_tools_between_their_steps_do_not_keep_a_new_call_from_beginning():
    clock, done = Clock(), []
    pump = Pump(now=clock)
    for _ in range(2):
        steps(pump, clock, 0.0015)
        pump.poll(2)
    work(pump, clock, "new", 0.0001, done)
    for _ in range(2):
        pump.poll(2)
    assert done == ["new"]


def test_the_time_an_answer_takes_to_encode_counts_too():
    clock, done = Clock(), []
    pump = Pump(now=clock)

    def encode(result: object, _: object) -> None:
        clock.now += 0.0015
        done.append(result)

    for number in range(4):
        pump.put(Work("a", "i", "large", run=lambda n=number: n, done=encode, deadline=clock.now + 30))
    for _ in range(4):
        began = clock.now
        assert pump.poll(2) == 1
        assert clock.now - began < 0.002
    assert done == [0, 1, 2, 3]


def test_a_client_that_waits_for_nothing_any_more_leaves_nothing_behind():
    clock, done = Clock(), []
    pump = Pump(now=clock, stall_seconds=5)
    for client in ("gone", "late", "served"):
        work(pump, clock, client, 0, done)
    pump.withdraw("gone")
    assert pump.poll(2) == 2
    work(pump, clock, "late", 0, done)
    clock.now += 6
    pump.check()
    assert (dict(pump._waiting), list(pump._turns)) == ({}, [])
    assert pump.idle


def test_a_call_is_found_by_who_withdraws_it_while_the_game_steps_on():
    clock = Clock()
    pump = Pump(now=clock)

    class Curious:
        """A client in whose comparison the game's thread gets its turn."""

        def __eq__(self, other: object) -> bool:
            thread = threading.Thread(target=pump.poll, args=(0.001,))
            thread.start()
            # It may have to wait for us; then it goes on behind us.
            thread.join(0.05)
            threads.append(thread)
            return self is other

        __hash__ = object.__hash__

    threads: list[threading.Thread] = []
    for _ in range(2):
        steps(pump, clock, 0.001, client="a")
        pump.poll(0.001)
    # Compared with every tool that is between two steps, while polls take them out and put them back.
    assert pump.withdraw(Curious()) == []
    for thread in threads:
        thread.join(PATIENCE)
    assert threads


def test_in_a_flood_of_calls_a_poll_ends_with_its_budget():
    """Against the clock on the wall, so with ten times the budget; and it is the event that counts: all were run."""
    mod = Mod("x", endpoint=tcp())
    spent: list[float] = []

    @mod.tool
    def compute() -> int:
        until = time.perf_counter() + 0.0003
        while time.perf_counter() < until:
            pass
        return 1

    with mod.running(), HandBridge(mod) as bridge:
        waiting = {bridge.send(messages.TOOLS_CALL, {"name": "x/compute"}) for _ in range(200)}

        def frame() -> None:
            began = time.perf_counter()
            if mod.poll(budget_ms=2):
                spent.append(time.perf_counter() - began)

        bridge.wait(lambda: waiting <= bridge.answers.keys(), frame)
        assert all(bridge.answers[each].error is None for each in waiting)
    # The control: all at once would have been 60 ms, in a frame or two.
    assert len(spent) >= 20
    assert sorted(spent)[len(spent) // 2] < 0.020
