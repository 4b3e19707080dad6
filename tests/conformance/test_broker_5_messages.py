"""Broker specification 5.1 and 5.2: sending and replying; ids, sizes, senders."""

import json
import uuid

import pytest

SEND_KEYS = {"ticketId", "status", "waitEndpoint"}
MIB = 1024 * 1024


def new_ticket() -> str:
    return f"uuid-{uuid.uuid4()}"


@pytest.mark.req("BRK-5.1-1", "BRK-4.2-12")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_the_body_of_the_example_sends_a_message(house, agent, door):
    body = {
        "ticketId": new_ticket(),
        "payload": "Please review diff X",
        "metadata": {"origin": "claude", "context": {"branch": "main"}},
        "expectReply": True,
        "timeoutMs": 30_000,
    }
    answer = house.post(f"/agents/{agent.handle}/send", body, door=door)
    assert answer.status == 200
    assert house.take(agent).json["messages"][0]["payload"] == "Please review diff X"


@pytest.mark.req("BRK-5.1-1")
def test_a_field_that_does_not_exist_is_refused_by_name(house, agent):
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": "x", "expectReplies": True})
    assert answer.status == 400
    assert "expectReplies" in answer.error["message"]


@pytest.mark.req("BRK-5.1-2")
def test_sending_answers_the_keys_of_the_example_and_the_agents_status(house, agent):
    ticket = new_ticket()
    answer = house.post(f"/agents/{agent.handle}/send", {"ticketId": ticket, "payload": "x"})
    assert set(answer.json) == SEND_KEYS | {"agentStatus"}
    assert (answer.json["ticketId"], answer.json["status"]) == (ticket, "pending")
    assert answer.json["agentStatus"] == "online"


@pytest.mark.req("BRK-5.1-3")
def test_the_callers_ticket_id_is_the_tickets(house, agent):
    ticket = new_ticket()
    assert house.send(agent.handle, ticketId=ticket) == ticket
    assert house.take(agent).json["messages"][0]["ticketId"] == ticket


@pytest.mark.req("BRK-4.2-3")
def test_a_ticket_without_a_chosen_id_gets_a_uuid(house, agent):
    assert uuid.UUID(house.send(agent.handle)).version == 7


@pytest.mark.req("BRK-5.1-4")
def test_the_wait_endpoint_is_the_tickets_stream_and_delivers_its_reply(house, agent):
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": "x"})
    ticket = answer.json["ticketId"]
    assert answer.json["waitEndpoint"] == f"/replies/{ticket}/stream"
    house.reply(agent, ticket, "here")
    with house.events(answer.json["waitEndpoint"]) as stream:
        assert stream.next()[1]["payload"] == "here"


@pytest.mark.req("BRK-5.1-5", "DEC-BRK-33")
def test_metadata_arrives_as_sent_and_from_is_who_really_sent_it(house, agent):
    sender = house.register()
    metadata = {"origin": "claude", "agent": "somebody-else", "context": {"deep": [1, {"er": None}]}}
    house.send(agent.handle, metadata=metadata, token=sender.token)
    house.send(agent.handle, metadata=metadata)
    first, second = house.take(agent, "waitMs=0&max=2").json["messages"]
    assert first["metadata"] == second["metadata"] == metadata
    assert (first["from"], second["from"]) == (sender.handle, "local")


@pytest.mark.req("BRK-5.1-6", "DEC-BRK-7")
def test_the_receiver_sees_whether_a_reply_is_expected_and_it_is_unless_said_otherwise(house, agent):
    house.send(agent.handle)
    house.send(agent.handle, expectReply=False)
    messages = house.take(agent, "waitMs=0&max=2").json["messages"]
    assert [message["expectReply"] for message in messages] == [True, False]


@pytest.mark.req("DEC-BRK-7")
def test_a_message_without_an_expected_reply_ends_at_delivered_and_a_reply_is_still_stored(house, agent):
    ticket = house.send(agent.handle, expectReply=False)
    house.ack(agent, ticket)
    answer = house.get(f"/replies/{ticket}?waitMs=0")
    assert (answer.status, answer.json["status"]) == (200, "delivered")
    assert house.reply(agent, ticket, "anyway").status == 204
    assert house.ticket(ticket)["response"] == "anyway"


@pytest.mark.req("BRK-5.1-7", "BRK-8-6")
def test_after_timeout_ms_the_sender_is_told_timeout(house, agent):
    ticket = house.send(agent.handle, timeoutMs=50)
    answer = house.get(f"/replies/{ticket}?waitMs=10000")
    assert (answer.status, answer.json) == (200, {"ticketId": ticket, "status": "timeout"})


