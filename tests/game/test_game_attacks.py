"""What a hostile or broken peer can do to a mod or the bridge over a real socket: lose its connection."""

import asyncio
import contextlib
import json
import os
import random
import resource
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from bridges_by_hand import HandBridge, pumped
from lacking_here import needs_root
from playground import attached, on_loop, playground, until
from scripted_mod import ScriptedMod

from bascule.game.machine.connector import LoopbackConnector
from bascule.game.ports import Address, ConnectFault
from bascule.game.states import GameState
from bascule_mod import Endpoint, Mod
from gabp import envelopes, messages
from gabp.content_length import frame
from gabp.errors import ErrorCode
from patience import PATIENCE

LONG = bool(os.environ.get("BASCULE_LONG"))

JSON = "application/json"
ATTACKS = {
    "negative length": b"Content-Length: -1\r\n\r\n",
    "huge length": b"Content-Length: 999999999999\r\n\r\n",
    "absurd length": b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "one byte over": b"Content-Length: 1048577\r\n\r\n",
    "two lengths": b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths that differ": b"Content-Length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "length in words": b"Content-Length: ten\r\n\r\n",
    "length with a sign": b"Content-Length: +2\r\n\r\n{}",
    "length in other digits": "Content-Length: \u0662\r\n\r\n{}".encode(),
    "no length": b"Content-Type: application/json\r\n\r\n",
    "endless headers": b"X-Padding: " + b"x" * 20_000,
    "many headers": b"A: b\r\n" * 500 + b"\r\n",
    "bare newlines": b"Content-Length: 2\n\n{}",
    "newline framing": b'{"v":"gabp/1"}\n',
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200) + b"\n",
    "bad UTF-8": frame(b'{"v":"\xff\xfe"}', content_type=JSON),
    "deep JSON": frame(b"[" * 100_000, content_type=JSON),
    "deep and whole": frame(b"[" * 50_000 + b"]" * 50_000, content_type=JSON),
    "deep objects": frame(b'{"a":' * 40_000 + b"1" + b"}" * 40_000, content_type=JSON),
    "no JSON": frame(b"\x00" * 100, content_type=JSON),
    "an endless number": frame(b'{"a":' + b"9" * 500_000 + b"}", content_type=JSON),
    "an empty body": frame(b"", content_type=JSON),
}


@pytest.fixture(scope="module")
def served():
    mod = Mod("target", endpoint=Endpoint(transport="tcp", address="0", token=secrets.token_hex(32)))
    mod.tool(lambda value: value, name="target/echo")
    with pumped(mod):
        yield mod


def talk(mod: Mod, data: bytes, *, pieces: int | None = None) -> list[envelopes.Message]:
    """Everything the mod answers until it closes."""
    with socket.create_connection(("127.0.0.1", mod.port), PATIENCE) as sock:
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(data), pieces or len(data)):
                sock.sendall(data[at : at + (pieces or len(data))])
        answer = b""
        with contextlib.suppress(ConnectionError):
            while part := sock.recv(65536):
                answer += part
    return envelopes.Reader().feed(answer)


# -- against a mod --------------------------------------------------------------------------------


@pytest.mark.req("GABP-6.1-1", "GABP-SEC-2", "GABP-SEC-4")
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mod_closes_a_broken_connection_with_a_reason_and_serves_the_others(served, attack):
    with HandBridge(served) as other:
        answers = talk(served, ATTACKS[attack])
        if answers:
            (answer,) = answers
            assert answer.id == envelopes.NIL_ID
            assert answer.error.code == ErrorCode.PARSE_ERROR
            assert len(answer.error.message) < 500
        # A reset may have overtaken it where more was sent than was read; never when all of it was read.
        assert answers or len(ATTACKS[attack]) > 4096
        assert other.call("target/echo", value=1) == 1


def test_an_attack_that_comes_byte_by_byte_is_no_better(served):
    for attack in ("negative length", "two lengths", "bare newlines", "bad UTF-8"):
        (answer,) = talk(served, ATTACKS[attack], pieces=1)
        assert answer.error.code == ErrorCode.PARSE_ERROR


@pytest.mark.req("GABP-6.2-3")
def test_a_session_byte_by_byte_works(served):
    with HandBridge(served) as bridge:
        id_ = bridge.session.request(messages.TOOLS_CALL, b'{"name":"target/echo","arguments":{"value":5}}')
        for byte in bridge.session.take():
            bridge._socket.sendall(bytes([byte]))
        assert bytes(bridge.until(id_).value) == b"5"


