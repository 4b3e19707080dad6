"""A journal whose store writes when it is told to, for the tests of this folder."""

import asyncio
import functools

import msgspec

from bascule.kernel.call import LOCAL
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.ledger import Verifier
from bascule.testing.clock import FakeClock
from bascule.testing.stores import HeldStore
from patience import PATIENCE


class Thing(msgspec.Struct, frozen=True):
    text: str


def on_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE))

    return run


class Setting:
    """A journal on a held store, a table, and an index over the table."""

    def __init__(self, store=None, **settings):
        self.store = store or HeldStore()
        self.anchors = []
        self.journal = Journal(self.store, FakeClock(), on_anchor=self.anchors.append, **settings)
        self.index = {}
        self.table = Table("tickets", Thing, self._changed)
        self.journal.start()

    def _changed(self, key, old, new):
        if old is not None:
            self.index[old.text].remove(key)
        if new is not None:
            self.index.setdefault(new.text, []).append(key)

    def commit(self, key="k", text="x", *, after=None, **how):
        """Put a row and commit it; the number to wait for."""
        tx = Transaction()
        tx.put(self.table, key, Thing(text) if text is not None else None)
        tx.subject = key
        if after is not None:
            tx.after.append(after)
        return self.journal.commit(tx, LOCAL, "messages.send", **how)

    def faults(self):
        rows = self.store.read_ledger(lambda ledger: ledger.span(0, 10_000)).result()
        verifier = Verifier(list(self.journal.segments.rows.values()), self.anchors)
        verifier.feed(rows)
        verifier.finish()
        return verifier.faults

    def written(self):
        return [len(batch.ledger) for batch in self.store.batches]
