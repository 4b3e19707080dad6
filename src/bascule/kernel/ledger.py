"""The chain: each record's hash covers the one before it.

A record says who did what to which thing, how it was decided and how it ended; ids, sizes and keyed
digests, never payloads. Anchors (number and hash of a record, written outside the database) are what
makes cutting off the end visible, and an edit whose hashes were computed anew.

All of it is in files of the user: it finds damage and careless edits. Who computes the hashes anew behind the newest
anchor, or writes the anchors anew as well, is not found.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.kernel.journal_ports import LedgerReader, LedgerRow
from gabp import codec

GENESIS = bytes(32)
# What is edited behind the newest anchor and hashed anew is not found. Each anchor is a line in two files: a busy
# daemon writes some a second, a quiet one none.
ANCHOR_EVERY = 100
ANCHOR_EVERY_MS = 60_000
# A segment is the unit of retention: small enough to drop by the day, large enough to be few.
SEGMENT_RECORDS = 10_000
# Outcome of a record: an effect outside of the store starts; its end is another record.
BEGUN = "begun"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is hashed, in this field order."""

    seq: int
    at: int
    principal: str
    method: str
    outcome: str
    subject: str | None = None
    rule: str | None = None
    details: dict[str, Any] | None = None


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A closed stretch of the chain. It outlives its records, so that the chain can be checked behind them."""

    first: int
    last: int
    # The hash before `first` and the hash of `last`, in hex.
    before: str
    head: str
    closed_at: int
    # Its records were dropped by retention.
    dropped: bool = False


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    head: str
    at: int
    why: str


_record = codec.decoder(Record)


def link(previous: bytes, body: bytes) -> bytes:
    return hashlib.sha256(previous + body).digest()


def read_record(row: LedgerRow) -> Record:
    return _record.decode(row.body)


class Chain:
    """The growing end of the ledger."""

    __slots__ = ("head", "seq")

    def __init__(self, newest: LedgerRow | None) -> None:
        self.seq = newest.seq if newest else 0
        self.head = newest.hash if newest else GENESIS

    def append(
        self,
        *,
        at: int,
        principal: str,
        method: str,
        outcome: str,
        subject: str | None,
        rule: str | None,
        details: dict[str, Any] | None,
    ) -> LedgerRow:
        seq = self.seq + 1
        body = codec.encode(
            Record(
                seq=seq,
                at=at,
                principal=principal,
                method=method,
                outcome=outcome,
                subject=subject,
                rule=rule,
                details=details,
            )
        )
        self.head = link(self.head, body)
        self.seq = seq
        return LedgerRow(seq, self.head, body)

    def rewind(self, seq: int, head: bytes) -> None:
        """Forget links that never became durable."""
        self.seq = seq
        self.head = head


def rolled_back(anchors: list[Anchor], ledger: LedgerReader) -> str | None:
    """Whether the ledger is older than its anchors, as after a backup was put back; or another one."""
    last = ledger.bounds()[1]
    for anchor in reversed(anchors):
        when = f"record {anchor.seq} was anchored at {rfc3339(anchor.at)}"
        if anchor.seq > last:
            return f"the ledger ends at record {last}, but {when}: the database is older than that, or its end is lost"
        rows = ledger.span(anchor.seq, 1)
        # Records that retention has dropped are not there to compare with.
        if rows and rows[0].seq == anchor.seq and rows[0].hash.hex() != anchor.head:
            return f"{when}, and the ledger has another record {anchor.seq}: the database was put back and used again"
    return None


class Verifier:
    """Walks the chain record by record and says what does not fit."""

    # A destroyed ledger would otherwise list every record; the first few say where to look.
    MAX_FAULTS = 50

    def __init__(
        self,
        segments: list[Segment],
        anchors: list[Anchor],
        *,
        base: bytes | None = None,
        look: Callable[[Record], None] | None = None,
    ) -> None:
        # Called with each record that can be read, in order: what else there is to check.
        self._look = look
        # The hash before the first row, when the store itself keeps only a window.
        self._base = base
        self._anchors: dict[int, list[Anchor]] = {}
        for anchor in anchors:
            self._anchors.setdefault(anchor.seq, []).append(anchor)
        self._before = {segment.last + 1: bytes.fromhex(segment.head) for segment in segments}
        self._heads = {segment.last: bytes.fromhex(segment.head) for segment in segments}
        self._newest_anchor = max(self._anchors, default=0)
        self._dropped_upto = max((segment.last for segment in segments), default=0)
        self._previous: bytes | None = None
        self.faults: list[str] = []
        self.first = 0
        self.last = 0
        self.count = 0
        self.head = GENESIS

    def feed(self, rows: list[LedgerRow]) -> None:
        for row in rows:
            self._check(row)

    def _check(self, row: LedgerRow) -> None:
        if self._previous is None:
            self._begin(row)
        elif row.seq != self.last + 1:
            self._fault(f"records {self.last + 1} to {row.seq - 1} are gone")
        if self._previous is not None and link(self._previous, row.body) != row.hash:
            self._fault(f"record {row.seq} does not follow from the one before it: changed, moved or replaced")
        self._check_body(row)
        if self._heads.get(row.seq, row.hash) != row.hash:
            self._fault(f"record {row.seq} is not the one its segment was closed with")
        for anchor in self._anchors.get(row.seq, ()):
            if anchor.head != row.hash.hex():
                self._fault(f"record {row.seq} is not the one that was anchored ({anchor.why})")
        self._previous = row.hash
        self.last = row.seq
        self.head = row.hash
        self.count += 1

    def _begin(self, row: LedgerRow) -> None:
        self.first = row.seq
        if row.seq == 1:
            self._previous = GENESIS
        elif row.seq in self._before:
            self._previous = self._before[row.seq]
        elif self._base is not None:
            self._previous = self._base
        else:
            self._fault(f"records before {row.seq} are gone and no closed segment explains it")

    def _check_body(self, row: LedgerRow) -> None:
        try:
            record = read_record(row)
        except codec.BadJson:
            self._fault(f"record {row.seq} cannot be read")
            return
        if record.seq != row.seq:
            self._fault(f"record {row.seq} calls itself {record.seq}: moved")
        if self._look is not None:
            self._look(record)

    def finish(self) -> None:
        if self._newest_anchor > self.last:
            self._fault(
                f"the ledger ends at record {self.last}, but record {self._newest_anchor} was anchored: "
                "the end was cut off"
            )
        if not self.count and self._dropped_upto:
            self._fault(f"records after {self._dropped_upto} are gone")

    def _fault(self, text: str) -> None:
        if len(self.faults) < self.MAX_FAULTS:
            self.faults.append(text)
