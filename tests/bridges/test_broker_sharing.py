"""Broadcasts, conversations, lists: who reaches whom and who sees what."""

import pytest
from broker_acts import JERRY, SPOCK, ack, answer, cancel, reply, send, show, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.broker.protocol import MAX_BROADCAST
from bascule.foundation.errors import Forbidden, InvalidRequest, NotFound


def broadcast(house, by="local", **params):
    return house.call(by, "messages.broadcast", {"payload": "all hands", **params})


def reached(result):
    return [ticket["agentId"] for ticket in result["tickets"]]


# -- broadcasts --


def test_a_broadcast_gives_everyone_a_ticket_of_their_own(house):
    result = broadcast(house, broadcastId="b")
    assert result == {
        "broadcastId": "b",
        "tickets": [
            {"agentId": name, "ticketId": f"b.{name}", "status": "pending", "agentStatus": "online"}
            for name in ("Jerry", "Spock")
        ],
    }
    reply(house, "b.Jerry", "aye")
    assert answer(house, "b.Jerry")["payload"] == "aye"
    assert answer(house, "b.Spock") is None


def test_a_broadcast_does_not_come_back_to_its_sender(house):
    assert reached(broadcast(house, by=JERRY)) == ["Spock"]


def test_a_broadcast_reaches_a_type_or_the_named_or_who_is_online(make_house):
    house = make_house()
    house.register("Jerry", type="codex")
    house.register("Spock", type="claude-code")
    house.register("Data", type="codex", heartbeatIntervalMs=1_000)
    house.advance(5)
    assert reached(broadcast(house, type="codex")) == ["Jerry"]
    assert reached(broadcast(house)) == ["Jerry", "Spock"]
    assert reached(broadcast(house, agentIds=["Data", "Jerry", "Data"])) == ["Data", "Jerry"]
    with pytest.raises(InvalidRequest, match="not both"):
        broadcast(house, agentIds=["Data"], type="codex")


def test_a_broadcast_to_nobody_says_so(make_house):
    house = make_house()
    house.register("Jerry")
    with pytest.raises(NotFound, match="nobody to send to"):
        broadcast(house, by=JERRY)


def test_one_who_cannot_be_reached_does_not_stop_the_others(make_house):
    house = make_house(limits=BrokerLimits(max_inbox_messages=1))
    for name in ("Jerry", "Spock", "Data"):
        house.register(name)
    send(house, to="Spock")
    result = broadcast(house, agentIds=["Jerry", "Spock", "Nobody", "Data"])
    assert reached(result) == ["Jerry", "Data"]
    assert [(each["agentId"], each["error"]["code"]) for each in result["failed"]] == [
        ("Spock", "overloaded"),
        ("Nobody", "not_found"),
    ]
    assert house.ledger()[-1]["details"] == {"to": ["Jerry", "Data"], "failed": 2}


def test_a_broadcast_where_everyone_failed_still_says_who(house):
    result = broadcast(house, agentIds=["Nobody"])
    assert (result["tickets"], reached(result)) == ([], [])
    assert result["failed"][0]["error"]["message"] == "agent not registered"


def test_a_repeated_broadcast_is_a_retry(house):
    first = broadcast(house, broadcastId="b")
    records = len(house.ledger())
    assert broadcast(house, broadcastId="b") == first
    assert len(house.ledger()) == records
    assert take_ids(house) == ["b.Jerry"]


def test_the_longest_broadcast_id_and_handle_make_a_ticket_id(house):
    house.register("x" * 64)
    result = broadcast(house, broadcastId="b" * 63, agentIds=["x" * 64])
    assert len(result["tickets"][0]["ticketId"]) == 128


def test_a_broadcast_names_no_more_than_its_limit(house):
    with pytest.raises(InvalidRequest, match="agentIds"):
        broadcast(house, agentIds=[f"a{number}" for number in range(MAX_BROADCAST + 1)])


def test_the_ledger_finds_a_broadcast_by_the_handle_it_went_to(house):
    broadcast(house, broadcastId="b")
    found = house.call("local", "ledger.show", {"what": "Jerry"})
    assert "messages.broadcast" in [record["method"] for record in found]


# -- conversations --


