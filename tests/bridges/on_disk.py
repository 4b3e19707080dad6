"""A house on a store of the test's choice, with real token files."""

import os

from bascule.bridge_list import tables_of
from bascule.broker.machine.token_files import StateTokenFiles
from bascule.foundation import paths
from bascule.stores.memory import MemoryStore
from bascule.stores.sqlite import SqliteStore
from bascule.testing.house import House


class OnDisk(House):
    """Its store is closed and opened again at every restart, as a daemon's is."""

    def __init__(self, folder, durability, **how):
        self.folder = folder
        store = MemoryStore()
        if durability != "memory":
            store = SqliteStore(os.path.join(folder, "db"), durability=durability, tables=tables_of())
        super().__init__(store=store, **how)

    def _begin_life(self):
        self.files = StateTokenFiles(self.folder, self._log)
        if isinstance(self.store, SqliteStore) and self.store._thread is not None:
            self.store.close()
            self.store = SqliteStore(self.store._path, durability=self.store.durability, tables=tables_of())
        super()._begin_life()

    def token_files(self):
        """By path, what helpers would find."""
        folder = paths.tokens_dir(self.folder)
        found = {}
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="ascii") as file:
                found[os.path.join(folder, name)] = file.read()
        return found
