"""One connection by itself, on a transport of the test's: what is answered, in which order, held for how long."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from raw_requests import ANSWERED, ANSWERED_AND_CLOSED, REFUSED

from bascule.foundation.errors import BasculeError, Unauthenticated
from bascule.surfaces.http import connection as module
from bascule.surfaces.http.connection import HttpConnection
from bascule.surfaces.http.exchange import Pending, Request, Response

WHO = b"Host: x\r\n"


class Transport:
    """Writes into a list; does not read ahead of the test."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = False
        self.aborted = False
        self.unread = 0

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        assert not self.closing, "written behind the end"
        self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Turns:
    """A share of calls that is used up; the rest waits until the test gives another."""

    def __init__(self, share: int = 1_000_000) -> None:
        self.share = share
        self.waiting: list[Any] = []

    def take(self, _who: Any, _size: int, _calls: int) -> bool:
        self.share -= 1
        return self.share >= 0

    def wait(self, _who: Any, _size: int, go_on: Any) -> None:
        self.waiting.append(go_on)

    def give(self, share: int) -> None:
        self.share = share
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on()


class Wait(Pending):
    def start(self, connection: HttpConnection) -> None:
        self.connection: HttpConnection | None = connection

    def left(self) -> None:
        self.connection = None

    def answer(self) -> None:
        assert self.connection is not None
        self.connection.respond(Response(200, [], b"waited"))


class Pieces(Wait):
    in_pieces = True

    def answer(self) -> None:
        assert self.connection is not None
        self.connection.begin(200, [], in_chunks=True)
        self.connection.piece(b"one")
        self.connection.piece(b"")
        self.connection.ended()


class App:
    """Answers with what was asked. `/wait` and `/pieces` are answered later, `/deny` by nobody it knows."""

    closes_refused = False

    def __init__(self) -> None:
        self.turns = Turns()
        self.served: list[tuple[str, bytes, bytes]] = []
        self.pending: list[Wait] = []
        self.max_body = 1000
        self.revoked = False

    def admit(self, request: Request) -> Response | None:
        if request.path == b"/deny" or self.revoked:
            return self.refusal(Unauthenticated("who?"))
        request.principal = "agent"  # type: ignore[assignment] # only compared
        request.end = SimpleNamespace(max_body=self.max_body)  # type: ignore[assignment]
        return None

    def answer(self, request: Request, body: bytes) -> Response | Pending:
        self.served.append((request.verb, request.path, body))
        if request.path in (b"/wait", b"/pieces"):
            self.pending.append(Wait() if request.path == b"/wait" else Pieces())
            return self.pending[-1]
        return Response(200, [], request.path[1:])

    def refusal(self, error: BasculeError) -> Response:
        return Response(error.status, [], b"", error.status in (400, 413))


class Peer:
    """The client's side, and the door's clock."""

    def __init__(self, app: App | None = None) -> None:
        self.app = app or App()
        self.transport = Transport()
        self.door: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            app=self.app,
            now=0.0,
            peer_uid=0,
            entered=lambda _: True,
            left=lambda _: None,
        )
        self.connection = HttpConnection(self.door)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.transport.written.split(b"HTTP/1.1 ")[1:]]

    def after(self, seconds: float) -> None:
        self.door.now += seconds
        if self.connection.due <= self.door.now:
            self.connection.overdue()


