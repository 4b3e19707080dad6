"""The post over one real nats-server: letters, boards, and days on which the server dies, freezes or forgets."""

import asyncio

import pytest
import uvloop

from bascule.mesh.cards import Keys
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.ports import Board, Fault, NotMailed
from nats_servers import AUTHORITY, Recorder, cluster
from nats_stories import posts, run
from patience import PATIENCE


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server for tests that do it no harm; each uses nodes of its own."""
    with cluster(tmp_path_factory.mktemp("nats")) as servers:
        uvloop.run(servers.set_up())
        yield servers


@pytest.fixture
def server(tmp_path):
    with cluster(tmp_path) as servers:
        uvloop.run(servers.set_up())
        yield servers


def test_a_live_letter_arrives_with_the_name_of_its_sender(shared):
    async def story():
        async with posts(shared, "ada", "bob") as [(ada, _), (_, bob)]:
            assert ada.send("bob", b"\x00letter")
            await bob.until(lambda: bob.live_letters)
            assert bob.live_letters == [("ada", b"\x00letter")]

    run(story)


def test_mail_waits_for_a_node_that_is_away_and_comes_in_order(shared):
    async def story():
        async with posts(shared, "cy") as [(cy, _)]:
            for number in range(600):
                await cy.mail("dan", str(number).encode())
            async with posts(shared, "dan") as [(_, dan)]:
                await dan.until(lambda: len(dan.mail) == 600)
                assert [data for _, data, _ in dan.mail] == [str(number).encode() for number in range(600)]
                numbers = [number for _, _, number in dan.mail]
                assert numbers == sorted(set(numbers))
                assert {src for src, _, _ in dan.mail} == {"cy"}
                await cy.mail("dan", b"now")
                await dan.until(lambda: dan.mail[-1][1] == b"now")

    run(story)


def test_a_restarted_node_reads_from_its_cursor_on(shared):
    async def story():
        async with posts(shared, "eva") as [(eva, _)]:
            async with posts(shared, "fay") as [(_, fay)]:
                await eva.mail("fay", b"read")
                await fay.until(lambda: fay.mail)
            await eva.mail("fay", b"not read yet")
            again = NatsPost("fay", shared.keys["fay"], shared.urls)
            fay.mail.clear()
            await again.open(fay)
            await fay.until(lambda: fay.mail)
            assert [data for _, data, _ in fay.mail] == [b"not read yet"]
            await again.close()

    run(story)


@pytest.mark.req("MESH-TICKET-4")
def test_a_letter_as_large_as_the_server_takes_arrives_and_a_larger_one_is_refused(shared):
    async def story():
        async with posts(shared, "gil", "hal") as [(gil, _), (_, hal)]:
            assert gil.max_bytes == 2 * 1024 * 1024
            for _ in range(6):
                await gil.mail("hal", b"x" * gil.max_bytes)
            # More than one pull may bring: the next one goes on.
            await hal.until(lambda: len(hal.mail) == 6)
            with pytest.raises(NotMailed):
                await gil.mail("hal", b"x" * (gil.max_bytes + 1))
            assert not gil.send("hal", b"x" * (gil.max_bytes + 1))
            assert gil.state.open

    run(story)


def test_a_letter_that_looks_like_a_word_of_the_server_is_only_a_letter(shared):
    async def story():
        async with posts(shared, "ida", "jon") as [(ida, _), (_, jon)]:
            for status in ("100", "408", "409 Consumer Deleted", "503"):
                head = f"NATS/1.0 {status}\r\n\r\n".encode()
                ida._bus._connection._write(b"HPUB bsc.m.jon.ida %d %d\r\n%s\r\n" % (len(head), len(head), head))
            await ida.mail("jon", b"after")
            await jon.until(lambda: jon.mail and jon.mail[-1][1] == b"after")
            assert len(jon.mail) == 5
            assert jon.openings == 1

    run(story)


def test_values_on_a_board_reach_everybody_and_those_who_come_later(shared):
    async def story():
        async with posts(shared, "kim", "lea") as [(kim, kim_reads), (_, lea)]:
            kim.put(Board.DIRECTORY, "kim", b"old")
            kim.put(Board.DIRECTORY, "kim", b"new")
            kim.put(Board.CARDS, "kim", b"card")
            for reader in (kim_reads, lea):
                await reader.until(lambda reader=reader: reader.boards.get((Board.CARDS, "kim"), [0])[0] == b"card")
                await reader.until(lambda reader=reader: reader.boards.get((Board.DIRECTORY, "kim"), [0])[0] == b"new")
            async with posts(shared, "max") as [(_, later)]:
                await later.until(lambda: (Board.DIRECTORY, "kim") in later.boards)
                assert later.boards[Board.DIRECTORY, "kim"][0] == b"new"

    run(story)


def test_a_node_that_closes_is_gone_from_the_board_of_the_living_at_once(shared):
    async def story():
        async with posts(shared, "ned") as [(_, ned)]:
            async with posts(shared, "ole") as [(ole, _)]:
                ole.put(Board.LIVE, "ole", b"alive")
                await ned.until(lambda: ned.boards.get((Board.LIVE, "ole"), [None])[0] == b"alive")
            await ned.until(lambda: ned.boards[Board.LIVE, "ole"][0] is None)

    run(story)


def test_the_clock_is_compared_with_the_servers(shared, monkeypatch):
    async def story():
        async with posts(shared, "pia") as [(pia, reader)]:
            assert abs(pia.state.skew_ms) < 1_000
            import time

            real = time.time
            monkeypatch.setattr("bascule.mesh.machine.nats_post.time.time", lambda: real() + 3_600)
            pia.put(Board.LIVE, "pia", b"alive")
            await reader.until(lambda: (Board.LIVE, "pia") in reader.boards)
            assert 3_590_000 < pia.state.skew_ms < 3_610_000
            # The age of a value is by the server's clock alone.
            assert reader.boards[Board.LIVE, "pia"][1] < 30_000

    run(story)


def test_a_value_that_is_old_says_how_old_it_is(shared):
    async def story():
        async with posts(shared, "quy") as [(quy, reader)]:
            quy.put(Board.DIRECTORY, "quy", b"here")
            await reader.until(lambda: (Board.DIRECTORY, "quy") in reader.boards)
            await asyncio.sleep(0.5)
            async with posts(shared, "rex") as [(_, rex)]:
                await rex.until(lambda: (Board.DIRECTORY, "quy") in rex.boards)
                assert 500 <= rex.boards[Board.DIRECTORY, "quy"][1] < 1_000 * PATIENCE

    run(story)


# -- bad days


def test_nothing_is_sent_or_mailed_before_the_post_is_open():
    async def story():
        post = NatsPost("ada", Keys.new(), ("nats://127.0.0.1:1",))
        reader = Recorder()
        await post.open(reader)
        await reader.until(lambda: "does not answer" in post.state.detail)
        assert post.state.fault is Fault.UNREACHABLE
        assert not post.send("bob", b"")
        with pytest.raises(NotMailed) as refused:
            await post.mail("bob", b"")
        assert refused.value.fault is Fault.UNREACHABLE
        await post.close()

    run(story)


def test_a_killed_server_closes_the_post_and_its_return_opens_it_with_all_mail(server):
    async def story():
        async with posts(server, "ada", "bob") as [(ada, ada_reads), (_, bob)]:
            tasks = len(asyncio.all_tasks())
            ada.put(Board.LIVE, "ada", b"alive")
            await ada.mail("bob", b"one")
            await bob.until(lambda: bob.mail)
            server.servers[0].kill()
            await bob.until(lambda: not bob.is_open)
            await ada_reads.until(lambda: not ada_reads.is_open)
            assert not ada.send("bob", b"")
            assert ada.state.fault is Fault.UNREACHABLE
            bob.boards.clear()
            name = bob.mailbox
            server.servers[0].start()
            await bob.until(lambda: bob.is_open)
            await ada_reads.until(lambda: ada_reads.is_open)
            assert bob.mailbox == name
            await ada.mail("bob", b"two")
            await bob.until(lambda: len(bob.mail) == 2)
            # Put again without being asked to.
            await bob.until(lambda: bob.boards.get((Board.LIVE, "ada"), [None])[0] == b"alive")
            # The lost connections have left nothing behind.
            await bob.until(lambda: len(asyncio.all_tasks()) == tasks)

    run(story)


def test_a_frozen_server_is_noticed(server):
    async def story():
        async with posts(server, "ada", "bob") as [(ada, ada_reads), (_, bob)]:
            server.servers[0].freeze()
            try:
                await ada_reads.until(lambda: not ada_reads.is_open)
                with pytest.raises(NotMailed):
                    await ada.mail("bob", b"lost")
            finally:
                server.servers[0].thaw()
            await ada_reads.until(lambda: ada_reads.is_open)
            await bob.until(lambda: bob.is_open)
            await ada.mail("bob", b"arrives")
            await bob.until(lambda: bob.mail)

    run(story)


def test_wiped_storage_is_another_mailbox_read_from_its_beginning(server):
    async def story():
        async with posts(server, "ada", "bob") as [(ada, ada_reads), (_, bob)]:
            for _ in range(3):
                await ada.mail("bob", b"before")
            await bob.until(lambda: len(bob.mail) == 3)
            before = bob.mailbox
            server.servers[0].kill()
            server.servers[0].wipe()
            server.servers[0].start()
            await ada_reads.until(lambda: ada.state.fault is Fault.NOT_SET_UP)
            assert "mesh init" in ada.state.detail
            await server.set_up()
            await ada_reads.until(lambda: ada_reads.is_open)
            await ada.mail("bob", b"after")
            await bob.until(lambda: len(bob.mail) == 4)
            assert bob.mailbox != before
            assert bob.mail[-1] == ("ada", b"after", 1)

    run(story)


def test_a_revoked_key_is_cut_off_at_once_and_told_so(server):
    async def story():
        async with posts(server, "ada", "bob") as [(ada, reader), (bob, _)]:
            keys = server.keys["ada"]
            server.revoke("ada")
            await reader.until(lambda: not reader.is_open)
            await reader.until(lambda: ada.state.fault is Fault.REFUSED)
            assert "revoked" in ada.state.detail
            assert bob.state.open
            # It tries for ever: accepted again, it is back without a word from anybody.
            server.keys["ada"] = keys
            server.reload()
            await reader.until(lambda: reader.is_open)

    run(story)


def test_a_consumer_that_somebody_deleted_is_made_again(server):
    async def story():
        async with posts(server, "ada", "bob") as [(ada, _), (bob, bob_reads)]:
            await ada.mail("bob", b"one")
            await bob_reads.until(lambda: bob_reads.mail)
            await bob._bus.api("CONSUMER.DELETE.BSC.bob")
            await ada.mail("bob", b"two")
            await bob_reads.until(lambda: len(bob_reads.mail) == 2)
            assert bob_reads.openings == 1

    run(story)


def test_an_end_that_the_server_lost_is_read_again_from_the_beginning(server):
    async def story():
        async with posts(server, "ada") as [(ada, _)]:
            await ada.mail("bob", b"one")
            server.node("bob")
            server.reload()
            reader = Recorder()
            post = NatsPost("bob", server.keys["bob"], server.urls)
            # It has read further than the stream goes.
            reader.cursors[ada._mailbox] = 9
            await post.open(reader)
            await reader.until(lambda: reader.mail)
            assert [data for _, data, _ in reader.mail] == [b"one"]
            await post.close()

    run(story)


def test_a_server_without_the_stream_says_what_to_do(tmp_path):
    async def story():
        with cluster(tmp_path) as servers:
            post = NatsPost(AUTHORITY, servers.keys[AUTHORITY], servers.urls)
            reader = Recorder()
            await post.open(reader)
            await reader.until(lambda: post.state.fault is Fault.NOT_SET_UP)
            assert "bascule mesh init" in post.state.detail
            await servers.set_up()
            await reader.until(lambda: reader.is_open)
            # A second time nothing happens to what is there.
            name = reader.mailbox
            await servers.set_up()
            assert (await post._mailbox_now(post._bus))[0] == name
            await post.close()

    run(story)
