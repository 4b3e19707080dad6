"""The index of runs and the table agree, whatever is changed and undone, and in whatever order."""

import itertools

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.journal import Table, Transaction
from bascule.workspace.records import RunRecord
from bascule.workspace.run_index import RunIndex

SPACES, STARTERS, STATUSES = ["one", "two"], ["agent:Jerry", "local"], ["running", "completed", "error"]
records = st.builds(
    RunRecord,
    run_id=st.just(""),
    number=st.just(0),
    space_id=st.sampled_from(SPACES),
    started_by=st.sampled_from(STARTERS),
    started_at=st.just(0),
    status=st.sampled_from(STATUSES),
    operations=st.just(1),
)
acts = st.tuples(st.integers(1, 10), st.none() | records, st.sampled_from(["", "", "keep", "undo"]))


def expected(table, before, **wanted):
    found = sorted(table.rows.values(), key=lambda record: -record.number)
    return [
        record
        for record in found
        if (before is None or record.number < before.number)
        and all(value is None or getattr(record, field) == value for field, value in wanted.items())
    ]


def check(table, index):
    everything = sorted(table.rows.values(), key=lambda record: record.number)
    assert list(index.oldest_first()) == everything
    for space in SPACES:
        assert list(index.oldest_first(space)) == [each for each in everything if each.space_id == space]
        assert index.count(space) == len(list(index.oldest_first(space)))
    for values in itertools.product([None, *SPACES], [None, *STARTERS], [None, *STATUSES]):
        wanted = dict(zip(("space_id", "started_by", "status"), values, strict=True))
        for before in (None, *everything[::3]):
            assert list(index.newest_first(before, **wanted)) == expected(table, before, **wanted)


@settings(max_examples=60, deadline=None)
@given(st.lists(acts, max_size=40))
def test_the_index_follows_the_table_forwards_and_backwards(history):
    index = RunIndex()
    table = Table("runs", RunRecord, lambda _key, old, new: index.changed(old, new))
    tx = Transaction()
    for number, record, end in history:
        key = f"run_{number}"
        if record is not None:
            tx.put(table, key, msgspec.structs.replace(record, run_id=key, number=number))
        elif key in table.rows:
            tx.put(table, key, None)
        if end == "undo":
            tx.undo()
        if end:
            tx = Transaction()
    check(table, index)
    tx.undo()
    check(table, index)


def test_what_is_gone_leaves_nothing_behind():
    index = RunIndex()
    record = RunRecord(
        run_id="run_1", number=1, space_id="one", started_by="local", started_at=0, status="running", operations=1
    )
    ended = msgspec.structs.replace(record, status="completed")
    index.changed(None, record)
    index.changed(record, ended)
    index.changed(ended, None)
    assert not index._records
    assert not index._all
    assert not index._shelves
