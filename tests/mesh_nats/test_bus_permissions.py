"""What a hostile node tries on the bus with a key of its own, and what stops it.

Each attack has a control: the same command by a user who may do everything works, so that the attack is one.
"""

import asyncio
import json

import pytest
import uvloop

import nats_stories
from bascule.mesh.cards import Keys
from bascule.mesh.machine import hub_config, layout
from bascule.mesh.machine.bus import Bus
from bascule.mesh.machine.layout import Permissions
from bascule.mesh.machine.login import BusFault
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.ports import MAX_VALUE_BYTES, Board, Fault
from nats_servers import Recorder, cluster
from nats_stories import posts

# A user for whom nothing is forbidden: the control of every attack.
ROOT = "root"


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("nats")) as made:
        keys = made.keys[ROOT] = Keys.new()
        usual = made._write

        def write() -> None:
            usual()
            users = made.servers[0].config["authorization"]["users"]
            users[:] = [each for each in users if each["nkey"] != hub_config.user(keys.public[2])]
            users.append(hub_config.entry(keys.public[2], Permissions([">"], [">"])))

        made._write = write
        made.node("mallory")
        made.node("vm")
        made.node("desk")
        made.reload()
        uvloop.run(made.set_up())
        yield made


# Of the story that runs.
_connected: list[Bus] = []


async def connected(servers, name: str) -> Bus:
    login = servers.login(name)
    _connected.append(await Bus.connect(login, login.servers[0], lambda what, error: None))
    return _connected[-1]


def run(story) -> None:
    async def closed_at_the_end() -> None:
        try:
            await story()
        finally:
            while _connected:
                _connected.pop().close()

    nats_stories.run(closed_at_the_end)


def stream_command(name: str, body=None):
    async def act(bus: Bus) -> None:
        await bus.api(name, body)

    return act


def consumer_of(stream: str, name: str, subject: str):
    return stream_command(f"CONSUMER.CREATE.{stream}.{name}.{subject}", layout.consumer(stream, name, subject, 1))


def published(subject: str):
    async def act(bus: Bus) -> None:
        await bus.request(subject, b"forged")

    return act


# By what they are; none destroys what the next one needs, so that controls can follow.
FORBIDDEN = {
    "a letter from another node": published("bsc.m.desk.vm"),
    "a sign of life of another node": published("$KV.bsc_live.vm"),
    "a listing of another node": published("$KV.bsc_dir.vm"),
    "a card of another node": published("$KV.bsc_cards.vm"),
    "the list of the revoked": published("$KV.bsc_cards._revoked"),
    "a consumer of another mailbox under its own name": consumer_of("BSC", "mallory", "bsc.m.vm.*"),
    "a consumer of all mailboxes": consumer_of("BSC", "mallory", "bsc.m.>"),
    "a consumer with another node's name": consumer_of("BSC", "vm", "bsc.m.vm.*"),
    "a consumer without a name": stream_command(
        "CONSUMER.CREATE.BSC", {"stream_name": "BSC", "config": {"ack_policy": "none", "deliver_policy": "all"}}
    ),
    "a durable consumer": stream_command(
        "CONSUMER.DURABLE.CREATE.BSC.evil",
        {"stream_name": "BSC", "config": {"durable_name": "evil", "ack_policy": "none", "deliver_policy": "all"}},
    ),
    "reading one letter by its number": stream_command("STREAM.MSG.GET.BSC", {"seq": 1}),
    "deleting one letter": stream_command("STREAM.MSG.DELETE.BSC", {"seq": 1}),
    "a list of the consumers": stream_command("CONSUMER.NAMES.BSC"),
    "an update of the stream": stream_command("STREAM.UPDATE.BSC", layout.streams(1, 2**30)[0]),
    "another stream": stream_command("STREAM.CREATE.EVIL", {"name": "EVIL", "subjects": ["evil"]}),
    "a snapshot of the stream": stream_command("STREAM.SNAPSHOT.BSC", {"deliver_subject": "_INBOX_x.y"}),
    "emptying the stream": stream_command("STREAM.PURGE.BSC"),
    "emptying a board": stream_command("STREAM.PURGE.KV_bsc_cards"),
}


@pytest.mark.req("MESH-TRUST-11")
@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_node_may_not_do_what_is_not_its_own(servers, what):
    async def story():
        async with posts(servers, "desk") as [(desk, _)]:
            # Something for the commands that need a letter.
            await desk.mail("vm", b"secret")
        mallory = await connected(servers, "mallory")
        with pytest.raises(BusFault) as refused:
            await FORBIDDEN[what](mallory)
        assert refused.value.fault is Fault.FORBIDDEN
        root = await connected(servers, ROOT)
        try:
            await FORBIDDEN[what](root)
        except BusFault as fault:
            # Some are refused for another reason, which says that they reached what answers.
            assert fault.fault is not Fault.FORBIDDEN  # noqa: PT017 - it need not be raised

    run(story)


