"""A stream's buffer: what a service pushes and an edge writes out, bounded in between.

Items of a stream are facts, not calls: they pass no gate of their own. When the reader is slower than
the world, the buffer does not grow; an item of its own says what was left out.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

# About a second of a busy broker's lifecycle events; a reader further behind re-reads from the ring.
DEFAULT_STREAM_ITEMS = 1_024


class Stream:
    """One open stream. The service pushes; the edge sets `on_ready` and drains."""

    __slots__ = ("_items", "_limit", "_on_close", "closed", "dropped", "ended", "on_drained", "on_ready")

    def __init__(self, *, limit: int = DEFAULT_STREAM_ITEMS, on_close: Callable[[], None] | None = None) -> None:
        self._items: deque[Any] = deque()
        self._limit = limit
        self._on_close = on_close
        self.on_ready: Callable[[], None] | None = None
        # For a service that pushes no more than the reader takes.
        self.on_drained: Callable[[], None] | None = None
        self.dropped = 0
        # The service will push no more; the edge closes after draining.
        self.ended = False
        self.closed = False

    @property
    def waiting(self) -> int:
        """Items the edge has not taken yet."""
        return len(self._items)

    def push(self, item: Any) -> None:
        if self.closed or self.ended:
            return
        if len(self._items) >= self._limit:
            self.dropped += 1
            return
        self._items.append(item)
        self._ready()

    def end(self) -> None:
        self.ended = True
        self._ready()

    def drain(self) -> tuple[list[Any], int]:
        """Everything buffered, and how many items were left out since the last drain."""
        items = list(self._items)
        self._items.clear()
        dropped, self.dropped = self.dropped, 0
        if items and self.on_drained is not None:
            self.on_drained()
        return items, dropped

    def close(self) -> None:
        """The reader is gone: tell the service once."""
        if not self.closed:
            self.closed = True
            if self._on_close is not None:
                self._on_close()

    def _ready(self) -> None:
        if self.on_ready is not None:
            self.on_ready()
