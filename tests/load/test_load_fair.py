"""A principal that floods, or sends what is large, leaves room for the others.

Fairness is judged by the order of events, which a busy machine does not change: the daemon is stopped by a signal,
everybody writes what they have, and when it goes on the log tells whom it served when.
"""

import json
import signal
import socket
from contextlib import ExitStack, contextmanager

import pytest
from wires import Caller, LinkWire, Wire, request

from bascule.surfaces.fair_share import CALLS_PER_TURN, HTTP_CALLS
from gabp.content_length import frame
from load_scenes import flood, heavy, until
from patience import PATIENCE

# Fits into a socket's buffer, so that all of it is there when the daemon goes on.
FLOOD = 600
HTTP_FLOOD = 64
STALL_MS = 2_000
UNFAIR = {"bascule.daemon.compose.CALLS_PER_TURN": 10**9}


def linked(stack, living, name):
    token = Caller(living).register(name).token
    return stack.enter_context(LinkWire(living.link_socket, seconds=PATIENCE)).hello(token)


def write(wire, method, params, count=1):
    """As many requests as one write takes, without waiting for an answer."""
    message = {"jsonrpc": "2.0", "id": 1_000, "method": method, "params": params}
    frames = [frame(json.dumps({**message, "id": 1_000 + number}).encode()) for number in range(count)]
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
    wire.send_bytes(b"".join(frames))


