import os

import pytest

from bascule.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path):
    return os.fspath(tmp_path / "bascule.db")


@pytest.fixture
def open_store(path):
    opened = []

    def open_it(**settings):
        opened.append(SqliteStore(path, **settings))
        return opened[-1]

    yield open_it
    for store in opened:
        store.close()
