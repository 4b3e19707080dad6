"""What the game wants looked at. While something blocking is open, tools that act are not executed."""

import threading
from collections.abc import Callable
from typing import Final

from msgspec import UNSET, structs

from gabp import messages
from gabp.session import new_id

# Open at once; a game that reports every log line as its own item would bury the first, which matters.
MAX_OPEN = 64
_ORDER: Final = {"info": 0, "warning": 1, "error": 2, "fatal": 3}


class AttentionDesk:
    """Any thread may use it. `publish` is called with channel and item for each change."""

    def __init__(self, publish: Callable[[str, messages.Attention], None]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._open: dict[str, messages.Attention] = {}
        self._sequence = 0

    def open(
        self,
        summary: str,
        *,
        severity: messages.Severity = "warning",
        blocking: bool = False,
        state_invalidated: bool = False,
        attention_id: str | None = None,
        cause: str | None = None,
        sample: list[messages.AttentionSample] | None = None,
    ) -> str:
        """Its id. The same id again is an update of the same matter."""
        with self._lock:
            self._sequence += 1
            id_ = attention_id or new_id()
            known = self._open.get(id_)
            item = messages.Attention(
                attention_id=id_,
                state="open",
                severity=severity,
                blocking=blocking,
                state_invalidated=state_invalidated,
                summary=summary or "attention",
                opened_at_sequence=known.opened_at_sequence if known else self._sequence,
                latest_sequence=self._sequence,
                total_urgent_entries=(known.total_urgent_entries if known else 0) + 1,
                causal_method=UNSET if cause is None else cause,
                sample=UNSET if sample is None else sample,
            )
            self._open[id_] = item
            while len(self._open) > MAX_OPEN:
                # The least urgent, and of those the oldest.
                del self._open[min(self._open, key=self._urgency)]
        self._publish(messages.ATTENTION_UPDATED if known else messages.ATTENTION_OPENED, item)
        return id_

    def clear(self, attention_id: str) -> bool:
        """False when it is not open: acknowledged already, or never was."""
        with self._lock:
            item = self._open.pop(attention_id, None)
            if item is None:
                return False
            self._sequence += 1
            cleared = structs.replace(item, state="cleared", latest_sequence=self._sequence)
        self._publish(messages.ATTENTION_CLEARED, cleared)
        return True

    @property
    def current(self) -> messages.Attention | None:
        """The most urgent one: what blocks comes first."""
        if not self._open:
            # Nearly always; asked for before every call.
            return None
        with self._lock:
            return self._open[max(self._open, key=self._urgency)] if self._open else None

    @property
    def blocking(self) -> messages.Attention | None:
        item = self.current
        return item if item is not None and item.blocking else None

    def _urgency(self, attention_id: str) -> tuple[bool, int, int]:
        item = self._open[attention_id]
        return item.blocking, _ORDER[item.severity], -item.opened_at_sequence
