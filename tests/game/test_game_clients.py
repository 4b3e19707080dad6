"""Games through both clients, with a real daemon and a real game."""

import asyncio
import inspect
import itertools
import json
import os
import subprocess
import sys

import pytest
from arcade import arcade
from living import eventually
from playground import MOD

from bascule.client import Client, Game, SyncClient, SyncGame
from bascule.client.happened import GameFeed, Happened
from bascule.foundation.errors import BasculeError, Conflict, Forbidden, InvalidRequest, NotFound, PeerFailed
from patience import PATIENCE

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def hall():
    """A daemon with one game that is live and one that is not."""
    with arcade() as place:
        place.list_mod(MOD, "arena", "other")
        with place.live(quick=True) as daemon:
            place.daemon = daemon
            with SyncClient.connect(place.state) as client:
                assert client.game("arena").start().state == "live"
            yield place
            assert daemon.stop() == 0


@pytest.fixture
def arena(hall):
    with SyncClient.connect(hall.state) as client:
        yield client.game("arena")


def on_loop(hall, story):
    async def whole():
        async with asyncio.timeout(PATIENCE), Client.connect(hall.state) as client:
            return await story(client)

    return asyncio.run(whole())


@pytest.mark.req("GAME-DOOR-2")
def test_both_clients_have_the_same_verbs_with_the_same_arguments():
    def verbs(kind):
        return {
            name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if not name.startswith("_")
        }

    assert verbs(Game) == verbs(SyncGame)
    assert len(verbs(Game)) == 17


def test_games_are_listed_shown_started_stopped_and_killed(hall):
    with SyncClient.connect(hall.state) as client:
        assert [each.game_id for each in client.games()] == ["arena", "other"]
        other = client.game("other")
        with pytest.raises(Conflict, match="other is stopped"):
            other.tools()
        other.start()
        eventually(lambda: other.status().state == "live", "it is live")
        assert "noise/a" in other.show().channels
        assert other.connect().state == "live"
        assert other.stop().state == "stopped"
        assert other.start().state == "live"
        assert other.kill().state == "stopped"
        with pytest.raises(NotFound, match="no game 'nothing'"):
            client.game("nothing").status()


def test_a_tool_is_found_looked_at_and_called(arena):
    assert "arena/move" in [each.name for each in arena.tools(query="somewhere")]
    assert len(arena.tools(prefix="arena/")) > 5
    assert arena.tool("arena/move").input_schema["required"] == ["to"]
    assert arena.call("arena/move", {"to": {"x": 1, "y": 2}}) == {"x": 1, "y": 2}
    assert arena.call("arena/echo", {"value": 2**70}) == 2**70
    assert arena.call("arena/echo") is None


@pytest.mark.req("GAME-CALL-5")
def test_a_result_too_large_for_one_answer_is_put_together(arena):
    # Kept by the bridge, because it would not fit one answer; and by the mod, because it would not fit one message.
    for size in (174_500, 1_500_000):
        assert arena.call("arena/large", {"size": size}) == "\u00e9" * size


@pytest.mark.req("GAME-CALL-3", "GAME-CALL-4")
def test_what_fails_says_whether_it_ran(arena):
    with pytest.raises(PeerFailed, match="the door is locked") as failed:
        arena.call("arena/fail", {"kind": "tool"})
    assert failed.value.details["executed"] == "yes"
    assert failed.value.details["gabp"]["data"] == {"door": 7, "huge": 2**70}
    with pytest.raises(InvalidRequest, match="was not called") as refused:
        arena.call("arena/move", {})
    assert refused.value.details["executed"] == "no"
    with pytest.raises(BasculeError, match="may have run") as late:
        arena.call("arena/forever", timeout=0.2)
    assert late.value.details["executed"] == "unknown"


