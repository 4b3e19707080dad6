"""A disk that is full: nothing is acknowledged, nothing half-done stays, and time goes on."""

import pytest
from broker_acts import (
    JERRY,
    ack,
    answer,
    cancel,
    events_named,
    ids_of,
    poll,
    reply,
    send,
    show,
    status_of,
    take,
    take_ids,
    wait,
)

from bascule.foundation.errors import Conflict, NotFound, StorageFull
from bascule.testing.stores import HeldStore

TTL = 30 * 60


@pytest.fixture
def store():
    return HeldStore(hold=False)


@pytest.fixture
def house(make_house, store):
    house = make_house(store=store)
    house.register("Jerry")
    return house


def fail(house, store, by, method, params):
    """The call's commit cannot be written; after it the disk has room again."""
    store.hold = True
    pending = house.begin(by, method, params)
    assert not pending.done
    house.run(store.fail)
    store.hold = False
    with pytest.raises(StorageFull, match="nothing was stored") as refused:
        pending.result()
    assert refused.value.retry_after == 1.0


REPLY = (JERRY, "replies.post", {"ticketId": "t", "payload": "answer"})
CANCEL = ("local", "tickets.cancel", {"ticketId": "t"})
ACK = (JERRY, "inbox.ack", {"agentId": "Jerry", "ticketIds": ["t"]})


def test_a_send_that_was_not_stored_never_was(house, store):
    fail(house, store, "local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "t"})
    with pytest.raises(NotFound, match="unknown ticket"):
        show(house, "t")
    assert take_ids(house) == []
    assert events_named(house, "ticket.sent") == []
    assert house.call("local", "daemon.status")["ticketsOpen"] == 0
    send(house, "t", "again")
    assert take_ids(house) == ["t"]


@pytest.mark.parametrize("act", [REPLY, CANCEL, ACK], ids=["reply", "cancel", "ack"])
def test_what_was_not_stored_leaves_the_ticket_as_it_was(house, store, act):
    send(house, "t")
    before = show(house, "t")
    fail(house, store, *act)
    assert show(house, "t") == before
    assert answer(house, "t") is None
    assert take_ids(house) == ["t"]


@pytest.mark.parametrize("act", [REPLY, CANCEL], ids=["reply", "cancel"])
def test_the_reply_deadline_stays_where_it_was(house, store, act):
    send(house, "t", timeoutMs=10_000)
    house.advance(1)
    fail(house, store, *act)
    house.advance(8)
    assert show(house, "t")["status"] == "pending"
    house.advance(1)
    assert show(house, "t")["status"] == "timeout"


@pytest.mark.parametrize("act", [REPLY, CANCEL], ids=["reply", "cancel"])
def test_a_long_reply_deadline_is_not_cut_to_the_time_to_live(house, store, act):
    send(house, "t", timeoutMs=3 * TTL * 1_000)
    fail(house, store, *act)
    house.advance(2 * TTL)
    assert show(house, "t")["status"] == "pending"


def test_a_timeout_that_could_not_be_stored_is_tried_again_soon(house, store):
    send(house, "t", timeoutMs=1_000)
    waiting = wait(house, "t", wait_ms=60_000)
    store.hold = True
    house.advance(1)
    house.run(store.fail)
    store.hold = False
    house.advance(59)
    assert show(house, "t")["status"] == "timeout"
    assert waiting.result()["status"] == "timeout"


def test_an_expiry_that_could_not_be_stored_is_tried_again(house, store):
    send(house, "t")
    reply(house, "t")
    store.hold = True
    house.advance(TTL)
    house.run(store.fail)
    store.hold = False
    house.advance(TTL)
    with pytest.raises(NotFound, match="ticket expired"):
        show(house, "t")


def test_an_acknowledgement_that_was_not_stored_brings_the_message_to_a_poll_that_waits(house, store):
    send(house, "t")
    take(house)
    waiting = poll(house)
    fail(house, store, *ACK)
    house.advance(0)
    assert ids_of(waiting.result()) == ["t"]


@pytest.mark.parametrize("leases", [1, 2])
def test_a_message_whose_acknowledgement_was_not_stored_comes_once(house, store, leases):
    send(house, "t")
    for _ in range(leases):
        take(house)
        house.advance(60)
    fail(house, store, *ACK)
    assert take_ids(house, count=1) == ["t"]
    assert take_ids(house) == []


@pytest.mark.parametrize("acked", ["t", "u", "v"])
def test_an_acknowledgement_that_was_not_stored_does_not_change_the_order(house, store, acked):
    for name in ("t", "u", "v"):
        send(house, name)
    fail(house, store, JERRY, "inbox.ack", {"agentId": "Jerry", "ticketIds": [acked]})
    assert take_ids(house) == ["t", "u", "v"]


def test_a_registration_that_was_not_stored_leaves_the_handle_free(house, store):
    fail(house, store, "local", "agents.register", {"agentId": "Spock"})
    assert house.files.tokens.keys() == {"Jerry"}
    assert [each["agentId"] for each in house.call("local", "agents.list")] == ["Jerry"]
    house.register("Spock")


def test_a_takeover_that_was_not_stored_leaves_the_old_token_good(make_house, store):
    house = make_house(store=store)
    token = house.register("Jerry")
    fail(house, store, "person", "agents.register", {"agentId": "Jerry"})
    assert house.tokens.find(token) == "Jerry"
    assert house.files.tokens == {"Jerry": token}


def test_a_revocation_that_was_not_stored_revokes_nothing(make_house, store):
    house = make_house(store=store)
    token = house.register("Jerry")
    fail(house, store, "person", "agents.revoke", {"agentId": "Jerry"})
    assert house.tokens.find(token) == "Jerry"
    assert status_of(house) == "online"
    with pytest.raises(Conflict):
        house.register("Jerry")


def test_everything_that_rested_on_the_lost_write_is_undone_with_it(house, store):
    store.hold = True
    params = {"agentId": "Jerry", "payload": 1, "ticketId": "t"}
    pending = [
        house.begin("local", "messages.send", params),
        house.begin(JERRY, "replies.post", {"ticketId": "t", "payload": "answer"}),
        house.begin("local", "messages.send", {**params, "ticketId": "u", "conversationId": "c"}),
        house.begin("local", "messages.send", params),
    ]
    reading = house.begin("local", "tickets.show", {"ticketId": "u"})
    house.run(store.fail)
    for each in pending:
        with pytest.raises(StorageFull):
            each.result()
    with pytest.raises(NotFound, match="unknown ticket"):
        reading.result()
    store.hold = False
    state = house.broker.state
    assert (state.tickets.rows, state.messages.rows, state.conversations) == ({}, {}, {})
    assert (state.open_count, state.open_by_sender, len(state.inbox("Jerry")), state.inbox("Jerry").bytes) == (
        0,
        {},
        0,
        0,
    )
    assert state.inbox("Jerry").sealed == set()
    send(house, "t")
    assert house.call("local", "ledger.verify")["ok"] is True


def test_reads_go_on_while_nothing_can_be_written(house, store):
    send(house, "t")
    fail(house, store, *CANCEL)
    assert show(house, "t")["status"] == "pending"
    assert len(house.call("local", "tickets.list")) == 1
    assert house.journal.fault is not None
    cancel(house, "t")
    assert house.journal.fault is None


# -- nothing is told before it is durable --


def test_a_reply_that_is_not_durable_yet_is_not_reported_to_a_poll(house, store):
    send(house, "t")
    store.hold = True
    house.begin(*REPLY)
    waiting = wait(house, "t")
    assert not waiting.done
    house.run(store.finish)
    assert waiting.result()["payload"] == "answer"


def test_a_wait_for_a_reply_that_could_not_be_stored_goes_on(house, store):
    send(house, "t")
    store.hold = True
    house.begin(*REPLY)
    waiting = wait(house, "t")
    house.run(store.fail)
    store.hold = False
    assert not waiting.done
    reply(house, "t", "at last")
    assert waiting.result()["payload"] == "at last"


def test_a_poll_beside_a_write_that_could_not_be_stored_is_answered_and_eats_nothing(house, store):
    store.hold = True
    sending = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "lost"})
    polling = house.begin(JERRY, "inbox.take", {"agentId": "Jerry", "waitMs": 0})
    house.run(store.fail)
    store.hold = False
    assert sending.done
    assert polling.result() is None
    send(house, "t")
    assert take_ids(house) == ["t"]


