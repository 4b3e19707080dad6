"""A run as it happens: its events and its output, numbered, for followers.

Output is a fact, not a promise: a reader that falls behind is told how much it missed, and finds the whole in
`runs.show` and `processes.logs`. What is kept is bounded by bytes and shared by all readers; each reader's own
buffer holds a few items.
"""

import asyncio
import codecs
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from bascule.foundation.stream import Stream
from bascule.workspace.protocol import Event, StreamedOutput

# Some seconds of a chatty build; the reader that comes later begins with them.
MAX_FEED_BYTES = 2 * 1024 * 1024
MAX_FEED_ITEMS = 4_096
# Items handed to one reader before it took them.
READER_ITEMS = 32
# What an item costs beside its text.
_ITEM_BYTES = 200


class Feed:
    def __init__(self, seq: int = 0) -> None:
        self._items: deque[tuple[StreamedOutput, int]] = deque()
        self._bytes = 0
        self.seq = seq
        self._readers: dict[Stream, int] = {}
        self._decoders: dict[tuple[str, str], codecs.IncrementalDecoder] = {}
        self._pumping: set[Stream] = set()
        self.ended = False

    def event(self, event: Event, size: int) -> None:
        id_ = event.operation_id
        operation_id = id_ if isinstance(id_, str) else None
        self._decoders.clear()
        self._push(
            StreamedOutput(seq=self.seq + 1, kind="event", operation_id=operation_id, event=event), min(size, 65_536)
        )

    def output(self, operation_id: str, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        decoder = self._decoders.get((operation_id, stream))
        if decoder is None:
            decoder = self._decoders[operation_id, stream] = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data)
        if text:
            self._push(StreamedOutput(seq=self.seq + 1, kind=stream, operation_id=operation_id, text=text), len(data))

    def status(self, status: str, steering: Sequence[str] = ()) -> None:
        self._push(StreamedOutput(seq=self.seq + 1, kind="status", status=status, steering=list(steering)), 0)

    def end(self) -> None:
        self.ended = True
        for stream in list(self._readers):
            self._pump(stream)

    def follow(self, since: int, on_close: Callable[[], None]) -> Stream:
        def closed() -> None:
            self._readers.pop(stream, None)
            on_close()

        loop = asyncio.get_running_loop()
        stream = Stream(limit=READER_ITEMS, on_close=closed)
        self._readers[stream] = since

        def drained() -> None:
            # In its own turn of the loop: draining happens in the middle of handing over.
            loop.call_soon(self._pump, stream)

        stream.on_drained = drained
        self._pump(stream)
        return stream

    def close(self) -> None:
        """The service ends: so does every stream."""
        for stream in list(self._readers):
            stream.end()

    def _push(self, item: StreamedOutput, size: int) -> None:
        self.seq = item.seq
        cost = size + _ITEM_BYTES
        self._items.append((item, cost))
        self._bytes += cost
        while self._bytes > MAX_FEED_BYTES or len(self._items) > MAX_FEED_ITEMS:
            self._bytes -= self._items.popleft()[1]
        for stream in list(self._readers):
            self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        """Hand on what the reader has room for; it says when it took it."""
        if stream in self._pumping:
            # A reader that takes an item in the very call that hands it over gets the next one from the loop below.
            return
        self._pumping.add(stream)
        try:
            while (since := self._readers.get(stream)) is not None:
                oldest = self.seq - len(self._items)
                if since < oldest:
                    stream.dropped += oldest - since
                    since = self._readers[stream] = oldest
                if since >= self.seq or stream.waiting >= READER_ITEMS:
                    break
                self._readers[stream] = since + 1
                stream.push(self._items[since - oldest][0])
        finally:
            self._pumping.discard(stream)
        if self.ended and self._readers.get(stream, 0) >= self.seq:
            self._readers.pop(stream, None)
            stream.end()
