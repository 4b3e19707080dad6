"""Frames over real sockets: whole, in order, bounded, and nothing after the end."""

import asyncio
import contextlib
import os
import socket
from typing import Self

import pytest

from bascule.transports.framed import MAX_BATCH_BYTES, FramedConnection
from bascule.transports.peercred import Peer
from gabp.content_length import FrameError, FrameReader, frame
from patience import PATIENCE


class Recorder(FramedConnection):
    """Echoes every frame, and remembers what it was told."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**{"max_body_bytes": 1_000, **limits})
        self.peer: Peer | None = None
        self.frames: list[bytes] = []
        self.bad: list[FrameError] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def on_open(self, peer: Peer | None) -> None:
        self.peer = peer

    def on_frame(self, body: bytes) -> None:
        self.frames.append(body)
        if body == b"bye":
            self.send(b"see you")
            self.close()
        else:
            self.send(body)

    def on_bad_frame(self, error: FrameError) -> None:
        self.bad.append(error)
        self.send(b"what?")

    def on_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


class Pair:
    """The connection under test and the bare socket at its other end."""

    def __init__(self, family: int = socket.AF_UNIX, **limits: int) -> None:
        self._family = family
        self._limits = limits

    async def __aenter__(self) -> Self:
        ours, self.peer = self._sockets()
        self.peer.setblocking(False)
        self.loop = asyncio.get_running_loop()
        _, self.connection = await self.loop.create_connection(lambda: Recorder(**self._limits), sock=ours)
        self._reader = FrameReader(max_body_bytes=10_000_000)
        self._frames: list[bytes] = []
        return self

    def _sockets(self) -> tuple[socket.socket, socket.socket]:
        if self._family == socket.AF_UNIX:
            return socket.socketpair()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            theirs = socket.create_connection(listener.getsockname())
            return listener.accept()[0], theirs

    async def __aexit__(self, *_: object) -> None:
        self.peer.close()
        self.connection.close()
        async with asyncio.timeout(PATIENCE):
            await self.connection.lost

    async def send(self, data: bytes) -> None:
        await self.loop.sock_sendall(self.peer, data)

    async def read(self) -> bytes | None:
        """The next frame; None at the end."""
        async with asyncio.timeout(PATIENCE):
            while not self._frames:
                data = await self.loop.sock_recv(self.peer, 65_536)
                if not data:
                    return None
                self._frames += self._reader.feed(data)
        return self._frames.pop(0)


def run(test):
    """Each of these tests is a coroutine with a loop of its own."""

    def wrapped() -> None:
        asyncio.run(test())

    wrapped.__name__ = test.__name__
    return wrapped


@run
async def test_frames_arrive_whole_and_in_order_however_they_are_cut():
    bodies = [b"", b"one", b"x" * 1_000, b"\r\n\r\n", b"Content-Length: 5\r\n\r\n"]
    stream = b"".join(frame(body) for body in bodies)
    for size in (1, 7, len(stream)):
        async with Pair() as pair:
            for start in range(0, len(stream), size):
                await pair.send(stream[start : start + size])
            assert [await pair.read() for _ in bodies] == bodies
            assert pair.connection.frames == bodies


@run
async def test_the_kernel_says_who_is_at_the_other_end():
    async with Pair() as pair:
        assert pair.connection.peer == Peer(os.getuid(), os.getpid())


@run
async def test_over_tcp_the_kernel_does_not_say():
    async with Pair(socket.AF_INET) as pair:
        assert pair.connection.peer is None


@run
async def test_a_broken_frame_is_reported_answered_and_the_end():
    async with Pair() as pair:
        await pair.send(b"nonsense\r\n\r\n" + frame(b"never seen"))
        assert await pair.read() == b"what?"
        assert await pair.read() is None
        assert len(pair.connection.bad) == 1
        assert pair.connection.frames == []


@run
async def test_a_frame_over_the_limit_is_refused_by_its_header_alone():
    async with Pair() as pair:
        await pair.send(b"Content-Length: 1001\r\n\r\n")
        assert await pair.read() == b"what?"
        assert await pair.read() is None


@run
async def test_what_was_whole_before_a_broken_frame_is_delivered():
    # Had it come in a packet of its own it would have been; the cut must not matter.
    async with Pair() as pair:
        await pair.send(frame(b"first") + b"nonsense\r\n\r\n")
        assert [await pair.read(), await pair.read()] == [b"first", b"what?"]
        assert pair.connection.frames == [b"first"]


@run
async def test_after_close_nothing_more_is_delivered():
    async with Pair() as pair:
        await pair.send(frame(b"bye") + frame(b"too late"))
        assert await pair.read() == b"see you"
        assert await pair.read() is None
        assert pair.connection.frames == [b"bye"]


@run
async def test_what_is_sent_after_close_goes_nowhere():
    async with Pair() as pair:
        pair.connection.close()
        pair.connection.send(b"too late")
        assert not pair.connection.open
        assert await pair.read() is None


@run
async def test_what_was_sent_before_close_still_arrives():
    async with Pair(max_body_bytes=10_000_000) as pair:
        pair.connection.send(b"x" * 3_000_000)
        pair.connection.close()
        assert await pair.read() == b"x" * 3_000_000
        assert await pair.read() is None


@run
async def test_a_peer_that_does_not_read_is_cut():
    async with Pair(max_unsent_bytes=100_000) as pair:
        for _ in range(100):
            pair.connection.send(b"x" * 65_536)
        async with asyncio.timeout(PATIENCE):
            await pair.connection.lost
        assert not pair.connection.open


@run
async def test_a_peer_that_does_not_read_its_answers_is_cut():
    async with Pair(max_body_bytes=1_000_000, max_unsent_bytes=100_000) as pair:
        async with asyncio.timeout(PATIENCE):
            while not pair.connection.lost.done():
                with contextlib.suppress(ConnectionError):
                    await pair.send(frame(b"x" * 50_000))
        assert not pair.connection.open


@run
async def test_the_end_is_reported_once_and_when_the_peer_leaves():
    async with Pair() as pair:
        pair.peer.close()
        async with asyncio.timeout(PATIENCE):
            assert await pair.connection.lost is None
        pair.connection.close()


@run
async def test_what_is_sent_in_one_turn_is_one_write():
    async with Pair() as pair:
        bodies = [b"%d" % number for number in range(16)]
        for body in bodies:
            pair.connection.send(body)
        # Nothing yet: each would wake the peer.
        with pytest.raises(BlockingIOError):
            pair.peer.recv(1)
        assert await pair.loop.sock_recv(pair.peer, 65_536) == b"".join(map(frame, bodies))


@run
async def test_what_was_sent_before_a_frame_came_goes_out_before_its_answer():
    async with Pair() as pair:
        pair.connection.send(b"first")
        pair.connection.data_received(frame(b"second"))
        assert [await pair.read(), await pair.read()] == [b"first", b"second"]


@run
async def test_what_was_sent_in_the_turn_of_a_close_still_arrives():
    async with Pair() as pair:
        pair.connection.send(b"last words")
        pair.connection.close()
        assert await pair.read() == b"last words"
        assert await pair.read() is None


@run
async def test_what_was_sent_before_the_peer_ended_its_half_still_arrives():
    async with Pair() as pair:
        pair.connection.send(b"last words")
        pair.connection.eof_received()
        pair.connection.close()
        assert await pair.read() == b"last words"


def test_what_is_sent_between_two_runs_of_the_loop_goes_out_in_the_next_one():
    async def read(pair):
        async with asyncio.timeout(PATIENCE):
            return await pair.read()

    with asyncio.Runner() as runner:
        pair = runner.run(_entered())
        pair.connection.send(b"outside")
        assert runner.run(read(pair)) == b"outside"
        runner.run(pair.__aexit__(None, None, None))


async def _entered():
    return await Pair().__aenter__()


@run
async def test_a_megabyte_sent_in_one_turn_does_not_wait_for_its_end():
    async with Pair() as pair:
        pair.connection.send(b"x" * MAX_BATCH_BYTES)
        with pytest.raises(BlockingIOError):
            pair.peer.recv(1)
        pair.connection.send(b"more")
        assert pair.peer.recv(1) == b"C"
