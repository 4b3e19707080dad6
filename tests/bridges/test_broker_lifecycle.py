"""The life of a ticket: every cell of its table, the empty ones too."""

from itertools import product

import pytest
from broker_acts import ack, answer, cancel, events_named, reply, send, show, take, wait

from bascule.broker.protocol import OPEN_STATUSES, TRANSITIONS, TicketEvent, TicketStatus
from bascule.foundation.errors import Conflict

SECOND = 1_000
PENDING, DELIVERED, RESPONDED, TIMEOUT, CANCELLED = TicketStatus


def bring_to(house, status):
    """A ticket in this state, whose deadline is a second after it was sent."""
    send(house, "t", timeoutMs=SECOND)
    match status:
        case TicketStatus.PENDING:
            pass
        case TicketStatus.DELIVERED:
            ack(house, "t")
        case TicketStatus.RESPONDED:
            reply(house, "t")
        case TicketStatus.TIMEOUT:
            house.advance(1)
        case TicketStatus.CANCELLED:
            cancel(house, "t")
    assert show(house, "t")["status"] == status.value


def cause(house, event):
    match event:
        case TicketEvent.ACK:
            assert ack(house, "t") == {"acked": ["t"]}
        case TicketEvent.REPLY:
            reply(house, "t", "another answer")
        case TicketEvent.DEADLINE:
            house.advance(1)
        case TicketEvent.CANCEL:
            cancel(house, "t")


def test_the_table_says_what_the_documents_say():
    ends = {
        TicketEvent.REPLY: RESPONDED,
        TicketEvent.DEADLINE: TIMEOUT,
        TicketEvent.CANCEL: CANCELLED,
    }
    cells = {(status, event): end for status in (PENDING, DELIVERED) for event, end in ends.items()}
    cells[PENDING, TicketEvent.ACK] = DELIVERED
    cells[TIMEOUT, TicketEvent.REPLY] = RESPONDED
    assert cells == TRANSITIONS
    assert {PENDING, DELIVERED} == OPEN_STATUSES


@pytest.mark.parametrize(("status", "event"), sorted(TRANSITIONS))
def test_an_event_of_the_table_leads_where_the_table_says(house, status, event):
    bring_to(house, status)
    cause(house, event)
    assert show(house, "t")["status"] == TRANSITIONS[status, event].value


REFUSED = {
    (CANCELLED, TicketEvent.REPLY): "ticket cancelled",
    (RESPONDED, TicketEvent.CANCEL): "ticket already responded",
    (TIMEOUT, TicketEvent.CANCEL): "ticket already timeout",
}
MISSING = sorted(cell for cell in product(TicketStatus, TicketEvent) if cell not in TRANSITIONS)


@pytest.mark.parametrize(("status", "event"), [cell for cell in MISSING if cell not in REFUSED])
def test_an_event_that_the_table_lacks_changes_no_state(house, status, event):
    bring_to(house, status)
    cause(house, event)
    assert show(house, "t")["status"] == status.value


@pytest.mark.parametrize(("status", "event"), REFUSED)
def test_an_event_that_contradicts_the_state_is_refused_and_changes_nothing(house, status, event):
    bring_to(house, status)
    before = show(house, "t")
    with pytest.raises(Conflict) as refused:
        cause(house, event)
    assert refused.value.message == REFUSED[status, event]
    assert show(house, "t") == before


@pytest.mark.parametrize("status", [RESPONDED, TIMEOUT, CANCELLED])
def test_a_wait_on_a_settled_ticket_is_answered_at_once(house, status):
    bring_to(house, status)
    assert wait(house, "t").result()["status"] == status.value


@pytest.mark.parametrize("status", [RESPONDED, TIMEOUT, CANCELLED])
def test_a_wait_ends_when_the_ticket_settles(house, status):
    send(house, "t", timeoutMs=SECOND)
    waiting = wait(house, "t")
    assert not waiting.done
    {RESPONDED: lambda: reply(house, "t"), TIMEOUT: lambda: house.advance(1), CANCELLED: lambda: cancel(house, "t")}[
        status
    ]()
    assert waiting.result()["status"] == status.value


