"""Broker specification 8: states and their end, with a short time to live; sections 4.2 and 9 where they meet it."""

from datetime import datetime

import pytest
from real_house import Agent, until

from inside import load_settings


@pytest.fixture(scope="module")
def expiring(house_with):
    """A daemon whose settled tickets go soon: only for tests that need nothing of one after it is settled."""
    return house_with({"ticket_ttl_ms": 500})


@pytest.fixture(scope="module")
def short_leases(house_with):
    """A daemon that hands a message out again soon: only for tests that wait for it."""
    return house_with({"lease_ms": 100})


def gone(house, ticket: str) -> bool:
    return house.get(f"/tickets/{ticket}").status == 404


@pytest.fixture(scope="module")
def expired(expiring) -> tuple[Agent, str]:
    """An agent, and a ticket of its that was answered and has expired."""
    agent = expiring.register()
    ticket = expiring.send(agent.handle)
    assert expiring.reply(agent, ticket).status == 204
    expiring.logged("ticket.expired", ticket=ticket)
    return agent, ticket


@pytest.mark.req("BRK-8-1", "BRK-8-3")
def test_a_settled_ticket_is_removed_after_the_time_that_was_set_without_anybody_asking(expiring, expired):
    _, ticket = expired
    assert gone(expiring, ticket)
    assert ticket not in [each["ticketId"] for each in expiring.get("/tickets?limit=1000").json]


@pytest.mark.req("BRK-8-2", "DEC-BRK-9")
def test_time_to_live_and_reply_deadline_are_30_minutes_unless_set(house_with):
    unset = load_settings("/nonexistent", {})
    assert (unset.ticket_ttl_ms, unset.default_timeout_ms) == (1_800_000, 1_800_000)
    house = house_with()
    agent = house.register()
    view = house.ticket(house.send(agent.handle))
    assert _seconds(view["createdAt"], view["replyBy"]) == 1800


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


@pytest.mark.req("DEC-BRK-10")
def test_an_open_ticket_outlives_the_time_to_live_because_that_runs_from_settling(expiring):
    agent = expiring.register()
    ticket, marker = expiring.send(agent.handle), expiring.send(agent.handle)
    expiring.reply(agent, marker)
    until(lambda: gone(expiring, marker), "the settled ticket to expire")
    assert expiring.ticket(ticket)["status"] == "pending"
    assert expiring.reply(agent, ticket).status == 204


@pytest.mark.req("DEC-BRK-11")
def test_expired_and_unknown_tickets_are_told_apart_on_every_path(expiring, expired):
    agent, ticket = expired
    for known, text in ((ticket, "ticket expired"), ("never-was", "unknown ticket")):
        answers = [
            expiring.get(f"/replies/{known}?waitMs=0"),
            expiring.get(f"/replies/{known}/stream"),
            expiring.get(f"/tickets/{known}"),
            expiring.post(f"/tickets/{known}/cancel", {}),
            expiring.reply(agent, known),
        ]
        assert [(answer.status, answer.error["message"]) for answer in answers] == [(404, text)] * 5


@pytest.mark.req("DEC-BRK-11", "DEC-BRK-14")
def test_the_id_of_an_expired_ticket_is_not_used_again(expiring, expired):
    agent, ticket = expired
    assert expiring.post(f"/agents/{agent.handle}/send", {"ticketId": ticket, "payload": "hello"}).status == 409


@pytest.mark.req("BRK-8-4", "BRK-8-5", "BRK-8-6", "BRK-8-7")
def test_the_four_states_of_the_specification_are_told_apart(house, agent):
    pending, responded, cancelled = (house.send(agent.handle) for _ in range(3))
    timeout = house.send(agent.handle, timeoutMs=1)
    house.get(f"/replies/{timeout}?waitMs=10000")
    house.reply(agent, responded)
    assert house.post(f"/tickets/{cancelled}/cancel", {"reason": "solved"}).json["status"] == "cancelled"
    states = {
        status: [each["ticketId"] for each in house.get(f"/tickets?agentId={agent.handle}&status={status}").json]
        for status in ("pending", "responded", "timeout", "cancelled")
    }
    assert states == {
        "pending": [pending],
        "responded": [responded],
        "timeout": [timeout],
        "cancelled": [cancelled],
    }


@pytest.mark.req("BRK-8-7")
def test_a_cancelled_message_is_taken_out_of_the_inbox(house, agent):
    ticket = house.send(agent.handle)
    view = house.post(f"/tickets/{ticket}/cancel", {"reason": "solved"}).json
    assert view["reason"] == "solved"
    assert house.take(agent).status == 204


@pytest.mark.req("BRK-8-7")
def test_only_the_sender_may_cancel_and_only_what_is_not_settled(house, agent):
    ticket = house.send(agent.handle)
    assert house.post(f"/tickets/{ticket}/cancel", {}, token=agent.token).status == 403
    house.reply(agent, ticket)
    answer = house.post(f"/tickets/{ticket}/cancel", {})
    assert (answer.status, answer.error["message"]) == (409, "ticket already responded")


@pytest.mark.req("DEC-BRK-6")
def test_a_reply_to_a_cancelled_ticket_is_refused(house, agent):
    ticket = house.send(agent.handle)
    house.post(f"/tickets/{ticket}/cancel", {})
    answer = house.reply(agent, ticket)
    assert (answer.status, answer.error["code"], answer.error["message"]) == (409, "conflict", "ticket cancelled")


