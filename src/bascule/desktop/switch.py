"""Whether agents may use the desktop at all, and whether somebody has stopped everything. Both outlive the daemon."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from bascule.desktop.refusals import not_enabled, stopped
from bascule.foundation.clock import Clock
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore

_ENABLED: Final = "enabled"
_STOPPED: Final = "stopped"


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who put the switch there, when; and for which session."""

    by: str
    at: int
    environment: dict[str, str] = {}


class Switch:
    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        on_change: Callable[[str, str | None], None] = lambda _event, _by: None,
    ) -> None:
        """`on_change` gets enabled, disabled, stopped or resumed, and by whom."""
        self._clock = clock
        self._on_change = on_change
        self.table: Table[Position] = Table("desktop", Position)
        self.table.rows.update(store.load("desktop", Position))
        # Beside the table: a stop that a full disk does not take counts for as long as we live.
        self._pulled = False

    @property
    def enabled(self) -> bool:
        return _ENABLED in self.table.rows

    @property
    def environment(self) -> Mapping[str, str]:
        """Of the session that was enabled; nothing: the daemon's own."""
        return self.table.rows[_ENABLED].environment if self.enabled else {}

    @property
    def stopped(self) -> bool:
        return self._pulled or _STOPPED in self.table.rows

    def must_be_enabled(self) -> None:
        if not self.enabled:
            raise not_enabled()

    def must_take_input(self) -> None:
        if self.stopped:
            raise stopped()

    def enable(self, tx: Transaction, by: str, environment: dict[str, str]) -> None:
        tx.put(self.table, _ENABLED, Position(by=by, at=self._clock.wall_ms(), environment=environment))
        tx.after.append(partial(self._on_change, "enabled", by))

    def disable(self, tx: Transaction) -> None:
        tx.put(self.table, _ENABLED, None)
        tx.after.append(partial(self._on_change, "disabled", None))

    def stop(self, tx: Transaction, by: str) -> None:
        self._pulled = True
        tx.put(self.table, _STOPPED, Position(by=by, at=self._clock.wall_ms()))
        # At once, as the stop itself: it waits for no disk.
        self._on_change("stopped", by)

    def resume(self, tx: Transaction) -> None:
        """In force once it is on disk."""
        tx.put(self.table, _STOPPED, None)
        tx.after.append(self._release)

    def _release(self) -> None:
        self._pulled = False
        self._on_change("resumed", None)
