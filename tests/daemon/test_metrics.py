"""Numbers that a scraper can read, whatever callers send, and that do not grow with what they invent."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from living import eventually
from prometheus import parse
from wires import Caller, LinkWire

from bascule.daemon import lifecycle
from bascule.daemon.metrics import Metrics
from bascule.testing.clock import FakeClock


def test_calls_are_counted_by_method_and_outcome():
    metrics = Metrics()
    for outcome in ("ok", "ok", "not_found"):
        metrics.observe("tickets.show", outcome, 0.002)
    _, values = parse(metrics.text())
    assert values['bascule_calls_total{method="tickets.show",outcome="ok"}'] == 2
    assert values['bascule_calls_total{method="tickets.show",outcome="not_found"}'] == 1


@pytest.mark.parametrize(
    ("seconds", "first"), [(0.0, "0.0001"), (0.0001, "0.0001"), (0.002, "0.005"), (5.0, "5.0"), (60.0, "+Inf")]
)
def test_a_time_is_in_its_bucket_and_every_larger_one(seconds, first):
    metrics = Metrics()
    metrics.observe("each", "ok", seconds)
    _, values = parse(metrics.text())
    bounds = ["0.0001", "0.0005", "0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1.0", "5.0", "+Inf"]
    seen = [values[f'bascule_call_seconds_bucket{{method="each",le="{bound}"}}'] for bound in bounds]
    assert seen == [0.0] * bounds.index(first) + [1.0] * (len(bounds) - bounds.index(first))
    assert values['bascule_call_seconds_sum{method="each"}'] == seconds


def test_large_counts_are_written_exactly():
    metrics = Metrics()
    metrics.gauge("bascule_big", "Big.", lambda: 123_456_789)
    for _ in range(1_234_567):
        metrics.request(200)
    _, values = parse(metrics.text())
    assert values['bascule_http_responses_total{status="200"}'] == 1_234_567
    assert values["bascule_big"] == 123_456_789


def test_the_longest_lag_is_kept():
    metrics = Metrics()
    for seconds in (0.1, 0.5, 0.2):
        metrics.lag(seconds)
    _, values = parse(metrics.text())
    assert (values["bascule_loop_lag_seconds"], values["bascule_loop_lag_max_seconds"]) == (0.2, 0.5)


@pytest.mark.parametrize(("cpu", "pause"), [(0.2, 0.5), (0.0001, 2.0)], ids=["busy", "idle"])
def test_the_loop_is_looked_at_rarely_while_the_process_does_nothing(monkeypatch, cpu, pause):
    """And how late it was is right either way."""
    clock, used, pauses, metrics = FakeClock(), itertools.count(), [], Metrics()
    daemon = SimpleNamespace(clock=clock, sampler=SimpleNamespace(look=metrics.lag))

    async def late(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError
        clock.advance(seconds + 0.25)

    monkeypatch.setattr(lifecycle.time, "process_time", lambda: next(used) * cpu)
    monkeypatch.setattr(lifecycle.asyncio, "sleep", late)
    asyncio.run(lifecycle._probe_lag(daemon))
    assert pauses == [pause] * 3
    assert metrics.loop_lag_s == metrics.loop_lag_max_s == pytest.approx(0.25)


def test_gauges_are_read_when_they_are_asked_for():
    metrics = Metrics()
    now = [1.0]
    metrics.gauge("bascule_now", "Now.", lambda: now[0])
    parse(metrics.text())
    now[0] = 2.5
    assert parse(metrics.text())[1]["bascule_now"] == 2.5


# -- in the daemon --------------------------------------------------------------------------------


def test_methods_that_callers_invent_neither_break_nor_grow_the_numbers(daemon):
    local = Caller(daemon)
    with LinkWire(daemon.link_socket) as link:
        link.hello()
        for name in ['quote"d', "line\nbreak", "back\\slash", 'x"} 1\nbascule_agents 99', *map(str, range(200))]:
            assert link.refusal(name)["code"] == "not_found"
    _, values = parse(local.get("/metrics").body.decode())
    assert values["bascule_agents"] == 0
    assert len([name for name in values if name.startswith("bascule_calls_total")]) < 50


def test_link_connections_are_counted_while_they_live(daemon):
    local = Caller(daemon)
    with LinkWire(daemon.link_socket) as link:
        link.hello()
        assert eventually(lambda: local.gauge("bascule_link_connections") == 1, "this one alone")
    assert eventually(lambda: local.gauge("bascule_link_connections") == 0, "it is gone")


def test_event_streams_are_counted_among_what_is_held_open(daemon):
    local = Caller(daemon)
    with local.open("/events"):
        # The gauge says of itself: "Long polls and streams held open."
        assert local.gauge("bascule_waits") == 1
    assert eventually(lambda: local.gauge("bascule_waits") == 0, "it is gone")