@pytest.mark.parametrize(("status", "event"), [(RESPONDED, "reply"), (TIMEOUT, "timeout"), (CANCELLED, "cancelled")])
def test_a_reply_stream_says_once_how_the_ticket_ended_and_ends(house, status, event):
    send(house, "t", timeoutMs=SECOND)
    before = house.call("local", "replies.stream", {"ticketId": "t"})
    assert before.items() == []
    {RESPONDED: lambda: reply(house, "t"), TIMEOUT: lambda: house.advance(1), CANCELLED: lambda: cancel(house, "t")}[
        status
    ]()
    after = house.call("local", "replies.stream", {"ticketId": "t"})
    for stream in (before, after):
        ((name, view),) = stream.items()
        assert (name, view["status"]) == (event, status.value)
        assert stream.ended


def test_a_wait_that_nothing_happens_to_ends_with_no_answer(house):
    send(house, "t")
    waiting = wait(house, "t", wait_ms=5_000)
    house.advance(4.9)
    assert not waiting.done
    house.advance(0.1)
    assert waiting.result() is None
    assert answer(house, "t") is None


def test_a_wait_is_clamped_to_a_minute(house):
    send(house, "t")
    waiting = wait(house, "t", wait_ms=3_600_000)
    house.advance(60)
    assert waiting.result() is None


def test_the_reply_deadline_counts_from_sending_and_not_from_delivery(house):
    send(house, "t", timeoutMs=10 * SECOND)
    house.advance(9)
    ack(house, "t")
    house.advance(0.9)
    assert show(house, "t")["status"] == "delivered"
    house.advance(0.1)
    assert show(house, "t")["status"] == "timeout"


def test_without_a_timeout_a_ticket_waits_half_an_hour(house):
    send(house, "t")
    house.advance(30 * 60 - 1)
    assert show(house, "t")["status"] == "pending"
    house.advance(1)
    assert show(house, "t")["status"] == "timeout"


def test_a_timed_out_message_is_still_handed_out_and_says_so(house):
    send(house, "t", timeoutMs=SECOND)
    house.advance(1)
    (message,) = take(house)
    assert message["ticketId"] == "t"
    assert message["timedOut"] is True


def test_a_cancelled_message_is_not_handed_out(house):
    send(house, "t")
    cancel(house, "t", reason="found it myself")
    assert take(house) == []
    assert show(house, "t")["reason"] == "found it myself"


def test_a_message_that_is_out_under_a_lease_can_be_withdrawn(house):
    send(house, "t")
    take(house)
    cancel(house, "t")
    house.advance(61)
    assert take(house) == []


def test_the_lifecycle_is_reported_as_events_without_payloads(house):
    send(house, "t", "a secret", metadata={"origin": "secret too"})
    take(house)
    ack(house, "t")
    reply(house, "t", "another secret")
    events = [event["event"] for event in house.events() if event.get("ticketId") == "t"]
    assert events == ["ticket.sent", "ticket.delivered", "ticket.responded"]
    assert "secret" not in str(house.events())
    assert "secret" not in str(house.ledger())
    assert "secret" not in str(house.log)


def test_what_happens_by_itself_is_recorded_as_the_daemons_doing(house):
    send(house, "t", timeoutMs=SECOND)
    ack(house, "t")
    house.advance(1 + 30 * 60)
    ours = [(each["method"], each["principal"]) for each in house.ledger() if each["subject"] == "t"]
    assert ours == [
        ("messages.send", "local"),
        ("inbox.ack", "agent:Jerry"),
        ("tickets.timeout", "daemon"),
        ("tickets.expire", "daemon"),
    ]
    assert len(events_named(house, "ticket.expired")) == 1
