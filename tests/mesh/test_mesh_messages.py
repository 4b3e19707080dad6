"""Messages between machines, each a whole daemon without its doors."""

from collections.abc import Iterator

import pytest
from machines import Machines

from bascule.foundation.errors import Conflict, InvalidRequest, NotFound


@pytest.fixture
def pair() -> Iterator[Machines]:
    with Machines("laptop", "desk") as machines:
        machines["laptop"].house.register("Ada")
        machines["desk"].house.register("Jerry")
        machines.advance(1)
        machines.settle()
        yield machines


def test_an_agent_of_another_machine_is_asked_and_answers(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk", {"question": 1}, conversationId="c1")
    assert laptop.show(ticket)["delivery"]["state"] == "outbox"
    pair.settle()
    assert laptop.show(ticket)["delivery"]["state"] == "arrived"
    (message,) = desk.take("Jerry")
    assert message["from"] == "Ada@laptop"
    assert message["payload"] == {"question": 1}
    assert message["conversationId"] == "c1"
    assert message["ticketId"].startswith("msh_")
    desk.reply("Jerry", message["ticketId"], "an answer")
    pair.settle()
    shown = laptop.show(ticket)
    assert shown["status"] == "responded"
    assert shown["response"] == "an answer"
    assert shown["replies"][0]["from"] == "Jerry@desk"
    assert desk.show(message["ticketId"])["status"] == "responded"
    assert not laptop.mesh.state.out.rows
    assert not desk.mesh.state.out.rows


def test_a_bare_handle_means_the_one_agent_of_ones_own_machines(pair: Machines) -> None:
    ticket = pair["laptop"].send("Ada", "Jerry")
    assert pair["laptop"].show(ticket)["targetAgent"] == "Jerry@desk"


def test_agents_of_other_machines_are_listed_with_their_machine(pair: Machines) -> None:
    listed = {each["agentId"]: each for each in pair["laptop"].call("local", "agents.list")}
    assert listed["Jerry@desk"]["status"] == "online"
    pair.advance(120)
    listed = {each["agentId"]: each for each in pair["laptop"].call("local", "agents.list")}
    assert listed["Ada"]["status"] == "online"


def test_a_machine_that_nobody_knows_is_named(pair: Machines) -> None:
    with pytest.raises(NotFound) as refused:
        pair["laptop"].send("Ada", "Jerry@nowhere")
    assert "desk" in (refused.value.hint or "")


def test_an_unknown_handle_ends_the_ticket_with_the_reason(pair: Machines) -> None:
    ticket = pair["laptop"].send("Ada", "Nobody@desk")
    pair.settle()
    shown = pair["laptop"].show(ticket)
    assert shown["status"] == "cancelled"
    assert "agent not registered" in shown["reason"]


def test_a_cancelled_message_is_withdrawn_there(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": ticket, "reason": "no longer"})
    pair.settle()
    assert desk.take("Jerry") == []


def test_a_reply_that_crosses_a_cancel_is_refused_at_home(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": ticket})
    desk.reply("Jerry", message["ticketId"])
    pair.settle()
    assert laptop.show(ticket)["status"] == "cancelled"
    assert desk.show(message["ticketId"])["status"] == "cancelled"
    with pytest.raises(Conflict, match="ticket cancelled"):
        desk.reply("Jerry", message["ticketId"], "once more")


def test_a_reply_after_the_timeout_is_late_on_both_machines(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk", timeoutMs=5_000)
    pair.settle()
    pair.advance(6)
    pair.settle()
    (message,) = desk.take("Jerry")
    assert message["timedOut"]
    desk.reply("Jerry", message["ticketId"])
    pair.settle()
    assert laptop.show(ticket)["late"]
    assert desk.show(message["ticketId"])["late"]


def test_callers_cannot_choose_an_id_of_a_copy(pair: Machines) -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        pair["desk"].send("Jerry", "Jerry", ticketId="msh_0123456789abcdef0123456789abcdef")
