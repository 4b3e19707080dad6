"""Messages between machines, each a whole daemon without its doors."""

from collections.abc import Iterator

import pytest
from machines import Machine, Machines

from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, TooLarge
from bascule.mesh.copies import Copies
from bascule.testing.pending import Pending


@pytest.mark.req("MESH-NAME-1")
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


@pytest.mark.req("MESH-NAME-2")
def test_a_bare_handle_means_the_one_agent_of_ones_own_machines(pair: Machines) -> None:
    ticket = pair["laptop"].send("Ada", "Jerry")
    assert pair["laptop"].show(ticket)["targetAgent"] == "Jerry@desk"


@pytest.mark.req("MESH-NAME-2")
def test_a_bare_handle_means_the_agent_of_this_machine_where_there_is_one(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    # The control: the only one.
    laptop.send("Ada", "Jerry", "for the one there")
    laptop.house.register("Jerry")
    pair.advance(1)
    pair.settle()
    ticket = laptop.send("Ada", "Jerry", "for the one here")
    laptop.send("Ada", "Jerry@desk", "for the other")
    pair.settle()
    assert laptop.show(ticket)["targetAgent"] == "Jerry"
    assert [each["payload"] for each in laptop.take("Jerry")] == ["for the one here"]
    assert [each["payload"] for each in desk.take("Jerry")] == ["for the one there", "for the other"]


@pytest.mark.req("MESH-NAME-6")
def test_agents_of_other_machines_are_listed_with_their_machine(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    assert statuses(laptop) == {"Ada": "online", "Jerry@desk": "online"}
    for _ in range(4):
        pair.advance(30)
        pair.settle()
    assert statuses(laptop) == {"Ada": "online", "Jerry@desk": "online"}, "it says that it lives"
    desk.house.run(desk.post.disconnect)
    for _ in range(4):
        pair.advance(30)
        pair.settle()
    assert statuses(laptop) == {"Ada": "online", "Jerry@desk": "unreachable"}


def statuses(machine: Machine) -> dict[str, str]:
    return {each["agentId"]: each["status"] for each in machine.call("local", "agents.list")}


@pytest.mark.req("MESH-NAME-5")
def test_a_machine_that_nobody_knows_is_named(pair: Machines) -> None:
    with pytest.raises(NotFound) as refused:
        pair["laptop"].send("Ada", "Jerry@nowhere")
    assert "desk" in (refused.value.hint or "")


@pytest.mark.req("MESH-M-1")
def test_an_unknown_handle_ends_the_ticket_with_the_reason(pair: Machines) -> None:
    ticket = pair["laptop"].send("Ada", "Nobody@desk")
    pair.settle()
    shown = pair["laptop"].show(ticket)
    assert shown["status"] == "cancelled"
    assert "agent not registered" in shown["reason"]


@pytest.mark.req("MESH-TICKET-2")
def test_a_cancelled_message_is_withdrawn_there(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": ticket, "reason": "no longer"})
    pair.settle()
    assert desk.take("Jerry") == []


def cancelled_before_it_came(pair: Machines) -> Machine:
    """The letter with the offer is brought once its cancel has been."""
    laptop = pair["laptop"]
    ticket = laptop.send("Ada", "Jerry@desk")
    laptop.house.advance(0)
    held = [each for each in pair.bus.moving if each[0] == "desk"]
    assert held
    pair.bus.moving.clear()
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": ticket})
    laptop.house.advance(0)
    pair.bus.moving += held
    while pair.bus.moving:
        pair.deliver_one()
    return pair["desk"]


@pytest.mark.req("MESH-RULE-3")
def test_a_message_that_comes_after_its_cancel_is_not_delivered(pair: Machines) -> None:
    desk = cancelled_before_it_came(pair)
    assert desk.take("Jerry") == []


def test_without_the_tombstone_it_would_be(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the test before."""
    monkeypatch.setattr(Copies, "_keep", lambda *_: None)
    desk = cancelled_before_it_came(pair)
    assert len(desk.take("Jerry")) == 1


@pytest.mark.req("MESH-TICKET-2")
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


@pytest.mark.req("MESH-TICKET-3")
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


@pytest.mark.req("MESH-TICKET-4")
def test_a_message_that_the_server_between_the_machines_does_not_take_is_refused_at_once(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.post.max_bytes = 10_000
    with pytest.raises(TooLarge, match="the server between the machines takes") as refused:
        laptop.send("Ada", "Jerry@desk", "x" * 10_000)
    assert refused.value.status == 413
    assert "max_payload" in (refused.value.hint or "")
    assert laptop.engine._state.out.rows == {}
    # Control: one that it takes.
    laptop.send("Ada", "Jerry@desk", "x" * 5_000)
    pair.settle()
    assert [len(each["payload"]) for each in desk.take("Jerry")] == [5_000]


@pytest.mark.req("MESH-TICKET-4")
def test_a_reply_that_the_server_between_the_machines_does_not_take_is_refused_at_once(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    desk.post.max_bytes = 10_000
    with pytest.raises(TooLarge, match="the server between the machines takes"):
        desk.reply("Jerry", message["ticketId"], "x" * 10_000)
    assert desk.engine._state.out.rows == {}
    # Control: one that it takes.
    desk.reply("Jerry", message["ticketId"], "x" * 5_000)
    pair.settle()
    assert len(laptop.show(ticket)["response"]) == 5_000


@pytest.mark.req("MESH-TICKET-6")
def test_callers_cannot_choose_an_id_of_a_copy(pair: Machines) -> None:
    with pytest.raises(InvalidRequest, match="reserved"):
        pair["desk"].send("Jerry", "Jerry", ticketId="msh_0123456789abcdef0123456789abcdef")


# -- groups, broadcasts, the ledger --


@pytest.fixture
def three() -> Iterator[Machines]:
    with Machines("laptop", "desk", "vm") as machines:
        machines["laptop"].house.register("Ada")
        for name in ("desk", "vm"):
            machines[name].house.register(f"R-{name}", groups=["reviewers"])
        machines.advance(1)
        machines.settle()
        yield machines


@pytest.mark.req("MESH-NAME-3")
def test_a_group_of_one_machine_shares_its_queue_there(three: Machines) -> None:
    laptop, vm = three["laptop"], three["vm"]
    ticket = laptop.send("Ada", "reviewers@vm")
    three.settle()
    (message,) = vm.take("R-vm")
    assert message["group"] == "reviewers"
    vm.reply("R-vm", message["ticketId"], "looks good")
    three.settle()
    shown = laptop.show(ticket)
    assert shown["response"] == "looks good"
    assert shown["replies"][0]["from"] == "R-vm@vm"


@pytest.mark.req("MESH-NAME-3")
def test_a_message_to_a_group_of_any_machine_goes_where_a_member_is_free(three: Machines) -> None:
    laptop, vm = three["laptop"], three["vm"]
    waiting = vm.house.begin("agent:R-vm", "inbox.take", {"agentId": "R-vm", "waitMs": 60_000})
    three.advance(30)
    three.settle()
    ticket = laptop.send("Ada", "reviewers@any")
    three.settle()
    (message,) = waiting.result()["messages"]
    vm.reply("R-vm", message["ticketId"], "mine")
    three.settle()
    assert laptop.show(ticket)["response"] == "mine"
    assert three["desk"].take("R-desk") == []


@pytest.mark.req("MESH-NAME-3")
def test_a_busy_machine_passes_a_message_for_any_machine_on(three: Machines) -> None:
    """Nobody waits when it is offered first; another node has a free member by then."""
    laptop, desk, vm = three["laptop"], three["desk"], three["vm"]
    ticket = laptop.send("Ada", "reviewers@any")
    polls = [
        machine.house.begin(f"agent:R-{machine.name}", "inbox.take", {"agentId": f"R-{machine.name}", "waitMs": 60_000})
        for machine in (desk, vm)
    ]
    three.settle()
    for _ in range(4):
        three.advance(3)
        three.settle()
    taken = [poll.result()["messages"][0] for poll in polls if poll.done]
    assert len(taken) == 1
    assert laptop.show(ticket)["delivery"]["state"] == "arrived"


@pytest.mark.req("MESH-NAME-3")
@pytest.mark.parametrize("name", ["desk", "vm"])
def test_a_message_for_any_machine_finds_a_member_who_is_free_long_after_all_were_asked(
    three: Machines, name: str
) -> None:
    laptop, machine = three["laptop"], three[name]
    ticket = laptop.send("Ada", "reviewers@any")
    for _ in range(20):
        three.advance(3)
        three.settle()
    assert laptop.show(ticket)["status"] == "pending"
    waiting = machine.house.begin(f"agent:R-{name}", "inbox.take", {"agentId": f"R-{name}", "waitMs": 300_000})
    for _ in range(20):
        three.advance(3)
        three.settle()
    (message,) = waiting.result()["messages"]
    machine.reply(f"R-{name}", message["ticketId"], "mine")
    three.settle()
    assert laptop.show(ticket)["response"] == "mine"


@pytest.mark.req("MESH-DAY-13")
@pytest.mark.parametrize("gone", ["first", "last"])
def test_a_message_for_any_machine_goes_on_when_one_that_was_asked_is_revoked(three: Machines, gone: str) -> None:
    laptop = three["laptop"]
    ticket = laptop.send("Ada", "reviewers@any")
    for _ in range(4):
        three.advance(3)
        three.settle()
    first, last = laptop.engine._state.home.rows[ticket].nodes
    revoked, other = (first, last) if gone == "first" else (last, first)
    three.revoke(revoked)
    three.settle()
    assert laptop.show(ticket)["status"] == "pending"
    assert all(item.node != revoked for item in laptop.engine._state.out.rows.values())
    waiting = three[other].house.begin(f"agent:R-{other}", "inbox.take", {"agentId": f"R-{other}", "waitMs": 300_000})
    for _ in range(20):
        three.advance(3)
        three.settle()
    (message,) = waiting.result()["messages"]
    three[other].reply(f"R-{other}", message["ticketId"], "mine")
    three.settle()
    assert laptop.show(ticket)["response"] == "mine"


def wait_for_message(machine: Machine) -> Pending:
    agent = f"R-{machine.name}"
    return machine.house.begin(f"agent:{agent}", "inbox.take", {"agentId": agent, "waitMs": 60_000})


def both_have_it(three: Machines) -> tuple[str, dict[str, str]]:
    """The machine that was asked first has the message and is cut off, so the other one gets it, too."""
    laptop, first, other = three["laptop"], three["desk"], three["vm"]
    waiting = wait_for_message(first)
    three.advance(30)
    three.settle()
    ticket = laptop.send("Ada", "reviewers@any")
    while not waiting.done:
        assert three.deliver_one()
    first.house.run(first.post.disconnect)
    three.advance(60)
    also = wait_for_message(other)
    for _ in range(10):
        three.advance(3)
        three.settle()
    return ticket, {
        machine.name: poll.result()["messages"][0]["ticketId"] for machine, poll in ((other, also), (first, waiting))
    }


def both_answer(three: Machines) -> tuple[str, dict[str, str]]:
    ticket, copies = both_have_it(three)
    laptop, first, other = three["laptop"], three["desk"], three["vm"]
    other.reply("R-vm", copies["vm"], "yes")
    three.settle()
    assert laptop.show(ticket)["response"] == "yes"
    for answer in ("no", "never"):
        first.reply("R-desk", copies["desk"], answer)
    first.house.run(first.post.connect)
    three.settle()
    return ticket, copies


@pytest.mark.req("MESH-M-4")
def test_all_replies_are_kept_when_two_machines_got_a_message_for_any_machine(three: Machines) -> None:
    ticket, copies = both_answer(three)
    shown = three["laptop"].show(ticket)
    replies = [(reply["from"], reply["payload"]) for reply in shown["replies"]]
    assert replies == [("R-vm@vm", "yes"), ("R-desk@desk", "no"), ("R-desk@desk", "never")]
    assert shown["response"] == "yes"
    assert all(three[name].show(id_)["status"] == "responded" for name, id_ in copies.items())
    assert all(machine.engine._state.out.rows == {} for machine in three.machines.values())


def test_the_other_machine_hears_that_a_message_for_any_machine_was_answered(three: Machines) -> None:
    _, copies = both_have_it(three)
    first, other = three["desk"], three["vm"]
    other.reply("R-vm", copies["vm"], "yes")
    three.settle()
    assert first.show(copies["desk"])["status"] == "pending", "it is cut off"
    first.house.run(first.post.connect)
    three.settle()
    assert first.show(copies["desk"])["status"] == "responded"
    assert all(machine.engine._state.out.rows == {} for machine in three.machines.values())


def test_a_machine_that_had_nobody_free_confirms_that_a_message_for_any_machine_is_over(three: Machines) -> None:
    laptop, desk, vm = three["laptop"], three["desk"], three["vm"]
    ticket = laptop.send("Ada", "reviewers@any", timeoutMs=120_000)
    for _ in range(4):
        three.advance(3)
        three.settle()
    assert len(laptop.engine._state.home.rows[ticket].nodes) == 2, "both were asked"
    waiting = wait_for_message(vm)
    for _ in range(10):
        three.advance(3)
        three.settle()
    (message,) = waiting.result()["messages"]
    three.advance(120)
    three.settle()
    assert laptop.show(ticket)["status"] == vm.show(message["ticketId"])["status"] == "timeout"
    assert laptop.engine._state.out.rows == {}
    assert desk.engine._state.copies.rows == {}


def test_a_message_for_any_machine_that_was_answered_is_offered_to_nobody_any_more(three: Machines) -> None:
    """The machine that was asked first was cut off before it had it, and has somebody free only later."""
    laptop, desk, vm = three["laptop"], three["desk"], three["vm"]
    desk.house.run(desk.post.disconnect)
    ticket = laptop.send("Ada", "reviewers@any")
    assert laptop.engine._state.home.rows[ticket].nodes == ("desk",)
    three.advance(100)
    waiting = wait_for_message(vm)
    for _ in range(10):
        three.advance(3)
        three.settle()
    (message,) = waiting.result()["messages"]
    vm.reply("R-vm", message["ticketId"], "yes")
    three.settle()
    assert laptop.show(ticket)["response"] == "yes"
    desk.house.run(desk.post.connect)
    three.settle()
    assert laptop.engine._state.out.rows == {}
    late = wait_for_message(desk)
    three.advance(60)
    three.settle()
    assert late.result() is None


def test_a_message_for_any_machine_ends_when_the_last_that_has_the_group_is_revoked(three: Machines) -> None:
    laptop = three["laptop"]
    ticket = laptop.send("Ada", "reviewers@any")
    three.settle()
    for name in ("desk", "vm"):
        three.revoke(name)
        three.settle()
    assert laptop.show(ticket)["status"] == "cancelled"
    assert "revoked" in laptop.show(ticket)["reason"]
    # Nobody is told who is no machine any more.
    assert laptop.engine._state.out.rows == {}


def test_a_group_of_another_machine_is_online_while_a_member_is(three: Machines) -> None:
    laptop = three["laptop"]
    sent = laptop.call("agent:Ada", "messages.send", {"agentId": "reviewers@vm", "payload": "hello"})
    assert sent["agentStatus"] == "online"
    # Control: a handle that nobody there has.
    sent = laptop.call("agent:Ada", "messages.send", {"agentId": "nobody@vm", "payload": "hello"})
    assert sent["agentStatus"] == "unknown"


def test_a_full_name_of_this_machine_means_its_own_agent(three: Machines) -> None:
    ticket = three["laptop"].send("Ada", "Ada@laptop")
    assert three["laptop"].show(ticket)["targetAgent"] == "Ada"


@pytest.mark.req("MESH-NAME-4")
def test_a_broadcast_reaches_other_machines_only_when_it_says_so(three: Machines) -> None:
    laptop = three["laptop"]
    laptop.house.register("Bea")
    local = laptop.call("agent:Ada", "messages.broadcast", {"payload": "here"})
    assert [each["agentId"] for each in local["tickets"]] == ["Bea"]
    everywhere = laptop.call("agent:Ada", "messages.broadcast", {"payload": "all", "scope": "mesh"})
    assert {each["agentId"] for each in everywhere["tickets"]} == {"Bea", "R-desk@desk", "R-vm@vm"}
    three.settle()
    assert [each["payload"] for each in three["desk"].take("R-desk")] == ["all"]


@pytest.mark.req("MESH-TICKET-7")
def test_the_records_of_both_sides_refer_to_each_other(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    desk.reply("Jerry", message["ticketId"])
    pair.settle()
    (arrival,) = [each for each in desk.house.ledger() if each["method"] == "mesh.offer"]
    assert arrival["details"]["home"] == ticket
    (answer,) = [each for each in laptop.house.ledger() if each["method"] == "mesh.reply"]
    assert answer["subject"] == ticket
    assert answer["principal"] == "agent:Jerry@desk"
    for record, other in ((arrival, laptop), (answer, desk)):
        seq, head = record["details"]["peer"].split(":")
        assert {str(each["seq"]): each["hash"] for each in other.house.ledger()}[seq] == head


@pytest.mark.req("MESH-TICKET-8")
def test_other_machines_say_which_end_of_our_ledger_they_hold(pair: Machines) -> None:
    laptop = pair["laptop"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    asked = laptop.house.begin("local", "mesh.anchors")
    pair.settle()
    (anchor,) = asked.result()["anchors"]
    (record,) = laptop.call("local", "ledger.show", {"what": str(anchor["seq"])})
    assert record["hash"] == anchor["head"]


@pytest.mark.parametrize("later", [1, 0])
def test_a_copied_disk_stops_itself(pair: Machines, later: int) -> None:
    """The same keys live twice: each sees the other's signs of life behind its own. Where the clock is behind their
    lives before, both lives begin at the same time."""
    desk, life, started = pair["desk"], pair["desk"].engine.life, pair["desk"].engine.lives.started
    for _ in range(2):
        desk.engine.life, desk.engine.lives.started = "lif_other", started + later
        desk.house.run(desk.engine._put_life_sign)
        desk.engine.life, desk.engine.lives.started = life, started
        pair.settle()
        desk.house.run(desk.engine._put_life_sign)
        pair.settle()
    assert "copied" in desk.engine.halted
