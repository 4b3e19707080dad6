"""What may not grow without end at either side, and what a busy stream may do: each once was wrong."""

import asyncio
import contextlib
import errno
import json
import secrets
import socket
import threading
import time

import pytest
from bridges_by_hand import HandBridge, pumped
from msgspec import structs
from playground import attached, on_loop, playground, until
from scripted_mod import TOOL, WELCOME, ScriptedMod

from bascule.game.game import MAX_LOGGED_NOTES
from bascule.game.link import Link
from bascule.game.protocol import GameState
from bascule_mod import Endpoint, Mod
from bascule_mod import server as mod_server
from bascule_mod.endpoint import BadEndpoint, observed
from gabp import envelopes, messages
from gabp.bridge_session import Answered, BridgeSession
from gabp.codec import decode
from gabp.envelopes import to_json
from gabp.errors import ErrorCode, GameError
from gabp.kept import Kept
from gabp.mod_session import Greeted, ModSession
from patience import PATIENCE


def tcp() -> Endpoint:
    return Endpoint(transport="tcp", address="0", token=secrets.token_hex(32))


# -- the mod ------------------------------------------------------------------------------------------


HELLO = messages.HelloParams(
    token="t" * 64, bridge_version="1", platform="linux", launch_id="550e8400-e29b-41d4-a716-446655440000"
)


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_stream_that_never_stops_between_two_frames_is_no_slow_frame():
    clock = Clock()
    endpoint = tcp()
    mod = Mod("x", endpoint=endpoint)
    mod.tool(lambda: 1, name="x/one")
    mod._open()
    server = mod._server
    server._now, server._ticked = clock, clock.now
    bridge = BridgeSession()
    bridge.hello(structs.replace(HELLO, token=endpoint.token))
    answered = 0

    with contextlib.closing(socket.create_connection(("127.0.0.1", mod.port), PATIENCE)) as sock:
        sock.settimeout(0.01)

        def turn(seconds: float = 0.0) -> bool:
            """A turn of the mod's loop, so much later; False when it has closed the connection."""
            nonlocal answered
            clock.now += seconds
            server.run_once(0.01)
            mod.poll()
            server.run_once(0)
            with contextlib.suppress(TimeoutError):
                data = sock.recv(1 << 16)
                answered += sum(isinstance(each, Answered) for each in bridge.receive(data))
                return data != b""
            return True

        sock.sendall(bridge.take())
        while bridge.welcome is None:
            assert turn()
        rest = b""
        for number in range(12):
            bridge.request(messages.TOOLS_CALL, b'{"name":"x/one"}')
            data = rest + bridge.take()
            # Always one part of the next one too; four seconds later the rest of it.
            sock.sendall(data[:-20])
            rest = data[-20:]
            while answered < number:
                assert turn()
            assert turn(4.0)
        sock.sendall(rest)
        while answered < 12:
            assert turn()
        # The control: one and the same frame for longer than ten seconds is given up.
        sock.sendall(b"Content-Length: 100\r\n\r\n{")
        turn()
        turn(4.0)
        for _ in range(100):
            if not turn(4.0):
                break
        else:
            pytest.fail("it was never closed")
    mod.stop()


def test_bridges_that_connect_before_any_says_hello_are_not_more_than_there_may_be():
    mod = Mod("x", endpoint=tcp(), max_connections=3)
    with pumped(mod), contextlib.ExitStack() as stack:
        early = [stack.enter_context(HandBridge(mod, welcome=False)) for _ in range(6)]
        for bridge in early:
            bridge.wait(lambda bridge=bridge: bool(bridge.others))
        assert mod.bridges == 3
        refused = [bridge for bridge in early if bridge.session.welcome is None]
        assert len(refused) == 3
        assert all(bridge.refused().code == ErrorCode.ACCESS_DENIED for bridge in refused)


def test_a_mod_without_descriptors_waits_for_one_and_does_not_spin(monkeypatch, caplog):
    lacking = threading.Event()
    lacking.set()
    real = mod_server.accept
    tries: list[float] = []

    class Starved:
        """The kernel's answer when the process has no descriptor left."""

        def __init__(self, listener: socket.socket) -> None:
            self._listener = listener

        def accept(self) -> tuple[socket.socket, object]:
            tries.append(time.monotonic())
            if lacking.is_set():
                raise OSError(errno.EMFILE, "Too many open files")
            return self._listener.accept()

    monkeypatch.setattr(mod_server, "accept", lambda listener: real(Starved(listener)))
    mod = Mod("x", endpoint=tcp())
    with pumped(mod):
        connecting = threading.Timer(1.0, lacking.clear)
        connecting.start()
        with HandBridge(mod) as bridge:
            assert bridge.ask(messages.TOOLS_LIST, {}) is not None
        connecting.join(PATIENCE)
    # Four times a second, not as fast as the loop can turn.
    assert 2 <= len(tries) < 40
    assert caplog.text.count("no descriptor is left") == 1


