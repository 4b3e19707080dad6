"""The clock jumps: nothing fires early, nothing lives longer. Here is what the broker's own tests leave out.

Deadlines, leases, polls, presence and expiry under a wall clock that jumps are in `tests/bridges/test_broker_clock.py`.
"""

import asyncio
import time

import pytest
from living import Living, eventually
from wall_clock import WallClock
from wires import Caller, LinkWire

from bascule.broker.limits import BrokerLimits
from bascule.daemon.quota import CallQuota
from bascule.foundation.errors import NotFound, Overloaded
from bascule.kernel.call import LOCAL, PERSON
from bascule.kernel.identity.passphrase import UNLOCK_SECONDS
from bascule.surfaces.link import LinkConnection, LinkConnections
from bascule.testing.clock import FakeClock
from bascule.testing.house import House

HOUR, DAY = 3_600, 86_400
JUMPS = [-365 * DAY, -DAY, -HOUR, HOUR, DAY, 365 * DAY]
LEASE_SECONDS = 60


@pytest.fixture(params=JUMPS, ids=lambda seconds: f"{seconds:+d}s")
def jump(request):
    return request.param


@pytest.fixture
def make_house():
    made = []

    def make(**settings):
        made.append(House(**settings))
        made[-1].register("Jerry")
        return made[-1]

    yield make
    for each in made:
        each.close()


def send(house, ticket_id, **params):
    house.call("local", "messages.send", {"agentId": "Jerry", "payload": "hi", "ticketId": ticket_id, **params})


def status(house, ticket_id):
    try:
        return house.call("local", "tickets.show", {"ticketId": ticket_id})["status"]
    except NotFound as error:
        return error.message


def take(house):
    taken = house.call("agent:Jerry", "inbox.take", {"agentId": "Jerry", "waitMs": 0, "max": 32})
    return [message["ticketId"] for message in taken["messages"]] if taken else []


# -- the wall clock, within one life --


def test_a_jump_gives_nobody_more_calls_and_takes_none(jump):
    clock = FakeClock()
    quota = CallQuota(clock, per_second=1, burst=3)
    for _ in range(3):
        quota.take(LOCAL)
    clock.jump_wall(jump)
    with pytest.raises(Overloaded):
        quota.take(LOCAL)
    clock.advance(1)
    quota.take(LOCAL)


def test_a_jump_keeps_no_connection_unlocked_longer(jump):
    async def story():
        clock = FakeClock()
        connection = LinkConnection(
            None, None, LinkConnections(), clock, log=None, requests=None, turns=None, mcp_sessions=None
        )
        connection.unlock(UNLOCK_SECONDS)
        clock.advance(UNLOCK_SECONDS - 1)
        clock.jump_wall(jump)
        assert connection.unlocked_for() == pytest.approx(1)
        clock.advance(1)
        assert connection.unlocked_for() is None

    asyncio.run(story())


def test_a_jump_ends_no_pause_of_a_passphrase_early(make_house, jump):
    house = make_house()
    connection = house.connect("Jerry")
    house.call("local", "person.set", {"passphrase": "correct horse battery"})
    house.life.bridges["admin"].service.person._throttle._wrong = 4
    wrong = {"passphrase": "wrong horse battery"}
    with pytest.raises(Exception, match="wrong passphrase"):
        house.call("local", "person.unlock", wrong, connection=connection)
    house.clock.jump_wall(jump)
    house.advance(29)
    with pytest.raises(Overloaded, match="too many wrong passphrases"):
        house.call("local", "person.unlock", wrong, connection=connection)


def test_a_jump_drops_no_ledger_records_early_and_keeps_none_longer(make_house, jump):
    house = make_house(segment_records=5, ledger_days=2)
    for number in range(10):
        send(house, f"before{number}")
    house.clock.jump_wall(jump)
    for number in range(10):
        send(house, f"after{number}")

    def would_go():
        items = house.call("local", "daemon.gc", {"dryRun": True})["items"]
        return {item["what"]: item["count"] for item in items}["ledger segments"]

    house.clock.advance(2 * DAY - 1)
    assert would_go() == 0
    house.clock.advance(1)
    assert would_go() == 4


def test_a_clock_that_follows_the_wall_would_be_found(make_house):
    """The control: with deadlines on the wall clock, a jump of an hour ends everything that waits."""

    class WallOnly(FakeClock):
        def monotonic(self):
            return self.wall_ms() / 1000

        def move_to(self, monotonic):
            self.jump_wall(max(0.0, monotonic - self.monotonic()))

    house = make_house(clock=WallOnly())
    send(house, "t", timeoutMs=60_000)
    house.clock.jump_wall(HOUR)
    house.advance(1)
    assert status(house, "t") == "timeout"