@pytest.mark.req("BRK-4.2-5")
@pytest.mark.parametrize("payload", ["text", "", {"a": [1, 2.5, None]}, [], 7, None, False, "ünï \x00 😀"])
def test_a_payload_is_any_text_or_json(house, agent, payload):
    ticket = house.send(agent.handle, payload)
    assert house.take(agent).json["messages"][0]["payload"] == payload
    house.reply(agent, ticket, payload)
    answer = house.get(f"/replies/{ticket}")
    assert answer.json["payload"] == payload


@pytest.mark.req("DEC-BRK-37")
def test_a_payload_of_one_mebibyte_passes_and_one_byte_more_is_413_and_names_a_way_out(house, agent):
    # Two bytes of the mebibyte are the quotation marks.
    largest = "x" * (MIB - 2)
    ticket = house.send(agent.handle, largest)
    answer = house.post(f"/agents/{agent.handle}/send", {"payload": largest + "x"})
    assert (answer.status, answer.error["code"]) == (413, "too_large")
    assert "file" in answer.error["hint"]
    answer = house.reply(agent, ticket, largest + "x")
    assert answer.status == 413
    assert "file" in answer.error["hint"]
    assert house.reply(agent, ticket, largest).status == 204


@pytest.mark.req("DEC-BRK-37")
def test_a_body_that_is_not_utf8_is_refused(house, agent):
    answer = house.post(f"/agents/{agent.handle}/send", b'{"payload": "\xff"}')
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.req("DEC-BRK-13")
@pytest.mark.parametrize("ticket", ["", "a b", "a/b", "../x", ".", "..", "ä", "x" * 129, "a\n", "$(x)"])
def test_a_ticket_id_outside_the_alphabet_is_refused(house, agent, ticket):
    answer = house.post(f"/agents/{agent.handle}/send", {"ticketId": ticket, "payload": "x"})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.req("DEC-BRK-13")
def test_a_ticket_id_may_have_128_letters_digits_dots_underscores_and_dashes(house, agent):
    ticket = ("Az09._-" * 19)[:128]
    assert house.send(agent.handle, ticketId=ticket) == ticket


@pytest.mark.req("DEC-BRK-14")
def test_the_same_send_again_is_a_retry_with_the_same_answer_and_no_second_message(house, agent):
    body = {"ticketId": new_ticket(), "payload": {"a": 1}, "metadata": {"b": 2}}
    first = house.post(f"/agents/{agent.handle}/send", body)
    house.reply(agent, body["ticketId"])
    second = house.post(f"/agents/{agent.handle}/send", body)
    assert (second.status, second.json) == (first.status, first.json)
    assert house.take(agent).status == 204


@pytest.mark.req("DEC-BRK-14")
@pytest.mark.parametrize(
    "change",
    [{"payload": "y"}, {"metadata": {"a": 1}}, {"expectReply": False}, {"timeoutMs": 5}, {"conversationId": "c"}],
    ids=lambda change: next(iter(change)),
)
def test_the_same_ticket_id_with_another_body_is_a_conflict(house, agent, change):
    body = {"ticketId": new_ticket(), "payload": "x"}
    house.post(f"/agents/{agent.handle}/send", body)
    answer = house.post(f"/agents/{agent.handle}/send", {**body, **change})
    assert (answer.status, answer.error["code"]) == (409, "conflict")


@pytest.mark.req("DEC-BRK-14")
def test_the_same_ticket_id_from_another_sender_or_to_another_agent_is_a_conflict(house, agent):
    other = house.register()
    body = {"ticketId": new_ticket(), "payload": "x"}
    house.post(f"/agents/{agent.handle}/send", body)
    assert house.post(f"/agents/{agent.handle}/send", body, token=other.token).status == 409
    assert house.post(f"/agents/{other.handle}/send", body).status == 409


@pytest.mark.req("BRK-5.2-1", "BRK-4.2-13")
def test_the_body_of_the_example_replies(house, agent):
    ticket = house.send(agent.handle)
    metadata = {"agent": "codex", "status": "completed"}
    body = {"ticketId": ticket, "payload": "Here is the joke ...", "metadata": metadata}
    assert house.post("/replies", body, token=agent.token).status == 204
    view = house.get(f"/replies/{ticket}").json
    assert (view["payload"], view["metadata"]) == ("Here is the joke ...", metadata)


