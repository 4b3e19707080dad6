"""The index of conversations and the table of tickets agree, whatever is changed and undone, in whatever order."""

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.broker.conversation_index import MAX_STALE, ConversationIndex
from bascule.broker.protocol import TicketStatus
from bascule.broker.records import Ticket
from bascule.kernel.call import Principal, sender_name
from bascule.kernel.journal import Table, Transaction

replace = msgspec.structs.replace
TALKS = ["plan", "review", None]
tickets = st.builds(
    Ticket,
    ticket_id=st.just(""),
    number=st.just(0),
    sender=st.sampled_from(["local", "agent:Tom", "agent:Ann"]),
    target=st.sampled_from(["Jerry", "Tom"]),
    status=st.sampled_from(list(TicketStatus)),
    expect_reply=st.booleans(),
    created_at=st.just(0),
    updated_at=st.just(0),
    reply_by=st.just(0),
    payload_bytes=st.just(0),
    digest=st.just(""),
    conversation_id=st.sampled_from(TALKS),
)
acts = st.tuples(st.integers(1, 12), st.none() | tickets, st.sampled_from(["", "", "keep", "undo"]), st.booleans())


def check(table, index):
    by_talk = {}
    for row in sorted(table.rows.values(), key=lambda row: row.number):
        if row.conversation_id is not None:
            by_talk.setdefault(row.conversation_id, []).append(row)
    wanted = sorted(by_talk.items(), key=lambda item: -item[1][-1].number)
    found = list(index.newest_first())
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (name, talk), (_, rows) in zip(found, wanted, strict=True):
        assert list(index.tickets[name]) == [row.ticket_id for row in rows]
        assert talk.open == sum(row.is_open for row in rows)
        sides = Counter(side for row in rows for side in (sender_name(Principal(row.sender)), row.target))
        assert talk.names == sides
        assert talk.newest == rows[-1].number
    for number in range(14):
        behind = [name for name, rows in wanted if rows[-1].number < number]
        assert [name for name, _ in index.newest_first(number)] == behind


@settings(max_examples=80, deadline=None)
@given(st.lists(acts, max_size=50))
def test_the_index_follows_the_table_forwards_and_backwards(history):
    table = Table("tickets", Ticket)
    index = ConversationIndex(table.rows)
    table.on_change = index.changed
    tx = Transaction()
    for number, ticket, end, looked_at in history:
        key = f"t{number}"
        old = table.rows.get(key)
        if ticket is not None:
            # Its conversation and its sender stay.
            stays = {} if old is None else {"conversation_id": old.conversation_id, "sender": old.sender}
            tx.put(table, key, replace(ticket, ticket_id=key, number=number, **stays))
        elif old is not None:
            tx.put(table, key, None)
        if end == "undo":
            tx.undo()
        if end:
            tx = Transaction()
        if looked_at:
            check(table, index)
    check(table, index)
    tx.undo()
    check(table, index)


@given(st.lists(tickets, max_size=30))
def test_an_index_that_is_filled_at_start_is_the_one_that_was_kept(loaded):
    table = Table("tickets", Ticket)
    numbered = [
        (f"t{number}", replace(each, ticket_id=f"t{number}", number=number)) for number, each in enumerate(loaded, 1)
    ]
    table.rows.update(numbered)
    index = ConversationIndex(table.rows)
    index.fill(numbered)
    check(table, index)


def test_a_long_conversation_leaves_few_stale_entries():
    table = Table("tickets", Ticket)
    index = ConversationIndex(table.rows)
    table.on_change = index.changed
    row = Ticket(
        ticket_id="t",
        number=0,
        sender="local",
        target="Jerry",
        status=TicketStatus.PENDING,
        expect_reply=True,
        created_at=0,
        updated_at=0,
        reply_by=0,
        payload_bytes=0,
        digest="",
        conversation_id="long",
    )
    for number in range(1, 10_001):
        table.apply(f"t{number}", replace(row, number=number))
    assert len(index._order) <= 2 + MAX_STALE
    for number in range(1, 10_001):
        table.apply(f"t{number}", None)
    assert not index._by_id
    assert not index.tickets
    assert not index._ids
    assert list(index.newest_first()) == []