def test_events_that_nobody_can_be_sent_in_time_are_dropped_and_not_kept():
    mod = Mod("x", endpoint=tcp(), max_event_buffer=200_000)
    emit = mod.channel("noise")
    stuck, going = threading.Event(), threading.Event()

    def hold() -> None:
        going.set()
        stuck.wait(PATIENCE)

    with pumped(mod), HandBridge(mod) as bridge:
        bridge.ask(messages.SUBSCRIBE, {"channels": ["noise"]})
        bridge.session._wanted.add("noise")
        mod._server.post(hold)
        assert going.wait(PATIENCE)
        for _ in range(1_000):
            emit("y" * 10_000)
        held = 10_000 * len(mod._server._posted)
        stuck.set()
        bridge.wait(lambda: bool(bridge.events))
        emit("last")
        bridge.wait(lambda: bytes(bridge.events[-1].payload) == b'"last"')
    assert held < 300_000
    # The numbers say how many are missing.
    assert bridge.events[-1].seq == 1_000
    assert sum(1 + event.missed for event in bridge.events) == 1_001
    assert bridge.events[-1].missed > 900


def test_without_any_bridge_an_event_is_counted_and_kept_nowhere():
    mod = Mod("x", endpoint=tcp())
    emit = mod.channel("noise")
    with mod.running():
        for _ in range(100):
            emit(1)
        assert not mod._server._posted
        with HandBridge(mod) as bridge:
            bridge.ask(messages.SUBSCRIBE, {"channels": ["noise"]})
            bridge.session._wanted.add("noise")
            emit(2)
            bridge.wait(lambda: bool(bridge.events))
            assert bridge.events[0].seq == 100


@pytest.mark.parametrize("address", ["", "-1", "65536", "9" * 5_000, "٣"])
def test_a_port_that_is_none_is_reported_as_one(address):
    with pytest.raises(BadEndpoint, match="is not a valid port"):
        _ = Endpoint(transport="tcp", address=address, token="t" * 32).port


def test_a_welcome_that_fails_is_reported_and_the_game_goes_on(monkeypatch, caplog):
    mod = Mod("x", endpoint=tcp())
    faults = [0]
    monkeypatch.setattr("bascule_mod.endpoint.observed", lambda: 1 / faults.pop() if faults else None)
    ended = threading.Event()
    serving = threading.Thread(target=mod.serve, args=(ended.is_set,))
    serving.start()
    try:
        while mod.port is None:
            time.sleep(0.005)
        with HandBridge(mod, welcome=False) as unlucky:
            assert unlucky.refused().code == ErrorCode.INTERNAL_ERROR
        with HandBridge(mod) as bridge:
            assert bridge.ask(messages.TOOLS_LIST, {}) is not None
    finally:
        ended.set()
        serving.join(PATIENCE)
    assert "ZeroDivisionError" in caplog.text


def test_a_game_whose_directory_was_removed_still_says_what_gabs_asks(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    found = observed({"GABS_FORWARD_ENV": "A", "A": "1"})
    assert (found.cwd, found.env_values) == ("", {"A": "1"})


# -- the bridge ---------------------------------------------------------------------------------------


def attention(id_: str, state: str) -> dict[str, object]:
    item = {"attentionId": id_, "state": state, "severity": "error", "blocking": True, "stateInvalidated": False}
    return item | {"summary": "hot", "openedAtSequence": 1, "latestSequence": 1, "totalUrgentEntries": 1}


def event(channel: str, seq: int, payload: object) -> bytes:
    return envelopes.event("550e8400-e29b-41d4-a716-446655440000", channel, seq, to_json(payload))


class Faults:
    """What the loop would have logged: an exception in `data_received` costs the connection."""

    def __init__(self) -> None:
        self.found: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.found.append(context))


@on_loop
async def test_a_mod_that_opens_and_clears_without_end_is_asked_once_at_a_time(tmp_path):
    first = iter([{"attention": None}])
    mod = ScriptedMod(attention_current=lambda _: next(first, None))
    async with mod, playground(tmp_path) as ground:
        faults = Faults()
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        for number in range(300):
            mod.send(event(messages.ATTENTION_OPENED, number, attention("a", "open")))
            mod.send(event(messages.ATTENTION_CLEARED, number, attention("a", "cleared")))
        mod.send(event(messages.ATTENTION_OPENED, 300, attention("last", "open")))
        await until(lambda: arena.attention is not None and arena.attention.attention_id == "last")
        assert mod.methods().count(messages.ATTENTION_CURRENT) == 2
        assert (arena.state, arena.connects, faults.found) == (GameState.LIVE, 1, [])


