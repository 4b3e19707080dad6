"""Three servers of which one dies, freezes or is cut off, and a full disk. Nothing that was confirmed is lost."""

import asyncio
import itertools
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Self

import pytest

from bascule.mesh.machine import nats_post
from bascule.mesh.machine.login import BusFault
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.ports import Board, Fault, NotMailed
from faults.lacking import missing_here, only_root
from nats_servers import Cluster, Recorder, Routes, Server, cluster
from nats_stories import posts, run

# Letters that are under way at the same time.
SENDERS = 16


class Mailing:
    """Mails numbers without end; keeps those that the server confirmed, and goes on when it does not."""

    def __init__(self, post, dest: str) -> None:
        self.confirmed: list[int] = []
        self._post, self._dest = post, dest
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.ensure_future(self._mail()) for _ in range(SENDERS)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mail(self) -> None:
        for number in self._numbers:
            try:
                await self._post.mail(self._dest, str(number).encode())
            except NotMailed:
                await asyncio.sleep(0.1)
            else:
                self.confirmed.append(number)
            # Not as fast as it can be: the count of letters is not what this is about.
            await asyncio.sleep(0.01)


def lost(mailing: Mailing, reader: Recorder) -> set[int]:
    return set(mailing.confirmed) - {int(data) for _, data, _ in reader.mail}


async def leader(post, servers: Cluster) -> Server:
    info = json.loads(await post._bus.request("$JS.API.STREAM.INFO.BSC", b""))
    return next(server for server in servers.servers if server.config["server_name"] == info["cluster"]["leader"])


async def more(mailing: Mailing, reader: Recorder, count: int = 100) -> None:
    """So many more are confirmed, and everything that was is read."""
    goal = len(mailing.confirmed) + count
    await reader.until(lambda: len(mailing.confirmed) >= goal)


@pytest.mark.parametrize("day", ["killed", pytest.param("frozen", marks=pytest.mark.long)])
def test_three_servers_lose_no_confirmed_letter_when_the_leader_goes(tmp_path, day):
    async def story():
        with cluster(tmp_path, 3) as servers:
            await servers.set_up()
            async with posts(servers, "ada", "bob") as [(ada, _), (_, bob)]:
                async with Mailing(ada, "bob") as mailing:
                    await more(mailing, bob)
                    gone = await leader(ada, servers)
                    if day == "killed":
                        gone.kill()
                    else:
                        gone.freeze()
                    await more(mailing, bob)
                    if day == "killed":
                        gone.start()
                    else:
                        gone.thaw()
                    await more(mailing, bob)
                await bob.until(lambda: not lost(mailing, bob))
                numbers = Counter(number for _, _, number in bob.mail)
                assert max(numbers.values()) == 1
                assert bob.mailbox

    run(story)


@pytest.mark.long
def test_a_server_that_is_cut_off_from_the_others_loses_no_confirmed_letter(tmp_path):
    async def story():
        routes = Routes()
        with cluster(tmp_path, 3, routes=routes) as servers:
            await routes.start()
            await servers.set_up()
            async with posts(servers, "ada", "bob") as [(ada, _), (_, bob)]:
                async with Mailing(ada, "bob") as mailing:
                    await more(mailing, bob)
                    index = servers.servers.index(await leader(ada, servers))
                    routes.cut(index)
                    # Those at the minority are not confirmed until it is healed, or until they connect elsewhere.
                    await asyncio.sleep(10)
                    routes.heal(index)
                    await more(mailing, bob)
                await bob.until(lambda: not lost(mailing, bob))
            await routes.close()

    run(story)


@pytest.mark.long
def test_twenty_deaths_of_servers_lose_no_confirmed_letter(tmp_path):
    async def story():
        with cluster(tmp_path, 3) as servers:
            await servers.set_up()
            async with posts(servers, "ada", "bob") as [(ada, _), (_, bob)]:
                async with Mailing(ada, "bob") as mailing:
                    for turn in range(20):
                        victim = servers.servers[turn % 3]
                        if turn % 2:
                            victim.kill()
                        else:
                            victim.freeze()
                        await more(mailing, bob, 50)
                        if turn % 2:
                            victim.start()
                        else:
                            victim.thaw()
                        await more(mailing, bob, 50)
                await bob.until(lambda: not lost(mailing, bob))

    run(story, 1_500)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", place], check=False).returncode:
        missing_here("tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def enlarge(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)


async def fill(post: NatsPost) -> None:
    for number in range(200):
        await post.mail(f"node{number}", os.urandom(1_000_000))


@only_root
def test_a_full_disk_is_told_as_such_and_room_ends_it(tmp_path, small_disk):
    async def story():
        servers = Cluster(tmp_path, store=small_disk)
        # It would measure the disk, and refuse the stream.
        servers.servers[0].config["jetstream"]["max_file_store"] = 2**31
        try:
            servers.start()
            await servers.set_up()
            async with posts(servers, "ada") as [(ada, reader)]:
                with pytest.raises(NotMailed):
                    await fill(ada)
                await reader.until(lambda: ada.state.fault is Fault.FULL)
                assert "disk" in ada.state.detail
                with pytest.raises(NotMailed) as refused:
                    await ada.mail("bob", b"x" * 100_000)
                assert refused.value.fault is Fault.FULL
                servers.servers[0].kill()
                enlarge(small_disk)
                servers.servers[0].start()
                await reader.until(lambda: ada.state.open and ada.state.fault is None)
                await ada.mail("bob", b"there is room")
        finally:
            servers.end()

    run(story)


def test_a_stream_that_is_full_drops_its_oldest_letters_and_takes_new_ones(tmp_path):
    async def story():
        with cluster(tmp_path) as servers:
            await servers.set_up(max_bytes=4_000_000)
            async with posts(servers, "ada") as [(ada, _)]:
                for number in range(8):
                    await ada.mail("bob", str(number).encode() + b"x" * 999_000)
                async with posts(servers, "bob") as [(_, bob)]:
                    await bob.until(lambda: bob.mail and bob.mail[-1][1].startswith(b"7"))
                    assert len(bob.mail) < 8
                    assert ada.state.fault is None

    run(story)


def test_a_board_that_is_full_is_told_as_such(tmp_path, monkeypatch):
    async def story():
        monkeypatch.setattr("bascule.mesh.machine.layout.BOARD_BYTES", 100_000)
        with cluster(tmp_path) as servers:
            await servers.set_up()
            async with posts(servers, "ada") as [(ada, reader)]:
                ada.put(Board.DIRECTORY, "ada", b"x" * 200_000)
                await reader.until(lambda: ada.state.fault is Fault.FULL)
                ada.put(Board.DIRECTORY, "ada", b"x")
                await reader.until(lambda: ada.state.fault is None)

    run(story)


@pytest.mark.parametrize("again", [True, False], ids=["guarded", "control"])
def test_a_fault_that_is_over_is_not_told_for_ever_although_nobody_has_a_letter_to_send(tmp_path, monkeypatch, again):
    async def story():
        monkeypatch.setattr(nats_post, "MAIL_AGAIN_SECONDS", 0.2 if again else 600.0)
        with cluster(tmp_path) as servers:
            await servers.set_up()
            async with posts(servers, "ada") as [(ada, reader)]:
                ada._fault("mail", BusFault(Fault.FULL, "its disk was full a moment ago"))
                assert ada.state.fault is Fault.FULL
                if again:
                    await reader.until(lambda: ada.state.fault is None)
                else:
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(1.0):
                            await reader.until(lambda: ada.state.fault is None)

    run(story)