def test_a_bridge_that_has_sent_all_and_half_closes_is_let_go(served):
    with HandBridge(served) as bridge:
        bridge._socket.shutdown(socket.SHUT_WR)
        assert bridge.closed()


def test_a_frame_or_a_hello_that_never_comes_is_given_up(monkeypatch, served):
    monkeypatch.setattr("bascule_mod.server.FRAME_SECONDS", 0.1)
    monkeypatch.setattr("bascule_mod.server.HELLO_SECONDS", 0.1)
    with HandBridge(served) as slow:
        slow._socket.sendall(b"Content-Length: 100\r\n\r\n{")
        assert slow.closed()
        assert "a frame took longer" in slow.others[-1].text
    with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as silent:
        assert silent.recv(1) == b""


def test_nothing_that_comes_behind_a_violation_is_executed(served):
    ran: list[int] = []
    served.tool(lambda: ran.append(1), name="target/act")
    with HandBridge(served) as bridge:
        bridge.session.request(messages.TOOLS_CALL, b'{"name":"target/act"}')
        bridge._socket.sendall(b"Content-Length: x\r\n\r\n" + bridge.session.take())
        assert bridge.closed()
        with HandBridge(served) as other:
            assert other.call("target/echo", value=2) == 2
    assert ran == []
    served.remove("target/act")


def test_random_bytes_in_random_cuts_never_hurt_a_mod(served):
    chance = random.Random(secrets.randbits(32))
    words = [*ATTACKS.values(), frame(b"{}", content_type=JSON), b"\r\n\r\n", b"Content-Length: 5\r\n\r\n{}{}{"]
    with HandBridge(served) as other:
        for number in range(2_000 if LONG else 60):
            data = b"".join(
                chance.choice(words)[: chance.randrange(1, 300)] if chance.random() < 0.6 else chance.randbytes(50)
                for _ in range(chance.randrange(1, 6))
            )
            sock = socket.create_connection(("127.0.0.1", served.port), PATIENCE)
            with sock, contextlib.suppress(ConnectionError):
                sock.sendall(data)
            if number % 20 == 0:
                assert other.call("target/echo", value=number) == number
        assert other.call("target/echo", value="still here") == "still here"
    assert threading.active_count() < 20


def test_claims_cost_no_memory_and_a_flood_of_strangers_keeps_no_bridge_out(served):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    socks = [socket.create_connection(("127.0.0.1", served.port), PATIENCE) for _ in range(60)]
    try:
        for sock in socks:
            with contextlib.suppress(ConnectionError):
                # A megabyte is promised each, a few bytes come.
                sock.sendall(b"Content-Length: 1000000\r\n\r\n{")
        with HandBridge(served) as bridge:
            assert bridge.call("target/echo", value=1) == 1
    finally:
        for sock in socks:
            sock.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000


@pytest.mark.req("GABP-7.3-1", "GABP-7.3-2", "GABP-7.3-3")
def test_a_bridge_that_never_reads_loses_events_and_then_its_connection_and_nobody_else_waits():
    mod = Mod(
        "loud",
        endpoint=Endpoint(transport="tcp", address="0", token=secrets.token_hex(32)),
        max_event_buffer=100_000,
        max_buffer=2_000_000,
    )
    emit = mod.channel("noise")
    mod.tool(lambda: "x" * 900_000, name="loud/large")
    with pumped(mod), HandBridge(mod) as silent, HandBridge(mod) as good:
        for bridge in (silent, good):
            bridge.session.subscribe(["noise"])
            bridge.flush()
        good.wait(lambda: bool(good.answers))
        silent.wait(lambda: bool(silent.answers))
        sent = 0
        while not any(each.dropped_events for each in mod._server.connections):
            emit("y" * 10_000)
            sent += 1
            good.read()
            assert sent < 5_000
        good.wait(lambda: len(good.events) == sent)
        assert [event.missed for event in good.events] == [0] * sent
        # Events were dropped for the deaf one; answers never are, so in the end it is cut off.
        for _ in range(20):
            silent.send(messages.TOOLS_CALL, {"name": "loud/large"})
        good.wait(lambda: mod.bridges == 1)
        assert good.call("loud/large") == "x" * 900_000