def get(path: bytes, *headers: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\n" % path + WHO + b"".join(each + b"\r\n" for each in headers) + b"\r\n"


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    return get(path, b"Content-Length: %d" % len(body), *headers).replace(b"GET", b"POST", 1) + body


def chunked(path: bytes, *rest: bytes) -> bytes:
    return get(path, b"Transfer-Encoding: chunked").replace(b"GET", b"POST", 1) + b"".join(rest)


# -- what is behind an unanswered request ---------------------------------------------------------


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(get(b"http://x/a"), id="a target with a host"),
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(get(b"/a", b"X: " + b"y" * module.MAX_HEAD_BYTES), id="a large head"),
        pytest.param(b"GET /" + b"a" * (module.MAX_HEAD_BYTES + 1), id="a head without end"),
        pytest.param(chunked(b"/a", b"nonsense\r\n"), id="a chunk that is none"),
    ],
)
def test_what_is_refused_behind_a_wait_is_not_answered_in_its_place(behind):
    async def live():
        peer = Peer()
        peer.send(get(b"/wait"), behind)
        assert peer.transport.closing
        assert peer.transport.written == b""
        # The control: alone it is answered.
        alone = Peer()
        alone.send(behind)
        assert alone.statuses() in ([400], [431])

    asyncio.run(live())


def test_nothing_is_answered_behind_an_answer_that_ends_the_connection():
    async def live():
        peer = Peer()
        # The last one's body is still on its way when the first is answered.
        peer.send(get(b"/wait"), get(b"/deny", b"Connection: close"), get(b"/a"), post(b"/deny", b"x" * 9)[:-1])
        peer.app.pending[0].answer()
        await asyncio.sleep(0)
        assert peer.statuses() == [200, 401]
        assert peer.transport.closing

    asyncio.run(live())


def test_a_request_behind_one_that_ends_the_connection_is_never_served():
    async def live():
        peer = Peer()
        peer.send(get(b"/wait", b"Connection: close") + get(b"/a") + b"nonsense\r\n\r\n")
        peer.send(get(b"/b"))
        peer.app.pending[0].answer()
        await asyncio.sleep(0)
        assert [path for _, path, _ in peer.app.served] == [b"/wait"]
        assert peer.statuses() == [200]

    asyncio.run(live())


@pytest.mark.parametrize("rest", [b"nonsense\r\n", b"0\r\nX: " + b"y" * module.MAX_HEAD_BYTES])
def test_a_refused_request_is_answered_once_however_its_body_goes_on(rest):
    async def live():
        peer = Peer()
        peer.send(chunked(b"/deny"), rest)
        assert peer.statuses() == [401]
        assert peer.transport.closing

    asyncio.run(live())


def test_an_agent_that_was_revoked_meanwhile_is_not_served():
    async def live():
        ahead, half = Peer(), Peer()
        ahead.send(get(b"/wait"), get(b"/ahead"))
        half.send(post(b"/half", b"body")[:-1])
        for peer in (ahead, half):
            peer.app.revoked = True
        half.send(b"y")
        ahead.app.pending[0].answer()
        await asyncio.sleep(0)
        assert [path for _, path, _ in ahead.app.served + half.app.served] == [b"/wait"]
        assert (ahead.statuses(), half.statuses()) == ([200, 401], [401])

    asyncio.run(live())


