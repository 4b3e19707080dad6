"""Many bridges on one mod, many games under one bridge, many agents at one game: all served, none at another's cost."""

import asyncio
import json
import secrets

import pytest
from bridges_by_hand import HandBridge, pumped
from playground import attached, on_loop, playground, until
from scripted_mod import WELCOME, ScriptedMod
from two_ends import opened

from bascule.foundation.errors import Overloaded
from bascule.game.calls import Calls
from bascule.game.events import MAX_DROPPED_CHANNELS, MAX_WAITERS, EventLog
from bascule.game.subscriptions import MAX_CHANNELS_PER_CLIENT, Subscriptions
from bascule_mod import Endpoint, Mod
from gabp import envelopes, messages
from gabp.codec import Raw
from gabp.errors import ErrorCode, GameError


def loud_mod(**options) -> Mod:
    mod = Mod("loud", endpoint=Endpoint(transport="tcp", address="0", token=secrets.token_hex(32)), **options)
    mod.tool(lambda value: value, name="loud/echo")
    return mod


@pytest.mark.req("GABP-6.2-2", "GABP-7.2-1")
def test_ten_bridges_share_a_mod_and_an_eleventh_is_told_why_not():
    mod = loud_mod()
    emit = mod.channel("noise")
    with pumped(mod):
        bridges = [HandBridge(mod) for _ in range(10)]
        try:
            for bridge in bridges:
                bridge.session.subscribe(["noise"])
                bridge.flush()
                bridge.wait(lambda bridge=bridge: bool(bridge.answers))
            for number in range(200):
                emit(number)
            asked = [
                (bridge, n, bridge.send(messages.TOOLS_CALL, {"name": "loud/echo", "arguments": {"value": n}}))
                for n in range(20)
                for bridge in bridges
            ]
            for bridge, n, id_ in asked:
                assert json.loads(bytes(bridge.until(id_).value)) == n
            for bridge in bridges:
                bridge.wait(lambda bridge=bridge: len(bridge.events) == 200)
                assert [json.loads(bytes(event.payload)) for event in bridge.events] == list(range(200))
            with HandBridge(mod, welcome=False) as eleventh:
                error = eleventh.refused()
                assert error.code == ErrorCode.ACCESS_DENIED
                assert "10 bridges are connected already" in error.message
            bridges.pop().__exit__()
            bridges[0].wait(lambda: mod.bridges == 9)
            # transport.md 6.2: "Mods SHOULD continue accepting new connections after client disconnection".
            with HandBridge(mod) as next_one:
                assert next_one.call("loud/echo", value=1) == 1
        finally:
            for bridge in bridges:
                bridge.__exit__()


@pytest.mark.req("GABP-7.2-2", "GAME-CALL-6")
@on_loop
async def test_one_who_calls_a_hundred_times_does_not_keep_another_waiting(tmp_path):
    welcome = {**WELCOME, "capabilities": {"limits": {"maxConcurrentRequests": 1}}}
    order: list[str] = []

    def call(params: dict) -> int:
        order.append(params["arguments"]["who"])
        return 1

    async with ScriptedMod(session_hello=welcome, tools_call=call) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        greedy = [arena.call_tool("greedy", "a/b", {"who": "greedy"}) for _ in range(50)]
        modest = arena.call_tool("modest", "a/b", {"who": "modest"})
        await modest
        assert order.index("modest") <= 3
        for each in greedy:
            await each
        # More than may wait is refused, and says so.
        waiting = [arena.call_tool("greedy", "a/b", {"who": "greedy"}) for _ in range(65)]
        with pytest.raises(Overloaded, match="64 calls of yours wait"):
            arena.call_tool("greedy", "a/b", {"who": "greedy"})
        for each in waiting:
            await each
        assert arena.counts == (0, 0)


@on_loop
async def test_a_call_is_over_after_its_time_and_its_place_is_free(tmp_path):
    welcome = {**WELCOME, "capabilities": {"limits": {"maxConcurrentRequests": 1}}}
    async with ScriptedMod(session_hello=welcome, tools_call=None) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        sent = arena.call_tool("me", "a/b", {}, seconds=0.2)
        waiting = arena.call_tool("me", "a/b", {}, seconds=0.1)
        with pytest.raises(GameError, match=r"not executed: did not get its turn within 0\.1 s") as caught:
            await waiting
        assert caught.value.executed == "no"
        with pytest.raises(GameError, match=r"unknown: may have run; no answer within 0\.2 s") as caught:
            await sent
        assert (caught.value.code, caught.value.executed) == (ErrorCode.TOOL_TIMEOUT, "unknown")
        mod.answers["tools/call"] = 5
        assert bytes(await arena.call_tool("me", "a/b", {})) == b"5"