@pytest.mark.req("MESH-TRUST-11")
@pytest.mark.parametrize(
    "subject", ["bsc.l.vm.>", "bsc.l.>", "bsc.m.vm.*", "_INBOX_vm.>", "_INBOX.>", ">", "$KV.>", "bsc.j.*", "$JS.>"]
)
def test_a_node_may_not_listen_to_what_is_for_others(servers, subject):
    async def story():
        received: dict[str, list[object]] = {"mallory": [], ROOT: []}
        refused: list[str] = []
        spies = []
        for name, letters in received.items():
            spy = await connected(servers, name)
            spy.on_forbidden = lambda asked, _fault: refused.append(asked)
            spy.subscribe(subject, letters.append)
            assert await spy.answers()
            spies.append(spy)
        assert [asked.lower() for asked in refused] == [subject.lower()]
        async with posts(servers, "vm", "desk") as [(_, vm), (desk, _)]:
            desk.send("vm", b"live")
            await desk.mail("vm", b"mail")
            desk.put(Board.LIVE, "desk", b"alive")
            await vm.until(lambda: vm.live_letters and vm.mail and (Board.LIVE, "desk") in vm.boards)
        for spy in spies:
            await spy.answers()
        assert received["mallory"] == []
        # The control; nobody asks to join here, and inboxes have names of their own.
        assert received[ROOT] or subject in ("bsc.j.*", "_INBOX.>")

    run(story)


def test_a_consumer_whose_body_names_another_mailbox_is_refused(servers):
    """Permissions are about subjects; the server itself compares the body with it."""

    async def story():
        mallory = await connected(servers, "mallory")
        body = layout.consumer("BSC", "mallory", "bsc.m.vm.*", 1)
        with pytest.raises(BusFault) as refused:
            await mallory.api("CONSUMER.CREATE.BSC.mallory.bsc.m.mallory.*", body)
        assert "filter" in refused.value.detail
        await mallory.api(
            "CONSUMER.CREATE.BSC.mallory.bsc.m.mallory.*", layout.consumer("BSC", "mallory", "bsc.m.mallory.*", 1)
        )

    run(story)


@pytest.mark.parametrize(
    "command", ["STREAM.DELETE.BSC", "STREAM.PURGE.BSC", "STREAM.DELETE.KV_bsc_cards", "CONSUMER.DELETE.BSC.vm"]
)
def test_the_server_is_not_made_to_obey_its_own_confirmation(servers, command):
    """A publisher names where the confirmation goes. If that were a command, the server would give it itself."""

    async def story():
        async with posts(servers, "vm") as [(vm, reader)]:
            mallory = await connected(servers, "mallory")
            mallory.publish("bsc.m.vm.mallory", b"letter", f"{layout.API}.{command}")
            mallory.publish(f"{layout.API}.CONSUMER.MSG.NEXT.BSC.mallory", b"1", f"{layout.API}.{command}")
            mallory.publish(f"{layout.API}.STREAM.INFO.BSC", b"", f"{layout.API}.{command}")
            await reader.until(lambda: reader.mail)
            await mallory.answers()
            await mallory.request("bsc.m.vm.mallory", b"after")
            await reader.until(lambda: reader.mail[-1][1] == b"after")
            assert reader.openings == 1
            assert (await vm._mailbox_now(vm._bus))[0] == reader.mailbox
            assert vm.state.fault is None

    run(story)


@pytest.mark.req("MESH-TRUST-11")
@pytest.mark.parametrize("board", [Board.CARDS, Board.DIRECTORY])
def test_a_header_on_its_own_value_empties_no_board(servers, board):
    """`Nats-Rollup: all` makes the server forget everything else in a stream that allows it: of the cards also the list
    of those revoked, which a node that was away then never hears of."""

    async def story():
        root, mallory = await connected(servers, ROOT), await connected(servers, "mallory")

        async def rolled_up(bus, subjects, stream):
            for subject in subjects:
                await root.request(subject, b"value")
            replies: list[bytes] = []
            bus.subscribe(f"{bus.inbox}.rolled", lambda message: replies.append(message.data))
            bus.publish(subjects[-1], b"mine", f"{bus.inbox}.rolled", {"Nats-Rollup": "all"})
            while not replies:
                await bus.answers()
            info = json.loads(await root.request(f"{layout.API}.STREAM.INFO.{stream}", b""))
            return info["state"]["messages"], b"not permitted" in replies[0]

        keys = [layout.board_key(board, key) for key in ("_revoked", "vm", "mallory")]
        assert await rolled_up(mallory, keys, layout.bucket(board)) == (3, True)
        # The control: a stream as buckets of NATS are otherwise.
        await root.api("STREAM.CREATE.OPEN", {"name": "OPEN", "subjects": ["open.*"], "allow_rollup_hdrs": True})
        assert await rolled_up(root, ["open.a", "open.b", "open.c"], "OPEN") == (1, False)
        await root.api("STREAM.DELETE.OPEN")

    run(story)


