"""The SQLite schema, its versions, and the way from one to the next.

Two things make tables. Versions: numbered, never edited once released; they made every table up to version 4, and from
there on change the form of what is kept. Declarations: a bridge's new table is made when a daemon that declares it
opens the file, without a version, because nothing that was there changes. A file with a table that nobody declares
any more opens too, so an older daemon and one without that bridge both go on; the table is left alone.
"""

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping

from bascule.foundation.errors import BasculeError
from bascule.foundation.paths import make_private_dir, sync_dir

_TABLES_1 = ("agents", "tickets", "messages", "remembered", "segments", "house")
# Consent and the workspace.
_TABLES_2 = ("approvals", "rules", "begun", "spaces", "runs")
# Games.
_TABLES_3 = ("pins",)
# The desktop: its switch, and the apps that a person said yes to.
_TABLES_4 = ("desktop", "desktop_apps")
# What the versions make.
TABLES = _TABLES_1 + _TABLES_2 + _TABLES_3 + _TABLES_4

SCHEMA_VERSION = 4
# Older copies than these were made by versions nobody goes back to.
KEEP_BACKUPS = 3
# In the backups directory: before a migration, and made by `bascule backup`, which takes it away.
_EARLIER = "bascule-schema"
_COPY = "bascule-copy-"
# Behind the name of the database: a copy that is being checked.
RESTORING = ".restoring"


def _table(name: str) -> str:
    # `crc` finds a flipped bit that SQLite's own format does not notice.
    return f"CREATE TABLE {name} (key TEXT PRIMARY KEY, body BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"


# A table of a bridge that this daemon does not have.
_OURS = re.compile(re.escape(_table("NAME")).replace("NAME", "[a-z_]+"))

_VERSION_1 = (
    *map(_table, _TABLES_1),
    "CREATE TABLE ledger (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, body BLOB NOT NULL)",
)
_VERSION_2 = tuple(map(_table, _TABLES_2))
_VERSION_3 = tuple(map(_table, _TABLES_3))
_VERSION_4 = tuple(map(_table, _TABLES_4))


def _add_version_2(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_2:
        connection.execute(statement)


def _add_version_3(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_3:
        connection.execute(statement)


def _add_version_4(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_4:
        connection.execute(statement)


Migration = Callable[[sqlite3.Connection], None]
# From version N to N + 1. A migration never changes a row it does not have to, and is never edited once released.
MIGRATIONS: Mapping[int, Migration] = {1: _add_version_2, 2: _add_version_3, 3: _add_version_4}


def check_schema(connection: sqlite3.Connection, declared: Collection[str]) -> str | None:
    """What speaks against the schema; where nothing does, tables that are declared and missing are made.

    A flipped bit in a column's type changes what it keeps, and one in a name hides a whole table: so nothing is made
    where a table is there that nobody knows.
    """
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    versioned = {*_VERSION_1, *_VERSION_2, *_VERSION_3, *_VERSION_4}
    wanted = {_table(name) for name in declared} - versioned
    beside = found - versioned - wanted
    missing = wanted - found
    odd = (versioned - found) | {sql for sql in beside if not _OURS.fullmatch(sql)} | (beside if missing else set())
    if odd:
        return f"its schema is not ours: {min(odd)!r}"
    for statement in sorted(missing):
        connection.execute(statement)
    return None


PUT_BACK = (
    "put back a copy with `bascule restore FILE` (the backups directory beside it has those from before upgrades), "
    "or move it away to start empty"
)


class StoreUnusable(BasculeError):
    """The database cannot be opened as it is; the message says what to do."""

    code = "unavailable"
    status = 503


def prepare(
    connection: sqlite3.Connection,
    path: str,
    *,
    version: int = SCHEMA_VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> str | None:
    """Create or upgrade the schema; the path of the backup when one was made."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found == version:
        return None
    if found < 0:
        raise StoreUnusable(
            f"{path} is damaged: schema {found} never existed",
            hint=PUT_BACK,
        )
    if found > version:
        raise StoreUnusable(
            f"{path} was written by a newer Bascule (schema {found}; this one knows {version})",
            hint="install that version again, or `bascule restore` a copy from the backups directory beside it",
        )
    if found == 0:
        # Nothing is there to copy away.
        _create(connection, version, migrations)
        return None
    backup = back_up(connection, path, found)
    for step in range(found, version):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            migrations[step](connection)
            connection.execute(f"PRAGMA user_version = {step + 1}")
    return backup


def _create(connection: sqlite3.Connection, version: int, migrations: Mapping[int, Migration]) -> None:
    """All or nothing, so that a crash leaves an empty file and not half a schema."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _VERSION_1:
            connection.execute(statement)
        for step in range(1, version):
            migrations[step](connection)
        connection.execute(f"PRAGMA user_version = {version}")


def back_up(connection: sqlite3.Connection, path: str, version: int) -> str:
    """A copy from before a migration; of these the newest are kept."""
    copy = _copy(connection, path, f"{_EARLIER}{version}-")
    directory = os.path.dirname(copy)
    earlier = [name for name in os.listdir(directory) if name.startswith(_EARLIER)]
    for old in sorted(earlier, key=lambda name: name.rpartition("-")[2])[:-KEEP_BACKUPS]:
        os.unlink(os.path.join(directory, old))
    return copy


def remove_copies(path: str) -> None:
    """Copies whose `bascule backup` or `bascule restore` was killed."""
    directory = os.path.join(os.path.dirname(path), "backups")
    left = [path + RESTORING + suffix for suffix in ("", "-wal", "-shm", "-anchors")]
    with contextlib.suppress(FileNotFoundError):
        left += [os.path.join(directory, name) for name in os.listdir(directory) if name.startswith(_COPY)]
    for copy in left:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy)


def copy_out(connection: sqlite3.Connection, path: str) -> str:
    """A copy that the caller takes away."""
    return _copy(connection, path, _COPY)


def _copy(connection: sqlite3.Connection, path: str, prefix: str) -> str:
    """A consistent copy in the backups directory beside the database, on disk when this returns."""
    directory = os.path.join(os.path.dirname(path), "backups")
    make_private_dir(directory)
    now = time.time_ns()
    stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now // 10**9))}.{now % 10**9:09d}"
    copy = os.path.join(directory, f"{prefix}{stamp}.db")
    copy_to(connection, copy)
    return copy


def copy_to(connection: sqlite3.Connection, copy: str) -> None:
    """A consistent copy in a new 0600 file, on disk when this returns; else there is none."""
    descriptor = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.closing(sqlite3.connect(copy)) as target:
            connection.backup(target)
        os.fsync(descriptor)
    except BaseException:
        os.unlink(copy)
        raise
    finally:
        os.close(descriptor)
    sync_dir(os.path.dirname(copy))