@pytest.mark.req("GAME-EVENT-2")
def test_events_are_followed_from_a_cursor(hall, arena):
    start = arena.page(["noise/*"]).cursor
    for _ in range(3):
        arena.call("arena/shout", {"channel": "noise/a"})
    page = arena.page(["noise/a"], since=start)
    assert [each.payload["n"] for each in page.events] == [0, 0, 0]
    with SyncClient.connect(hall.state) as another:
        following = another.game("arena").events(["noise/*"], since=start)
        received = [next(following) for _ in range(3)]
        assert [each.cursor for each in received] == [each.cursor for each in page.events]
        arena.call("arena/shout", {"channel": "noise/b"})
        assert next(following).channel == "noise/b"
        # Without a cursor only what comes is heard.
        new = another.game("arena").events(["noise/a", "never/heard"])
        asked = [next(new)]
        arena.call("arena/shout", {"channel": "noise/a"})
        assert asked[0].message == "the game has no such channel (yet): never/heard"
        assert next(new).seq == received[-1].seq + 1


@pytest.mark.req("GAME-DOOR-2")
def test_the_asyncio_client_plays_and_hears_what_everybody_does(hall):
    async def story(client):
        arena = client.game("arena")
        assert {each.game_id for each in await client.games()} == {"arena", "other"}
        since = (await arena.page(["noise/a"])).cursor
        events = arena.events(["noise/a"], since=since)
        first = asyncio.ensure_future(anext(events))
        results = await asyncio.gather(*(arena.call("arena/echo", {"value": n}) for n in range(20)))
        assert results == list(range(20))
        await arena.call("arena/shout", {"channel": "noise/a"})
        assert (await first).payload["n"] == 0
        await events.aclose()
        assert (await arena.status()).state == "live"
        with pytest.raises(NotFound):
            await arena.call("arena/nothing")

    on_loop(hall, story)


@pytest.mark.req("GAME-READ-1", "GAME-READ-2", "GAME-READ-3")
def test_resources_state_and_attention(arena):
    assert {"gabp://game/map", "gabp://game/tiles"} <= {each.uri for each in arena.resources()}
    assert arena.read_resource("gabp://game/map").content == "\u2588."
    assert arena.set_state({"score": 9}).applied == {"score": 9}
    assert arena.state(["score"]) == {"score": 9}
    assert arena.set_state({"score": 5}, validate=True).errors == []
    assert arena.state(["score"]) == {"score": 9}
    assert arena.set_state({"score": -1}).errors[0].message == "a score is never negative"
    assert arena.attention() is None
    alarm = arena.call("arena/alarm")
    try:
        assert arena.attention().attention_id == alarm
        with pytest.raises(Conflict) as blocked:
            arena.call("arena/count", {"key": "never"})
        assert blocked.value.details["executed"] == "no"
    finally:
        assert arena.acknowledge(alarm).acknowledged


@pytest.mark.req("GAME-EVENT-4")
def test_a_follower_goes_on_over_a_killed_game_and_a_restarted_daemon():
    with arcade() as place:
        place.list_mod(MOD)
        port = None
        with place.live() as daemon, SyncClient.connect(place.state) as client:
            arena = client.game("arena")
            assert arena.start().state == "live"
            # None named: whatever the game announces, whenever it is there.
            events = arena.events(since=0)
            arena.page()
            arena.call("arena/shout", {"channel": "noise/a"})
            assert next(events).channel == "noise/a"
            arena.kill()
            arena.start()
            arena.call("arena/shout", {"channel": "noise/b"})
            while (event := next(events)).channel == "bridge/connection":
                assert event.message
            assert (event.channel, event.seq) == ("noise/b", 0)
            port = daemon.port
            assert daemon.stop() == 0
            with place.live(port=port) as again, SyncClient.connect(place.state) as other:
                anew = other.game("arena")
                anew.start()
                anew.page()
                anew.call("arena/shout", {"channel": "noise/a", "times": 2})
                # The daemon counts from the beginning, and so does whoever follows it.
                assert [(event := next(events)).cursor, event.payload["n"]] == [1, 0]
                assert next(events).cursor == 2
                assert again.stop() == 0


def test_what_a_slow_program_missed_is_counted_and_a_feed_knows_the_daemons_life():
    feed = GameFeed(5, limit=2)
    assert feed.opens((1, "a")) == 5
    for cursor in range(6, 10):
        feed.offer(Happened(cursor=cursor, channel="c", at_ms=0))
    assert [feed.take().cursor, feed.take().cursor, feed.take()] == [6, 7, None]
    feed.left_out(3)
    feed.offer(Happened(cursor=10, channel="c", at_ms=0, missed=1))
    assert feed.take().missed == 2 + 3 + 1
    assert feed.opens((1, "a")) == 10
    assert feed.opens((2, "b")) == 0
    # Whoever begins with what comes goes on from there, should nothing have come until the connection was lost.
    new = GameFeed(None)
    assert new.opens((1, "a")) is None
    assert new.begins(7) == 7
    assert new.opens((1, "a")) == 7


