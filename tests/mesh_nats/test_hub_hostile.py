"""Who has a code, or is a node, and means ill: the hub goes on. Each attack has its control."""

import asyncio
import json
import subprocess
from collections import Counter

import pytest
from hub_scene import opened, started, until

from bascule.mesh.cards import Keys
from bascule.mesh.machine import hub_config, nats_post
from bascule.mesh.machine.bus import Bus
from bascule.mesh.machine.login import BusFault, fetch_certificate
from bascule.mesh.machine.nats_program import find_program
from bascule.mesh.ports import Fault
from nats_stories import run
from patience import PATIENCE


def test_two_nodes_with_one_login_do_not_end_the_server(tmp_path):
    """Whoever could be admitted with the key of another one would end it for good."""
    key, other = Keys.new().public[2], Keys.new().public[2]

    def is_taken(users) -> bool:
        files = hub_config.HubFiles(*(str(tmp_path / name) for name in ("cert", "key", "store", "log", "pid")))
        config = hub_config.config("127.0.0.1", 4222, files, 2**20, users)
        # Files that are not there yet are none of its business here.
        del config["tls"]
        path = tmp_path / "server.conf"
        path.write_text(json.dumps(config))
        done = subprocess.run([find_program(), "-t", "-c", path], capture_output=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0 or b"Duplicate nkey" in done.stderr, done.stderr
        return done.returncode == 0

    users = hub_config.users("home", {"evil": key, "home": key, "vm": other}, [other])
    assert [each["nkey"] for each in users] == [hub_config.user(key), hub_config.user(other)]
    assert "bsc.j.*" in users[0]["permissions"]["subscribe"]["allow"]
    assert is_taken(users)
    # The control.
    assert not is_taken([*users, users[0]])


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999), ("a..b", 4222), ("x" * 64, 4222)])
def test_an_address_that_is_none_is_not_reached(host, port):
    """A join code may say anything."""

    async def story():
        with pytest.raises(BusFault) as failed:
            await fetch_certificate(host, port)
        assert failed.value.fault is Fault.UNREACHABLE

    run(story)


@pytest.mark.req("MESH-TRUST-12")
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_who_knocks_without_end_is_heard_some_times_in_a_second(tmp_path, monkeypatch, guarded):
    if not guarded:
        monkeypatch.setattr(nats_post, "MAX_KNOCKS_PER_SECOND", 10**9)

    async def story():
        async with started(tmp_path) as home:
            joiner = Keys.new()
            await home.hub.invite(joiner.public[2], 600)
            post = home.post("home", home.keys)
            taken: Counter[int] = Counter()

            async def answer(_node: str, _data: bytes) -> bytes:
                taken[int(asyncio.get_running_loop().time())] += 1
                return b"waiting"

            post.on_join(answer)
            async with opened(post):
                login = home.login(hub_config.user(joiner.public[2]), joiner)
                flood = await Bus.connect(login, home.servers[0], lambda what, error: None)
                # So that they come in many pieces, of which each is looked at by itself.
                for _ in range(150):
                    for _ in range(10):
                        flood.publish("bsc.j.laptop", b"x", f"{flood.inbox}.knock")
                    await flood.answers()
                assert (max(taken.values()) <= 50) is guarded, taken
                # In the next second it is taken again, as is everybody.
                second = int(asyncio.get_running_loop().time())
                await until(lambda: int(asyncio.get_running_loop().time()) > second)
                assert await flood.request("bsc.j.laptop", b"me", PATIENCE) == b"waiting"
                flood.close()

    run(story)


@pytest.mark.parametrize(("count", "is_lost"), [(100, True), (50, False)], ids=["too many", "control"])
def test_a_node_has_as_many_subscriptions_as_it_can_use_and_no_more(tmp_path, count, is_lost):
    async def story():
        async with started(tmp_path) as home:
            keys = Keys.new()
            await home.hub.admit("evil", keys.public[2])
            bus = await Bus.connect(home.login("evil", keys), home.servers[0], lambda what, error: None)
            for number in range(count):
                bus.subscribe(f"{bus.inbox}.{number}", lambda _message: None)
            await bus.answers()
            assert bus.lost.done() is is_lost
            assert not is_lost or "subscriptions" in bus.lost.result()
            bus.close()

    run(story)
