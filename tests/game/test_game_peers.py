"""The bridge with mods that write as Lib.GAB does: what their habits cost must not be the agents' to pay."""

import asyncio
import json
import socket
import statistics
import sys
import threading
import time

import pytest
import uvloop
from msgspec import structs
from playground import attached, on_loop, playground, until
from scripted_mod import ScriptedMod
from two_ends import LAUNCH, hello, message, opened

from bascule.game.machine import connector
from bascule.game.ports import Address, ConnectFault
from bascule.local_client import peers
from gabp import envelopes, messages
from gabp.bridge_session import Answered, BridgeSession, Refused
from gabp.content_length import frame
from gabp.envelopes import Mode
from gabp.errors import ErrorCode, GameError
from gabp.kept import KeptResult
from gabp.session import Noted, SessionLimits
from patience import PATIENCE

CALLS = 40
# Linux delays an ACK by 40 ms or more; half of that is a delay that no scheduler adds to one kind of call alone.
DELAYED_ACK_SECONDS = 0.02


class TwoWrites(ScriptedMod):
    """Writes a frame's header and its body by two sends, with Nagle's algorithm on: Lib.GAB's TcpTransport."""

    split = False

    def _answer(self, writer, request, params):
        if not self.split or request.method != "tools/call":
            super()._answer(writer, request, params)
            return
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        header, end, body = envelopes.response(request.id, envelopes.to_json(params["arguments"])).partition(
            b"\r\n\r\n"
        )
        writer.write(header + end)
        # Each by a send of its own: uvloop joins what is written in one turn.
        asyncio.get_running_loop().call_later(0.001, writer.write, body)


@pytest.mark.skipif(sys.platform != "linux", reason="the delay and its cure are Linux's")
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_mod_that_sends_header_and_body_apart_is_answered_without_a_delayed_ack(tmp_path, loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_compare_calls(tmp_path))


async def _compare_calls(tmp_path):
    mod = TwoWrites(tools_call=lambda params: params["arguments"])
    async with mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        taken = {True: [], False: []}
        for number in range(2 * CALLS):
            mod.split = number % 2 == 0
            began = time.perf_counter()
            assert bytes(await arena.call_tool("me", "a/b", {"n": number})) == b'{"n":%d}' % number
            taken[mod.split].append(time.perf_counter() - began)
        # In turns, and against the same calls in one write: a busy machine slows both.
        whole, split = statistics.median(taken[False]), statistics.median(taken[True])
        assert split < whole + DELAYED_ACK_SECONDS, f"{split * 1000:.1f} ms, in one write {whole * 1000:.1f} ms"


# -- results above the limit --

LIMIT = 65_536
PAD = "x" * LIMIT


@pytest.mark.req("GABP-7.1-2")
@pytest.mark.parametrize("mode", ["compat", "strict"])
@on_loop
async def test_a_result_above_the_receive_limit_fails_its_call_alone_and_keeps_the_session(tmp_path, mode):
    mod = ScriptedMod(tools_call=lambda params: "x" * params["arguments"]["size"])
    async with mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port, mode=mode, max_receive_bytes=LIMIT)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        calls = [arena.call_tool(f"agent-{size}", "a/b", {"size": size}) for size in (10, 5_000_000, 20)]
        assert [len(json.loads(bytes(await calls[number]))) for number in (0, 2)] == [10, 20]
        with pytest.raises(
            GameError, match=r"has 50000\d\d bytes, over the limit of 65536.*max_receive_bytes"
        ) as caught:
            await calls[1]
        assert caught.value.executed == "yes"
        assert caught.value.data["limit"] == LIMIT
        assert (arena.state, arena.connects) == ("live", 1)


@on_loop
async def test_a_result_of_several_megabytes_is_kept_and_read_in_pieces(tmp_path):
    size = 3_000_000
    async with ScriptedMod(tools_call="x" * size) as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        kept = await arena.call_tool("me", "a/b", {})
        assert isinstance(kept, KeptResult)
        assert kept.size == size + 2
        assert arena.connects == 1


@on_loop
async def test_what_is_not_a_result_stays_within_a_megabyte(tmp_path):
    async with ScriptedMod(state_get={"state": {"x": "y" * 1_100_000}}) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        with pytest.raises(GameError, match=r"answer to state/get has .* over the limit of 1048576"):
            await arena.get_state("me", messages.StateGetParams())
        await arena.subscribe("me", ["noise"])
        mod.send(envelopes.event(LAUNCH, "noise", 1, envelopes.to_json("y" * 1_100_000)))
        mod.send(envelopes.event(LAUNCH, "noise", 2, b"2"))
        await until(lambda: arena.events.cursor == 2)
        large, small = arena.events.page(0, (), 10).events
        assert (large.payload, large.code) == (None, ErrorCode.OVERFLOW)
        assert "payload of 1100002 bytes is over the limit" in large.message
        assert bytes(small.payload) == b"2"
        assert arena.connects == 1


def small_session():
    """A bridge with a small limit that has one call in flight, and its id."""
    bridge, _ = opened(limits=SessionLimits(max_receive_bytes=LIMIT))
    return bridge, bridge.request(messages.TOOLS_CALL, b'{"name":"a/b"}')


def failed(bridge, body: bytes) -> list[str]:
    happened = bridge.receive(frame(body, content_type="application/json"))
    assert not bridge.closed
    return [each.id for each in happened if isinstance(each, Answered) and each.error is not None]