# -- attaching to what games.toml does not name --


@pytest.fixture
def lonely(hall, tmp_path):
    """A game that somebody else started, its socket and its token."""
    mod = tmp_path / "mod.py"
    mod.write_text(MOD)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o600)
    socket = str(hall.folder / f"{next(NUMBERS)}.sock")
    own = {"GABP_TRANSPORT": "pipe", "GABP_ADDRESS": socket, "GABP_TOKEN": token.read_text()}
    with subprocess.Popen([sys.executable, str(mod)], env=os.environ | own) as game:
        yield tmp_path, socket, token
        assert game.poll() is None, "what we did not start we do not end"
        game.kill()


@pytest.mark.req("GAME-LIFE-9", "GAME-TRUST-2")
def test_a_game_that_games_toml_does_not_name_is_attached_to_and_asks_for_each_tool(hall, lonely):
    _, socket, token = lonely
    with SyncClient.connect(hall.state) as client:
        game = client.attach_game("visitor", socket=socket, token_file=str(token))
        eventually(lambda: game.status().state == "live", "it is live")
        status = game.status()
        assert (status.state, status.attached, status.started_by) == ("live", True, "local")
        assert "visitor" in {each.game_id for each in client.games()}
        with pytest.raises(BasculeError, match="First use of a tool") as asked:
            game.call("arena/echo", {"value": 1})
        assert asked.value.code == "approval_required"
        # What was allowed of the game that we start is not allowed of another one by its tools' looks.
        with pytest.raises(Conflict, match=r"games\.toml has a game arena"):
            client.attach_game("arena", socket=socket, token_file=str(token))
        with pytest.raises(Conflict, match="visitor is live already"):
            client.attach_game("visitor", socket=socket, token_file=str(token))
        assert game.stop().state == "stopped"
        # Let go of, it is not known any more.
        with pytest.raises(NotFound):
            game.status()


@pytest.mark.req("GAME-TRUST-6")
def test_an_agent_attaches_to_nothing(hall, lonely):
    _, socket, token = lonely
    with (
        SyncClient.connect(hall.state, agent="Mallory", register=True) as client,
        pytest.raises(Forbidden),
    ):
        client.attach_game("visitor", socket=socket, token_file=str(token))


@pytest.mark.parametrize("form", ["gabp", "toml"])
def test_another_bridges_file_says_where_the_game_is(hall, lonely, form):
    folder, socket, token = lonely
    file = folder / "bridge.json"
    file.write_text(
        json.dumps({"token": token.read_text(), "transport": {"type": "pipe", "address": socket}, "metadata": {}})
    )
    file.chmod(0o600)
    with SyncClient.connect(hall.state) as client:
        if form == "toml":
            before = hall.toml.read_text()
            hall.toml.write_text(f"{before}\n[games.guest]\nbridge_file = {str(file)!r}\n")
            try:
                assert client.game("guest").connect().state == "live"
                assert client.game("guest").stop().state == "stopped"
            finally:
                hall.toml.write_text(before)
            return
        game = client.attach_game("guest", bridge_file=str(file))
        assert game.status().state == "live"
        assert game.stop().state == "stopped"
        file.chmod(0o666)
        with pytest.raises(NotFound):
            client.attach_game("guest", bridge_file=str(file)).status()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "say where the game listens"),
        ({"port": 5000}, "say where the game listens"),
        ({"token_file": "/tmp/x"}, "`token_file` needs `address`"),
        ({"bridge_file": "/tmp/x", "token_file": "/tmp/x", "port": 1}, "say where"),
        ({"bridge_file": "/tmp/x", "port": 1}, "leave those out"),
        ({"port": 99_999, "token_file": "/tmp/x"}, "must be a port"),
    ],
)
def test_what_is_missing_is_named(hall, options, words):
    with SyncClient.connect(hall.state) as client, pytest.raises(InvalidRequest, match=words):
        client.attach_game("guest", **options)