@pytest.mark.req("DEC-BRK-5")
def test_a_late_reply_still_answers_and_is_marked_late(house, agent):
    ticket = house.send(agent.handle, timeoutMs=1)
    assert house.get(f"/replies/{ticket}?waitMs=10000").json["status"] == "timeout"
    assert house.reply(agent, ticket, "sorry").status == 204
    view = house.get(f"/replies/{ticket}?waitMs=0").json
    assert set(view) == {"ticketId", "status", "payload", "latencyMs", "from", "late"}
    assert (view["status"], view["payload"], view["late"]) == ("responded", "sorry", True)


@pytest.mark.req("DEC-BRK-8")
def test_after_the_timeout_the_message_stays_in_the_inbox_marked_timed_out_past_its_time_to_live(expiring):
    agent = expiring.register()
    ticket = expiring.send(agent.handle, timeoutMs=1)
    expiring.get(f"/replies/{ticket}?waitMs=10000")
    marker = expiring.send(agent.handle, timeoutMs=1)
    expiring.ack(agent, marker)
    until(lambda: gone(expiring, marker), "a delivered ticket of the same age to expire")
    (message,) = expiring.take(agent).json["messages"]
    assert (message["ticketId"], message["timedOut"]) == (ticket, True)
    assert expiring.ack(agent, ticket).json == {"acked": [ticket]}
    until(lambda: gone(expiring, ticket), "the ticket to expire once it was fetched")


@pytest.mark.req("DEC-BRK-1", "DEC-BRK-32")
def test_a_message_whose_receiver_died_before_the_ack_comes_again_with_the_same_ticket_id(short_leases):
    agent = short_leases.register()
    ticket = short_leases.send(agent.handle)
    first = short_leases.take(agent).json["messages"][0]
    assert short_leases.ticket(ticket)["status"] == "pending"
    again = short_leases.take(agent, "waitMs=10000").json["messages"][0]
    assert (first["ticketId"], first["attempts"]) == (ticket, 1)
    assert (again["ticketId"], again["attempts"]) == (ticket, 2)
    assert short_leases.ack(agent, ticket).json == {"acked": [ticket]}
    assert short_leases.ack(agent, ticket).json == {"acked": [ticket]}
    assert short_leases.take(agent, "waitMs=300").status == 204


@pytest.mark.req("DEC-BRK-1")
def test_a_message_is_handed_out_once_while_its_lease_runs(house, agent):
    ticket = house.send(agent.handle)
    (message,) = house.take(agent).json["messages"]
    assert message["ticketId"] == ticket
    assert house.take(agent).status == 204


@pytest.mark.req("DEC-BRK-2")
def test_after_five_hand_overs_without_an_ack_an_event_says_undeliverable_and_it_goes_on(short_leases):
    agent = short_leases.register()
    ticket = short_leases.send(agent.handle)
    with short_leases.events(f"/events?agentId={agent.handle}") as stream:
        attempts = [short_leases.take(agent, "waitMs=10000").json["messages"][0]["attempts"] for _ in range(6)]
        event = next(data for name, data in stream if name == "ticket.undeliverable")
    assert attempts == [1, 2, 3, 4, 5, 6]
    assert event["ticketId"] == ticket


@pytest.mark.req("DEC-BRK-4")
def test_a_ticket_is_delivered_by_ack_and_by_reply(house, agent):
    acked, replied = house.send(agent.handle), house.send(agent.handle)
    house.ack(agent, acked)
    view = house.ticket(acked)
    assert (view["status"], "ackedAt" in view) == ("delivered", True)
    house.reply(agent, replied)
    assert "ackedAt" in house.ticket(replied)
    assert house.take(agent).status == 204


@pytest.mark.req("DEC-BRK-30")
def test_messages_come_by_long_poll_in_the_order_they_were_sent(house, agent):
    poll = house.hold(f"/agents/{agent.handle}/inbox?waitMs=10000", token=agent.token)
    tickets = [house.send(agent.handle, number) for number in range(4)]
    first = poll.answer().json
    assert set(first) == {"messages"}
    keys = {"ticketId", "from", "payload", "metadata", "expectReply", "createdAt", "replyBy", "attempts", "leaseMs"}
    assert set(first["messages"][0]) == keys
    rest = house.take(agent, "waitMs=0&max=2").json
    assert rest["remaining"] == 1
    assert [each["ticketId"] for each in first["messages"] + rest["messages"]] == tickets[:3]


@pytest.mark.req("DEC-BRK-30")
def test_messages_come_by_stream_over_http_and_link(house, agent):
    with house.events(f"/agents/{agent.handle}/inbox/stream", token=agent.token) as stream:
        ticket = house.send(agent.handle)
        name, item = stream.next()
        assert (name, item["ticketId"]) == ("message", ticket)
        house.ack(agent, ticket)
    with house.link(agent.token) as link:
        link.call("inbox.stream", {"agentId": agent.handle})
        ticket = house.send(agent.handle)
        notice = link.notice()
        assert (notice["method"], notice["params"]["item"]["ticketId"]) == ("inbox.item", ticket)
        assert link.call("inbox.ack", {"agentId": agent.handle, "ticketIds": [ticket]}) == {"acked": [ticket]}
