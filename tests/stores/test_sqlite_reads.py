"""Reads of the ledger run on the writer's thread, and must not harm it."""

import asyncio
import threading

from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.stores.sqlite import SqliteStore
from patience import PATIENCE


def test_a_read_that_was_cancelled_before_it_ran_leaves_the_writer_alive(tmp_path):
    async def story():
        store = SqliteStore(str(tmp_path / "b.db"), durability="relaxed")
        written = asyncio.get_running_loop().create_future()
        store.start(written.set_result)
        busy, go_on = threading.Event(), threading.Event()

        def slow(_ledger):
            busy.set()
            return go_on.wait(PATIENCE)

        first = store.read_ledger(slow)
        assert busy.wait(PATIENCE)
        second = store.read_ledger(lambda ledger: ledger.bounds())
        assert second.cancel()
        go_on.set()
        assert await asyncio.wait_for(asyncio.wrap_future(first), PATIENCE)
        store.write(Batch([], [LedgerRow(1, b"h" * 32, b"{}")]))
        assert await asyncio.wait_for(written, PATIENCE) is None
        store.close()

    asyncio.run(story())
