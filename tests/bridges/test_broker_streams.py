"""Inbox streams: credit, acknowledgement, and readers that leave; the stream of events."""

from broker_acts import JERRY, ack, events_named, ids_of, poll, reply, send, take_ids

from bascule.broker.events import RING_EVENTS
from bascule.foundation.stream import Stream
from bascule.kernel.link_protocol import CREDIT_WINDOW

NAMES = [f"m{number:02d}" for number in range(CREDIT_WINDOW + 3)]


def stream_inbox(house, agent_id="Jerry"):
    return house.call(f"agent:{agent_id}", "inbox.stream", {"agentId": agent_id})


def new_ids(stream):
    return [item["ticketId"] for item in stream.items()]


def test_a_stream_gets_what_waits_and_what_comes(house):
    send(house, "before")
    stream = stream_inbox(house)
    send(house, "after")
    assert new_ids(stream) == ["before", "after"]


def test_a_stream_gets_no_more_than_its_credit_until_it_acknowledges(house):
    stream = stream_inbox(house)
    for name in NAMES:
        send(house, name)
    assert new_ids(stream) == NAMES[:CREDIT_WINDOW]
    ack(house, NAMES[0], NAMES[5])
    assert new_ids(stream) == NAMES[CREDIT_WINDOW : CREDIT_WINDOW + 2]
    ack(house, *NAMES)
    assert new_ids(stream) == []
    send(house, "next")
    assert new_ids(stream) == ["next"]


def test_a_reply_gives_credit_too(house):
    stream = stream_inbox(house)
    for name in NAMES:
        send(house, name)
    new_ids(stream)
    reply(house, NAMES[0])
    assert new_ids(stream) == [NAMES[CREDIT_WINDOW]]


def test_credit_of_a_full_stream_comes_back_through_every_acknowledgement(house):
    stream = stream_inbox(house)
    for number in range(3 * CREDIT_WINDOW):
        send(house, f"t{number}")
        assert new_ids(stream) == [f"t{number}"]
        ack(house, f"t{number}")


def test_a_closed_stream_gives_back_what_it_did_not_acknowledge_in_order(house):
    stream = stream_inbox(house)
    for name in "abcd":
        send(house, name)
    ack(house, "b")
    stream.close()
    assert take_ids(house) == ["a", "c", "d"]


def test_a_closed_stream_gives_its_messages_to_a_waiting_receiver_at_once(house):
    stream = stream_inbox(house)
    waiting = poll(house)
    send(house, "t")
    assert not waiting.done
    stream.close()
    assert ids_of(waiting.result()) == ["t"]


def test_an_unacknowledged_item_of_a_stream_is_offered_again_after_its_lease(house):
    stream = stream_inbox(house)
    send(house, "t")
    assert [item["attempts"] for item in stream.items()] == [1]
    house.advance(60)
    assert [item["attempts"] for item in stream.items()] == [2]


def test_a_stream_without_credit_does_not_keep_messages_from_a_poll(house):
    stream_inbox(house)
    for name in NAMES:
        send(house, name)
    assert ids_of(poll(house).result()) == [NAMES[CREDIT_WINDOW]]
    assert take_ids(house, count=1) == [NAMES[CREDIT_WINDOW + 1]]


def test_two_streams_share_an_inbox_and_nothing_comes_twice(house):
    streams = [stream_inbox(house), stream_inbox(house)]
    for number in range(2 * CREDIT_WINDOW):
        send(house, f"t{number}")
    got = [name for stream in streams for name in new_ids(stream)]
    assert sorted(got) == sorted(f"t{number}" for number in range(2 * CREDIT_WINDOW))


def test_closing_a_stream_twice_gives_back_once(house):
    stream = stream_inbox(house)
    send(house, "t")
    stream.close()
    assert take_ids(house) == ["t"]
    stream.close()
    assert take_ids(house) == []


# -- events --


def test_a_reader_that_comes_back_gets_what_it_missed(house):
    stream = house.call("local", "events.stream", {"after": 0})
    seen = stream.items()
    stream.close()
    send(house, "t")
    again = house.call("local", "events.stream", {"after": seen[-1]["id"]})
    assert [event["event"] for event in again.items()] == ["ticket.sent"]


def test_a_reader_without_a_number_gets_only_what_comes(house):
    stream = house.call("local", "events.stream")
    assert stream.items() == []
    send(house, "t")
    (event,) = stream.items()
    assert event == {
        "id": event["id"],
        "event": "ticket.sent",
        "at": "2025-10-20T08:00:00.000Z",
        "ticketId": "t",
        "agentId": "Jerry",
        "from": "local",
        "status": "pending",
    }


def test_a_reader_can_follow_one_agent_as_sender_and_as_addressee(house):
    stream = house.call("local", "events.stream", {"agentId": "Spock", "after": 0})
    stream.items()
    send(house, "to", to="Spock")
    send(house, "from", by="agent:Spock")
    send(house, "neither")
    assert [event["ticketId"] for event in stream.items()] == ["to", "from"]
    again = house.call("local", "events.stream", {"agentId": "Spock", "after": 0})
    assert [event.get("ticketId") for event in again.items()][-2:] == ["to", "from"]


def test_the_ring_of_events_is_bounded(house):
    for number in range(RING_EVENTS + 5):
        house.broker.events.emit(f"event {number}")
    kept = house.events()
    assert (len(kept), kept[0]["event"]) == (RING_EVENTS, "event 5")


def test_a_reader_that_is_too_slow_is_told_how_much_it_missed():
    stream = Stream(limit=2)
    for number in range(5):
        stream.push(number)
    assert stream.drain() == ([0, 1], 3)
    stream.push(5)
    assert stream.drain() == ([5], 0)


def test_a_stream_takes_nothing_after_its_end_and_tells_of_its_close_once():
    notified = []
    stream = Stream(on_close=lambda: notified.append("closed"))
    ready = []
    stream.on_ready = lambda: ready.append(len(ready))
    stream.push("last")
    stream.end()
    stream.push("too late")
    assert stream.drain() == (["last"], 0)
    assert len(ready) == 2
    stream.close()
    stream.close()
    assert notified == ["closed"]


def test_an_events_reader_that_left_is_forgotten(house):
    stream = house.call(JERRY, "events.stream")
    stream.close()
    send(house, "t")
    assert stream.items() == []
    assert len(events_named(house, "ticket.sent")) == 1