# -- how much is held -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [b"/a", b"/deny"])
@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"y" * 4096, id="a trailer without end"),
        pytest.param(b"y: z\r\n" * 512, id="trailers without end"),
    ],
)
def test_trailers_without_end_are_cut(path, piece):
    async def live():
        peer = Peer()
        peer.send(chunked(path, b"0\r\nX: "))
        for _ in range(2 * module.MAX_HEAD_BYTES // len(piece)):
            peer.send(piece)
        assert peer.transport.closing
        assert peer.app.served == []

    asyncio.run(live())


@pytest.mark.parametrize("path", [b"/a", b"/deny"])
@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"1\r\nx\r\n" * 512, id="chunks of one byte"),
        pytest.param(b"1;" + b"y" * 4096 + b"\r\nx\r\n", id="extensions"),
    ],
)
def test_a_body_that_is_mostly_framing_is_cut(path, piece):
    async def live():
        peer = Peer()
        peer.app.max_body = 1 << 20
        peer.send(chunked(path))
        for _ in range(2 * module.MAX_HEAD_BYTES // len(piece)):
            peer.send(piece)
        assert peer.transport.closing

    asyncio.run(live())


def test_a_large_body_in_chunks_is_taken_however_it_is_cut():
    async def live():
        body = b"0123456789abcdef" * 65_536
        raw = chunked(b"/a", *(b"1000\r\n%b\r\n" % body[at : at + 4096] for at in range(0, len(body), 4096)))
        raw += b"0\r\nX: y\r\n\r\n"
        for size in (1 << 20, 65_536, 4096, 1000):
            peer = Peer()
            peer.app.max_body = 1 << 20
            peer.send(*(raw[at : at + size] for at in range(0, len(raw), size)))
            assert peer.app.served == [("POST", b"/a", body)]

    asyncio.run(live())


def test_bodies_sent_ahead_are_held_up_to_a_limit():
    async def live():
        peer = Peer()
        peer.app.max_body = 1 << 20
        peer.send(get(b"/wait"))
        for _ in range(10):
            peer.send(post(b"/a", b"x" * (1 << 19)))
        peer.app.pending[0].answer()
        await asyncio.sleep(0)
        # Three are beyond it; what was taken is answered, and the connection ends.
        assert peer.statuses() == [200] * 4
        assert peer.transport.closing

    asyncio.run(live())


def test_refusals_take_turns_like_everything_else():
    async def live():
        peer = Peer()
        peer.app.turns.share = 3
        peer.send(get(b"/deny") * 1000)
        assert peer.statuses() == [401] * 3
        peer.app.turns.give(1000)
        await asyncio.sleep(0)
        # The one that waited, and what may be sent ahead.
        assert peer.statuses() == [401] * (3 + 1 + module.MAX_AHEAD)
        assert peer.transport.closing

    asyncio.run(live())


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [5, -5], ids=["in its head", "in its body"])
def test_a_client_that_always_has_begun_its_next_request_is_not_cut(cut):
    async def live():
        peer = Peer()
        whole = post(b"/a", b"x" * 50)
        peer.send(whole[:cut])
        for _ in range(10):
            peer.after(module.HEAD_SECONDS - 1)
            peer.send(whole[cut:] + whole[:cut])
            assert not peer.transport.closing
        # The control: one that sends no more is.
        peer.after(module.BODY_SECONDS)
        assert peer.transport.closing

    asyncio.run(live())


@pytest.mark.parametrize("path", [b"/a", b"/wait"])
def test_a_last_answer_that_is_not_read_does_not_keep_the_connection(path):
    async def live():
        peer = Peer()
        peer.send(get(path, b"Connection: close"))
        for each in peer.app.pending:
            each.answer()
        assert peer.transport.closing
        assert not peer.transport.aborted
        peer.after(module.CLOSE_SECONDS)
        assert peer.transport.aborted

    asyncio.run(live())


def test_a_peer_that_sends_nothing_more_and_does_not_read_is_cut():
    async def live():
        peer = Peer()
        peer.send(get(b"/wait"))
        peer.connection.eof_received()
        peer.after(module.CLOSE_SECONDS)
        assert peer.transport.aborted

    asyncio.run(live())


# -- versions -------------------------------------------------------------------------------------


def test_an_answer_in_pieces_has_no_chunks_in_http_1_0():
    async def live():
        old, new = Peer(), Peer()
        old.send(get(b"/pieces").replace(b"1.1", b"1.0"))
        new.send(get(b"/pieces"))
        for peer in (old, new):
            peer.app.pending[0].answer()
        assert new.transport.written.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n")
        assert b"transfer-encoding" not in old.transport.written
        assert old.transport.written.endswith(b"connection: close\r\n\r\none")
        assert (old.transport.closing, new.transport.closing) == (True, False)

    asyncio.run(live())


def test_only_http_1_1_waits_for_a_word_before_its_body():
    async def live():
        for version, word in ((b"1.0", b""), (b"1.1", b"HTTP/1.1 100 Continue\r\n\r\n")):
            peer = Peer()
            peer.send(post(b"/a", b"x", b"Expect: 100-continue").replace(b"1.1", version)[:-1])
            assert peer.transport.written == word

    asyncio.run(live())