@on_loop
async def test_what_comes_before_a_violation_in_the_same_read_does_not_hide_it(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        faults = Faults()
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        opened, cleared = (
            event(channel, 0, attention("a", state))
            for channel, state in ((messages.ATTENTION_OPENED, "open"), (messages.ATTENTION_CLEARED, "cleared"))
        )
        mod.send(opened + cleared + event(messages.CHANGES_CHANNEL, 0, {}) + b"Content-Length: x\r\n\r\n")
        await arena.reached(GameState.RECONNECTING)
        assert "the framing is broken" in arena.problem
        assert faults.found == []
        await arena.reached(GameState.LIVE)


@on_loop
async def test_agents_that_use_up_every_place_leave_some_to_the_bridge_itself(tmp_path):
    changed = WELCOME | {"capabilities": {"extensions": messages.EXTENSIONS}}
    mod = ScriptedMod(session_hello=changed, tools_call=lambda _: None)
    async with mod, playground(tmp_path) as ground:
        faults = Faults()
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        calls = [arena.call_tool(f"agent-{number}", "a/b", {}) for number in range(300)]
        await until(lambda: mod.methods().count(messages.TOOLS_CALL) >= 240)
        mod.answers["tools/list"] = {"tools": [TOOL, {**TOOL, "name": "a/new"}]}
        mod.send(event(messages.CHANGES_CHANNEL, 0, {}))
        await until(lambda: "a/new" in arena.catalog.tools)
        assert (arena.connects, faults.found) == (1, [])
        for call in calls:
            call.cancel()


@on_loop
async def test_a_bridge_too_takes_a_busy_stream_for_no_slow_frame():
    loop, clock = asyncio.get_running_loop(), Clock()
    loop.time = clock
    mod = ModSession()
    came: list[int] = []
    link = Link(
        BridgeSession(),
        on_answer=lambda *_: None,
        on_event=lambda event: came.append(event.seq),
        on_note=lambda _: None,
    )

    class Nowhere:
        """Both ends are here."""

        def send(self, data: bytes) -> None:
            for happening in mod.receive(data):
                if isinstance(happening, Greeted):
                    mod.welcome(decode(to_json(WELCOME), messages.Welcome))
                elif happening.method == messages.SUBSCRIBE:
                    mod.answer(happening.id, b'{"subscribed":["noise"]}')

        def close(self) -> None: ...

    async def later(seconds: float, data: bytes) -> None:
        link.data(data)
        clock.now += seconds
        # Timers that are due run in the next turn of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    link.greet(Nowhere(), HELLO)
    await later(0, mod.take())
    link.subscribe(["noise"])
    rest = mod.take()
    for seq in range(12):
        data = rest + event("noise", seq, seq)
        await later(4.0, data[:-10])
        rest = data[-10:]
    assert came == list(range(11))
    assert not link.over.done()
    await later(0, rest)
    # The control: one and the same frame for longer than ten seconds is given up.
    await later(11.0, b"Content-Length: 100\r\n")
    assert "a frame took longer than 10 s" in link.over.result()


@on_loop
async def test_a_result_too_large_to_keep_is_reported_and_not_waited_for(tmp_path):
    async with ScriptedMod(tools_call="x" * 1_000) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        arena.large._ours = Kept("gabp://bridge/arena/results/", max_bytes=100)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(GameError, match="it is not kept") as caught:
                await arena.call_tool("me", "a/b", {}, inline_bytes=10)
        assert caught.value.executed == "yes"
        assert json.loads(bytes(await arena.call_tool("me", "a/b", {}))) == "x" * 1_000


@on_loop
async def test_a_mod_that_does_nothing_right_does_not_fill_the_log(tmp_path):
    async with ScriptedMod(tools_call=7) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        for number in range(1_000):
            mod.send(envelopes.response(f"unasked-{number}", b"1"))
        assert bytes(await arena.call_tool("me", "a/b", {})) == b"7"
        noted = [line for line in ground.logged if line["event"] == "game_note"]
        assert len(noted) == MAX_LOGGED_NOTES + 1
        assert noted[-1]["note"] == "more of this connection's notes are not logged"
        # What it did last is still there for who looks at the game.
        assert "unasked-999" in arena.notes[-1]
