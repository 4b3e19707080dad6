"""What another Bascule kept in another format: moved aside whole, before anything of it is read.

    STATE/aside/20260131T120000Z-runs-format-1/
        bascule.db               a copy of the whole database
        workspace/checkpoints/   the directories, under the names that they had in STATE

It is a state directory: a Bascule of that format can be started on it. Until all of it is there its name ends in
`.unfinished`, and the next start goes on:

    1. the copy      2. each directory, by a rename      3. one commit: the rows go, our number comes      4. the name

Each step is on disk before the next begins. Up to step 3 the number in the database is the old one, so no daemon that
knows of numbers reads what is half moved. Nothing is ever replaced or deleted here: what is in the way keeps its name,
and the newcomer gets another.
"""

import contextlib
import errno
import filecmp
import os
import time
from collections.abc import Iterable, Iterator

from bascule.admin.records import DaemonFact, format_key
from bascule.daemon.aside import UNFINISHED, Aside, moved_aside
from bascule.foundation import paths
from bascule.foundation.errors import StorageFull
from bascule.kernel.declared import Kept
from bascule.kernel.journal_ports import Batch
from bascule.stores.schema import StoreUnusable
from bascule.stores.sqlite import SqliteStore
from gabp import codec

# Before stores had a number.
FIRST_FORMAT = "1"


def settle(store: SqliteStore, state_dir: str, kept: Kept, tables: Iterable[str]) -> None:
    """Whatever was there: behind this the store has rows and directories of our format alone, and says so."""
    number = dict(store.load("house", DaemonFact)).get(format_key(kept.name))
    was = number.text if number is not None else FIRST_FORMAT if any(_keys(store, tables)) else None
    ours = str(kept.format)
    move = _Move(store, state_dir, kept)
    begun = move.begun()
    directory = begun.path if begun is not None else None
    try:
        if was == ours and begun is not None and begun.format == ours:
            # By a Bascule of another format, which got as far as some of the directories; the rows are still here.
            move.put_back(begun.path)
        elif was != ours and (directory is not None or (was is not None and move.has_something())):
            directory = directory or move.begin(was or FIRST_FORMAT)
            move.copy(directory)
            move.directories(directory)
        if number is None or number.text != ours:
            move.rows(ours)
        if directory is not None:
            move.finish(directory)
    except (StorageFull, OSError) as error:
        raise _refusal(error, state_dir, kept, was or FIRST_FORMAT) from error


def _refusal(error: StorageFull | OSError, state_dir: str, kept: Kept, was: str) -> StoreUnusable:
    is_full = isinstance(error, StorageFull) or error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = error.message if isinstance(error, StorageFull) else f"{error.filename}: {error.strerror}"
    return StoreUnusable(
        f"{state_dir} keeps {kept.name} in format {was}, this Bascule in format {kept.format}, and they cannot be "
        f"moved aside: {why}",
        hint="make room there, as much as bascule.db has, then start again; nothing is lost"
        if is_full
        else "move that away yourself, then start again; nothing is lost",
    )


class _Move:
    """The steps. Each may have been done before, by a start that was killed."""

    def __init__(self, store: SqliteStore, state_dir: str, kept: Kept) -> None:
        self._store = store
        self._state = state_dir
        self._aside = paths.aside_dir(state_dir)
        self._kept = kept

    def has_something(self) -> bool:
        return any(_keys(self._store, self._kept.tables)) or any(
            _has_entries(os.path.join(self._state, name)) for name in self._kept.directories
        )

    def begun(self) -> Aside | None:
        for each in moved_aside(self._state):
            if each.name == self._kept.name and not each.finished:
                return each
        return None

    def begin(self, was: str) -> str:
        paths.make_private_dir(self._aside)
        paths.sync_dir(self._state)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        made = os.path.join(self._aside, f"{stamp}-{self._kept.name}-format-{was}{UNFINISHED}")
        paths.make_private_dir(made)
        paths.sync_dir(self._aside)
        return made

    def copy(self, directory: str) -> None:
        copy = os.path.join(directory, os.path.basename(paths.database_file(self._state)))
        fresh = copy + ".new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        self._store.copy_to(fresh)
        if os.path.exists(copy) and filecmp.cmp(copy, fresh, shallow=False):
            os.unlink(fresh)
        else:
            # With one there already another Bascule went on in the meantime, or another copy was restored.
            paths.put_in_place(fresh, _free(copy))

    def directories(self, directory: str) -> None:
        for name in self._kept.directories:
            old, new = os.path.join(self._state, name), os.path.join(directory, name)
            if _has_entries(old):
                paths.make_private_dir(os.path.dirname(new))
                paths.sync_dir(directory)
                _rename(old, _free(new))

    def put_back(self, directory: str) -> None:
        for name in self._kept.directories:
            old, new = os.path.join(directory, name), os.path.join(self._state, name)
            if _has_entries(old) and not _has_entries(new):
                # An empty one is replaced.
                _rename(old, new)

    def rows(self, ours: str) -> None:
        gone = [(table, key, None) for table in self._kept.tables for key in _keys(self._store, [table])]
        fact = DaemonFact(ours, time.time_ns() // 10**6)
        self._store.write_now(Batch([*gone, ("house", format_key(self._kept.name), fact)], []))

    def finish(self, directory: str) -> None:
        _rename(directory, _free(directory.removesuffix(UNFINISHED)))


def _rename(source: str, target: str) -> None:
    """The new name first: a directory that has both after a power cut is better than one that has none."""
    os.rename(source, target)
    paths.sync_dir(os.path.dirname(target))
    if os.path.dirname(source) != os.path.dirname(target):
        paths.sync_dir(os.path.dirname(source))


def _keys(store: SqliteStore, tables: Iterable[str]) -> Iterator[str]:
    return (key for table in tables for key, _ in store.load(table, codec.Raw))


def _has_entries(directory: str) -> bool:
    try:
        return bool(os.listdir(directory))
    except FileNotFoundError:
        return False


def _free(path: str) -> str:
    """This path, or with a number behind it when something is there."""
    return next(each for n in range(1, 1_000) if not os.path.lexists(each := path if n == 1 else f"{path}.{n}"))