def test_a_bridge_that_was_too_slow_sees_by_the_numbers_how_much_it_lost():
    mod = Mod(
        "loud",
        endpoint=Endpoint(transport="tcp", address="0", token=secrets.token_hex(32)),
        max_event_buffer=50_000,
    )
    emit = mod.channel("noise")
    with pumped(mod), HandBridge(mod) as slow:
        slow.session.subscribe(["noise"])
        slow.flush()
        slow.wait(lambda: bool(slow.answers))
        (connection,) = mod._server.connections
        sent = 0
        while not connection.dropped_events:
            emit("y" * 10_000)
            sent += 1
        slow.wait(lambda: not connection.out)
        emit("the last")
        sent += 1
        slow.wait(lambda: bool(slow.events) and slow.events[-1].seq == sent - 1)
        assert len(slow.events) + sum(event.missed for event in slow.events) == sent
        assert sum(event.missed for event in slow.events) > 0


# -- against the bridge ---------------------------------------------------------------------------


@pytest.mark.req("GABP-SEC-4")
@on_loop
async def test_a_mod_that_breaks_the_framing_in_any_way_costs_only_its_own_session(tmp_path):
    async with ScriptedMod() as mod, ScriptedMod() as good, playground(tmp_path) as ground:
        attached(ground, mod.port)
        text = ground.toml.read_text()
        ground.toml.write_text(text + text.replace("games.arena", "games.good").replace(str(mod.port), str(good.port)))
        good.answers["tools/call"] = 1
        for name in ("arena", "good"):
            assert (await ground.games.start(name)).state == "live"
        arena, other = ground.games.find("arena"), ground.games.find("good")
        # A bridge takes larger messages than a mod, and skips what is larger still.
        attacks = [attack for name, attack in ATTACKS.items() if name != "one byte over"]
        for number, attack in enumerate(attacks, 1):
            mod.send(attack)
            await until(lambda number=number: arena.connects > number or arena.state is not GameState.LIVE)
            assert bytes(await other.call_tool("me", "a/b", {})) == b"1"
            await arena.reached(GameState.LIVE)
        assert other.connects == 1
        assert arena.connects == len(attacks) + 1
        assert len(arena.notes) <= 32
        assert not [line for line in ground.logged if line["level"] == "error"]


@pytest.mark.req("GABP-SEC-4")
@on_loop
async def test_a_mod_that_floods_is_bounded_and_others_are_still_served(tmp_path):
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        await arena.subscribe("me", ["noise"])
        flood = b"".join(
            envelopes.event(envelopes.NIL_ID, "noise", seq, b'"%b"' % (b"x" * 2_000)) for seq in range(10_000)
        )
        mod.send(flood)
        await until(lambda: arena.events.cursor >= 10_000)
        assert len(arena.events._events) <= 2_048
        assert arena.events._bytes <= 8 * 1024 * 1024
        page = arena.events.page(0, ("noise",), 5)
        assert page.events[0].code == ErrorCode.OVERFLOW
        assert [event.seq for event in page.events[1:]] == list(range(10_000 - 2_048, 10_000 - 2_048 + 4))
        # A reader that keeps up is told of nothing.
        assert arena.events.page(arena.events.cursor - 3, ("noise",), 5).events[0].code is None


@on_loop
async def test_a_mod_that_answers_with_anything_at_all_only_fails_the_call(tmp_path):
    chance = random.Random(7)
    bodies = [
        b'{"v":"gabp/1","id":"$ID","type":"response"}',
        b'{"v":"gabp/1","id":"$ID","type":"response","result":1,"error":{"code":1,"message":"x"}}',
        b'{"v":"gabp/1","id":"$ID","type":"response","error":"no"}',
        b'{"v":"gabp/2","id":"$ID","type":"response","result":1}',
        b'{"v":"gabp/1","id":"$ID","type":"event","channel":5}',
        b'{"v":"gabp/1","id":"$ID","type":"request","method":"tools/call"}',
        b'{"v":"gabp/1","id":"other","type":"response","result":1}',
    ]

    def answer(_: object) -> list[bytes]:
        noise = [chance.choice(bodies[3:]) for _ in range(3)]
        return [*noise, chance.choice(bodies[:3])]

    async with ScriptedMod(tools_call=answer) as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        for _ in range(100):
            with pytest.raises(Exception, match="GABP"):
                await arena.call_tool("me", "a/b", {})
        assert arena.connects == 1
        assert arena.counts == (0, 0)


