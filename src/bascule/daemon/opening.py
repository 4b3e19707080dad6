"""The store as a new life finds it: opened, and its ledger held against what was anchored outside of it."""

import os
from collections.abc import Sequence

from bascule.bridge_list import tables_of
from bascule.daemon import aside
from bascule.daemon.logs import DaemonLog
from bascule.daemon.moving_aside import settle
from bascule.foundation import paths
from bascule.kernel.declared import Declared
from bascule.kernel.journal_ports import JournalStore, LedgerReader
from bascule.kernel.ledger import rolled_back
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.memory import MemoryStore
from bascule.stores.schema import remove_copies
from bascule.stores.sqlite import SqliteStore


def open_store(durability: str, state_dir: str, log: DaemonLog, bridges: Sequence[Declared]) -> JournalStore:
    if durability == "memory":
        return MemoryStore(reopens=False)
    path = paths.database_file(state_dir)
    # A WAL left behind means that the last daemon did not close the file: walk it before trusting it.
    unclean = os.path.exists(path + "-wal")
    remove_copies(path)
    store = SqliteStore(path, durability=durability, check=unclean, tables=tables_of(bridges))
    if store.backup is not None:
        log("migrated", backup=store.backup)
    if store.broken_end is not None:
        # After a crash: the commit that was not acknowledged yet. Without one: damage to what was stored last.
        log("store_end_cut", level="warning", file=path + "-wal", pages=store.broken_end.pages)
    try:
        for bridge in bridges:
            if (kept := bridge.kept()) is not None:
                settle(store, state_dir, kept, bridge.tables())
    except BaseException:
        store.close()
        raise
    for each in aside.moved_aside(state_dir):
        log("moved_aside", level="warning", directory=each.path, holds=each.what, next=each.how)
    return store


def ledger_problem(store: JournalStore, anchors: AnchorFile, log: DaemonLog) -> str | None:
    """What the newest anchors say against this ledger. Reads a few rows; `bascule ledger verify` walks all of them."""
    if store.durability == "memory":
        return None
    newest = anchors.newest()

    def look(ledger: LedgerReader) -> str | None:
        return rolled_back(newest, ledger)

    problem = store.read_ledger(look).result()
    if problem is not None:
        log("ledger_rolled_back", level="error", problem=problem, next="bascule doctor says what to do")
    return problem
