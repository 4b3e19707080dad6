"""wire.content_length: whole frames out of any cut, and death at the first violation."""

import pytest
from cutting import cuts, pieces, single_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from gabp.content_length import (
    EXCERPT_BYTES,
    MAX_HEADER_LINES,
    BadHeader,
    FrameError,
    FrameReader,
    FrameTooLarge,
    Oversized,
    frame,
)

# Small, so that a random stream meets them.
MAX_BODY = 64
MAX_HEADER = 128

header_like = st.lists(
    st.sampled_from(
        [
            b"Content-Length: 3",
            b"content-length:5",
            b"Content-Length: 65",
            b"Content-Length: -1",
            b"Content-Type: application/json",
            b"X: y",
            b"\r\n",
            b"\r\n\r\n",
            b"\n",
            b"\r",
            b"abc",
            b"\xff",
        ]
    )
    | st.binary(max_size=5),
    max_size=20,
).map(b"".join)
bodies = st.lists(st.binary(max_size=MAX_BODY), max_size=6)


def small_reader(**options) -> FrameReader:
    return FrameReader(MAX_BODY, MAX_HEADER, **options)


def outcome(reader: FrameReader, parts: list[bytes]) -> tuple[list[bytes], type[FrameError] | None]:
    """All bodies before the end or the violation, and the violation."""
    frames: list[bytes] = []
    for part in parts:
        try:
            frames += reader.feed(part)
        except FrameError as error:
            return frames + error.frames, type(error)
    return frames, None


@settings(deadline=None, max_examples=100)
@given(bodies, cuts, st.booleans())
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent, places, typed):
    content_type = "application/json" if typed else None
    stream = b"".join(frame(body, content_type=content_type) for body in sent)
    reader = small_reader(require_content_type=typed)

    assert outcome(reader, pieces(stream, places)) == (sent, None)
    assert not reader.mid_frame


@settings(deadline=None, max_examples=150)
@given(header_like, cuts)
def test_any_stream_has_the_same_outcome_however_it_is_cut(stream, places):
    whole = outcome(small_reader(), [stream])

    assert outcome(small_reader(), pieces(stream, places)) == whole
    assert outcome(small_reader(), single_bytes(stream)) == whole


@settings(deadline=None, max_examples=100)
@given(bodies, header_like, cuts)
def test_what_came_before_a_violation_is_handed_out_with_it(sent, rest, places):
    stream = b"".join(map(frame, sent)) + b": no name\r\n\r\n" + rest

    assert outcome(small_reader(), pieces(stream, places)) == (sent, BadHeader)


@pytest.mark.parametrize(
    "block",
    [
        b"content-length: 2",
        b"CONTENT-LENGTH:2",
        b"Content-Length: \t 2 \t",
        b"Content-Length: 0000002",
        b"X-Other: anything, really\r\nContent-Length: 2\r\nContent-Type: text/plain",
    ],
)
def test_a_header_may_be_written_in_other_ways_than_ours(block):
    assert small_reader().feed(block + b"\r\n\r\n{}") == [b"{}"]
    assert outcome(small_reader(), single_bytes(block + b"\r\n\r\n{}")) == ([b"{}"], None)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"X: y",
        b"Content-Length:",
        b"Content-Length: -1",
        b"Content-Length: +1",
        b"Content-Length: 1 2",
        b"Content-Length: 1_0",
        b"Content-Length: 0x2",
        b"Content-Length: 2.0",
        b"Content-Length: 2, 2",
        b"Content-Length: \xd9\xa3",
        b"Content-Length: \xb2",
        b"Content-Length: " + b"0" * 16,
        b"Content-Length: " + b"9" * 60,
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2\r\ncontent-length: 3",
        b"Content-Length : 2",
        b" Content-Length: 2",
        b"Content-Length: 2\r\n folded: 1",
        b"Content-Length: 2\r\nno colon",
        b"Content-Length: 2\nX: y",
        b"Content-Length: 2\rX: y",
        b"Content-Length: 2\r\nX: \x00",
        b"Content-Length: 2\r\nX: \xc3\xa9",
        b"\r\nContent-Length: 2",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1",
    ],
)
def test_a_header_block_that_is_none_is_refused(block):
    stream = block + b"\r\n\r\n{}"

    assert outcome(small_reader(), [stream]) == ([], BadHeader)
    assert outcome(small_reader(), single_bytes(stream)) == ([], BadHeader)


def test_a_peer_that_ends_lines_with_lf_alone_is_told_at_once():
    with pytest.raises(BadHeader, match="CR LF"):
        small_reader().feed(b"Content-Length: 2\n\n{}")
    with pytest.raises(BadHeader, match="CR LF"):
        small_reader().feed(b'{"jsonrpc":"2.0"}\n')


def test_a_dead_reader_stays_dead_and_says_the_same_again():
    reader = small_reader()
    with pytest.raises(FrameTooLarge) as first:
        reader.feed(frame(b"ok") + frame(b"x" * (MAX_BODY + 1)))

    for data in (frame(b"fine"), b"", b"\r\n\r\n"):
        with pytest.raises(FrameTooLarge) as later:
            reader.feed(data)
        assert later.value.message == first.value.message
        assert later.value.frames == []
    assert first.value.frames == [b"ok"]
    assert not reader.mid_frame