@on_loop
async def test_a_frame_that_never_ends_is_given_up(tmp_path, monkeypatch):
    from bascule.game import link

    monkeypatch.setattr(link.Link.__init__, "__kwdefaults__", {"frame_seconds": 0.2})
    async with ScriptedMod() as mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        mod.send(b"Content-Length: 100\r\n\r\n{")
        await arena.reached(GameState.RECONNECTING)
        assert "a frame took longer than 10 s" in arena.problem
        await arena.reached(GameState.LIVE)


@on_loop
async def test_a_mods_words_reach_the_log_short_and_its_schemas_cannot_stop_the_daemon(tmp_path):
    evil = {
        "name": "a/evil",
        "inputSchema": {"properties": {"x": {"pattern": "(a+)+$"}}, "anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
    }
    mod = ScriptedMod(tools_list={"tools": [evil, {"name": "\x1b" * 300}]}, tools_call=1)
    async with mod, playground(tmp_path) as ground:
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        began = time.thread_time()
        assert bytes(await arena.call_tool("me", "a/evil", {"x": "a" * 5_000 + "b"})) == b"1"
        assert time.thread_time() - began < 10
        assert list(arena.catalog.tools) == ["a/evil"]
        mod.send(envelopes.response("x" * 100, b"1") + frame(json.dumps({"v": "\x1b" * 1000}).encode()))
        await until(lambda: len(arena.notes) >= 3)
        assert all(len(note) <= 500 and "\x1b" not in note for note in arena.notes)


# -- another user ---------------------------------------------------------------------------------

THIEF = """
import os, socket, sys
kind, path = sys.argv[1:]
os.umask(0)
made_by_root = socket.socket()
os.setgid(65534); os.setuid(65534)
listener = made_by_root if kind == "inherited" else socket.socket(socket.AF_UNIX if kind == "pipe" else socket.AF_INET)
listener.bind(path if kind == "pipe" else ("127.0.0.1", 0))
listener.listen()
print(path if kind == "pipe" else listener.getsockname()[1], flush=True)
listener.settimeout(30)
while True:
    connection, _ = listener.accept()
    connection.settimeout(30)
    print(len(connection.recv(100)), flush=True)
"""


@pytest.mark.req("DEC-GABP-5")
@needs_root
@pytest.mark.parametrize("kind", ["tcp", "inherited", "pipe"])
@on_loop
async def test_the_token_is_not_sent_to_a_listener_of_another_user(kind):
    # pytest's own directories are private, and the thief must reach its socket.
    place = tempfile.TemporaryDirectory()
    os.chmod(place.name, 0o777)
    program = [sys.executable, "-I", "-c", THIEF, kind, f"{place.name}/gabp.sock"]
    with place, subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as thief:  # noqa: ASYNC220 - a thief, not ours
        try:
            where = (await asyncio.to_thread(thief.stdout.readline)).strip()
            address = Address(transport="pipe" if kind == "pipe" else "tcp", where=where)
            with pytest.raises(ConnectFault, match="belongs to uid 65534, not to you: the token is not sent") as caught:
                await LoopbackConnector().connect(address, lambda _: None, lambda _: None)
            assert caught.value.fatal
            # Connected to find out, and not a byte was said. A listener keeps the uid of who made it: looking at
            # listeners alone would have been fooled by the inherited one.
            assert await asyncio.to_thread(thief.stdout.readline) == "0\n"
            # The control: whom that uid is our own would have sent it.
            wire = await LoopbackConnector(uid=65534).connect(address, lambda _: None, lambda _: None)
            wire.send(b"token")
            assert await asyncio.to_thread(thief.stdout.readline) == "5\n"
            wire.close()
        finally:
            thief.kill()


@pytest.mark.req("GABP-6.1-1")
@on_loop
async def test_nobody_listening_and_not_a_socket_are_told_apart(tmp_path):
    connector = LoopbackConnector()
    with pytest.raises(ConnectFault, match="Connection refused") as caught:
        await connector.connect(
            Address(transport="tcp", where=str(connector.free_port())), lambda _: None, lambda _: None
        )
    assert not caught.value.fatal
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConnectFault, match="not a socket") as caught:
        await connector.connect(Address(transport="pipe", where=str(file)), lambda _: None, lambda _: None)
    assert caught.value.fatal
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(ConnectFault, match="not a socket"):
        await connector.connect(Address(transport="pipe", where=str(link)), lambda _: None, lambda _: None)