@pytest.mark.req("BRK-5.2-2")
@pytest.mark.parametrize("door", ["tcp", "unix"])
def test_a_reply_is_answered_204_without_content(house, agent, door):
    ticket = house.send(agent.handle)
    answer = house.post("/replies", {"ticketId": ticket, "payload": "x"}, token=agent.token, door=door)
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.req("BRK-5.2-3", "BRK-8-5")
def test_a_reply_makes_a_pending_and_a_delivered_ticket_responded(house, agent):
    pending, delivered = house.send(agent.handle), house.send(agent.handle)
    house.ack(agent, delivered)
    assert house.ticket(delivered)["status"] == "delivered"
    for ticket in (pending, delivered):
        house.reply(agent, ticket)
        assert house.ticket(ticket)["status"] == "responded"


@pytest.mark.req("BRK-5.2-4", "BRK-4.2-7")
def test_the_reply_is_stored_with_the_ticket(house, agent):
    ticket = house.send(agent.handle)
    assert "response" not in house.ticket(ticket)
    house.reply(agent, ticket, {"passed": 12})
    assert house.ticket(ticket)["response"] == {"passed": 12}


@pytest.mark.req("BRK-5.2-5")
def test_a_reply_reaches_everybody_who_waits_for_the_ticket(house, agent):
    ticket = house.send(agent.handle)
    with house.link() as link:
        asked = link.begin("replies.wait", {"ticketId": ticket, "waitMs": 10_000})
        polls = [house.hold(f"/replies/{ticket}?waitMs=10000") for _ in range(2)]
        with house.events(f"/replies/{ticket}/stream") as stream:
            house.reply(agent, ticket, "news")
            views = [poll.answer().json for poll in polls] + [stream.next()[1], link.answer(asked)]
    assert [view["payload"] for view in views] == ["news"] * 4


@pytest.mark.req("BRK-5.2-1")
def test_only_the_addressee_may_reply(house, agent):
    ticket = house.send(agent.handle)
    stranger = house.register()
    for token in ("local", stranger.token):
        answer = house.post("/replies", {"ticketId": ticket, "payload": "x"}, token=token)
        assert (answer.status, answer.error["code"]) == (403, "forbidden")


@pytest.mark.req("DEC-BRK-12", "BRK-9-7")
def test_the_first_reply_answers_and_later_ones_are_kept_in_order_and_logged(house, agent):
    ticket = house.send(agent.handle)
    answers = [house.reply(agent, ticket, number) for number in (1, 2, 3)]
    assert [answer.status for answer in answers] == [204, 204, 204]
    view = house.get(f"/replies/{ticket}").json
    assert view["payload"] == 1
    assert [reply["payload"] for reply in view["replies"]] == [1, 2, 3]
    assert {frozenset(reply) for reply in view["replies"]} == {frozenset({"payload", "metadata", "from", "at"})}
    house.logged("ticket.extra_reply", ticket=ticket, agent=agent.handle)


@pytest.mark.req("DEC-BRK-38")
def test_a_reply_whose_answer_was_lost_may_be_posted_again_without_becoming_a_second_one(house, agent):
    ticket = house.send(agent.handle)
    for _ in range(2):
        assert house.reply(agent, ticket, "once").status == 204
    assert len(house.ticket(ticket)["replies"]) == 1


@pytest.mark.req("BRK-4.2-4", "BRK-4.2-8")
def test_a_ticket_shows_the_fields_of_section_4_2_to_its_two_sides(house, agent):
    ticket = house.send(agent.handle, "secret words", metadata={"a": 1})
    house.reply(agent, ticket)
    view = house.ticket(ticket)
    spec = {"ticketId", "targetAgent", "payload", "status", "response", "createdAt", "updatedAt"}
    # Ours: who sent it, the deadline, what happened when, every reply, how it is brought to the receiver.
    ours = {"from", "replyBy", "expectReply", "ackedAt", "settledAt", "payloadBytes", "metadata", "replies"}
    if "delivery" in view:
        ours.add("delivery")
    assert set(view) == spec | ours
    assert view["targetAgent"] == agent.handle
    assert view["createdAt"] <= view["updatedAt"]
    stranger = house.register()
    hidden = house.get(f"/tickets/{ticket}", token=stranger.token)
    assert set(hidden.json) == (spec | ours) - {"payload", "metadata", "response", "replies"}
    assert "secret words" not in json.dumps(hidden.json)
