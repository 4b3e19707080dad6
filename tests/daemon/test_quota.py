"""A flood drowns nobody but its source."""

import pytest
from living import Living, short_dir
from wires import Caller, LinkWire, Wire

from bascule.daemon.quota import CallQuota
from bascule.foundation.errors import Overloaded
from bascule.kernel.call import LOCAL, agent_principal
from bascule.testing.clock import FakeClock


def spend(quota: CallQuota, principal: str) -> int:
    """How many calls go through before the first refusal."""
    for number in range(1_000):
        try:
            quota.take(principal)
        except Overloaded:
            return number
    raise AssertionError("never refused")


def test_a_burst_goes_through_and_then_the_rate_counts():
    clock = FakeClock()
    quota = CallQuota(clock, per_second=10, burst=20)
    assert spend(quota, LOCAL) == 20
    clock.advance(1)
    assert spend(quota, LOCAL) == 10
    clock.advance(1_000)
    assert spend(quota, LOCAL) == 20


def test_a_refusal_says_when_to_come_back_and_then_it_works():
    clock = FakeClock()
    quota = CallQuota(clock, per_second=4, burst=1)
    quota.take(LOCAL)
    with pytest.raises(Overloaded, match="local makes more than 4 calls per second") as caught:
        quota.take(LOCAL)
    assert caught.value.retry_after == pytest.approx(0.25)
    assert caught.value.hint
    clock.advance(caught.value.retry_after)
    quota.take(LOCAL)


def test_each_principal_has_its_own():
    quota = CallQuota(FakeClock(), per_second=1, burst=5)
    assert spend(quota, agent_principal("Tom")) == 5
    assert spend(quota, agent_principal("Jerry")) == 5


def test_refused_calls_do_not_make_the_wait_longer():
    clock = FakeClock()
    quota = CallQuota(clock, per_second=1, burst=1)
    quota.take(LOCAL)
    for _ in range(100):
        with pytest.raises(Overloaded):
            quota.take(LOCAL)
    clock.advance(1)
    quota.take(LOCAL)


def test_zero_is_no_limit():
    quota = CallQuota(FakeClock(), per_second=0, burst=1)
    for _ in range(100):
        quota.take(LOCAL)


def test_idle_buckets_are_forgotten_and_busy_ones_kept(monkeypatch):
    monkeypatch.setattr("bascule.daemon.quota.MAX_BUCKETS", 10)
    clock = FakeClock()
    quota = CallQuota(clock, per_second=1, burst=2)
    for number in range(9):
        quota.take(agent_principal(f"old-{number}"))
    clock.advance(3)
    quota.take(LOCAL)
    quota.take(LOCAL)
    quota.take(agent_principal("new"))
    assert len(quota._buckets) == 2
    with pytest.raises(Overloaded):
        quota.take(LOCAL)


# -- in the daemon --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict():
    with short_dir() as folder, Living(f"{folder}/s", calls_per_second=0.5, burst_calls=8, max_agents=2) as living:
        yield living


def test_over_the_quota_http_answers_429_and_others_are_served(strict):
    local = Caller(strict)
    tom = local.register("Tom")
    jerry = local.register("Jerry")
    # The third finds the house full, which is a 429 with a moment to come back at as well.
    full = local.post("/agents/register", {"agentId": "Spike"})
    with Wire(strict.tcp) as wire:
        statuses = [wire.ask("GET", "/agents", tom.headers).status for _ in range(12)]
        refused = wire.ask("GET", "/agents", tom.headers)
    assert statuses[:8] == [200] * 8
    assert statuses[8:] == [429] * 4
    assert 1 <= int(refused.headers["retry-after"]) <= 3
    assert refused.error["code"] == "overloaded"
    assert "waitMs" in refused.error["hint"]
    assert jerry.get("/agents").status == 200
    # Health is no call: a monitor is never refused.
    assert tom.get("/healthz").status == 200
    with LinkWire(strict.link_socket) as link:
        link.hello(tom.token)
        refusal = link.refusal("agents.list")
        assert refusal["code"] == "overloaded"
        assert 0 < refusal["retryAfterMs"] <= 2_000
    assert full.status == 429
    assert int(full.headers["retry-after"]) >= 1
