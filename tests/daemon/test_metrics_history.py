"""Two rings of numbers: what is measured stands where it belongs, what nobody looked at stays empty, nothing grows."""

import math

import pytest

from bascule.admin.history import FILLED_SLOTS, WINDOWS, MetricsHistory, Sample, quantile
from bascule.admin.protocol import HistoryParams
from bascule.daemon.metrics import BUCKETS, Metrics
from bascule.testing.clock import FakeClock

NOTHING = Sample(
    calls=0,
    times=(0.0,) * (len(BUCKETS) + 1),
    cpu_seconds=0.0,
    lag_seconds=0.0,
    rss_bytes=50_000_000,
    store_bytes=2_000_000,
    approvals_pending=1,
    agents_online=2,
    tickets_open=3,
)


class Looks:
    def __init__(self):
        self.clock = FakeClock()
        # At the beginning of a minute, so that slots of both rings begin together.
        self.clock.advance(60 - self.clock.monotonic() % 60)
        self.history = MetricsHistory(self.clock, BUCKETS)
        self.calls = 0

    def look(self, after=1.0, calls=0, **more):
        self.clock.advance(after)
        self.calls += calls
        times = (0.0, float(self.calls), *(0.0,) * (len(BUCKETS) - 1))
        self.history.add(NOTHING._replace(calls=self.calls, times=times, **more))

    def series(self, name, window="10m"):
        return self.history.show(None, HistoryParams(window=window)).series[name]


@pytest.fixture
def looks():
    made = Looks()
    made.look(after=0)
    return made


def test_a_daemon_that_nobody_looked_at_has_full_windows_of_nothing():
    shown = MetricsHistory(FakeClock(), BUCKETS).show(None, HistoryParams())
    assert shown.step_ms == 1_000
    assert shown.series["rssMb"] == [None] * 600
    assert set(map(len, shown.series.values())) == {600}


def test_rates_and_gauges_of_each_second(looks):
    looks.look(calls=10, cpu_seconds=0.5)
    looks.look(calls=30, cpu_seconds=0.5, rss_bytes=None)
    assert looks.series("callsPerSecond")[-3:] == [None, 10.0, 30.0]
    assert looks.series("cpuPercent")[-2:] == [50.0, 0.0]
    assert looks.series("rssMb")[-2:] == [50.0, None]
    assert [looks.series(name)[-1] for name in ("storeMb", "approvalsPending", "agentsOnline", "ticketsOpen")] == [
        2.0,
        1.0,
        2.0,
        3.0,
    ]


def test_looks_within_one_second_are_one_value_with_the_worst_lag(looks):
    looks.look(after=0.5, calls=5, lag_seconds=0.25)
    assert looks.series("callsPerSecond")[-1] is None
    looks.look(after=0.5, calls=5, lag_seconds=0.001)
    assert looks.series("callsPerSecond")[-1] == 10.0
    assert looks.series("loopLagMs")[-1] == 250.0


def test_an_idle_daemon_is_looked_at_every_other_second_and_has_no_holes(looks):
    for _ in range(5):
        looks.look(after=2, calls=4)
    assert looks.series("callsPerSecond")[-10:] == [2.0] * 10


def test_a_time_that_nobody_looked_at_is_a_hole(looks):
    looks.look(after=FILLED_SLOTS + 1, calls=6)
    found = looks.series("callsPerSecond")[-FILLED_SLOTS - 1 :]
    assert found == [1.0, *[None] * FILLED_SLOTS]


def test_a_hole_longer_than_the_ring_empties_it_and_costs_no_more(looks):
    for _ in range(600):
        looks.look(calls=1)
    assert None not in looks.series("callsPerSecond")
    looks.look(after=10**7)
    assert looks.series("callsPerSecond") == [None] * 600


def test_minutes_are_kept_for_a_day(looks):
    for _ in range(180):
        looks.look(calls=2)
    assert looks.series("callsPerSecond", "24h")[-4:] == [None, 2.0, 2.0, 2.0]
    assert len(looks.series("p99Ms", "24h")) == 1_440


def test_what_a_day_of_looks_leaves_is_what_an_hour_leaves(looks):
    def cells():
        return sum(len(values) for ring in looks.history._rings.values() for values in ring._values.values())

    before = cells()
    for _ in range(3_000):
        looks.look(after=30)
    assert cells() == before == 10 * sum(slots for _, slots in WINDOWS.values())


def test_latencies_are_read_from_the_buckets(looks):
    looks.look(calls=100)
    # All between 0.1 and 0.5 ms, evenly spread.
    assert looks.series("p50Ms")[-1] == pytest.approx(0.3)
    assert looks.series("p99Ms")[-1] == pytest.approx(0.496)
    looks.look()
    assert looks.series("p50Ms")[-1] is None


def test_quantiles_of_nothing_and_of_what_is_beyond_the_last_bucket():
    assert math.isnan(quantile((1.0, 2.0), (0, 0, 0), 0.5))
    assert quantile((1.0, 2.0), (0, 0, 3), 0.5) == 2.0
    assert quantile((1.0, 2.0), (4, 0, 0), 1.0) == 1.0


def test_the_end_is_said_in_the_time_of_people(looks):
    looks.look()
    looks.clock.advance(0.25)
    ended = looks.history.show(None, HistoryParams()).end_at
    looks.clock.advance(0.5)
    assert looks.history.show(None, HistoryParams()).end_at == ended


def test_calls_that_wait_say_nothing_about_latencies():
    metrics = Metrics()
    metrics.waiting = frozenset({"inbox.take"})
    assert metrics.totals() == (0, (0.0,) * (len(BUCKETS) + 1))
    metrics.observe("inbox.take", "ok", 25.0)
    metrics.observe("messages.send", "ok", 0.0002)
    metrics.observe("messages.send", "conflict", 9.0)
    calls, times = metrics.totals()
    assert calls == 3
    assert times == (0.0, 1.0, *(0.0,) * (len(BUCKETS) - 2), 1.0)
