"""A store that finishes a write when the test says so, or fails it."""

from collections import deque
from collections.abc import Callable
from typing import Any

from bascule.kernel.journal_ports import Batch, JournalStore
from bascule.stores.memory import MemoryStore


class StoreOfOneLife:
    """A store as one life of a daemon has it: after `die` nothing that this life still does reaches the disk."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._dead = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, batch: Batch) -> bool:
        return self._dead or self._store.write(batch)

    def die(self) -> None:
        self._dead = True


class HeldStore(MemoryStore):
    """Like a disk that takes its time: batches wait here until `finish` or `fail`.

    Set `hold` to False to let writes through at once, and back to hold them again.
    """

    durability = "held"

    def __init__(self, *, hold: bool = True) -> None:
        super().__init__()
        self.hold = hold
        self.waiting: deque[Batch] = deque()
        # Every batch that was handed in, in order, the failed ones too.
        self.batches: list[Batch] = []
        self._done: Callable[[BaseException | None], None] | None = None

    def start(self, done: Callable[[BaseException | None], None]) -> None:
        self._done = done

    def write(self, batch: Batch) -> bool:
        self.batches.append(batch)
        if not self.hold:
            return super().write(batch)
        self.waiting.append(batch)
        return False

    def finish(self) -> None:
        """The batch in flight is on disk now."""
        super().write(self.waiting.popleft())
        self._complete(None)

    def finish_all(self) -> None:
        """And whatever follows from it."""
        while self.waiting:
            self.finish()

    def fail(self, error: BaseException | None = None) -> None:
        """The batch in flight could not be written; nothing of it was."""
        self.waiting.popleft()
        self._complete(error or OSError(28, "No space left on device"))

    def _complete(self, error: BaseException | None) -> None:
        assert self._done is not None, "the journal has not been started"
        self._done(error)
