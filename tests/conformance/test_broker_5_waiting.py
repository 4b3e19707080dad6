"""Broker specification 5.3 and 5.4: long poll and stream; waits that end, and whose clients go away."""

import time

import pytest
from real_house import until

from patience import PATIENCE

REPLY_KEYS = {"ticketId", "payload", "status", "latencyMs"}


def reply_operation(house) -> dict:
    return house.get("/openapi.json").json["paths"]["/replies/{ticketId}"]["get"]


@pytest.mark.req("BRK-5.3-1", "BRK-4.2-14", "BRK-4.1-4")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_a_long_poll_is_held_until_the_reply_is_there(house, agent, door):
    ticket = house.send(agent.handle)
    poll = house.hold(f"/replies/{ticket}?waitMs=10000", door=door)
    house.reply(agent, ticket, "now")
    answer = poll.answer()
    assert (answer.status, answer.json["payload"]) == (200, "now")


@pytest.mark.req("BRK-5.3-1")
def test_a_reply_that_is_there_already_is_answered_at_once(house, agent):
    ticket = house.send(agent.handle)
    house.reply(agent, ticket, "there")
    assert house.get(f"/replies/{ticket}").json["payload"] == "there"


@pytest.mark.req("BRK-5.3-2", "BRK-5.3-5")
def test_after_wait_ms_without_a_reply_the_answer_is_204(house, agent):
    ticket = house.send(agent.handle)
    start = time.monotonic()
    answer = house.get(f"/replies/{ticket}?waitMs=300")
    assert (answer.status, answer.body) == (204, b"")
    assert time.monotonic() - start >= 0.3


@pytest.mark.req("BRK-5.3-2")
def test_wait_ms_zero_asks_without_waiting(house, agent):
    assert house.get(f"/replies/{house.send(agent.handle)}?waitMs=0").status == 204


@pytest.mark.req("BRK-5.3-2")
@pytest.mark.parametrize("wait", ["-1", "soon", "1.5", ""])
def test_a_wait_that_is_not_a_number_of_milliseconds_is_refused(house, agent, wait):
    assert house.get(f"/replies/{house.send(agent.handle)}?waitMs={wait}").status == 400


@pytest.mark.req("BRK-5.3-3")
def test_the_api_description_says_that_a_poll_waits_25_seconds(house):
    parameters = {each["name"]: each["schema"] for each in reply_operation(house)["parameters"]}
    assert parameters["waitMs"]["default"] == 25_000


@pytest.mark.long
@pytest.mark.req("BRK-5.3-3", "DEC-BRK-16")
@pytest.mark.parametrize(("query", "seconds"), [("", 25), ("?waitMs=3600000", 60)])
def test_a_poll_is_answered_204_after_the_default_and_after_the_most(house, agent, query, seconds):
    connection = house.begin("GET", f"/replies/{house.send(agent.handle)}{query}")
    connection.sock.settimeout(PATIENCE)
    start = time.monotonic()
    with connection.getresponse() as response:
        assert response.status == 204
    connection.close()
    # Not an hour: what a busy machine adds is the machine's.
    assert seconds <= time.monotonic() - start < seconds + PATIENCE


@pytest.mark.req("DEC-BRK-16")
def test_a_wait_above_the_most_is_accepted(house, agent):
    ticket = house.send(agent.handle)
    poll = house.hold(f"/replies/{ticket}?waitMs=3600000")
    house.reply(agent, ticket, "long before")
    assert poll.answer().json["payload"] == "long before"


@pytest.mark.req("BRK-5.3-4")
def test_a_reply_has_the_keys_of_the_example_and_its_verified_sender(house, agent):
    ticket = house.send(agent.handle)
    house.reply(agent, ticket)
    view = house.get(f"/replies/{ticket}").json
    assert set(view) == REPLY_KEYS | {"from"}
    assert (view["ticketId"], view["status"], view["from"]) == (ticket, "responded", agent.handle)
    assert isinstance(view["latencyMs"], int)


@pytest.mark.req("BRK-5.3-4")
def test_latency_is_the_time_from_sending_to_the_reply(house, agent):
    start = time.monotonic()
    ticket = house.send(agent.handle)
    sent = time.monotonic()
    house.get(f"/replies/{ticket}?waitMs=100")
    asked = time.monotonic()
    house.reply(agent, ticket)
    latency = house.get(f"/replies/{ticket}").json["latencyMs"] / 1000
    assert asked - sent - 0.05 <= latency <= time.monotonic() - start + 0.05


@pytest.mark.req("BRK-5.4-1", "BRK-5.4-3", "DEC-BRK-18")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_the_stream_sends_one_reply_event_and_ends(house, agent, door):
    ticket = house.send(agent.handle)
    with house.events(f"/replies/{ticket}/stream", door=door) as stream:
        house.reply(agent, ticket, "streamed")
        ((name, data),) = list(stream)
    assert name == "reply"
    assert data == house.get(f"/replies/{ticket}").json


