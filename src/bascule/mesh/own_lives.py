"""The lives of this daemon, as other nodes tell them apart: by when they began, the newest ones kept.

A life that began with less in its ledger than was confirmed in the one before was rolled back. So each must begin
behind all before it, though the clock may have been set back, and a backup knows nothing of a life that was lost.
"""

from bascule.kernel.journal import Journal, Table, Transaction
from bascule.mesh.protocol import MAX_LIVES, Anchor, Life
from bascule.mesh.records import OwnLife

# In milliseconds, the year 5138: what another node says cannot use up the numbers (a key of the table has 15 digits).
LATEST_START = 10**14


class OwnLives:
    def __init__(self, table: Table[OwnLife], journal: Journal, now_ms: int) -> None:
        self._table = table
        self._journal = journal
        # The end of the ledger when this life began.
        self.began = Anchor.of(journal.durable_head)
        self.started = max(now_ms, 1 + max(map(int, table.rows), default=-1))

    def record(self) -> None:
        """So that later lives can tell of it: a node that hears only of those would not see that it was rolled back."""
        tx = Transaction()
        self._put(tx)
        self._journal.commit_quietly(tx)

    def begin_behind(self, known_start: int) -> bool:
        """Another node has heard of a life that began later than this one, and is not known here: it was lost to a
        backup. True if this life begins behind that one now."""
        if not self.started < known_start < LATEST_START:
            return False
        tx = Transaction()
        tx.put(self._table, _key(self.started), None)
        self.started = known_start + 1
        self._put(tx)
        self._journal.commit_quietly(tx)
        return True

    def listed(self) -> list[Life]:
        return [Life(int(started), life.began) for started, life in sorted(self._table.rows.items())]

    def is_one_before(self, started: int) -> bool:
        return started != self.started and _key(started) in self._table.rows

    def _put(self, tx: Transaction) -> None:
        tx.put(self._table, _key(self.started), OwnLife(self.began.seq))
        for old in sorted(self._table.rows)[:-MAX_LIVES]:
            tx.put(self._table, old, None)


def _key(started: int) -> str:
    return f"{started:015d}"
