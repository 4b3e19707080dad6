"""What a program's output says about itself."""

import time

from hypothesis import given
from hypothesis import strategies as st

from bascule.programs.wrap.output import TAIL_BYTES, Output


def after(*pieces: bytes) -> Output:
    output = Output()
    for piece in pieces:
        output.feed(piece, 0.0)
    return output


def test_bracketed_paste_is_on_while_the_program_wants_it():
    assert not after(b"$ ").takes_pastes
    assert after(b"\x1b[?2004h$ ").takes_pastes
    assert not after(b"\x1b[?2004h$ ", b"ls\r\n\x1b[?2004l\r").takes_pastes
    assert after(b"\x1b[?1049;2004h").takes_pastes
    assert not after(b"\x1b[?2004h", b"\x1bc").takes_pastes


PIECES = st.lists(
    st.sampled_from(
        [b"\x1b[?2004h", b"\x1b[?2004l", b"text", b"\x1b[31m", b"\x1bc", b"\x1b[?1049h", b"\r\n", b"\x1b[?2"]
    ),
    max_size=10,
)


@given(PIECES, st.integers(0, 60))
def test_modes_and_line_are_the_same_however_the_output_is_cut(pieces, cut):
    data = b"".join(pieces)
    whole, parts = after(data), after(data[:cut], data[cut:])
    assert whole.takes_pastes == parts.takes_pastes
    assert whole.leftovers() == parts.leftovers()
    assert whole.last_line() == parts.last_line()


def test_the_last_line_is_what_a_person_sees_of_it():
    assert after(b"one\r\n\x1b]0;title\x07\x1b[1;32muser\x1b[0m$ ").last_line() == "user$ "
    assert after(b"loading...\rdone   ").last_line() == "done   "
    assert after(b">>> ", b"1+2\x08\x08").last_line() == ">>> 1"
    assert after(b"x" * (TAIL_BYTES * 3), b"\r\n$ ").last_line() == "$ "


def test_a_program_that_was_killed_leaves_a_clean_terminal():
    assert after(b"\x1b[?1049h\x1b[?1000h\x1b[?2004h").leftovers() == (b"\x1b[?1000l\x1b[?1049l\x1b[?2004l\x1b[?25h")
    assert after(b"\x1b[?1049h\x1b[?1049l").leftovers() == b""
    assert after(b"\x1b[?25l").leftovers() == b"\x1b[?25h"


def test_megabytes_without_escapes_cost_next_to_nothing():
    output = Output()
    piece = b"y\r\n" * 1365
    begun = time.thread_time()
    for _ in range(10_000):
        output.feed(piece, 0.0)
    assert time.thread_time() - begun < 5
    assert output.last_line() == ""


@given(st.binary(max_size=400))
def test_any_output_is_taken(data):
    output = after(data)
    assert isinstance(output.last_line(), str)
    assert isinstance(output.leftovers(), bytes)
