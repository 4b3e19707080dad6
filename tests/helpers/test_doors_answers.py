"""Answers that fuzzing found: a server that is not ours, or not well, ends a command with a sentence, not a hang."""

import socket
import time

import pytest

from bascule.local_client.exits import BadAnswer
from bascule.local_client.http import Conversation, refusal_in
from bascule.local_client.values import chunk_size, number_in_header
from patience import PATIENCE

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

BROKEN = {
    "a chunk of negative size": CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n",
    "a negative chunk behind a good one": CHUNKED + b"2\r\n{}\r\n-1\r\n\n",
    "a signed chunk": CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n",
    "a chunk in 0x": CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk with an underscore": CHUNKED + b"0_2\r\n{}\r\n0\r\n\r\n",
    "a length in superscript": OK + b"Content-Length: \xb2\r\n\r\n{}",
    "a length of five thousand digits": OK + b"Content-Length: " + b"1" * 5_000 + b"\r\n\r\n{}",
    "a status in superscript": b"HTTP/1.1 \xb2\xb2\xb2 OK\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_helper_ends_with_a_sentence(case):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(BROKEN[case])
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(BadAnswer):
            Conversation(ours, time.monotonic() + PATIENCE).whole_answer()


@pytest.mark.parametrize("value", ["\xb2", "nan", "inf", "-1", "1e9", "9" * 400, "soon"])
def test_a_time_to_come_back_that_is_no_number_is_none(value):
    head = f"HTTP/1.1 429 No\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(head)
        answer = Conversation(ours, time.monotonic() + PATIENCE).whole_answer()
    assert refusal_in(answer).retry_after is None


def test_numbers_as_they_should_be_are_read():
    assert (number_in_header("0"), number_in_header("200")) == (0, 200)
    assert (chunk_size(b"1A"), chunk_size(b"0;last=yes"), chunk_size(b"5 ")) == (26, 0, 5)
