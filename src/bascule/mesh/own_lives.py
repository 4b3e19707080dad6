"""The lives of this daemon, as other nodes tell them apart: by when they began, the newest ones kept.

A life that began with less in its ledger than was confirmed in the one before was rolled back. So each must begin
behind all before it, though the clock may have been set back, and a backup knows nothing of a life that was lost.
Nor may two ever begin at the same time: whoever knows the one would not hear of the other.
"""

import secrets

from bascule.foundation.clock import Clock
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.mesh.protocol import MAX_LIVES, Anchor, Life
from bascule.mesh.records import OwnLife

# A hundred years from now: what another node says cannot use up the numbers. Counted from now, so that a time that one
# node could make us say once is believed of the others later, when a backup has lost it.
FARTHEST_MS = 100 * 365 * 24 * 3_600_000
# Where the clock cannot tell two lives apart: one that a backup has lost began right behind the one before it, too.
SPREAD_MS = 1_000_000


class OwnLives:
    def __init__(self, table: Table[OwnLife], journal: Journal, clock: Clock) -> None:
        self._table = table
        self._journal = journal
        self._clock = clock
        # The end of the ledger when this life began.
        self.began = Anchor.of(journal.durable_head)
        last = max(map(int, table.rows), default=-1)
        now = clock.wall_ms()
        self.started = now if now > last else self._behind(last)

    def record(self) -> None:
        """So that later lives can tell of it: a node that hears only of those would not see that it was rolled back."""
        tx = Transaction()
        self._put(tx)
        self._journal.commit_quietly(tx)

    def begin_behind(self, known_start: int) -> bool:
        """Another node has heard of a life that began later than this one, and is not known here: it was lost to a
        backup. True if this life begins behind that one now."""
        if not self.started < known_start < self._farthest():
            return False
        tx = Transaction()
        tx.put(self._table, _key(self.started), None)
        self.started = self._behind(known_start)
        self._put(tx)
        self._journal.commit_quietly(tx)
        return True

    def listed(self) -> list[Life]:
        return [Life(int(started), life.began) for started, life in sorted(self._table.rows.items())]

    def is_one_before(self, started: int) -> bool:
        """Also before the oldest that is kept. A double that began so long ago takes this life for its double, and
        says so."""
        rows = self._table.rows
        is_forgotten = len(rows) >= MAX_LIVES and started < int(min(rows))
        return started != self.started and (is_forgotten or _key(started) in rows)

    def _farthest(self) -> int:
        return self._clock.wall_ms() + FARTHEST_MS

    def _behind(self, started: int) -> int:
        """Never farther than what is believed of others, who will say it one day."""
        return started + 1 + secrets.randbelow(max(1, min(SPREAD_MS, self._farthest() - started)))

    def _put(self, tx: Transaction) -> None:
        tx.put(self._table, _key(self.started), OwnLife(self.began.seq))
        for old in sorted(self._table.rows)[:-MAX_LIVES]:
            tx.put(self._table, old, None)


def _key(started: int) -> str:
    return f"{started:015d}"
