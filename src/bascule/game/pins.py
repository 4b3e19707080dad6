"""Which tools were allowed, and what they looked like then: a tool that has changed since asks again.

A mod writes its tools' descriptions, and a model believes them. What a person or the policy once allowed is that text
and that schema, so both are pinned by one digest; by game and tool, because it is the same tool for every caller.
"""

from typing import Literal

import msgspec

from bascule.foundation.clock import Clock
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore

# Twice the tools of the largest list: those of now, and as many that are gone.
MAX_PINS_PER_GAME = 4_000

Pinned = Literal["new", "same", "changed"]


class Pin(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    schema_hash: str
    # Milliseconds; and who called it then.
    at: int
    by: str


class Pins:
    def __init__(self, store: JournalStore, clock: Clock, *, max_per_game: int = MAX_PINS_PER_GAME) -> None:
        self._clock = clock
        self._max_per_game = max_per_game
        self.table: Table[Pin] = Table("pins", Pin)
        for key, pin in store.load("pins", Pin):
            self.table.rows[key] = pin

    def compare(self, game_id: str, tool: str, schema_hash: str) -> Pinned:
        pin = self.table.rows.get(_key(game_id, tool))
        if pin is None:
            return "new"
        return "same" if pin.schema_hash == schema_hash else "changed"

    def find(self, game_id: str, tool: str) -> Pin | None:
        return self.table.rows.get(_key(game_id, tool))

    def pin(self, tx: Transaction, game_id: str, tool: str, schema_hash: str, by: str) -> None:
        if self.compare(game_id, tool, schema_hash) == "same":
            return
        tx.put(self.table, _key(game_id, tool), Pin(schema_hash=schema_hash, at=self._clock.wall_ms(), by=by))
        mine = [key for key in self.table.rows if key.startswith(f"{game_id} ")]
        if len(mine) > self._max_per_game:
            tx.put(self.table, min(mine, key=lambda key: self.table.rows[key].at), None)


def _key(game_id: str, tool: str) -> str:
    # An id has no blank.
    return f"{game_id} {tool}"
