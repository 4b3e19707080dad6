"""Readers of byte streams: however a stream is cut, the same messages come out, or the same kind of error."""

from collections.abc import Callable, Iterator
from typing import Any

from bascule.local_client.exits import BadAnswer
from bascule.local_client.link import Frames
from bascule.wire.sse import EventTooLarge, SseReader, encode_event
from gabp.content_length import FrameError, FrameReader

# Byte by byte costs as much as everything else together; short streams have all the cuts of long ones.
MAX_SINGLE_BYTES = 16


def pieces(data: bytes) -> tuple[bytes, list[bytes]]:
    """The input says where it is cut: a count, places, then the stream."""
    count = data[0] % 6 if data else 0
    places, stream = data[1 : 1 + count], data[1 + count :]
    ends = sorted(place * len(stream) // 255 for place in places)
    return stream, [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]


def each_byte(stream: bytes) -> Iterator[bytes]:
    return (stream[at : at + 1] for at in range(len(stream)))


def same_however_cut(data: bytes, read: Callable[[list[bytes] | Iterator[bytes]], Any]) -> None:
    stream, cut = pieces(data)
    whole = read([stream])
    others = [read(cut)]
    if len(stream) <= MAX_SINGLE_BYTES:
        others.append(read(each_byte(stream)))
    for other in others:
        assert other == whole, f"in one piece {whole}, in several {other}"


def frames(data: bytes) -> None:
    same_however_cut(data, lambda cut: read_frames(FrameReader(max_body_bytes=64, max_header_bytes=96), cut))


def read_frames(reader: FrameReader, cut: list[bytes] | Iterator[bytes]) -> tuple[list[bytes], object, bool]:
    out: list[bytes] = []
    for piece in cut:
        try:
            out += reader.feed(piece)
        except FrameError as error:
            return [*out, *error.frames], type(error), False
    return out, None, reader.mid_frame


def events(data: bytes) -> None:
    same_however_cut(data, read_events)
    text = data[:40].decode(errors="replace")
    # What we write reads back as it was, but for how lines end.
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    assert [event.data for event in SseReader().feed(encode_event(text, event="reply", id="7"))] == [plain]


def read_events(cut: list[bytes] | Iterator[bytes]) -> tuple[list[object], object]:
    reader = SseReader(max_event_bytes=48)
    out: list[object] = []
    for piece in cut:
        try:
            out += reader.feed(piece)
        except EventTooLarge as error:
            return [*out, *error.events], type(error)
    return out, reader.last_event_id


def door_frames(data: bytes) -> None:
    same_however_cut(data, read_door_frames)


def read_door_frames(cut: list[bytes] | Iterator[bytes]) -> tuple[list[object], bool]:
    reader = Frames(max_frame_bytes=64)
    out: list[object] = []
    for piece in cut:
        try:
            out += reader.feed(piece)
        except BadAnswer:
            # What came with the broken frame is lost with it: the connection is over.
            return [], True
    return out, False