@pytest.mark.parametrize(
    "form",
    [
        '{"v":"gabp/1","id":"$ID","type":"response","result":"$PAD"}',
        '{ "result" : "$PAD", "type" : "response", "id" : "$ID", "v": "gabp/1" }',
        '{"id":"$ID","result":"$PAD","type":"response"}',
    ],
)
def test_a_skipped_answer_is_found_by_its_id_at_either_end(form):
    bridge, id_ = small_session()
    other = bridge.request(messages.TOOLS_CALL, b'{"name":"a/b"}')
    assert failed(bridge, form.replace("$ID", id_).replace("$PAD", PAD).encode()) == [id_]
    assert bridge.open_requests == 1
    assert [each.id for each in bridge.receive(envelopes.response(other, b"1"))] == [other]


HIDDEN = '{"result":["$PAD"],"id":"$ID","type":"response","more":"$PAD"}'


def test_a_skipped_answer_whose_id_is_out_of_sight_is_that_of_the_only_call():
    bridge, id_ = small_session()
    assert failed(bridge, HIDDEN.replace("$ID", id_).replace("$PAD", PAD).encode()) == [id_]


def test_with_several_calls_in_flight_a_skipped_answer_without_an_id_fails_none_of_them():
    bridge, id_ = small_session()
    bridge.request(messages.TOOLS_CALL, b'{"name":"a/b"}')
    body = HIDDEN.replace("$ID", id_).replace("$PAD", PAD).encode()
    (noted,) = bridge.receive(frame(body, content_type="application/json"))
    assert isinstance(noted, Noted)
    assert "was skipped" in noted.text
    assert bridge.open_requests == 2


def test_a_skipped_event_is_not_taken_for_the_answer_of_the_only_call():
    bridge, _ = small_session()
    (noted,) = bridge.receive(message(type="event", channel="noise", seq=1, payload=PAD))
    assert noted.text.endswith("it was skipped (event)")
    assert bridge.open_requests == 1


def test_a_welcome_above_the_limit_is_a_refusal():
    bridge = BridgeSession(Mode.COMPAT, SessionLimits(max_receive_bytes=LIMIT))
    bridge.hello(hello())
    (refused,) = bridge.receive(frame(b'{"result":"%b"}' % PAD.encode()))
    assert isinstance(refused, Refused)
    assert "over the limit of 65536" in refused.error.message


# -- mods that close at once --


@pytest.mark.req("GABP-6.2-1")
@on_loop
async def test_a_mod_that_accepts_and_closes_at_once_is_known_at_once_and_tried_again(monkeypatch):
    closed = threading.Event()
    look = peers.far_end

    def accept_and_close(listener):
        listener.accept()[0].close()
        closed.set()

    def look_late(*ports):
        # When the mod was quicker than we are.
        assert closed.wait(PATIENCE)
        return look(*ports)

    monkeypatch.setattr(peers, "far_end", look_late)
    # Whoever waits for this never sees the end of the test.
    monkeypatch.setattr(connector, "OWNER_SECONDS", 3_600.0)
    monkeypatch.setattr(connector, "CONNECT_SECONDS", 3_600.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mod = threading.Thread(target=accept_and_close, args=(listener,))
        mod.start()
        address = Address(transport="tcp", where=str(listener.getsockname()[1]))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(ConnectFault, match="closed the connection at once") as caught:
                await connector.LoopbackConnector().connect(address, lambda _: None, lambda _: None)
        mod.join()
    assert not caught.value.fatal


@on_loop
async def test_a_mod_that_welcomes_and_closes_is_not_reached_for_without_a_pause(tmp_path):
    paused = []

    def pauses():
        paused.append(1)
        return iter([0.001])

    async with ScriptedMod() as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        arena.life._machine = structs.replace(arena.life._machine, delays=pauses)
        for connects in range(2, 5):
            before = len(paused)
            mod.drop()
            await until(lambda connects=connects: arena.connects == connects)
            # One for the pause, one for the tries.
            assert len(paused) == before + 2


# -- mods that do not read --


class NotReading(ScriptedMod):
    """Reads until it is told not to."""

    def __init__(self, **answers):
        super().__init__(**answers)
        self.not_reading = False

    def _answer(self, writer, request, params):
        super()._answer(writer, request, params)
        if self.not_reading:
            writer.transport.pause_reading()


@pytest.mark.req("GABP-7.3-2")
@pytest.mark.parametrize(("limit", "lost"), [(2 * 1024 * 1024, True), (64 * 1024 * 1024, False)])
@on_loop
async def test_how_much_waits_for_a_mod_that_does_not_read_is_a_setting(tmp_path, limit, lost):
    async with NotReading(tools_call=1) as mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        # So that the kernel takes little of it.
        mod._server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        attached(ground, mod.port, max_unsent_bytes=limit)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        mod.not_reading = True
        await arena.call_tool("me", "a/b", {})
        calls = [arena.call_tool(f"agent-{number}", "a/b", {"pad": "x" * 900_000}) for number in range(16)]
        if lost:
            with pytest.raises(GameError, match="does not read what it is sent"):
                await calls[-1]
        else:
            # The control: as much of it waits, and nothing is given up.
            assert arena.counts == (0, len(calls))
            assert arena.connects == 1
        for call in calls:
            call.cancel()


@pytest.mark.req("GABP-2.1-3")
@pytest.mark.parametrize(("mode", "taken"), [(Mode.COMPAT, True), (Mode.STRICT, False)])
def test_a_wrong_content_type_is_a_matter_of_strict_sessions(mode, taken):
    bridge, _ = opened(mode)
    id_ = bridge.request(messages.TOOLS_CALL, b'{"name":"a/b"}')
    body = b'{"v":"gabp/1","id":"%b","type":"response","result":1}' % id_.encode()
    (happened,) = bridge.receive(frame(body, content_type="text/plain"))
    assert isinstance(happened, Answered) is taken
