"""Daemons and NATS servers die, freeze, lose their storage and their ways to each other while agents talk: nothing that
was acknowledged is lost, and nothing is done twice. One server, and a cluster of three."""

import contextlib
import time

import pytest
from fleet import Proxies, fleet
from talkers import Talk

NAMES = ("desk", "laptop", "vm")
# Of each talk, before and after what happens.
ASKS = 15


@pytest.fixture(scope="module", params=[1, 3], ids=["one server", "three servers"])
def days(request):
    """Three nodes that stay for all days; each day leaves them well."""
    with fleet(request.param) as ships:
        proxies = Proxies(ships.cluster.urls, NAMES)
        try:
            ships.join(*NAMES, proxies=proxies)
            yield ships, proxies
        finally:
            proxies.close()


# What happens to a node is the same with three servers, unless for a long time: the chaos has both each time.
one_server_is_enough = pytest.mark.parametrize(
    "days", [1, pytest.param(3, marks=pytest.mark.long)], indirect=True, ids=["one server", "three servers"]
)


@contextlib.contextmanager
def talking(ships, seed):
    """Agents talk before, during and after; then everything that was acknowledged is counted."""
    talk = Talk(ships.nodes, seed)
    try:
        talk.await_asked(ASKS)
        yield
        talk.await_asked(len(talk.asks) + ASKS)
        talk.stop_asking()
        talk.await_rest()
    finally:
        talk.close()
    assert talk.faults() == []
    counts = talk.counts()
    assert counts["asked"] == counts["answered"] + counts["cancelled"] > 2 * ASKS, counts


@pytest.mark.req("MESH-DAY-1")
@one_server_is_enough
@pytest.mark.parametrize("name", ["desk", pytest.param("laptop", marks=pytest.mark.long)])
def test_a_node_that_is_killed_and_started_again_loses_nothing_and_does_nothing_twice(days, name):
    ships, _ = days
    node = next(each for each in ships.nodes if each.name == name)
    with talking(ships, 1 + NAMES.index(name)):
        node.restart()


@pytest.mark.req("MESH-DAY-2")
@one_server_is_enough
def test_a_node_that_is_frozen_for_a_while_loses_nothing(days):
    ships, _ = days
    with talking(ships, 10):
        ships.nodes[1].freeze()
        time.sleep(2)
        ships.nodes[1].thaw()


@pytest.mark.req("MESH-DAY-3")
def test_a_server_that_is_killed_and_started_again_loses_nothing(days):
    ships, _ = days
    with talking(ships, 20):
        ships.servers[0].kill()
        time.sleep(1)
        ships.servers[0].start()


@pytest.mark.req("MESH-DAY-3")
def test_a_server_that_freezes_loses_nothing(days):
    ships, _ = days
    with talking(ships, 30):
        ships.servers[0].freeze()
        time.sleep(4)
        ships.servers[0].thaw()


@pytest.mark.req("MESH-DAY-4")
def test_nats_that_lost_its_whole_storage_loses_nothing(days):
    ships, _ = days
    with talking(ships, 40):
        ships.wipe()
    for node in ships.nodes:
        node.await_well()


@pytest.mark.req("MESH-DAY-5")
@one_server_is_enough
def test_a_node_whose_way_to_nats_is_cut_loses_nothing(days):
    ships, proxies = days
    with talking(ships, 50):
        proxies.cut("laptop")
        time.sleep(2)
        proxies.heal("laptop")


@pytest.mark.req("MESH-DAY-5")
@pytest.mark.parametrize("days", [3], indirect=True, ids=["three servers"])
def test_a_server_that_is_cut_off_from_the_others_loses_nothing(days):
    ships, _ = days
    with talking(ships, 60):
        ships.routes.cut(0)
        time.sleep(4)
        ships.routes.heal(0)
