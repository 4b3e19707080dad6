"""Which requests are in a stream of bytes: as h11 reads it, and however it is cut."""

import asyncio
import contextlib

import h11
from hypothesis import example, given
from hypothesis import strategies as st
from one_connection import Peer, chunked, get, post
from raw_requests import ANSWERED, ANSWERED_AND_CLOSED, REFUSED


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
@example(post(b"/a", b"abc", b"Upgrade: h2c", b"Connection: upgrade"))
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
def test_bytes_are_read_alike_however_they_are_cut(stream, data):
    places = st.integers(0, len(stream))
    cuts = sorted(data.draw(st.lists(places, max_size=6)))
    assert ours(stream, cuts) == ours(stream, [])
