"""Thousands who wait: all are held, all are woken, nothing stays behind; and what the limits say to one more."""

import contextlib
import os
import resource

import pytest
from wires import Caller, Wire, request

from bascule.daemon.descriptors import RESERVED_FILES, WANTED_FILES, port_share, room_for_connections
from bascule.surfaces.http.server import MAX_CONNECTIONS
from load_scenes import Swarm, descriptors, gauge, polls, rss_bytes, threads, until
from patience import PATIENCE

AGENTS, EACH = 100, 100
# Threads of the loop's own pool, started when anchors are written and kept.
POOL = (os.cpu_count() or 1) + 4
# The bound; a test that passes at ten times the usual figure would not see a leak of this size.
MAX_RSS = 300e6


@pytest.mark.parametrize("door", ["tcp", "link", pytest.param("unix", marks=pytest.mark.long)])
def test_ten_thousand_long_polls_are_held_and_each_hears_its_own_reply(door, start, record_property):
    _, target = start()
    threads_before = threads(target.pid)
    seen = polls(target, door=door, agents=AGENTS, each=EACH)
    record_property(f"polls_{door}", seen)
    assert seen["held"] == AGENTS * EACH
    assert seen["early"] == 0
    assert seen["outcomes"] == {"replied": AGENTS * EACH}
    # That we count them at all: over HTTP each poll is a connection.
    connections = 0 if door == "link" else AGENTS * EACH
    assert connections <= seen["connections_held"] <= connections + 2
    assert seen["peak_rss_mb"] * 1e6 < MAX_RSS
    assert seen["descriptors_left"] <= 0
    assert seen["waits_left"] == 0
    assert threads(target.pid) <= threads_before + POOL


def test_polls_that_nobody_answers_end_by_themselves_and_hear_nothing(start):
    # The control of the test above: `replied` is not what every poll is counted as.
    _, target = start(durability="memory")
    with Swarm(target) as swarm:
        swarm.do("send", agents=5, each=10)
        swarm.do("hold", door="tcp", wait_ms=200)
        assert swarm.do("outcomes", seconds=PATIENCE)["outcomes"] == {"204": 50}


def test_pollers_that_vanish_leave_no_waiter_and_no_descriptor(start):
    _, target = start(durability="memory")
    with Swarm(target) as swarm:
        swarm.do("send", agents=20, each=50)
        before = descriptors(target.pid)
        swarm.do("hold", door="tcp", wait_ms=60_000)
        assert until(lambda: gauge(target, "bascule_waits") == 1_000, PATIENCE)
        swarm.process.kill()
        swarm.process.wait()
    assert until(lambda: gauge(target, "bascule_waits") == 0, PATIENCE)
    assert until(lambda: descriptors(target.pid) < before, PATIENCE)


def test_one_poll_above_the_default_limit_is_told_so_and_harms_nobody(start):
    living, target = start(durability="memory")
    with Swarm(target) as swarm:
        swarm.do("send", agents=2, each=100)
        # 1,100 of each agent; the default is 1,000.
        swarm.do("hold", door="tcp", wait_ms=60_000, copies=11)
        assert until(lambda: gauge(target, "bascule_waits") == 2_000, PATIENCE)
        ended = swarm.do("outcomes", seconds=0.1)["outcomes"]
        assert ended == {"429": 200, "open": 2_000}
        # Before the other one sends more than a page of tickets shows.
        ticket = _a_ticket(living)
        with Swarm(target) as other:
            assert other.do("measure", what="ask", seconds=0.2, pause_s=0)["count"] > 0
        answer = Caller(living, _token(living, "a0")).get(f"/replies/{ticket}?waitMs=1000")
        assert answer.status == 429
        assert "1000 waits" in answer.error["message"]
        assert answer.headers["retry-after"]
        assert swarm.do("reply")["outcomes"] == {"replied": 2_000, "429": 200}


def test_one_connection_above_the_limit_hears_503_and_there_is_room_again_after_it(start):
    living, _ = start(durability="memory", constants={"bascule.surfaces.http.server.MAX_CONNECTIONS": 20})
    wires = [Wire(living.tcp) for _ in range(20)]
    with Wire(living.tcp) as late:
        status, headers = late.head()
        assert status == 503
        assert headers["retry-after"]
        assert late.closed()
    # The other door has its own number.
    with Wire(living.http_socket) as unix:
        assert unix.ask("GET", "/healthz", [("Host", "localhost")]).status == 200
    assert wires[0].ask("GET", "/healthz", Caller(living).headers).status == 200
    for wire in wires:
        wire.close()
    assert until(lambda: _answers(living), PATIENCE)