def test_a_reply_that_is_not_durable_yet_is_not_reported_to_a_stream(house, store):
    send(house, "t")
    store.hold = True
    house.begin(*REPLY)
    stream = house.call("local", "replies.stream", {"ticketId": "t"})
    assert stream.items() == []
    house.run(store.finish)
    assert [name for name, _ in stream.items()] == ["reply"]


def test_what_is_not_durable_yet_is_not_shown_in_lists(house, store):
    store.hold = True
    house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1})
    listing = house.begin("local", "tickets.list")
    assert not listing.done
    house.run(store.finish)
    assert len(listing.result()) == 1


def test_events_of_what_is_not_durable_yet_are_not_reported(house, store):
    stream = house.call("local", "events.stream")
    store.hold = True
    house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1})
    assert stream.items() == []
    house.run(store.finish)
    assert [event["event"] for event in stream.items()] == ["ticket.sent"]


def test_a_client_that_left_before_its_write_was_durable_harms_nobody(house, store):
    store.hold = True
    first = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "t"})
    second = house.begin("local", "messages.send", {"agentId": "Jerry", "payload": 1, "ticketId": "u"})
    first.cancel()
    house.run(store.finish_all)
    assert second.result()["ticketId"] == "u"
    assert take_ids(house) == ["t", "u"]


def test_the_acknowledgement_is_durable_before_it_is_answered(house, store):
    send(house, "t")
    store.hold = True
    acking = house.begin(*ACK)
    assert not acking.done
    house.run(store.finish)
    assert acking.result() == {"acked": ["t"]}
    store.hold = False
    assert ack(house, "t") == {"acked": ["t"]}
