"""Which runs a list is about, newest first, without a look at the others.

Runs are numbered in the order of starting. A shelf holds those with one value in one field, in this order, so `before`
is found by halving and a list costs what it returns. Runs change some times in their life, not with every message:
taking one out of a shelf moves the rest of it, which is a copy of some kilobytes.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TypeAlias

from bascule.workspace.records import RunRecord

_FIELDS = ("space_id", "started_by", "status")
# A run's number and its id.
_Place: TypeAlias = tuple[int, str]


class RunIndex:
    """Kept by `changed`, which a table calls for every change, done and undone."""

    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}
        self._all: list[_Place] = []
        self._shelves: dict[tuple[str, str], list[_Place]] = {}

    def changed(self, old: RunRecord | None, new: RunRecord | None) -> None:
        if old is not None:
            del self._records[old.run_id]
        if new is not None:
            self._records[new.run_id] = new
        was, now = _place(old), _place(new)
        _move(self._all, was, now)
        for field in _FIELDS:
            left, joined = _shelf(field, old), _shelf(field, new)
            if left == joined and was == now:
                continue
            if left is not None:
                _move(self._shelves[left], was, None)
                if not self._shelves[left]:
                    del self._shelves[left]
            if joined is not None:
                _move(self._shelves.setdefault(joined, []), None, now)

    def count(self, space_id: str) -> int:
        return len(self._shelves.get(("space_id", space_id), ()))

    def oldest_first(self, space_id: str | None = None) -> Iterator[RunRecord]:
        """One after the other: who changes runs meanwhile takes a list first."""
        places = self._all if space_id is None else self._shelves.get(("space_id", space_id), ())
        return (self._records[run_id] for _, run_id in places)

    def newest_first(self, before: RunRecord | None = None, **wanted: str | None) -> Iterator[RunRecord]:
        """Those with these fields that started before this one; of several fields the rarest value leads."""
        named = {field: value for field, value in wanted.items() if value is not None}
        shelves = [self._shelves.get(each, []) for each in named.items()]
        places = min(shelves, key=len, default=self._all)
        at = len(places) if before is None else bisect_left(places, (before.number, before.run_id))
        for index in range(at - 1, -1, -1):
            record = self._records[places[index][1]]
            if all(getattr(record, field) == value for field, value in named.items()):
                yield record


def _place(record: RunRecord | None) -> _Place | None:
    return None if record is None else (record.number, record.run_id)


def _shelf(field: str, record: RunRecord | None) -> tuple[str, str] | None:
    return None if record is None else (field, getattr(record, field))


def _move(places: list[_Place], was: _Place | None, now: _Place | None) -> None:
    if was == now:
        return
    if was is not None:
        del places[bisect_left(places, was)]
    if now is not None:
        # At the end but for one that comes back, because its end was undone.
        insort(places, now)
