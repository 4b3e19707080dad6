"""Link frames: the same messages however the stream is cut, and every bound kept."""

import contextlib
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation import paths
from bascule.local_client import exits
from bascule.local_client.link import Frames, LinkSocket, frame
from patience import PATIENCE

MESSAGES = [{"id": 1, "result": None}, {"method": "x", "params": {"text": "é\n\u2028"}}, {"id": 2, "result": []}]


@given(st.lists(st.integers(0, 200), max_size=12))
def test_the_same_messages_however_the_stream_is_cut(cuts):
    stream = b"".join(frame(message) for message in MESSAGES)
    places_ = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = Frames()
    got = [message for start, end in itertools.pairwise(places_) for message in frames.feed(stream[start:end])]
    assert got == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: 11\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 1e1\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"X: y\r\n\r\n",
        b"\r\n\r\n",
        b"x" * 2000,
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 2\r\n\r\n{{",
    ],
)
def test_a_broken_frame_is_reported_and_not_waited_for(data):
    with pytest.raises(exits.BadAnswer):
        Frames(max_frame_bytes=10).feed(data)


@given(st.binary(max_size=100))
def test_any_bytes_are_messages_or_a_documented_error(data):
    try:
        Frames().feed(data)
    except exits.BadAnswer:
        return


def test_the_socket_keeps_what_cannot_be_sent_yet(state):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.link_socket(state))
        listener.listen()
        link = LinkSocket(state)
        peer, _ = listener.accept()
        with peer:
            big = {"text": "x" * 4_000_000}
            link.send(big)
            assert link.unsent
            peer.settimeout(PATIENCE)
            frames = Frames()
            got: list = []
            while not got:
                got = frames.feed(peer.recv(1_000_000))
                link.flush()
            assert got == [big]
            assert not link.unsent
            assert link.receive() == []
        with pytest.raises(exits.ConnectionLost):
            link.receive()
        link.close()


def test_no_daemon_is_not_running(state):
    with pytest.raises(exits.NotRunning):
        LinkSocket(state)


def test_a_daemon_that_accepts_nobody_does_not_block_us(state):
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(paths.link_socket(state))
        listener.listen(0)

        def fill_the_queue():
            for _ in range(10):
                stack.callback(LinkSocket(state).close)

        with pytest.raises(exits.ConnectionLost):
            fill_the_queue()
