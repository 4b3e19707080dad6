"""Put a copy of the database in the place of a stopped daemon's, once it has proved to be whole."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import time
from typing import NamedTuple

from bascule.admin.ledger_methods import verify
from bascule.daemon.lifecycle import check_places, hold_lock
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock, rfc3339
from bascule.foundation.errors import BasculeError, Conflict
from bascule.kernel.call import LOCAL
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.ledger import Anchor, Segment, read_record
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.schema import RESTORING, remove_copies
from bascule.stores.sqlite import SqliteStore

_CHUNK_BYTES = 1024 * 1024


class Restored(NamedTuple):
    records: int
    # When the copy's newest record was made.
    newest: str
    # Where the database of before is, None when there was none.
    replaced: str | None


class _NoAnchors:
    """Those of the state directory are of the database that is replaced."""

    def read(self) -> tuple[list[Anchor], list[str]]:
        return [], []


def restore(state_dir: str, source: str) -> Restored:
    check_places(state_dir)
    with hold_lock(state_dir):
        database = paths.database_file(state_dir)
        candidate = database + RESTORING
        remove_copies(database)
        try:
            digest = _copy(source, candidate)
            _check(candidate, source)
            records, newest, anchor = asyncio.run(_record(candidate, digest))
            replaced = _put_in_place(state_dir, candidate, anchor)
        finally:
            remove_copies(database)
    return Restored(records, newest, replaced)


def _copy(source: str, candidate: str) -> str:
    """The SHA-256 of what was copied."""
    digest = hashlib.sha256()
    descriptor = os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(source, "rb") as file, open(descriptor, "wb") as copy:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            copy.write(chunk)
    return digest.hexdigest()


def _check(candidate: str, source: str) -> None:
    try:
        store = SqliteStore(candidate, check=True)
        try:
            store.check_rows()
            segments = [segment for _, segment in store.load("segments", Segment)]
            faults = store.read_ledger(lambda ledger: verify(ledger, segments, _NoAnchors())).result().faults
            empty = store.ledger_head() is None
        finally:
            store.close()
    except BasculeError as error:
        why = error.message.replace(candidate, source)
        raise Conflict(f"{why}: nothing was changed", hint="restore another copy") from error
    if faults or empty:
        why = faults[0] if faults else "it has no record at all, so it was never a daemon's"
        raise Conflict(
            f"the ledger in {source} is not whole: {why}; nothing was changed",
            hint="restore another copy; `bascule ledger verify` checks the present one",
        )


async def _record(candidate: str, digest: str) -> tuple[int, str, Anchor]:
    """The restore is in the ledger that it brings back."""
    store = SqliteStore(candidate)
    try:
        anchors: list[Anchor] = []
        journal = Journal(store, SystemClock(), on_anchor=anchors.append)
        head = store.ledger_head()
        assert head is not None
        journal.start()
        tx = Transaction()
        tx.subject = "database"
        tx.details = {"process": f"pid {os.getpid()} uid {os.getuid()}", "sha256": digest, "after": head.seq}
        await journal.commit(tx, LOCAL, "daemon.restore")
        return head.seq, rfc3339(read_record(head).at), journal.anchor("restore")
    finally:
        store.close()


def _put_in_place(state_dir: str, candidate: str, anchor: Anchor) -> str | None:
    """At each moment there is a whole database under its name: the old one, then the new one."""
    database = paths.database_file(state_dir)
    # All that takes room comes first.
    AnchorFile(candidate + "-anchors").append(anchor)
    replaced = None
    if os.path.exists(database):
        # What lies in its write-ahead log belongs into it; a database that cannot be opened is kept as it is.
        with contextlib.suppress(BasculeError, OSError):
            SqliteStore(database).close()
        replaced = _keep(state_dir, database)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(database + "-wal")
    os.replace(candidate, database)
    os.replace(candidate + "-anchors", paths.anchors_file(state_dir))
    paths.sync_dir(state_dir)
    return replaced


def _keep(state_dir: str, database: str) -> str:
    directory = os.path.join(
        state_dir, f"replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.{time.time_ns() % 10**9:09d}"
    )
    paths.make_private_dir(directory)
    for path in (database, database + "-wal"):
        if os.path.exists(path):
            os.link(path, os.path.join(directory, os.path.basename(path)))
    anchors = paths.anchors_file(state_dir)
    if os.path.exists(anchors):
        shutil.copy2(anchors, directory)
    paths.sync_dir(directory)
    return directory
