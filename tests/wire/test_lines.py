"""wire.lines: whole lines out of any cut, and a bound on each."""

import pytest
from cutting import cuts, pieces, single_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.wire.lines import LineReader, LineTooLong

MAX_LINE = 8

streams = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"ab", b"12345678", b""]) | st.binary(max_size=9)).map(
    b"".join
)


def outcome(parts: list[bytes]) -> tuple[list[bytes], bool, bytes]:
    """All lines, whether a long one ended it, and what was left without a newline."""
    reader = LineReader(MAX_LINE)
    lines: list[bytes] = []
    for part in parts:
        try:
            lines += reader.feed(part)
        except LineTooLong as error:
            return lines + error.lines, True, b""
    return lines, False, reader.finish()


@settings(deadline=None, max_examples=200)
@given(streams, cuts)
def test_any_stream_has_the_same_lines_however_it_is_cut(stream, places):
    whole = outcome([stream])

    assert outcome(pieces(stream, places)) == whole
    assert outcome(single_bytes(stream)) == whole


@settings(deadline=None, max_examples=100)
@given(st.lists(st.text("abc\r é", max_size=4).map(str.encode)), st.sampled_from([b"\n", b"\r\n"]))
def test_lines_come_out_as_they_went_in(lines, ending):
    lines = [line.rstrip(b"\r") for line in lines]

    assert outcome([line + ending for line in lines]) == (lines, False, b"")


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_a_line_at_the_limit_passes_and_one_byte_more_is_refused(ending):
    assert outcome([b"x" * MAX_LINE + ending]) == ([b"x" * MAX_LINE], False, b"")
    assert outcome([b"ok\n" + b"x" * (MAX_LINE + 1) + ending]) == ([b"ok"], True, b"")


def test_a_long_line_is_refused_before_it_ends():
    with pytest.raises(LineTooLong, match="longer than 8 bytes"):
        LineReader(MAX_LINE).feed(b"x" * (MAX_LINE + 1))


def test_a_dead_reader_stays_dead():
    reader = LineReader(MAX_LINE)
    with pytest.raises(LineTooLong):
        reader.feed(b"x" * 100)

    with pytest.raises(LineTooLong) as later:
        reader.feed(b"fine\n")

    assert later.value.lines == []
    assert not reader.mid_line


def test_what_follows_the_last_newline_is_kept_for_the_end_of_the_stream():
    reader = LineReader()

    assert reader.feed(b"one\ntw") == [b"one"]
    assert reader.mid_line
    assert reader.finish() == b"tw"
    assert not reader.mid_line