# -- a second opinion -----------------------------------------------------------------------------


def ours(stream: bytes, cuts: list[int]) -> tuple[list[tuple[str, bytes, bytes]], bytes, bool]:
    async def live():
        peer = Peer()
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            if not peer.transport.closing:
                peer.send(stream[start:end])
        return peer.app.served, peer.transport.written, peer.transport.closing

    return asyncio.run(live())


def h11s(stream: bytes) -> list[tuple[str, bytes, bytes]]:
    """What another parser reads out of the same bytes, as far as it takes them."""
    conn = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    conn.receive_data(stream)
    found: list[tuple[str, bytes, bytes]] = []
    verb, target, body = "", b"", b""
    with contextlib.suppress(h11.RemoteProtocolError):
        while True:
            event = conn.next_event()
            if isinstance(event, h11.Request):
                verb, target, body = event.method.decode(), event.target, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((verb, target.partition(b"?")[0], body))
                conn.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                conn.send(h11.EndOfMessage())
                if conn.our_state is not h11.DONE or conn.their_state is not h11.DONE:
                    break
                conn.start_next_cycle()
            else:
                break
    return found


LINES = st.sampled_from(
    [
        b"Content-Length: 3",
        b"Content-Length: 4",
        b"Content-Length:3 ",
        b"Content-Length: 3, 3",
        b"Content-Length: +3",
        b"content-length: 03",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: CHUNKED ",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding : chunked",
        b"transfer-encoding:\tchunked",
        b"Connection: close",
        b"Connection: keep-alive",
        b"Expect: 100-continue",
        b"X: y",
        b"X:",
        b" folded",
        b"X: a\rb",
        b"Upgrade: h2c\r\nConnection: upgrade",
        b"Trailer: X",
    ]
)
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\n\r\n"])
BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"abcd",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3;a=b\r\nabc\r\n0\r\n\r\n",
        b"03\r\nabc\r\n000\r\nX: y\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\nabc\n0\n\n",
        b"0\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nContent-Length: 9\r\n\r\n",
    ]
)
MESSAGES = st.builds(
    lambda verb, version, lines, body: (
        verb
        + b" /a HTTP/"
        + version
        + b"\r\nHost: x\r\n"
        + b"".join(line + end for line, end in lines)
        + b"\r\n"
        + body
    ),
    st.sampled_from([b"GET", b"POST", b"HEAD", b"DELETE"]),
    st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]),
    st.lists(st.tuples(LINES, ENDS), max_size=3),
    BODIES,
)
STREAMS = st.lists(MESSAGES, min_size=1, max_size=3).map(b"".join)
CORPUS = [*REFUSED.values(), *ANSWERED_AND_CLOSED.values(), *(raw for raw, _ in ANSWERED.values())]


@given(stream=STREAMS)
@example(post(b"/a", b"abc") + get(b"/b"))
def test_another_parser_reads_the_same_requests_in_the_same_bytes(stream):
    mine, theirs = ours(stream, [])[0], h11s(stream)
    # One may stop earlier than the other, at what it does not take; neither reads something else.
    shared = min(len(mine), len(theirs))
    assert mine[:shared] == theirs[:shared]


def test_the_other_parser_reads_something_at_all():
    stream = post(b"/a", b"abc") + chunked(b"/b", b"3;x\r\nabc\r\n0\r\nX: y\r\n\r\n") + get(b"/c")
    assert (
        ours(stream, [])[0] == h11s(stream) == [("POST", b"/a", b"abc"), ("POST", b"/b", b"abc"), ("GET", b"/c", b"")]
    )


@given(stream=STREAMS | st.sampled_from(CORPUS), data=st.data())
def test_it_does_not_matter_how_the_bytes_are_cut(stream, data):
    places = st.integers(0, len(stream))
    cuts = sorted(data.draw(st.lists(places, max_size=6)))
    assert ours(stream, cuts) == ours(stream, [])