@contextmanager
def stopped(living):
    """While the daemon stands still, everybody writes; then it finds all of it."""

    def is_stopped():
        with open(f"/proc/{living.process.pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"

    living.process.send_signal(signal.SIGSTOP)
    assert until(is_stopped, 20)
    try:
        yield
    finally:
        living.process.send_signal(signal.SIGCONT)


def order_of_calls(living, what, count, who):
    """Whose calls the log names, in order, once `count` of them are there."""

    def calls():
        lines = [json.loads(line) for line in living.log().splitlines()]
        calls = [line["principal"] for line in lines if line["event"] == "call" and line["method"] == what]
        return [each for each in calls if each in who]

    assert until(lambda: len(calls()) >= count, PATIENCE)
    return calls()


@pytest.mark.parametrize("connections", [1, 8])
def test_one_call_beside_a_flood_waits_for_a_few_calls_not_for_all(connections, start):
    living, _ = start(durability="memory")
    assert max(calls_before_mine(living, connections, number) for number in range(3)) < 60


def test_one_call_beside_a_flood_waits_for_all_of_it_without_fair_share(start):
    # The control: the order is made by turns. Whose socket is looked at first is chance.
    living, _ = start(durability="memory", constants=UNFAIR)
    assert any(calls_before_mine(living, 1, number) > 200 for number in range(12))


def calls_before_mine(living, connections, number):
    """How many calls of a flood are carried out before one of somebody else that came with it."""
    bad, mine = f"flooder{number}", f"good{number}"
    with ExitStack() as stack:
        flooders = [linked(stack, living, bad)]
        token = _token(living, bad)
        others = [stack.enter_context(LinkWire(living.link_socket, seconds=PATIENCE)) for _ in range(connections - 1)]
        flooders += [each.hello(token) for each in others]
        good = linked(stack, living, mine)
        with stopped(living):
            for each in flooders:
                write(each, "agents.heartbeat", {"agentId": bad}, FLOOD // connections)
            write(good, "agents.heartbeat", {"agentId": mine})
        wanted = FLOOD // connections * connections + 1
        order = order_of_calls(living, "agents.heartbeat", wanted, {f"agent:{bad}", f"agent:{mine}"})
        assert len(order) == wanted
        return order.index(f"agent:{mine}")


def test_one_call_beside_a_flood_over_http_waits_for_a_few_calls_not_for_all(start):
    living, _ = start(durability="memory")
    # Two turns: one in which its connection is taken, one in which its request is read.
    assert max(http_calls_before_mine(living, number) for number in range(3)) <= 3 * CALLS_PER_TURN // HTTP_CALLS


def test_one_call_beside_a_flood_over_http_waits_for_all_of_it_without_fair_share(start):
    # The control. A connection is taken in one turn of the loop and read in the next, so all others come first.
    living, _ = start(durability="memory", constants=UNFAIR)
    assert http_calls_before_mine(living, 0) > HTTP_FLOOD // 2


def http_calls_before_mine(living, number):
    """As `calls_before_mine`, of a flood on connections that are open already; mine is new."""
    bad, mine = (Caller(living).register(f"{name}{number}") for name in ("flooder", "good"))

    def beat(caller, name):
        return request("POST", f"/agents/{name}{number}/heartbeat", caller.headers, b"")

    with ExitStack() as stack:
        address = living.tcp
        flooders = [stack.enter_context(Wire(address)) for _ in range(HTTP_FLOOD)]
        for each in flooders:
            each.send(beat(bad, "flooder"))
            assert each.answer().status == 200
        with stopped(living):
            for each in flooders:
                each.send(beat(bad, "flooder"))
            stack.enter_context(Wire(address)).send(beat(mine, "good"))
        who = {f"agent:flooder{number}", f"agent:good{number}"}
        order = order_of_calls(living, "agents.heartbeat", 2 * HTTP_FLOOD + 1, who)
        return order.index(f"agent:good{number}") - HTTP_FLOOD


def test_large_messages_come_one_at_a_time_and_an_ask_goes_between_them(start):
    living, _ = start(durability="memory")
    with ExitStack() as stack:
        linked(stack, living, "sink")
        senders = [linked(stack, living, f"heavy{number}") for number in range(4)]
        good = linked(stack, living, "good")
        with stopped(living):
            for each in senders:
                # All of it fits into the buffers.
                write(each, "messages.send", {"agentId": "sink", "payload": "x" * 150_000})
            write(good, "messages.send", {"agentId": "sink", "payload": "small"})
        who = {"agent:good", *(f"agent:heavy{number}" for number in range(4))}
        order = order_of_calls(living, "messages.send", 5, who)
        assert set(order) == who
        assert order.index("agent:good") <= 2


def test_a_flood_is_slowed_down_and_refused_seldom_while_others_are_answered(start, record_property):
    _, target = start(durability="memory", calls_per_second=500, burst_calls=1_000)
    # The good one stays far below the limit, however fast the machine is.
    seen = flood(target, door="link", connections=8, window=20, what="ask", seconds=1.5, pause_s=0.02)
    record_property("flood", seen)
    calls = seen["counts"]
    assert calls["refused"] > 0, "the limit was reached"
    # Unpaused it was refused forty thousand times in this time, and each refusal cost nearly as much as a call.
    assert calls["refused"] < 500
    assert seen["loaded"]["count"] > 0
    assert seen["loaded"]["p99_ms"] < max(STALL_MS, 10 * seen["alone"]["p99_ms"])


def test_a_flood_over_http_leaves_others_their_answers(start, record_property):
    _, target = start()
    seen = flood(target, door="tcp", connections=64, window=1, what="fresh", seconds=1.5)
    record_property("flood_http", seen)
    assert seen["counts"]["ok"] > 0
    assert seen["loaded"]["count"] > 0
    assert seen["loaded"]["p99_ms"] < max(STALL_MS, 10 * seen["alone"]["p99_ms"])


def test_asks_are_answered_while_others_send_a_mebibyte_each(start, record_property):
    _, target = start()
    seen = heavy(target, senders=4, seconds=1.5)
    record_property("heavy", seen)
    assert seen["counts"]["ok"] > 0
    assert seen["loaded"]["count"] > 0
    assert seen["loaded"]["p99_ms"] < max(STALL_MS, 10 * seen["alone"]["p99_ms"])


def test_a_flooder_that_leaves_in_the_middle_takes_nothing_with_it(start):
    living, _ = start(durability="memory")
    with ExitStack() as stack:
        flooder, good = linked(stack, living, "flooder"), linked(stack, living, "good")
        write(flooder, "agents.heartbeat", {"agentId": "flooder"}, FLOOD)
        flooder.close()
        assert good.call("agents.heartbeat", {"agentId": "good"})
        again = stack.enter_context(LinkWire(living.link_socket)).hello(_token(living, "flooder"))
        assert again.call("agents.heartbeat", {"agentId": "flooder"})


def _token(living, name):
    with open(f"{living.state}/tokens/{name}.token", encoding="ascii") as file:
        return file.read().strip()