@pytest.mark.parametrize("board", Board)
def test_a_node_leaves_no_more_on_a_board_than_a_value_may_be(servers, board):
    async def story():
        mallory = await connected(servers, "mallory")
        size = MAX_VALUE_BYTES[board]
        assert b'"seq"' in await mallory.request(layout.board_key(board, "mallory"), b"x" * (size - 1_000))
        assert b"exceeds" in await mallory.request(layout.board_key(board, "mallory"), b"x" * (size + 1))

    run(story)


def test_an_answer_by_the_server_can_be_sent_to_another_node_so_letters_are_believed_by_signature_only(servers):
    """Not stopped by permissions: kept here so that nobody takes the name in a subject for an identity."""

    async def story():
        async with posts(servers, "desk") as [(_, desk)]:
            mallory = await connected(servers, "mallory")
            mallory.publish("bsc.m.vm.mallory", b"letter", "bsc.l.desk.vm")
            await desk.until(lambda: desk.live_letters)
            src, data = desk.live_letters[0]
            assert src == "vm"
            assert b'"stream":"BSC"' in data.replace(b" ", b"")

    run(story)


def test_a_guessed_confirmation_does_not_count(servers):
    """Who could guess the inbox of a node could confirm its letters; it is random for each connection."""

    async def story():
        async with posts(servers, "desk") as [(desk, _)]:
            assert len(desk._bus.inbox) > len("_INBOX_desk.") + 16
            mallory = await connected(servers, "mallory")
            later = desk._bus.request("bsc.l.nobody.desk", b"", 1.0)
            for number in range(1, 50):
                mallory.publish("bsc.m.vm.mallory", b"x", f"_INBOX_desk.r.{number}")
                mallory.publish("bsc.m.vm.mallory", b"x", f"_INBOX_desk.guess.r.{number}")
            await mallory.answers()
            with pytest.raises(BusFault):
                await later
            # The control: with the inbox known it is confirmed by a stranger.
            later = desk._bus.request("bsc.l.desk.desk", b"", 5.0)
            token = list(desk._bus._waiting)[-1]
            mallory.publish("bsc.m.vm.mallory", b"x", f"{desk._bus.inbox}.r.{token}")
            assert b"stream" in await later

    run(story)


def test_a_node_whose_permission_was_taken_away_is_told_the_subject(servers):
    async def story():
        servers.keys["lame"] = Keys.new()
        usual = servers._write

        def write() -> None:
            usual()
            for user in servers.servers[0].config["authorization"]["users"]:
                if user["nkey"] == hub_config.user(servers.keys["lame"].public[2]):
                    allowed = user["permissions"]["publish"]["allow"]
                    allowed[:] = [each for each in allowed if not each.startswith(("bsc.m.", "bsc.l."))]

        servers._write = write
        async with posts(servers, "lame") as [(lame, reader)]:
            refused = lame.mail("vm", b"")
            with pytest.raises(Exception, match=r"publish to bsc\.m\.vm\.lame") as error:
                await refused
            assert error.value.fault is Fault.FORBIDDEN
            assert lame.state.fault is Fault.FORBIDDEN
            assert lame.send("vm", b"")
            await reader.until(lambda: "bsc.l.vm.lame" in str(lame._faults))
            assert lame.state.open
        servers._write = usual

    run(story)


def test_a_node_that_may_not_read_its_mailbox_is_told_so(servers):
    async def story():
        user = Keys.new()
        servers.keys["blind"] = user
        usual = servers._write

        def write() -> None:
            usual()
            for each in servers.servers[0].config["authorization"]["users"]:
                if each["nkey"] == hub_config.user(user.public[2]):
                    each["permissions"]["publish"]["allow"].remove("$JS.API.STREAM.INFO.BSC")

        servers._write = write
        servers.reload()
        post, reader = NatsPost("blind", user, servers.urls), Recorder()
        await post.open(reader)
        await reader.until(lambda: post.state.fault is Fault.FORBIDDEN)
        assert "$JS.API.STREAM.INFO.BSC" in post.state.detail
        assert not reader.is_open
        await post.close()
        servers._write = usual
        await asyncio.sleep(0)

    run(story)