# -- over a restart --


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_jump_while_down_makes_nothing_live_longer_and_revives_nothing(make_house, jump, clean):
    house = make_house(limits=BrokerLimits(ticket_ttl_ms=100_000))
    send(house, "expired")
    house.call("agent:Jerry", "replies.post", {"ticketId": "expired", "payload": "x"})
    house.advance(100)
    send(house, "timed-out", timeoutMs=1_000)
    house.advance(1)
    send(house, "answered")
    house.call("agent:Jerry", "replies.post", {"ticketId": "answered", "payload": "x"})
    send(house, "open", timeoutMs=50_000)
    house.clock.jump_wall(jump)
    house.restart(clean=clean)
    house.advance(0)
    assert status(house, "expired") in ("ticket expired", "unknown ticket")
    assert status(house, "timed-out") == "timeout"
    # Whatever the clock says now, no more than the whole of its time is left to anything.
    house.advance(50)
    assert status(house, "open") == "timeout"
    house.advance(50)
    assert status(house, "answered") in ("ticket expired", "unknown ticket")


def test_a_lease_does_not_outlive_the_daemon(make_house, jump):
    house = make_house()
    send(house, "t")
    assert take(house) == ["t"]
    house.clock.jump_wall(jump)
    house.restart(clean=False)
    assert take(house) == ["t"]


# -- the monotonic clock: a machine that slept, or a loop that was held up --


@pytest.mark.parametrize("seconds", [HOUR, DAY])
def test_after_a_sleep_what_is_over_has_happened_once_and_nothing_else_has(make_house, seconds):
    house = make_house(limits=BrokerLimits(ticket_ttl_ms=7 * DAY * 1000))
    send(house, "over", timeoutMs=(seconds - 1) * 1000)
    send(house, "not-over", timeoutMs=(seconds + 100) * 1000)
    assert take(house) == ["over", "not-over"]
    house.stall(seconds)
    assert (status(house, "over"), status(house, "not-over")) == ("timeout", "pending")
    # Both leases are over, and both messages come again, in their order.
    assert take(house) == ["over", "not-over"]
    assert take(house) == []
    events = [event for event in house.events() if event["event"] == "ticket.timeout"]
    assert [event["ticketId"] for event in events] == ["over"]
    house.advance(100)
    assert status(house, "not-over") == "timeout"


def test_a_sleep_gives_back_no_more_calls_than_a_burst():
    clock = FakeClock()
    quota = CallQuota(clock, per_second=1, burst=3)
    quota.take(PERSON)
    clock.advance(DAY)
    for _ in range(3):
        quota.take(PERSON)
    with pytest.raises(Overloaded):
        quota.take(PERSON)


# -- a real daemon, whose wall clock is moved under it --


def year(daemon):
    """As the daemon's own newest record says."""
    with LinkWire(daemon.link_socket) as link:
        return int(link.hello().call("ledger.tail", {"limit": 1})[-1]["at"][:4])


@pytest.mark.parametrize(("text", "years"), [("+400d", 1), ("-400d", -1)])
def test_a_daemon_whose_clock_is_moved_keeps_its_deadlines(state, tmp_path, monkeypatch, text, years):
    wall = WallClock(tmp_path / "wall", monkeypatch)
    with Living(state, lease_ms=1_500) as daemon:
        monkeypatch.delenv("LD_PRELOAD")
        local = Caller(daemon)
        jerry = local.register("Jerry")
        before = year(daemon)
        begun = time.monotonic()
        soon = local.send("Jerry", "soon", timeoutMs=1_500)
        late = local.send("Jerry", "late", timeoutMs=600_000)
        assert len(jerry.get("/agents/Jerry/inbox?waitMs=0&max=2").json["messages"]) == 2
        wall.set(text)
        local.send("Jerry", "the daemon's clock has moved")
        assert (year(daemon) - before) * years >= 1
        # Not early: neither the deadline nor the end of the lease.
        shown = local.get(f"/tickets/{soon}").json["status"]
        again = [message["ticketId"] for message in jerry.get("/agents/Jerry/inbox?waitMs=0&max=9").json["messages"]]
        if time.monotonic() < begun + 1.4:
            assert shown == "pending"
            assert soon not in again
        # Not never: both end in their own time.
        eventually(lambda: local.get(f"/tickets/{soon}").json["status"] == "timeout", "its time is over")
        assert time.monotonic() >= begun + 1.5
        eventually(lambda: soon in inbox(jerry), "its lease is over")
        assert local.get(f"/tickets/{late}").json["status"] == "pending"
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.terminal()


def inbox(caller):
    answer = caller.get("/agents/Jerry/inbox?waitMs=0&max=9")
    return [message["ticketId"] for message in answer.json["messages"]] if answer.status == 200 else []
