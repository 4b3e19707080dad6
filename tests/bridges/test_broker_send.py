"""Sending: retries, offline agents, ids, and what does not fit."""

import msgspec
import pytest
from broker_acts import JERRY, SPOCK, ack, cancel, reply, send, show, status_of, take, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import AgentParams, RegisterParams, SendParams
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, TooLarge
from gabp import codec

BODY = {"agentId": "Jerry", "payload": {"ask": [1, 2]}, "ticketId": "t", "metadata": {"origin": "claude"}}


def test_the_answer_names_ticket_state_and_where_to_wait(house):
    assert house.call("local", "messages.send", BODY) == {
        "ticketId": "t",
        "status": "pending",
        "waitEndpoint": "/replies/t/stream",
        "agentStatus": "online",
    }


def test_a_ticket_without_an_id_gets_a_fresh_one(house):
    assert send(house) != send(house)


def test_the_receiver_gets_what_was_sent_and_who_really_sent_it(house):
    house.call(SPOCK, "messages.send", {**BODY, "conversationId": "c", "timeoutMs": 60_000})
    (message,) = take(house)
    assert message == {
        "ticketId": "t",
        "from": "Spock",
        "payload": {"ask": [1, 2]},
        "metadata": {"origin": "claude"},
        "expectReply": True,
        "createdAt": "2025-10-20T08:00:00.000Z",
        "replyBy": "2025-10-20T08:01:00.000Z",
        "attempts": 1,
        "leaseMs": 60_000,
        "conversationId": "c",
    }


@pytest.mark.parametrize(
    "payload", ["text", "", 0, None, True, [], {}, {"deep": [{"er": None}]}, 2**70, "\u2028\x00\U0001f600"]
)
def test_any_json_is_a_payload_and_comes_out_as_it_went_in(house, payload):
    send(house, "t", payload)
    assert take(house)[0]["payload"] == payload
    reply(house, "t", payload)
    assert show(house, "t")["response"] == payload


# -- retries --


def test_the_same_send_again_is_a_retry_with_the_same_answer(house):
    first = house.call("local", "messages.send", BODY)
    records = len(house.ledger())
    assert house.call("local", "messages.send", BODY) == first
    assert len(house.ledger()) == records
    assert take_ids(house) == ["t"]


@pytest.mark.parametrize("happens", [ack, reply, cancel])
def test_a_retry_gets_the_first_answer_whatever_happened_since(house, happens):
    first = house.call("local", "messages.send", BODY)
    happens(house, "t")
    assert house.call("local", "messages.send", BODY) == first


def test_a_retry_is_answered_as_before_when_the_agent_has_gone_offline_since(house):
    first = house.call("local", "messages.send", {**BODY, "requireOnline": True})
    house.advance(31 * 60)
    assert status_of(house) == "offline"
    again = house.call("local", "messages.send", {**BODY, "requireOnline": True})
    assert again["ticketId"] == first["ticketId"]
    assert again["status"] == first["status"]


@pytest.mark.parametrize(
    "change",
    [
        {"payload": "another"},
        {"agentId": "Spock"},
        {"metadata": {"origin": "codex"}},
        {"expectReply": False},
        {"timeoutMs": 5},
        {"conversationId": "c"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_used_id_with_another_body_is_refused(house, change):
    house.call("local", "messages.send", BODY)
    with pytest.raises(Conflict, match="ticket id t stands for another message"):
        house.call("local", "messages.send", {**BODY, **change})
    assert take_ids(house) == ["t"]
    assert take_ids(house, "Spock") == []


def test_a_used_id_from_another_sender_is_refused(house):
    house.call("local", "messages.send", BODY)
    with pytest.raises(Conflict):
        house.call(SPOCK, "messages.send", BODY)


def test_an_expired_id_is_not_used_again_while_it_is_remembered(house):
    house.call("local", "messages.send", BODY)
    reply(house, "t")
    house.advance(30 * 60)
    with pytest.raises(Conflict, match="ticket id t was used before"):
        house.call("local", "messages.send", BODY)


# -- who is there --


def test_an_unknown_handle_is_not_found_and_the_hint_names_who_is_online(house):
    with pytest.raises(NotFound, match="agent not registered") as refused:
        send(house, to="Nobody")
    assert refused.value.details == {"agentId": "Nobody"}
    assert "online now: Jerry, Spock" in refused.value.hint


def test_a_message_for_an_offline_agent_is_queued_and_the_sender_is_told(house):
    house.advance(31 * 60)
    sent = house.call("local", "messages.send", BODY)
    assert (sent["status"], sent["agentStatus"]) == ("pending", "offline")
    assert take_ids(house) == ["t"]


def test_require_online_refuses_an_offline_agent_in_the_words_of_the_spec(house):
    house.advance(31 * 60)
    with pytest.raises(NotFound, match="agent not registered") as refused:
        send(house, "t", requireOnline=True)
    assert refused.value.details == {"agentId": "Jerry", "agentStatus": "offline"}
    with pytest.raises(NotFound, match="unknown ticket"):
        show(house, "t")


def test_the_setting_can_make_offline_mean_not_found(make_house):
    house = make_house(limits=BrokerLimits(reject_offline=True))
    house.register("Jerry")
    send(house, "t")
    house.advance(31 * 60)
    with pytest.raises(NotFound, match="agent not registered"):
        send(house)


# -- what does not fit --


def test_a_payload_over_the_limit_is_refused_and_suggests_a_file(make_house):
    house = make_house(limits=BrokerLimits(max_payload_bytes=10))
    house.register("Jerry")
    send(house, "t", "x" * 8)
    with pytest.raises(TooLarge, match=r"`payload` is 11 bytes; the limit is 10") as refused:
        send(house, payload="x" * 9)
    assert "file" in refused.value.hint
    with pytest.raises(TooLarge, match="`payload` is 11 bytes"):
        reply(house, "t", "x" * 9)


def test_metadata_over_the_limit_is_refused(make_house):
    house = make_house(limits=BrokerLimits(max_metadata_bytes=10))
    house.register("Jerry")
    for act in (
        lambda: send(house, metadata={"key": "value"}),
        lambda: house.register("Spock", metadata={"key": "value"}),
    ):
        with pytest.raises(TooLarge, match=r"`metadata` is 15 bytes; the limit is 10"):
            act()


BAD_IDS = ["", "a b", "a/b", "ä", "a\x00", "a\n", "\n", "a\r", "x" * 129]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_a_ticket_id_with_other_characters_is_refused(house, bad):
    with pytest.raises(InvalidRequest, match="ticketId"):
        send(house, bad)


@pytest.mark.parametrize("bad", [".", ".."])
def test_a_ticket_id_that_is_a_step_in_a_path_is_refused(house, bad):
    with pytest.raises(InvalidRequest, match="reserved"):
        send(house, bad)


@pytest.mark.parametrize("bad", [*BAD_IDS[:-1], "x" * 65])
@pytest.mark.parametrize("params", [RegisterParams, AgentParams, SendParams])
def test_a_handle_with_other_characters_is_refused_everywhere(params, bad):
    body = {"agentId": bad, "payload": 1} if params is SendParams else {"agentId": bad}
    with pytest.raises(codec.BadJson, match="agentId"):
        codec.decode(msgspec.json.encode(body), params)


def test_the_longest_ids_are_taken(house):
    house.register("x" * 64)
    send(house, "y" * 128, to="x" * 64)
    assert take_ids(house, "x" * 64) == ["y" * 128]


def test_a_message_to_oneself_is_a_message(house):
    send(house, "t", by=JERRY)
    assert take_ids(house) == ["t"]