def test_a_daemon_with_few_descriptors_says_so_before_it_runs_out_of_them(start):
    """The port takes what the limit allows and refuses the next one; store, log and socket still have theirs."""
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (120, 240))"
    living, target = start(durability="memory", bug=few)
    assert resource.prlimit(target.pid, resource.RLIMIT_NOFILE)[0] == 240
    room = room_for_connections(240)
    with contextlib.ExitStack() as held:
        for _ in range(port_share(room)):
            held.enter_context(Wire(living.tcp))
        with Wire(living.tcp) as late:
            assert late.head()[0] == 503
        # Who fills the port has not filled the socket; with it both are full, and the daemon still has its files.
        for _ in range(room - port_share(room)):
            unix = held.enter_context(Wire(living.http_socket))
        assert unix.ask("GET", "/healthz", [("Host", "localhost")]).status == 200
        with Wire(living.http_socket) as late:
            assert late.head()[0] == 503
        assert descriptors(target.pid) < 240
    assert until(lambda: _answers(living), PATIENCE)


@pytest.mark.parametrize("files", [64, 256, 1_024, 20_000, WANTED_FILES, 1_000_000])
def test_clients_leave_room_for_files(files):
    room = room_for_connections(files)
    assert files - room >= min(RESERVED_FILES, files // 2)
    assert 0 < port_share(room) < room
    assert port_share(room_for_connections(20_000)) == MAX_CONNECTIONS


def test_a_daemon_out_of_descriptors_serves_whom_it_has_and_comes_back(start):
    living, target = start(durability="memory")
    with Swarm(target) as good:
        assert good.do("measure", what="ask", seconds=0.1, pause_s=0)["count"] > 0
        resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (descriptors(target.pid) + 30, 20_000))
        wires = [Wire(living.tcp) for _ in range(60)]
        # Those who are in are served; that others wait outside costs them nothing.
        assert good.do("measure", what="ask", seconds=0.3, pause_s=0)["count"] > 0
        for wire in wires:
            wire.close()
        assert until(lambda: _answers(living), PATIENCE)
        assert good.do("measure", what="fresh", seconds=0.1, pause_s=0)["count"] > 0


def test_memory_of_waiters_is_given_back(start, record_property):
    """Twice the same crowd: the second one finds the room of the first."""
    _, target = start(durability="memory", ticket_ttl_ms=100)
    polls(target, door="tcp", agents=20, each=100)
    first = rss_bytes(target.pid)
    for _ in range(3):
        polls(target, door="tcp", agents=20, each=100)
    grown = rss_bytes(target.pid) - first
    record_property("rss_grown_mb", grown / 1e6)
    # A crowd holds 35 MB: one that stayed behind would be seen.
    assert grown < 25e6


def _answers(living):
    try:
        return Caller(living).get("/healthz").status == 200
    except (AssertionError, OSError):
        return False


def _token(living, name):
    with open(f"{living.state}/tokens/{name}.token", encoding="ascii") as file:
        return file.read().strip()


def _a_ticket(living):
    listed = Caller(living).get("/tickets?limit=500").json
    return next(ticket["ticketId"] for ticket in listed if ticket["from"] == "a0")


@pytest.mark.parametrize("path", ["/events", "/agents/a/inbox/stream", "/agents/a/inbox?waitMs=1500"])
def test_a_client_that_leaves_with_a_request_queued_behind_its_stream_leaves_nothing(path, start):
    # The server reads nothing more while a request is queued, so only writing shows that nobody is there.
    living, target = start(durability="memory", constants={"bascule.surfaces.http.streams.SSE_PING_SECONDS": 0.1})
    agent = Caller(living).register("a")
    before = descriptors(target.pid)
    wires = [Wire(living.tcp) for _ in range(20)]
    for wire in wires:
        wire.send(request("GET", path, agent.headers) + request("GET", "/healthz", agent.headers))
    assert until(lambda: gauge(target, "bascule_waits") == 20, PATIENCE)
    for wire in wires:
        wire.close()
    assert until(lambda: gauge(target, "bascule_waits") == 0, PATIENCE)
    assert until(lambda: descriptors(target.pid) <= before, PATIENCE)
