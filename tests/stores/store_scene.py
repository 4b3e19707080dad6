"""Few sentences that tests of the store on disk are made of."""

import asyncio

import msgspec

from bascule.kernel.journal_ports import Batch, LedgerRow
from patience import PATIENCE


class Thing(msgspec.Struct, frozen=True):
    text: str


def write(store, *batches):
    async def story():
        results = asyncio.Queue()
        store.start(results.put_nowait)
        for batch in batches:
            store.write(batch)
        async with asyncio.timeout(PATIENCE):
            for _ in batches:
                assert await results.get() is None

    asyncio.run(story())


def some(text="text", key="k", seq=1):
    return Batch([("tickets", key, Thing(text))], [LedgerRow(seq, bytes(32), b"{}")])