@pytest.mark.req("BRK-5.4-2", "DEC-BRK-18")
def test_the_stream_of_a_ticket_that_times_out_sends_one_timeout_event_and_ends(house, agent):
    ticket = house.send(agent.handle, timeoutMs=150)
    with house.events(f"/replies/{ticket}/stream") as stream:
        assert list(stream) == [("timeout", {"ticketId": ticket, "status": "timeout"})]


@pytest.mark.req("DEC-BRK-18")
def test_the_stream_of_a_ticket_that_is_cancelled_sends_one_cancelled_event_and_ends(house, agent):
    ticket = house.send(agent.handle)
    with house.events(f"/replies/{ticket}/stream") as stream:
        house.post(f"/tickets/{ticket}/cancel", {})
        assert list(stream) == [("cancelled", {"ticketId": ticket, "status": "cancelled"})]


@pytest.mark.req("BRK-5.4-3")
def test_the_stream_of_a_settled_ticket_sends_its_event_at_once(house, agent):
    ticket = house.send(agent.handle)
    house.reply(agent, ticket, "before")
    with house.events(f"/replies/{ticket}/stream") as stream:
        assert [name for name, _ in stream] == ["reply"]


@pytest.mark.req("DEC-BRK-17")
def test_a_wait_on_a_settled_ticket_answers_200_with_its_status(house, agent):
    timed_out, cancelled = house.send(agent.handle, timeoutMs=1), house.send(agent.handle)
    house.post(f"/tickets/{cancelled}/cancel", {})
    for ticket, status in ((timed_out, "timeout"), (cancelled, "cancelled")):
        answer = house.get(f"/replies/{ticket}?waitMs=10000")
        assert (answer.status, answer.json) == (200, {"ticketId": ticket, "status": status})


@pytest.mark.req("BRK-5.3-1", "BRK-5.4-1")
def test_only_the_two_sides_of_a_ticket_may_wait_for_it(house, agent):
    sender, stranger = house.register(), house.register()
    ticket = house.send(agent.handle, token=sender.token)
    for path in (f"/replies/{ticket}?waitMs=0", f"/replies/{ticket}/stream"):
        for token in (stranger.token, "local"):
            assert house.get(path, token=token).status == 403
    for side in (sender, agent):
        assert house.get(f"/replies/{ticket}?waitMs=0", token=side.token).status == 204


@pytest.mark.req("DEC-BRK-21")
def test_a_poller_that_hangs_up_releases_its_wait(house, agent):
    ticket = house.send(agent.handle)
    before = house.waits()
    poll = house.hold(f"/replies/{ticket}?waitMs=60000")
    poll.hang_up()
    until(lambda: house.waits() == before, "the wait to be released")


@pytest.mark.req("DEC-BRK-21")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_an_inbox_poller_that_hangs_up_takes_no_message_with_it(house, agent, door):
    before = house.waits()
    dead = house.hold(f"/agents/{agent.handle}/inbox?waitMs=60000", token=agent.token, door=door)
    dead.hang_up()
    until(lambda: house.waits() == before, "the wait to be released")
    living = house.hold(f"/agents/{agent.handle}/inbox?waitMs=10000", token=agent.token)
    ticket = house.send(agent.handle)
    message = living.answer().json["messages"][0]
    assert (message["ticketId"], message["attempts"]) == (ticket, 1)


@pytest.mark.req("DEC-BRK-21")
def test_a_killed_receiver_takes_no_message_with_it(house, agent):
    before = house.waits()
    receiver = house.started("bridge-recv", "--agent", agent.handle, "--wait", "60000")
    until(lambda: house.waits() > before, "bridge-recv to wait")
    receiver.kill()
    receiver.communicate()
    until(lambda: house.waits() == before, "the wait to be released")
    ticket = house.send(agent.handle)
    assert [each["ticketId"] for each in house.take(agent).json["messages"]] == [ticket]


@pytest.mark.req("DEC-BRK-21")
def test_a_link_connection_that_ends_gives_its_messages_back_at_once(house, agent):
    ticket = house.send(agent.handle)
    with house.link(agent.token) as link:
        assert link.call("inbox.stream", {"agentId": agent.handle}) == {}
        assert link.notice()["params"]["item"]["ticketId"] == ticket
    taken = until(lambda: house.take(agent, "waitMs=0").body, "the message to be offered again")
    assert ticket.encode() in taken


@pytest.mark.req("DEC-BRK-22")
def test_on_sigterm_everybody_who_waits_is_answered_before_the_daemon_ends(new_house):
    house = new_house()
    agent = house.register()
    ticket = house.send(agent.handle)
    reply = house.hold(f"/replies/{ticket}?waitMs=60000")
    idle = house.register()
    inbox = house.hold(f"/agents/{idle.handle}/inbox?waitMs=60000", token=idle.token)
    with house.link() as link, house.events(f"/replies/{ticket}/stream") as stream, house.events("/events") as events:
        asked = link.begin("replies.wait", {"ticketId": ticket, "waitMs": 60_000})
        # Answered in order on one connection: the wait before it is there.
        link.call("daemon.status", {})
        house.signal()
        assert reply.answer().status == 204
        assert inbox.answer().status == 204
        assert link.answer(asked) is None
        assert list(stream) == []
        assert list(events) == []
    assert house.ended() == 0
