"""The index of tickets and the table agree, whatever is changed and undone, and in whatever order."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.broker.protocol import TicketStatus
from bascule.broker.records import Ticket
from bascule.broker.ticket_index import MAX_STALE, TicketIndex
from bascule.kernel.call import agent_principal
from bascule.kernel.journal import Table, Transaction

replace = msgspec.structs.replace
NAMES = ["Jerry", "Spock", "Tom", "crew"]
names = st.sampled_from(NAMES)
statuses = st.sampled_from(list(TicketStatus))
rows = st.builds(
    Ticket,
    ticket_id=st.just(""),
    number=st.just(0),
    sender=st.sampled_from(["local", *map(agent_principal, NAMES)]),
    target=names,
    group=st.sampled_from([None, "crew"]),
    status=statuses,
    expect_reply=st.just(True),
    created_at=st.just(0),
    updated_at=st.just(0),
    reply_by=st.just(0),
    payload_bytes=st.just(0),
    digest=st.just(""),
)
# Number, what becomes of it, and whether the transaction ends before it: kept, undone, or not at all.
acts = st.tuples(
    st.integers(1, 12),
    st.one_of(st.none(), rows, statuses),
    st.sampled_from(["", "", "", "keep", "undo"]),
    st.booleans(),
)


def expected(table, status, addressee, party, before=None):
    found = []
    for row in sorted(table.rows.values(), key=lambda row: -row.number):
        if before is not None and row.number >= before:
            continue
        if status is not None and row.status is not status:
            continue
        if addressee is not None and addressee not in (row.target, row.group):
            continue
        if party is not None and row.target != party and row.sender != agent_principal(party):
            continue
        found.append(row)
    return found


def check(table, index):
    for status in (None, *TicketStatus):
        for addressee in (None, *NAMES):
            for party in (None, *NAMES):
                found = list(index.find(status=status, addressee=addressee, party=party))
                assert found == expected(table, status, addressee, party)
                for before in (1, 6, 13):
                    page = list(index.find(status=status, addressee=addressee, party=party, before=before))
                    assert page == expected(table, status, addressee, party, before)


def new_table():
    table = Table("tickets", Ticket)
    index = TicketIndex(table.rows)
    table.on_change = index.changed
    return table, index


@settings(max_examples=60, deadline=None)
@given(st.lists(acts, max_size=60))
def test_the_index_follows_the_table_forwards_and_backwards(history):
    table, index = new_table()
    tx = Transaction()
    for number, change, end, looked_at in history:
        key = f"t{number}"
        old = table.rows.get(key)
        if isinstance(change, Ticket):
            # Its sides stay; a group's moves from member to member.
            stays = {"sender": old.sender, "group": old.group} if old is not None else {}
            tx.put(table, key, replace(change, ticket_id=key, number=number, **stays))
        elif old is not None:
            tx.put(table, key, None if change is None else replace(old, status=change))
        if end == "undo":
            tx.undo()
        if end:
            tx = Transaction()
        if looked_at:
            check(table, index)
    check(table, index)
    tx.undo()
    check(table, index)


def test_what_is_gone_leaves_nothing_behind():
    table, index = new_table()
    for number in range(1, 1_001):
        put(table, number, TicketStatus.PENDING)
    for status in (TicketStatus.DELIVERED, TicketStatus.RESPONDED):
        for number in range(1, 1_001):
            put(table, number, status)
    for number in range(1, 1_001):
        table.apply(f"t{number}", None)
    assert list(index.find(status=None, addressee=None, party=None)) == []
    assert not index._from
    assert not index._to
    assert not index._ids


def test_entries_that_nobody_looks_at_are_dropped_by_themselves():
    table, index = new_table()
    for number in range(1, 11):
        put(table, number, TicketStatus.PENDING)
    for turn in range(10_000):
        put(table, 1 + turn % 10, TicketStatus.DELIVERED if turn // 10 % 2 else TicketStatus.PENDING)
    kept = sum(map(len, index._all.numbers))
    assert kept <= 2 * len(table.rows) + MAX_STALE * len(TicketStatus)


def put(table, number, status):
    row = Ticket(
        ticket_id=f"t{number}",
        number=number,
        sender="agent:Tom",
        target="Jerry",
        status=status,
        expect_reply=True,
        created_at=0,
        updated_at=0,
        reply_by=0,
        payload_bytes=0,
        digest="",
    )
    table.apply(row.ticket_id, row)


@given(loaded=st.lists(rows, max_size=30))
def test_an_index_that_is_filled_at_start_is_the_one_that_was_kept(loaded):
    table = Table("tickets", Ticket)
    index = TicketIndex(table.rows)
    numbered = [
        (f"t-{number}", replace(row, ticket_id=f"t-{number}", number=number)) for number, row in enumerate(loaded)
    ]
    table.rows.update(numbered)
    index.fill(numbered)
    check(table, index)
    # And goes on from there.
    kept = TicketIndex(table.rows)
    for ticket_id, row in numbered:
        kept.changed(ticket_id, None, row)
    for each in (index, kept):
        for ticket_id, row in numbered[::2]:
            each.changed(ticket_id, row, None)
    for ticket_id, _ in numbered[::2]:
        del table.rows[ticket_id]
    check(table, index)
    check(table, kept)