def test_a_conversation_shows_its_tickets_oldest_first_to_its_sides(house):
    send(house, "ask", by=SPOCK, conversationId="c")
    reply(house, "ask", "what?")
    send(house, "back", by=JERRY, to="Spock", conversationId="c")
    for side in (JERRY, SPOCK, "person"):
        view = house.call(side, "conversations.show", {"conversationId": "c"})
        assert [ticket["ticketId"] for ticket in view["tickets"]] == ["ask", "back"]
        assert view["tickets"][0]["response"] == "what?"


def test_of_a_conversation_everyone_sees_only_their_own_tickets(house):
    house.register("Data")
    send(house, "one", by=SPOCK, conversationId="c")
    send(house, "two", by="agent:Data", conversationId="c")
    view = house.call(SPOCK, "conversations.show", {"conversationId": "c"})
    assert [ticket["ticketId"] for ticket in view["tickets"]] == ["one"]
    with pytest.raises(NotFound, match="unknown conversation"):
        house.call("local", "conversations.show", {"conversationId": "c"})


def test_a_long_conversation_shows_its_newest_tickets(house):
    for name in "abc":
        send(house, name, conversationId="c")
    view = house.call("local", "conversations.show", {"conversationId": "c", "limit": 2})
    assert [ticket["ticketId"] for ticket in view["tickets"]] == ["b", "c"]


def test_a_conversation_is_gone_when_its_last_ticket_is(house):
    send(house, "t", conversationId="c")
    reply(house, "t")
    house.advance(30 * 60)
    with pytest.raises(NotFound, match="unknown conversation"):
        house.call("local", "conversations.show", {"conversationId": "c"})
    assert house.broker.state.conversations == {}


# -- lists and views --

PAYLOADS = ("payload", "metadata", "response", "replies", "reason")


def test_other_agents_see_that_a_ticket_is_there_but_not_its_payload(house):
    house.register("Data")
    send(house, "t", "a secret", by=SPOCK, metadata={"origin": "x"})
    reply(house, "t", "another")
    for other in ("local", "agent:Data"):
        view = show(house, "t", by=other)
        assert (view["targetAgent"], view["from"], view["status"], view["payloadBytes"]) == (
            "Jerry",
            "Spock",
            "responded",
            10,
        )
        assert not set(PAYLOADS) & set(view)
    for side in (SPOCK, JERRY, "person"):
        view = show(house, "t", by=side)
        assert (view["payload"], view["metadata"], view["response"]) == ("a secret", {"origin": "x"}, "another")


def test_other_agents_do_not_see_why_a_ticket_was_cancelled(house):
    send(house, "t", by=SPOCK)
    cancel(house, "t", by=SPOCK, reason="a secret")
    assert "reason" not in show(house, "t", by="local")
    assert show(house, "t", by=JERRY)["reason"] == "a secret"


def test_the_list_never_shows_what_was_said(house):
    send(house, "t", "a secret", metadata={"origin": "x"})
    (view,) = house.call("local", "tickets.list")
    assert not set(PAYLOADS) & set(view)


def test_tickets_are_listed_newest_first_and_filtered(house):
    for name in "abc":
        send(house, name)
    send(house, "d", to="Spock")
    ack(house, "b")

    def listed(**filters):
        return [view["ticketId"] for view in house.call("local", "tickets.list", filters)]

    assert listed() == ["d", "c", "b", "a"]
    assert listed(limit=2) == ["d", "c"]
    assert listed(status="delivered") == ["b"]
    assert listed(agentId="Spock") == ["d"]
    assert listed(agentId="Jerry", status="pending", limit=1) == ["c"]


def test_the_ledger_is_for_the_user_of_the_machine(house):
    for method, params in (("ledger.tail", {}), ("ledger.show", {"what": "1"}), ("ledger.verify", {})):
        house.call("local", method, params)
        house.call("person", method, params)
        with pytest.raises(Forbidden, match=f"agent:Jerry may not call {method}"):
            house.call(JERRY, method, params)


def test_tickets_are_listed_for_both_sides_of_an_agent(house):
    house.register("Ada")
    send(house, "to")
    send(house, "from", to="Ada", by=JERRY)
    send(house, "other", to="Ada")
    listed = house.call("local", "tickets.list", {"party": "Jerry"})
    assert [each["ticketId"] for each in listed] == ["from", "to"]
