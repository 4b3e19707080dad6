"""A server of NATS that lies: our client ends the connection and tries again, and keeps nothing of it."""

import asyncio
import contextlib
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from bascule.mesh import envelope
from bascule.mesh.cards import Keys, bytes_of
from bascule.mesh.envelope import BadEnvelope, Pair
from bascule.mesh.machine import connection as connections
from bascule.mesh.machine import set_up
from bascule.mesh.machine.bus import Bus
from bascule.mesh.machine.connection import NatsConnection
from bascule.mesh.machine.feed import _place
from bascule.mesh.machine.login import BusFault, Login
from bascule.mesh.machine.nats_post import MAX_FAULTS, NatsPost
from bascule.mesh.ports import Board, Fault
from certificates import certificate_in
from patience import PATIENCE

INFO = b'INFO {"version":"2.15.1","max_payload":1048576,"nonce":"n"}\r\n'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def rogue(serve: Serve) -> AsyncIterator[int]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        await serve(reader, writer)

    async with listening(greet) as port:
        yield port


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            # Also when the story is over and this is cancelled.
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Nobody:
    """A reader that wants nothing."""

    def opened(self, _mailbox: str) -> int:
        return 0

    def closed(self) -> None: ...

    def live(self, src: str, data: bytes) -> None: ...

    def mailed(self, src: str, data: bytes, number: int) -> None: ...

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None: ...


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    """To every request, as JetStream would."""
    while line := await reader.readline():
        words = line.split()
        if words[0] == b"PING":
            writer.write(b"PONG\r\n")
        elif words[0] == b"PUB":
            await reader.readexactly(int(words[-1]) + 2)
            if len(words) == 4:
                writer.write(b"MSG %s 1 %d\r\n%s\r\n" % (words[2], len(body), body))


@pytest.mark.parametrize("when", ["yesterday", "0001-01-01T00:00:00", "9" * 40])
def test_a_time_that_is_none_does_not_end_the_connecting(when):
    async def story() -> None:
        seen: asyncio.Queue[None] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.put_nowait(None)
            await answer(reader, writer, b'{"created":"c","ts":"%s"}' % when.encode())

        async with rogue(serve) as port:
            post = NatsPost("laptop", Keys.new(), (f"nats://127.0.0.1:{port}",))
            await post.open(Nobody())
            for _ in range(3):
                await asyncio.wait_for(seen.get(), PATIENCE)
            assert not post.state.open
            await post.close()

    asyncio.run(story())


@pytest.mark.req("MESH-TRUST-3")
@pytest.mark.parametrize("apart", [True, False], ids=["two keys", "one key, the control"])
def test_a_server_that_chooses_what_a_login_signs_gets_no_letter(apart):
    """Its nonce is what a letter to the other node would sign."""

    async def story() -> bytes:
        logins: asyncio.Queue[bytes] = asyncio.Queue()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            info = {"version": "2.15.1", "max_payload": 1_048_576, "nonce": (begin + body).decode()}
            writer.write(b"INFO %b\r\n" % json.dumps(info).encode())
            logins.put_nowait(await reader.readline())
            writer.transport.abort()

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        async with server:
            login = Login("laptop", ours.bus if apart else ours.sign, (f"nats://127.0.0.1:{_port(server)}",))
            with pytest.raises(BusFault):
                await Bus.connect(login, login.servers[0], lambda *_: None)
            options = json.loads((await asyncio.wait_for(logins.get(), PATIENCE)).partition(b" ")[2])
            return bytes_of(options["sig"])

    ours, theirs = Keys.new(), Keys.new()
    begin, body = envelope.DOMAIN + b"desk\0laptop\0", b'{"v":1}'
    signature = asyncio.run(story())
    # As if it also had the key that seals what the two write to each other.
    sealed = bytes(12) + _pair("laptop", ours, "desk", theirs)._cipher.encrypt(bytes(12), signature + body, None)
    desk = _pair("desk", theirs, "laptop", ours)
    if apart:
        with pytest.raises(BadEnvelope, match="signature"):
            desk.open(sealed)
    else:
        assert desk.open(sealed).body == body


