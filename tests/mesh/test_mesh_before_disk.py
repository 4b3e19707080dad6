"""What another machine has on its disk is shown here before it is on ours, and nothing of it is lost or done twice."""

from collections.abc import Iterator
from typing import Any

import pytest
from machines import Machine, Machines

from bascule.foundation.errors import NotFound
from bascule.mesh import arrivals
from bascule.mesh.protocol import MAX_ITEMS
from bascule.testing.pending import Pending
from bascule.testing.stores import HeldStore


@pytest.fixture
def pair() -> Iterator[Machines]:
    with Machines("laptop", "desk", new_store=lambda: HeldStore(hold=False)) as machines:
        machines["laptop"].house.register("Ada")
        machines["desk"].house.register("Jerry")
        machines.advance(1)
        machines.settle()
        yield machines


def _disk(machine: Machine) -> HeldStore:
    assert isinstance(machine.house.store, HeldStore)
    return machine.house.store


def _deliver(machines: Machines) -> None:
    """What is on its way arrives, and no time passes."""
    machines.advance(0)
    while machines.deliver_one():
        machines.advance(0)


def _listen(machine: Machine) -> Pending:
    return machine.house.begin("agent:Jerry", "inbox.take", {"agentId": "Jerry", "waitMs": 60_000})


def _ask(machine: Machine) -> Pending:
    params = {"agentId": "Jerry@desk", "payload": "why?", "ticketId": "why-1", "waitMs": 60_000}
    return machine.house.begin("agent:Ada", "messages.send", params)


def _offers(machine: Machine) -> int:
    return sum(each["method"] == "mesh.offer" for each in machine.house.ledger())


def _answered(pair: Machines) -> tuple[Pending, dict[str, Any]]:
    """Ada's question, and the message as Jerry gets it."""
    listening = _listen(pair["desk"])
    asked = _ask(pair["laptop"])
    _deliver(pair)
    (message,) = listening.result()["messages"]
    return asked, message


@pytest.mark.req("MESH-RULE-6")
def test_a_message_is_handed_over_before_it_is_on_disk_and_confirmed_after(pair: Machines) -> None:
    desk = pair["desk"]
    before = len(_disk(desk).batches)
    _, message = _answered(pair)
    assert message["payload"] == "why?"
    assert len(_disk(desk).batches) == before
    assert not desk.engine.courier._receipts
    pair.advance(arrivals.HOLD_MS / 1000)
    assert len(_disk(desk).batches) == before + 1
    assert desk.engine.courier._receipts


def test_a_message_and_the_reply_to_it_are_one_commit_and_the_reply_waits_for_it(pair: Machines) -> None:
    desk = pair["desk"]
    asked, message = _answered(pair)
    disk = _disk(desk)
    disk.hold = True
    replied = desk.house.begin("agent:Jerry", "replies.post", {"ticketId": message["ticketId"], "payload": "so"})
    (batch,) = disk.waiting
    assert len(batch.ledger) == 2
    _deliver(pair)
    assert not replied.done
    assert not asked.done
    disk.hold = False
    desk.house.run(disk.finish_all)
    assert replied.done
    _deliver(pair)
    assert asked.result()["reply"]["payload"] == "so"