def test_a_body_at_the_limit_passes_and_one_byte_more_is_refused_before_it_arrives():
    assert small_reader().feed(frame(b"x" * MAX_BODY)) == [b"x" * MAX_BODY]
    with pytest.raises(FrameTooLarge, match="65 bytes is over the limit of 64"):
        small_reader().feed(b"Content-Length: 65\r\n\r\n")


def test_a_claimed_size_is_not_allocated():
    reader = FrameReader(max_body_bytes=10**14)

    assert reader.feed(b"Content-Length: 99999999999999\r\n\r\n{") == []
    assert reader.mid_frame


def test_a_header_block_at_the_limit_passes_and_one_byte_more_is_refused():
    def block(size: int) -> bytes:
        start = b"Content-Length: 2\r\nX: "
        return start + b"y" * (size - len(start) - 4) + b"\r\n\r\n"

    for stream, expected in (
        (block(MAX_HEADER) + b"{}", ([b"{}"], None)),
        (block(MAX_HEADER + 1) + b"{}", ([], BadHeader)),
        (b"y" * MAX_HEADER, ([], BadHeader)),
    ):
        assert outcome(small_reader(), [stream]) == expected
        assert outcome(small_reader(), single_bytes(stream)) == expected


def test_a_header_block_has_at_most_16_lines():
    def block(lines: int) -> bytes:
        return b"X: y\r\n" * (lines - 1) + b"Content-Length: 2\r\n\r\n{}"

    assert small_reader().feed(block(MAX_HEADER_LINES)) == [b"{}"]
    with pytest.raises(BadHeader, match="16 lines"):
        small_reader().feed(block(MAX_HEADER_LINES + 1))


@pytest.mark.parametrize(
    "headers",
    [b"", b"Content-Type: text/plain\r\n", b"Content-Type: application/json\r\n" * 2, b"Content-Type:\r\n"],
)
def test_a_strict_reader_wants_the_content_type_once_and_json(headers):
    stream = b"Content-Length: 2\r\n" + headers + b"\r\n{}"

    assert outcome(small_reader(require_content_type=True), [stream]) == ([], BadHeader)
    assert outcome(small_reader(require_content_type=True), single_bytes(stream)) == ([], BadHeader)
    assert outcome(small_reader(), [stream]) == ([b"{}"], None)


def test_a_strict_reader_takes_the_content_type_with_its_charset_in_any_case():
    stream = b"content-type: Application/JSON; charset=utf-8\r\ncontent-length: 2\r\n\r\n{}"

    assert small_reader(require_content_type=True).feed(stream) == [b"{}"]


def test_mid_frame_is_true_from_the_first_byte_of_a_frame_to_its_last_but_one():
    reader = small_reader()
    stream = frame(b"{}")
    assert not reader.mid_frame

    for byte in single_bytes(stream)[:-1]:
        assert reader.feed(byte) == []
        assert reader.mid_frame

    assert reader.feed(stream[-1:]) == [b"{}"]
    assert not reader.mid_frame


def test_a_frame_is_written_exactly_as_the_specs_show_it():
    assert frame(b"{}") == b"Content-Length: 2\r\n\r\n{}"
    assert (
        frame("é".encode(), content_type="application/json")
        == b"Content-Length: 2\r\nContent-Type: application/json\r\n\r\n\xc3\xa9"
    )


def test_a_large_frame_in_small_pieces_is_put_together_in_linear_time():
    # Quadratic handling of a 4 MiB body in 64-byte pieces would copy 130 GB and hit the test's timeout.
    body = bytes(range(256)) * 16 * 1024
    stream = frame(body)
    reader = FrameReader(max_body_bytes=len(body))
    got: list[bytes] = []

    for start in range(0, len(stream), 64):
        got += reader.feed(stream[start : start + 64])

    assert got == [body]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=3 * MAX_BODY), max_size=6), cuts)
def test_bodies_above_the_limit_are_skipped_to_the_byte_however_the_stream_is_cut(sent, places):
    stream = b"".join(map(frame, sent))
    reader = small_reader(max_skipped_bytes=3 * MAX_BODY)
    frames, violation = outcome(reader, pieces(stream, places))

    assert violation is None
    # Here the excerpt is the whole body.
    assert frames == sent
    assert [type(each) is Oversized for each in frames] == [len(each) > MAX_BODY for each in sent]
    assert [each.length for each in frames if type(each) is Oversized] == [len(b) for b in sent if len(b) > MAX_BODY]
    assert reader.frames_read == len(sent)
    assert not reader.mid_frame


def test_of_a_skipped_body_its_two_ends_are_kept_and_nothing_between():
    size = 5_000_000
    reader = small_reader(max_skipped_bytes=size)
    assert reader.feed(b"Content-Length: %d\r\n\r\n" % size) == []
    assert reader.mid_frame
    for _ in range(size // 50_000):
        assert len(reader._skip._first) + len(reader._skip._last) + len(reader._held) <= 2 * EXCERPT_BYTES
        frames = reader.feed(b"(" + b"x" * 49_998 + b")")
    (skipped,) = frames
    assert skipped == b"(" + b"x" * (EXCERPT_BYTES - 1) + b"x" * (EXCERPT_BYTES - 1) + b")"
    assert skipped.length == size
    assert reader.feed(frame(b"next")) == [b"next"]


def test_a_length_beyond_what_is_skipped_ends_the_stream_at_once():
    reader = small_reader(max_skipped_bytes=1_000)
    with pytest.raises(FrameTooLarge, match="1001 bytes is over the limit of 1000"):
        reader.feed(b"Content-Length: 1001\r\n\r\n")
