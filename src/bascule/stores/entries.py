"""The journal table: one row for each batch that is not yet folded into the tables.

A commit writes one blob instead of a page for every row it changes. The writer folds blobs into the tables later, and a
start folds what is left before anything is loaded. Rows are numbered without a gap; the newest folded one stays as an
empty row, so that a missing first row shows too.

A blob: `forget_before` (8 bytes), length of the changes (4), number of ledger rows (4); the changes as one JSON array of
[table, key, value or null]; then for each ledger row its number (8), the lengths of hash and body (4 and 4), hash, body.
Integers are big-endian. The checksum is a CRC-32 over the row's number and the blob.
"""

import sqlite3
import struct
import zlib
from typing import NamedTuple

from bascule.kernel.journal_ports import Batch, LedgerRow
from gabp import codec

_HEAD = struct.Struct(">QII")
_ROW = struct.Struct(">QII")
_NUMBER = struct.Struct(">Q")
# A Struct is never null in JSON.
_DELETED = b"null"

_changes = codec.stored(list[tuple[str, str, codec.Raw]])


class Damaged(sqlite3.DatabaseError):
    """A row of the journal that is not what was written."""


class Entry(NamedTuple):
    # (table, key, JSON or None to delete), each row once.
    changes: list[tuple[str, str, bytes | None]]
    ledger: list[LedgerRow]
    forget_before: int


def encode(batch: Batch) -> bytes:
    # Later changes of the same row win; only the last is kept.
    changes = list({(change[0], change[1]): change for change in batch.changes}.values())
    body = codec.encode(changes)
    parts = [_HEAD.pack(batch.forget_before, len(body), len(batch.ledger)), body]
    for row in batch.ledger:
        parts += (_ROW.pack(row.seq, len(row.hash), len(row.body)), row.hash, row.body)
    return b"".join(parts)


def decode(blob: bytes) -> Entry:
    forget_before, size, count = _HEAD.unpack_from(blob)
    at = _HEAD.size + size
    changes = [
        (table, key, None if (body := bytes(raw)) == _DELETED else body)
        for table, key, raw in _changes(blob[_HEAD.size : at])
    ]
    ledger = []
    for _ in range(count):
        seq, hash_bytes, body_bytes = _ROW.unpack_from(blob, at)
        middle = at + _ROW.size + hash_bytes
        ledger.append(LedgerRow(seq, blob[at + _ROW.size : middle], blob[middle : middle + body_bytes]))
        at = middle + body_bytes
    return Entry(changes, ledger, forget_before)


def checksum(number: int, blob: bytes) -> int:
    return zlib.crc32(blob, zlib.crc32(_NUMBER.pack(number)))


def append(connection: sqlite3.Connection, number: int, blob: bytes) -> None:
    connection.execute(
        "INSERT INTO journal (number, body, crc) VALUES (?, ?, ?)", (number, blob, checksum(number, blob))
    )


def read(connection: sqlite3.Connection, first: int, last: int) -> list[Entry]:
    """Rows `first` to `last`; all of them, or `Damaged` names the one that is not there as it was written."""
    rows = connection.execute(
        "SELECT number, body, crc FROM journal WHERE number BETWEEN ? AND ? ORDER BY number", (first, last)
    ).fetchall()
    entries = []
    for expected, (number, blob, crc) in zip(range(first, last + 1), rows, strict=False):
        if number != expected:
            raise Damaged(f"journal row {expected} is missing")
        entries.append(_whole(number, blob, crc))
    if len(rows) != last + 1 - first:
        raise Damaged(f"journal row {first + len(rows)} is missing")
    return entries


def _whole(number: int, blob: object, crc: object) -> Entry:
    # A flipped bit may change a value's type, too.
    if type(blob) is not bytes or checksum(number, blob) != crc:
        raise Damaged(f"journal row {number} does not match its checksum")
    try:
        return decode(blob)
    except (struct.error, codec.BadJson, ValueError) as error:
        raise Damaged(f"journal row {number} cannot be read: {error}") from error


def sizes(connection: sqlite3.Connection) -> tuple[int, list[tuple[int, int]]]:
    """The number of the newest folded row, and number and size of each one after it."""
    rows = connection.execute("SELECT number, length(body), crc FROM journal ORDER BY number").fetchall()
    if not rows:
        return 0, []
    number, size, crc = rows[0]
    if size:
        # Nothing was ever folded.
        if number != 1:
            raise Damaged("journal row 1 is missing")
        return 0, [(number, size) for number, size, _ in rows]
    if crc != checksum(number, b""):
        raise Damaged(f"journal row {number} does not match its checksum")
    return number, [(number, size) for number, size, _ in rows[1:]]


def cut(connection: sqlite3.Connection, last: int) -> None:
    """Rows up to `last` are folded: they go, and the last stays empty."""
    connection.execute("DELETE FROM journal WHERE number < ?", (last,))
    connection.execute("UPDATE journal SET body = x'', crc = ? WHERE number = ?", (checksum(last, b""), last))