@pytest.mark.req("MESH-RULE-7")
def test_a_message_that_was_handed_over_and_lost_with_its_machine_comes_again_as_the_same(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    _, first = _answered(pair)
    desk.crash()
    pair.settle()
    (second,) = desk.take("Jerry")
    assert second["ticketId"] == first["ticketId"]
    desk.reply("Jerry", second["ticketId"], "so")
    pair.settle()
    assert [each["payload"] for each in laptop.show("why-1")["replies"]] == ["so"]
    assert _offers(desk) == 1


@pytest.mark.req("MESH-DAY-8")
def test_a_message_that_cannot_be_stored_is_taken_back_and_comes_again(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    disk = _disk(desk)
    _, message = _answered(pair)
    disk.hold = True
    pair.advance(arrivals.HOLD_MS / 1000)
    desk.house.run(lambda: disk.fail(OSError("no space left on device")))
    with pytest.raises(NotFound):
        desk.reply("Jerry", message["ticketId"], "too early")
    assert desk.take("Jerry") == []
    disk.hold = False
    pair.advance(5)
    pair.settle()
    (again,) = desk.take("Jerry")
    assert again["ticketId"] == message["ticketId"]
    desk.reply("Jerry", again["ticketId"], "so")
    pair.settle()
    assert laptop.show("why-1")["response"] == "so"


def test_a_reply_is_shown_to_who_waits_before_it_is_on_disk_at_home(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    asked, message = _answered(pair)
    desk.reply("Jerry", message["ticketId"], "so")
    before = len(_disk(laptop).batches)
    _deliver(pair)
    assert asked.result()["reply"]["payload"] == "so"
    assert len(_disk(laptop).batches) == before
    assert not laptop.engine.courier._receipts
    # Who reads the ticket waits for the disk, as with every change.
    assert laptop.show("why-1")["status"] == "responded"
    assert len(_disk(laptop).batches) == before + 1
    assert laptop.engine.courier._receipts


@pytest.mark.req("MESH-RULE-7")
@pytest.mark.parametrize("how", ["it dies", "its disk is full"])
def test_a_reply_that_was_shown_and_not_stored_comes_again(pair: Machines, how: str) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    asked, message = _answered(pair)
    desk.reply("Jerry", message["ticketId"], "so")
    _deliver(pair)
    assert asked.result()["reply"]["payload"] == "so"
    if how == "it dies":
        laptop.crash()
    else:
        disk = _disk(laptop)
        disk.hold = True
        pair.advance(arrivals.HOLD_MS / 1000)
        laptop.house.run(lambda: disk.fail(OSError("no space left on device")))
        disk.hold = False
    assert laptop.show("why-1")["status"] == "pending"
    pair.advance(5)
    pair.settle()
    shown = laptop.show("why-1")
    assert shown["status"] == "responded"
    assert [each["payload"] for each in shown["replies"]] == ["so"]
    assert not desk.mesh.state.out.rows


def test_a_reply_to_a_group_of_any_machine_is_shown_when_it_is_on_disk(pair: Machines) -> None:
    """Another machine of the group could be the first to answer after a crash."""
    laptop, desk = pair["laptop"], pair["desk"]
    desk.house.register("Rita", groups=["reviewers"])
    pair.advance(1)
    pair.settle()
    waiting = desk.house.begin("agent:Rita", "inbox.take", {"agentId": "Rita", "waitMs": 600_000})
    pair.advance(40)
    pair.settle()
    asked = laptop.house.begin(
        "agent:Ada", "messages.send", {"agentId": "reviewers@any", "payload": "why?", "waitMs": 60_000}
    )
    _deliver(pair)
    (message,) = waiting.result()["messages"]
    desk.reply("Rita", message["ticketId"], "so")
    disk = _disk(laptop)
    disk.hold = True
    _deliver(pair)
    assert disk.waiting
    assert not asked.done
    disk.hold = False
    laptop.house.run(disk.finish_all)
    assert asked.result()["reply"]["payload"] == "so"


@pytest.mark.req("MESH-DAY-8")
def test_a_message_that_a_full_disk_does_not_take_is_handed_over_once_and_not_each_time_it_comes(
    pair: Machines,
) -> None:
    desk = pair["desk"]
    disk = _disk(desk)
    listening = [_listen(desk) for _ in range(5)]
    before = sum(bool(batch.ledger) for batch in disk.batches)
    _ask(pair["laptop"])
    disk.hold = True
    for _ in range(30):
        pair.advance(1)
        _deliver(pair)
        while disk.waiting:
            desk.house.run(lambda: disk.fail(OSError("no space left on device")))
    # It came several times.
    assert sum(bool(batch.ledger) for batch in disk.batches) - before > 2
    assert sum(each.done for each in listening) == 1
    disk.hold = False
    pair.advance(20)
    pair.settle()
    assert sum(each.done for each in listening) == 2


@pytest.mark.req("MESH-TICKET-2")
@pytest.mark.parametrize("how", ["directly", "from its mailbox"])
def test_a_message_that_was_withdrawn_before_it_came_is_not_handed_over(pair: Machines, how: str) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    if how == "directly":
        pair.bus.down = True
    else:
        desk.house.run(desk.post.disconnect)
        pair.advance(120)
    laptop.send("Ada", "Jerry@desk", "do it", ticketId="do-1")
    laptop.send("Ada", "Jerry@desk", "and this", ticketId="do-2")
    pair.advance(2)
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": "do-1"})
    pair.advance(2)
    listening = _listen(desk)
    disk = _disk(desk)
    if how == "directly":
        pair.bus.moving.clear()
        pair.bus.down = False
        laptop.house.run(lambda: laptop.engine.outbox.again("desk"))
    else:
        desk.open()
        desk.house.advance(0)
    # A disk takes longer than the next letter.
    disk.hold = True
    _deliver(pair)
    disk.hold = False
    desk.house.run(disk.finish_all)
    pair.settle()
    assert [each["payload"] for each in listening.result()["messages"]] == ["and this"]
    assert desk.take("Jerry") == []


def test_who_gathers_replies_is_shown_none_that_its_own_disk_does_not_have(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.house.register("Bob")
    _, message = _answered(pair)
    laptop.send("Ada", "Bob", "why?", ticketId="here-1")
    laptop.take("Bob")
    gathering = laptop.house.begin("agent:Ada", "replies.gather", {"ticketIds": ["why-1", "here-1"], "waitMs": 60_000})
    disk = _disk(laptop)
    disk.hold = True
    replied = laptop.house.begin("agent:Bob", "replies.post", {"ticketId": "here-1", "payload": "perhaps"})
    desk.reply("Jerry", message["ticketId"], "so")
    _deliver(pair)
    assert not replied.done
    assert not gathering.done
    laptop.house.run(lambda: disk.fail(OSError("no space left on device")))
    disk.hold = False
    assert "replies" not in gathering.result()
    laptop.reply("Bob", "here-1", "no")
    pair.advance(5)
    pair.settle()
    again = laptop.call("agent:Ada", "replies.gather", {"ticketIds": ["why-1", "here-1"], "waitMs": 0})
    assert [each["payload"] for each in again["replies"]] == ["so", "no"]


def test_the_ledger_has_the_record_of_a_reply_that_was_shown_to_whoever_looks(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    asked, message = _answered(pair)
    desk.reply("Jerry", message["ticketId"], "so")
    _deliver(pair)
    assert asked.result()["reply"]["payload"] == "so"
    shown = laptop.call("person", "ledger.show", {"what": "why-1"})
    assert [each["method"] for each in shown] == ["messages.send", "mesh.reply"]
    assert laptop.call("person", "ledger.tail")[-1]["method"] == "mesh.reply"


def test_a_receipt_says_nothing_that_is_not_on_disk(pair: Machines) -> None:
    """Ada withdraws while the acknowledgement is being written; the withdrawal itself never gets to the disk."""
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    disk = _disk(laptop)
    disk.hold = True
    desk.call("agent:Jerry", "inbox.ack", {"agentId": "Jerry", "ticketIds": [message["ticketId"]]})
    _deliver(pair)
    assert len(disk.waiting) == 1
    withdrawn = laptop.house.begin("agent:Ada", "tickets.cancel", {"ticketId": ticket})
    laptop.house.run(disk.finish)
    pair.advance(0.05)
    _deliver(pair)
    pair.advance(0.05)
    assert not withdrawn.done
    disk.waiting.clear()
    disk.hold = False
    laptop.crash()
    pair.settle()
    assert laptop.show(ticket)["status"] == desk.show(message["ticketId"])["status"] == "delivered"
    desk.reply("Jerry", message["ticketId"], "so")
    pair.settle()
    assert laptop.show(ticket)["response"] == "so"


def test_all_that_a_slow_disk_kept_waiting_is_confirmed_in_letters_that_are_taken(pair: Machines) -> None:
    """More receipts than one letter holds are due with one commit: the same offer came again and again."""
    laptop, desk = pair["laptop"], pair["desk"]
    disk = _disk(desk)
    disk.hold = True
    laptop.send("Ada", "Jerry@desk")
    pair.advance(0.01)
    (letter,) = [each for each in pair.bus.letters if each.dest == "desk"][-1:]
    for _ in range(MAX_ITEMS * MAX_ITEMS):
        pair.bus.slip_in(letter, mailed=False)
    _deliver(pair)
    assert disk.waiting
    disk.hold = False
    desk.house.run(disk.finish_all)
    pair.advance(0.05)
    _deliver(pair)
    assert [each for event, each in laptop.house.log if event == "mesh_letter_refused"] == []
    pair.advance(0.05)
    assert laptop.mesh.state.out.rows == {}


def test_a_refused_reply_is_an_event_once_that_it_is_gone_is_on_disk(pair: Machines) -> None:
    """Else it is one again, after a crash or on a full disk, with the next receipt."""
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    laptop.house.run(laptop.post.disconnect)
    desk.reply("Jerry", message["ticketId"])
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": ticket})
    published: list[str] = []
    desk.engine._arrivals.receipts._publish = lambda fact: published.append(fact.event)
    disk = _disk(desk)
    disk.hold = True
    laptop.house.run(laptop.post.connect)
    for _ in range(40):
        _deliver(pair)
        pair.advance(0.05)
        if not desk.mesh.state.out.rows:
            break
    assert disk.waiting
    assert published == []
    disk.hold = False
    desk.house.run(disk.finish_all)
    assert published == ["reply.refused"]
