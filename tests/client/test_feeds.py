"""What waits to be read: leases, duplicates, and readers that are too slow."""

import pytest

from bascule.broker.protocol import Event, InboxItem
from bascule.client.feeds import EventFeed, InboxFeed
from bascule.kernel.link_protocol import CREDIT_WINDOW
from bascule.testing.clock import FakeClock

LEASE_SECONDS = 60


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def inbox(clock):
    return InboxFeed(clock)


def message(ticket_id, attempts=1):
    return InboxItem(
        ticket_id=ticket_id,
        from_="alice",
        payload="hi",
        metadata={},
        expect_reply=True,
        created_at="",
        reply_by="",
        attempts=attempts,
        lease_ms=LEASE_SECONDS * 1000,
    )


def event(number):
    return Event(id=number, event="ticket.sent", at="")


def taken(feed):
    return list(iter(feed.take, None))


def test_messages_come_out_in_the_order_they_came_in(inbox):
    for name in "abc":
        inbox.offer(message(name))
    assert [item.ticket_id for item in taken(inbox)] == ["a", "b", "c"]


def test_a_message_offered_again_before_it_was_read_is_one_message(inbox):
    inbox.offer(message("a"))
    inbox.offer(message("b"))
    inbox.offer(message("a", attempts=2))
    assert [(item.ticket_id, item.attempts) for item in taken(inbox)] == [("a", 2), ("b", 1)]


def test_a_message_whose_lease_is_over_is_left_to_whom_it_was_offered_again(inbox, clock):
    inbox.offer(message("a"))
    clock.advance(LEASE_SECONDS)
    inbox.offer(message("b"))
    assert [item.ticket_id for item in taken(inbox)] == ["b"]


def test_a_message_in_hand_comes_again_when_the_daemon_says_that_its_lease_is_over(inbox, clock):
    inbox.offer(message("a"))
    inbox.take()
    # By the daemon's clock; ours began a moment later.
    clock.advance(LEASE_SECONDS - 0.001)
    inbox.offer(message("a", attempts=2))
    assert inbox.take().attempts == 2


def test_a_message_in_hand_is_not_handed_out_again_because_the_stream_was_opened_again(inbox, clock):
    inbox.offer(message("a"))
    inbox.take()
    inbox.lost()
    clock.advance(LEASE_SECONDS - 1)
    inbox.offer(message("a"))
    assert inbox.take() is None
    clock.advance(1)
    inbox.offer(message("a", attempts=2))
    assert inbox.take().attempts == 2


def test_a_message_that_is_done_voids_an_offer_that_crossed_it(inbox, clock):
    inbox.offer(message("a"))
    inbox.take()
    clock.advance(LEASE_SECONDS)
    inbox.offer(message("a", attempts=2))
    inbox.done("a")
    assert inbox.take() is None


def test_a_message_given_up_is_handed_out_when_it_is_offered_again(inbox):
    inbox.offer(message("a"))
    inbox.take()
    inbox.done("a")
    inbox.offer(message("a", attempts=2))
    assert inbox.take().attempts == 2


def test_a_lost_stream_leaves_unread_messages_to_the_next_reader(inbox):
    inbox.offer(message("a"))
    inbox.lost()
    assert inbox.take() is None


def test_a_reader_that_never_acknowledges_is_not_remembered_for_ever(inbox, clock):
    for number in range(20 * CREDIT_WINDOW):
        inbox.offer(message(str(number)))
        inbox.take()
        clock.advance(LEASE_SECONDS)
    assert len(inbox._in_hand) <= 2 * CREDIT_WINDOW


def test_a_slow_reader_of_events_is_told_how_many_it_missed_where_it_missed_them(clock):
    feed = EventFeed(clock, limit=3)
    for number in range(1, 6):
        feed.offer(event(number))
    assert [feed.take().id for _ in range(2)] == [1, 2]
    feed.offer(event(6))
    rest = taken(feed)
    assert [each.event for each in rest] == ["ticket.sent", "stream.overflow", "ticket.sent"]
    assert rest[1].detail.startswith("2 events were left out")
    assert rest[2].id == 6


def test_what_the_daemon_left_out_counts_like_what_we_did(clock):
    feed = EventFeed(clock, limit=1)
    feed.offer(event(1))
    feed.offer(event(2))
    feed.left_out(40)
    assert [each.event for each in taken(feed)] == ["ticket.sent", "stream.overflow"]
    feed.left_out(3)
    assert feed.take().detail.startswith("3 events")
    assert feed.take() is None


def test_a_stream_of_events_is_opened_again_behind_the_last_one(clock):
    feed = EventFeed(clock)
    life = (1, "morning")
    assert feed.opens(life, after=7) == 7
    assert feed.opens(life, after=7) == 0
    feed.offer(event(9))
    feed.lost()
    assert feed.opens(life, after=7) == 9
    assert [each.id for each in taken(feed)] == [9]


def test_the_events_of_another_life_are_read_from_its_beginning(clock):
    feed = EventFeed(clock)
    feed.opens((1, "morning"), after=None)
    feed.offer(event(9))
    assert feed.opens((2, "noon"), after=None) == 0
    assert [each.event for each in taken(feed)] == ["ticket.sent", "stream.restarted"]
