"""wire.sse: events as the HTML standard reads them, whatever the line endings and cuts."""

import re

import pytest
from cutting import cuts, pieces, single_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.wire.sse import COMMENT_PING, EventTooLarge, SseEvent, SseReader, encode_event

MAX_EVENT = 48

streams = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"\r",
            b"\r\n",
            b"\n\n",
            b"data: a",
            b"data",
            b"data:b",
            b"event: e",
            b"id: 7",
            b"id:\0",
            b"retry: 5",
            b": c",
            b"\xef\xbb\xbf",
            b"\xff",
            b"x: y",
            b"data: 0123456789",
        ]
    )
    | st.binary(max_size=3)
).map(b"".join)
texts = st.text(st.characters(blacklist_categories=("Cs",)))
names = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n\0"), min_size=1)


def events_of(stream: bytes) -> list[SseEvent]:
    return SseReader().feed(stream)


def outcome(parts: list[bytes]) -> tuple[list[SseEvent], bool, str]:
    reader = SseReader(MAX_EVENT)
    events: list[SseEvent] = []
    for part in parts:
        try:
            events += reader.feed(part)
        except EventTooLarge as error:
            return events + error.events, True, ""
    return events, False, reader.last_event_id


@settings(deadline=None, max_examples=150)
@given(streams, cuts)
def test_any_stream_has_the_same_events_however_it_is_cut(stream, places):
    whole = outcome([stream])

    assert outcome(pieces(stream, places)) == whole
    assert outcome(single_bytes(stream)) == whole


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(texts, names, names)), cuts)
def test_events_come_out_as_they_went_in_with_line_endings_as_lf(sent, places):
    stream = COMMENT_PING.join(encode_event(data, event=event, id=id_) for data, event, id_ in sent)
    reader = SseReader()

    got = [event for part in pieces(stream, places) for event in reader.feed(part)]

    assert got == [SseEvent(event, re.sub("\r\n|\r", "\n", data), id_) for data, event, id_ in sent]


def test_text_and_bytes_are_encoded_the_same():
    assert encode_event("é\r\nb") == encode_event("é\r\nb".encode()) == b"data: \xc3\xa9\ndata: b\n\n"


def test_an_event_is_written_with_its_name_and_id_first():
    assert encode_event(b"{}", event="reply", id="17") == b"event: reply\nid: 17\ndata: {}\n\n"


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "\n", "x\0"])
def test_a_name_or_id_that_would_break_out_of_its_line_is_refused(bad):
    with pytest.raises(ValueError, match="event of a server-sent event"):
        encode_event("x", event=bad)
    with pytest.raises(ValueError, match="id of a server-sent event"):
        encode_event("x", id=bad)


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
def test_every_line_ending_of_the_standard_ends_a_line(ending):
    stream = ending.join(["event: e", "data: 1", "data: 2", "", ""]).encode()

    assert events_of(stream) == [SseEvent("e", "1\n2", "")]


def test_an_event_that_ends_in_cr_does_not_wait_for_the_next_byte():
    reader = SseReader()

    assert reader.feed(b"data: 1\r\r") == [SseEvent("message", "1", "")]
    assert reader.feed(b"\n") == []
    assert reader.feed(b"data: 2\r\n\r") == [SseEvent("message", "2", "")]
    assert reader.feed(b"") == []
    assert reader.feed(b"\ndata: 3\n\n") == [SseEvent("message", "3", "")]


def test_one_space_after_the_colon_belongs_to_the_syntax_and_a_second_to_the_value():
    assert events_of(b"data:a\n\ndata: a\n\ndata:  a\n\n") == [
        SseEvent("message", text, "") for text in ("a", "a", " a")
    ]


def test_an_event_without_data_is_none_and_one_with_empty_data_is():
    assert events_of(b"event: e\n\ndata\n\ndata:\ndata:\n\n") == [
        SseEvent("message", "", ""),
        SseEvent("message", "\n", ""),
    ]


def test_comments_retry_and_unknown_fields_are_ignored():
    assert events_of(b": hi\nretry: 10\nother: 1\n data: no\ndata: yes\n\n" + COMMENT_PING) == [
        SseEvent("message", "yes", "")
    ]


def test_a_byte_order_mark_is_dropped_at_the_start_only():
    assert events_of(b"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\ndata: 3\n\n") == [
        SseEvent("message", "1", ""),
        SseEvent("message", "3", ""),
    ]


def test_invalid_utf8_becomes_the_replacement_character():
    assert events_of(b"data: a\xffb\n\n") == [SseEvent("message", "a\ufffdb", "")]


def test_an_id_stays_until_another_comes_and_one_with_nul_is_ignored():
    assert [event.id for event in events_of(b"id: 1\ndata\n\ndata\n\nid: 2\0\ndata\n\nid\ndata\n\n")] == [
        "1",
        "1",
        "1",
        "",
    ]


def test_the_id_of_an_event_that_was_cut_off_is_not_the_last_event_id():
    reader = SseReader()

    reader.feed(b"id: 1\ndata: whole\n\nid: 2\ndata: cut")

    assert reader.last_event_id == "1"


def test_an_event_at_the_limit_passes_and_one_byte_more_is_refused():
    assert outcome([b"data: " + b"x" * (MAX_EVENT - 6) + b"\n\n"])[1] is False
    assert outcome([b"data: ok\n\ndata: " + b"x" * (MAX_EVENT - 5)]) == (
        [SseEvent("message", "ok", "")],
        True,
        "",
    )


@pytest.mark.parametrize("line", [b"data\n", b"data: abc\r\n", b": comment without end"])
def test_an_event_that_never_ends_is_refused(line):
    with pytest.raises(EventTooLarge, match="larger than 48 bytes"):
        SseReader(MAX_EVENT).feed(line * 100)


def test_pings_and_small_events_without_end_stay_within_the_limit():
    reader = SseReader(MAX_EVENT)

    for _ in range(100):
        assert reader.feed(COMMENT_PING + b": another\nid: 1\nevent: e\n") == []
    assert reader.feed(b"data: 1\n\n" * 100) != []


def test_a_dead_reader_stays_dead():
    reader = SseReader(MAX_EVENT)
    with pytest.raises(EventTooLarge):
        reader.feed(b"x" * 100)

    with pytest.raises(EventTooLarge) as later:
        reader.feed(b"data: fine\n\n")

    assert later.value.events == []