@pytest.mark.req("GAME-CALL-7")
@on_loop
async def test_a_call_withdrawn_while_it_waits_is_never_sent():
    class Sender:
        room = 0
        sent: list[bytes] = []

        def send(self, method: str, params: bytes) -> str:
            self.sent.append(params)
            return str(len(self.sent))

        def cancel(self, id_: str) -> None:
            raise AssertionError("nothing was sent")

    calls, sender = Calls(), Sender()
    calls.open(sender)
    first, second = (calls.call("me", "tools/call", text, 30) for text in (b"1", b"2"))
    first.cancel()
    sender.room = 10
    calls.open(sender)
    assert sender.sent == [b"2"]
    calls.answered("1", "two", None)
    assert second.result() == "two"
    assert calls.counts == (0, 0)
    calls.answered("1", "again", None)


# -- listening ----------------------------------------------------------------------------------------


def test_subscriptions_are_counted_per_client():
    subscriptions = Subscriptions()
    assert subscriptions.add("a", ["x", "y"]) == ["x", "y"]
    assert subscriptions.add("b", ["y", "z"]) == ["z"]
    assert subscriptions.remove("a", ["x", "y"]) == ["x"]
    assert subscriptions.remove("b") == ["y", "z"]
    assert subscriptions.remove("b") == []
    assert subscriptions.wanted() == set()
    with pytest.raises(Overloaded, match="at most 64 channels"):
        subscriptions.add("a", [str(number) for number in range(MAX_CHANNELS_PER_CLIENT + 1)])
    assert subscriptions.wanted() == set()


def event_log(**options) -> EventLog:
    return EventLog(lambda: 5, **options)


def numbers(log: EventLog, since: int, *channels: str, limit: int = 100) -> list[int | None]:
    return [event.seq for event in log.page(since, channels, limit).events]


def test_a_reader_goes_on_where_it_stopped():
    log = event_log()
    for seq in range(10):
        log.add("a", seq, Raw(b"1"), 0)
        log.add("b", seq, Raw(b"2"), 0)
    page = log.page(0, ("a",), 4)
    assert [event.seq for event in page.events] == [0, 1, 2, 3]
    assert numbers(log, page.cursor, "a") == [4, 5, 6, 7, 8, 9]
    assert numbers(log, log.cursor, "a") == []
    # A cursor of another life, or made up, is no error and no endless wait: all there is has come after it.
    assert log.page(10_000, ("a",), 4) == page


@pytest.mark.req("GAME-EVENT-3")
def test_what_is_gone_is_reported_to_those_it_concerns_only():
    log = event_log(max_events=4)
    log.add("rare", 0, Raw(b"1"), 0)
    seen = log.cursor
    for seq in range(10):
        log.add("noise", seq, Raw(b"1"), 0)
    page = log.page(seen, ("noise",), 100)
    assert page.events[0].code == ErrorCode.OVERFLOW
    assert [event.seq for event in page.events[1:]] == [6, 7, 8, 9]
    assert log.page(seen, ("rare",), 100).events == []
    assert log.page(0, ("rare",), 100).events[0].code == ErrorCode.OVERFLOW
    # Read on from where the notice stands, and it is not told twice.
    assert log.page(page.events[0].cursor, ("noise",), 100).events[0].seq == 6


def test_channels_that_a_mod_makes_up_cost_no_memory():
    log = event_log(max_events=4)
    for seq in range(5_000):
        log.add(f"made/up{seq}", 0, Raw(b"1"), 0)
    assert len(log._dropped) <= MAX_DROPPED_CHANNELS
    # Which of them it was is forgotten; that something is gone is not.
    assert log.page(0, ("made/up0",), 9).events[0].code == ErrorCode.OVERFLOW
    bridge, _ = opened()
    bridge.subscribe(["made/*"])
    for seq in range(1_000):
        bridge.receive(envelopes.event(envelopes.NIL_ID, f"made/up{seq}", 3, b"1"))
    assert len(bridge.seen) <= bridge.limits.max_channels


