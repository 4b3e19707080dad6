"""One connection by itself: what is answered, in which order, held for how long."""

import asyncio

import pytest
from one_connection import Peer, chunked, get, post

from bascule.surfaces.http import connection as module

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


def test_what_a_client_sends_before_its_turn_is_not_looked_at():
    async def live():
        peer = Peer()
        peer.send(get(b"/a"))
        peer.app.turns.share = 0
        peer.send(get(b"/b"))
        assert (peer.app.admitted, peer.transport.reading) == (1, True)
        # The rest of what it has to say stays in its socket.
        peer.send(get(b"/c"), get(b"/d"))
        assert (peer.app.admitted, peer.transport.reading) == (1, False)
        peer.after(3600)
        assert not peer.transport.closing, "it waits for us, not we for it"
        peer.app.turns.give(1000)
        assert peer.app.admitted == 4
        assert [path for _, path, _ in peer.app.served] == [b"/a", b"/b", b"/c", b"/d"]
        assert peer.transport.reading
        peer.after(module.KEEP_ALIVE_SECONDS + 1)
        assert peer.transport.closing

    asyncio.run(live())


@pytest.mark.parametrize("first", [[], [get(b"/deny")]], ids=["new", "refused before"])
def test_a_client_that_is_not_known_yet_is_looked_at(first):
    # The control: whose turn it is cannot be known before the head.
    async def live():
        peer = Peer()
        peer.send(*first)
        before = peer.app.admitted
        peer.app.turns.share = 0
        peer.send(get(b"/a"))
        assert peer.app.admitted == before + 1
        assert not peer.app.served
        peer.app.turns.give(1)
        assert peer.app.served

    asyncio.run(live())


def test_an_agent_that_is_revoked_before_its_turn_is_refused():
    async def live():
        peer = Peer()
        peer.send(get(b"/a"))
        peer.app.turns.share = 0
        peer.send(get(b"/b"))
        peer.app.revoked = True
        peer.app.turns.give(1000)
        assert peer.statuses() == [200, 401]

    asyncio.run(live())


def test_a_client_that_leaves_before_its_turn_is_not_served():
    async def live():
        peer = Peer()
        peer.send(get(b"/a"))
        peer.app.turns.share = 0
        peer.send(get(b"/b"), get(b"/c"))
        peer.connection.connection_lost(None)
        peer.app.turns.give(1000)
        assert [path for _, path, _ in peer.app.served] == [b"/a"]

    asyncio.run(live())


def test_the_rest_of_a_body_does_not_wait_for_a_turn():
    # Else the time that a body has would begin anew with each turn.
    async def live():
        peer = Peer()
        peer.send(get(b"/a"))
        whole = post(b"/b", b"x" * 50)
        peer.send(whole[:-5])
        peer.app.turns.share = 0
        peer.send(whole[-5:-3])
        peer.after(module.BODY_SECONDS)
        peer.app.turns.give(1000)
        assert peer.statuses() == [200, 400]

    asyncio.run(live())


def test_a_peer_that_does_not_read_is_not_read_on_when_its_turn_comes():
    async def live():
        peer = Peer()
        peer.send(get(b"/a"))
        peer.app.turns.share = 0
        peer.send(get(b"/b"), get(b"/c"))
        peer.connection.pause_writing()
        peer.app.turns.give(1000)
        assert not peer.transport.reading
        assert peer.statuses() == [200]
        peer.connection.resume_writing()
        await asyncio.sleep(0)
        assert peer.transport.reading
        assert peer.statuses() == [200] * 3

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
