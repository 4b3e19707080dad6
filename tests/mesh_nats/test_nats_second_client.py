"""Our client and nats-py at one server: what the one says the other reads, both ways."""

import asyncio
import contextlib

import nats
import pytest

from bascule.mesh.cards import Keys
from bascule.mesh.machine import layout
from bascule.mesh.machine.bus import Bus
from bascule.mesh.machine.login import Login
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.machine.set_up import set_up
from bascule.mesh.ports import Board
from nats_servers import Recorder, Server
from nats_stories import run
from patience import PATIENCE
from ports import free_port

# Every byte, what ends a line of the protocol, and more than one read brings.
PAYLOADS = [b"", b"hello", bytes(range(256)), b"MSG a 1 5\r\nhello\r\n", b"x" * 300_000]


@pytest.fixture
def server(tmp_path):
    """One that lets everybody in."""
    port = free_port()
    config = {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(tmp_path / "store")}}
    server = Server(tmp_path / "nats", config, port)
    server.start()
    yield server
    server.kill()


@contextlib.asynccontextmanager
async def second_client(server):
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        # Its tasks outlive a loop that only cancels them.
        await client.close()


def test_two_clients_publish_subscribe_and_ask_each_other(server):
    async def story():
        async with second_client(server) as theirs:
            bus = await Bus.connect(Login("ada", Keys.new().bus, (server.url,)), server.url, pytest.fail)
            with contextlib.closing(bus) as ours:
                got: asyncio.Queue = asyncio.Queue()
                ours.subscribe("to.ours.*", got.put_nowait)
                assert await ours.answers()
                subscribed = await theirs.subscribe("to.theirs.>")
                # Its `flush` sends a ping ahead of what waits: only its own message shows that it is subscribed.
                await theirs.publish("to.theirs.itself")
                assert (await subscribed.next_msg(PATIENCE)).subject == "to.theirs.itself"
                for data in PAYLOADS:
                    ours.publish("to.theirs.a.b", data, headers={"Nats-Msg-Id": "one", "Other": "two words"})
                    read = await subscribed.next_msg(PATIENCE)
                    assert (read.subject, read.data) == ("to.theirs.a.b", data)
                    assert read.headers == {"Nats-Msg-Id": "one", "Other": "two words"}
                    for headers in ({"Nats-Msg-Id": "one", "Other": "two words"}, {}):
                        await theirs.publish("to.ours.a", data, headers=headers or None)
                        message = await got.get()
                        assert (message.subject, message.data, message.headers) == ("to.ours.a", data, headers)

                # Requests: each answers the other one.
                async def answer(asked):
                    await asked.respond(b"theirs: " + asked.data)

                await theirs.subscribe("ask.theirs", cb=answer)
                assert (await theirs.request("ask.theirs", b"me", PATIENCE)).data == b"theirs: me"
                assert await ours.request("ask.theirs", b"who?") == b"theirs: who?"
                ours.subscribe("ask.ours", lambda asked: ours.publish(asked.reply, b"ours: " + asked.data))
                assert await ours.answers()
                answered = await theirs.request("ask.ours", b"who?", PATIENCE)
                assert answered.data == b"ours: who?"

    run(story)


def test_two_clients_read_each_others_mail_and_boards(server):
    async def story():
        await set_up(Login("hub", Keys.new().bus, (server.url,)))
        async with contextlib.AsyncExitStack() as stack:
            theirs = await stack.enter_async_context(second_client(server))
            stream = theirs.jetstream()
            ours, reader = NatsPost("ada", Keys.new(), (server.url,)), Recorder()
            stack.push_async_callback(ours.close)
            await ours.open(reader)
            await reader.until(lambda: reader.is_open)
            pulled = await stream.pull_subscribe(layout.mail("eve", "*"), stream=layout.STREAM)
            for number, data in enumerate(PAYLOADS):
                # Confirmed by the server, and pulled by the other.
                await ours.mail("eve", data)
                (letter,) = await pulled.fetch(1, timeout=PATIENCE)
                assert (letter.subject, letter.data) == (layout.mail("eve", "ada"), data)
                await letter.ack()
                stored = await stream.publish(layout.mail("ada", "eve"), data, headers={"Nats-Msg-Id": str(number)})
                assert stored.stream == layout.STREAM
                await reader.until(lambda number=number: len(reader.mail) > number)
                assert reader.mail[-1] == ("eve", data, stored.seq)
            # The control: a header of theirs is understood by the server, so this one is no second letter.
            again = await stream.publish(layout.mail("ada", "eve"), b"again", headers={"Nats-Msg-Id": "0"})
            assert again.duplicate
            board = await stream.key_value(f"bsc_{Board.DIRECTORY}")
            ours.put(Board.DIRECTORY, "ada", b"of ours")
            await reader.until(lambda: reader.boards.get((Board.DIRECTORY, "ada"), (b"",))[0] == b"of ours")
            assert (await board.get("ada")).value == b"of ours"
            await board.put("eve", b"of theirs")
            await reader.until(lambda: reader.boards.get((Board.DIRECTORY, "eve"), (b"",))[0] == b"of theirs")
            assert len(reader.mail) == len(PAYLOADS)

    run(story)