def test_a_log_is_bounded_in_bytes_too():
    log = event_log(max_bytes=1_000)
    for seq in range(10):
        log.add("a", seq, Raw(b'"' + b"x" * 300 + b'"'), 0)
    assert numbers(log, 0, "a")[1:] == [7, 8, 9]


@on_loop
async def test_one_waits_for_the_next_event_and_may_stop_waiting():
    log = event_log()
    later = log.wait(0, ("a",), 5)
    log.add("b", 0, Raw(b"1"), 0)
    assert not later.done()
    log.add("a", 7, Raw(b"1"), 0)
    assert [event.seq for event in (await later).events] == [7]
    gone = log.wait(log.cursor, (), 5)
    gone.cancel()
    assert log._waiters == []
    # A wait from before something that is here already is over at once.
    assert log.wait(0, ("b",), 5).done()


def test_more_readers_than_may_wait_are_refused_and_not_answered_with_nothing():
    """An empty page at once would have them ask again at once."""
    log = event_log()
    waiting = [log.wait(0, (), 5) for _ in range(MAX_WAITERS)]
    assert not any(each.done() for each in waiting)
    with pytest.raises(Overloaded, match="readers wait for this game's events"):
        log.wait(0, (), 5)
    waiting[0].cancel()
    assert not log.wait(0, (), 5).done()


@pytest.mark.req("GAME-EVENT-3")
@on_loop
async def test_a_slow_stream_takes_its_time_and_is_told_what_is_gone_and_a_fast_one_misses_nothing():
    log = EventLog(lambda: 0, max_events=8)
    slow, fast = log.stream(("a",), room=3), log.stream(("a",))
    received: list[int] = []
    fast.on_ready = lambda: received.extend(each.seq for each in fast.drain()[0])
    for seq in range(20):
        log.add("a", seq, Raw(b"1"), 0)
        log.add("b", seq, Raw(b"1"), 0)
    assert received == list(range(20))
    gaps_seen: list[tuple[int | None, int | None]] = []
    while items := slow.drain()[0]:
        gaps_seen += [(each.seq, each.code) for each in items]
        await asyncio.sleep(0)
    assert gaps_seen == [
        (0, None),
        (1, None),
        (2, None),
        (None, ErrorCode.OVERFLOW),
        *((n, None) for n in range(16, 20)),
    ]
    # Once it has caught up it hears as it comes.
    log.add("a", 20, Raw(b"1"), 0)
    assert [each.seq for each in slow.drain()[0]] == [20]
    slow.close()
    fast.close()
    assert log._readers == []


@on_loop
async def test_a_stream_begins_at_a_cursor_or_now_and_ends_with_the_house():
    log = event_log()
    for seq in range(3):
        log.add("a", seq, Raw(b"1"), 0)
    later, from_one, old_life = log.stream(()), log.stream((), 1), log.stream((), 77)
    log.add("a", 3, Raw(b"1"), 0)
    assert [each.seq for each in later.drain()[0]] == [3]
    assert [each.seq for each in from_one.drain()[0]] == [1, 2, 3]
    # A cursor that is not reached yet is one of an earlier life of the daemon.
    assert [each.seq for each in old_life.drain()[0]] == [0, 1, 2, 3]
    assert [each.seq for each in log.page(77, (), 9).events] == [0, 1, 2, 3]
    log.end()
    assert later.ended
    assert log.stream(()).ended


def test_a_page_is_bounded_in_bytes_but_never_empty():
    log = EventLog(lambda: 0, max_page_bytes=250)
    for seq in range(4):
        log.add("a", seq, Raw(b"1" * 100), 0)
    log.add("a", 4, Raw(b"1" * 1000), 0)
    pages, since = [], 0
    while events := (page := log.page(since, (), 100)).events:
        pages.append([each.seq for each in events])
        since = page.cursor
    assert pages == [[0, 1], [2, 3], [4]]


@on_loop
async def test_a_client_that_leaves_is_forgotten_and_its_channels_with_it(tmp_path):
    async with ScriptedMod(events_unsubscribe={"unsubscribed": []}) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        await arena.subscribe("a", ["x", "y"])
        await arena.subscribe("b", ["y"])
        await arena.unsubscribe("a")
        assert ("events/unsubscribe", {"channels": ["x"]}) in mod.asked
        await arena.unsubscribe("b")
        assert ("events/unsubscribe", {"channels": ["y"]}) in mod.asked
        await until(lambda: arena.subscriptions.wanted() == set())