def _pair(own: str, keys: Keys, peer: str, peer_keys: Keys) -> Pair:
    sign, box = (bytes_of(each) for each in peer_keys.public[:2])
    return Pair(own=own, sign=keys.sign, box=keys.box, peer=peer, peer_sign=sign, peer_box=box)


def _port(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port


def test_a_server_that_asks_for_life_and_never_reads_is_left(monkeypatch):
    monkeypatch.setattr(connections, "MAX_UNSENT_BYTES", 64 * 1024)

    async def story() -> None:
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline() != b"PING\r\n":
                pass
            writer.write(b"PONG\r\n")
            while True:
                writer.write(b"PING\r\n" * 50_000)
                await writer.drain()

        async with rogue(serve) as port:
            connection = NatsConnection(print, lambda why: lost.done() or lost.set_result(why), print)
            await connection.open("127.0.0.1", port, tls=None, handshake_first=False, login=lambda _: {})
            assert await asyncio.wait_for(lost, PATIENCE) == "it does not read"

    asyncio.run(story())


@pytest.mark.parametrize(
    "ahead", [b"", b"MSG a 1 1000\r\n", b"MSG a 1 4\r\nlie", b"PON"], ids=["none", "head", "part", "line"]
)
def test_what_is_said_before_tls_is_not_read_with_what_is_said_behind_it(tmp_path, ahead):
    """Whoever is between us can write into the connection until TLS begins."""
    certificate, key = certificate_in(tmp_path)
    of_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    of_server.load_cert_chain(certificate, key)
    of_client = ssl.create_default_context(cafile=str(certificate))

    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b'INFO {"version":"2.15.1","max_payload":1048576,"nonce":"n","tls_required":true}\r\n' + ahead)
            await writer.drain()
            await writer.start_tls(of_server)
            while line := await reader.readline():
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")

        async with listening(serve) as port:
            connection = NatsConnection(print, print, print)
            await connection.open("127.0.0.1", port, tls=of_client, handshake_first=False, login=lambda _: {})
            await asyncio.wait_for(connection.ping().copy(), PATIENCE)
            connection.abort()

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


@pytest.mark.parametrize("refusals", [1, 3])
def test_a_login_that_is_refused_while_a_server_reads_its_configuration_is_tried_again(refusals):
    async def story() -> bytes:
        numbers = itertools.count(1)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if next(numbers) <= refusals:
                writer.write(b"-ERR 'Authorization Violation'\r\n")
                await writer.drain()
            else:
                await answer(reader, writer, b"welcome")

        async with rogue(serve) as port:
            login = Login("laptop", Keys.new().bus, (f"nats://127.0.0.1:{port}",))
            return await set_up.ask_to_join(login, "laptop", b"knock")

    if refusals < set_up.LOGIN_TRIES:
        assert asyncio.run(story()) == b"welcome"
        return
    with pytest.raises(BusFault) as refused:
        asyncio.run(story())
    assert refused.value.fault is Fault.REFUSED


def test_a_server_that_forbids_ever_new_subjects_fills_nothing():
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline() != b"PING\r\n":
                pass
            for number in range(1_000):
                writer.write(b"-ERR 'Permissions Violation for Publish to \"s.%d\"'\r\n" % number)
            writer.write(b"PONG\r\n")
            notices.set()
            await reader.read()

        notices = asyncio.Event()
        post = NatsPost("laptop", Keys.new(), ())
        async with rogue(serve) as port:
            connection = NatsConnection(
                lambda text: post._on_forbidden(text, _fault(text)), lambda _why: None, lambda *_: None
            )
            await connection.open("127.0.0.1", port, tls=None, handshake_first=False, login=lambda _: {})
            await asyncio.wait_for(notices.wait(), PATIENCE)
            assert 0 < len(post._faults) <= MAX_FAULTS
            connection.abort()

    asyncio.run(story())


def _fault(text: str) -> BusFault:
    return BusFault(Fault.FORBIDDEN, text)


@pytest.mark.parametrize("number", ["-1", "0", str(2**64), "9" * 100])
def test_a_number_that_cannot_be_stored_is_no_place_in_a_stream(number):
    with pytest.raises(ValueError, match="place"):
        _place(f"$JS.ACK.BSC.laptop.1.{number}.1.1000000000.0")
    assert _place("$JS.ACK.BSC.laptop.1.7.1.1000000000.0") == (7, 1000)
