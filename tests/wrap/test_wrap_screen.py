"""The program's screen as text, whatever the program writes and however its window changes."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.programs.wrap.screen import Transcript

PIECES = st.sampled_from(
    [
        *(b"\x1b[", b"?", b"1049h", b";", b"38;5;", b"m", b"H", b"r", b"\x1b]0;t\x07", b"\x1b(0", b"\x1b#8", b"\x9b"),
        *(b"99999", b"P", b"@", b"L", b"M", b"X", b"J", b"K", b"\r\n", b"abc", "漢é\u0301".encode(), b"\xff", b"\x1bM"),
        *(b"\x1b7", b"\x1b8", b"$", b" q", b">", b"c", b"n", b"u", b"\x1bP", b"\x1b\\", b"\x08", b"\t", b"0", b"!p"),
    ]
)
SIZES = st.tuples(st.integers(1, 30), st.integers(1, 60))


@given(st.lists(st.lists(PIECES, max_size=12).map(b"".join) | SIZES, max_size=12))
def test_nothing_that_a_program_writes_and_no_resize_breaks_the_reading(happens):
    transcript = Transcript(24, 80)
    for each in happens:
        if isinstance(each, tuple):
            transcript.resize(*each)
        else:
            transcript.put_aside(each)
        assert isinstance(transcript.row(), str)
    assert isinstance(asyncio.run(transcript.lines()), list)


def test_the_row_of_the_cursor_is_found_after_the_window_became_smaller():
    transcript = Transcript(24, 80)
    transcript.put_aside(b"".join(b"line %d\r\n" % number for number in range(23)) + b"$ ")
    assert transcript.row().rstrip() == "$"
    transcript.resize(5, 20)
    assert transcript.row().rstrip() == "$"


@pytest.mark.parametrize("odd", [b"\x1b[?5L", b"\x1b[1;2;3P", b"\x1b[9J", b"\x1b[9K"])
def test_what_comes_after_a_sequence_that_the_emulator_stumbles_over_is_seen(odd):
    transcript = Transcript(4, 40)
    transcript.put_aside(b"one\r\n" + odd + b"two\r\n> ")
    assert asyncio.run(transcript.lines()) == ["one", "two", ">"]
