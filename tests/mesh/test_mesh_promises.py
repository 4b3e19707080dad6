"""What docs/mesh.md says beside the way of a message: limits, other people's machines, conversations, events."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from machines import Machine, Machines

from bascule.foundation.errors import Overloaded
from bascule.mesh.courier import Courier
from bascule.mesh.engine import Engine
from bascule.mesh.nodes import Nodes
from bascule.mesh.protocol import MAX_ITEMS, Taken
from bascule.testing.pending import Pending

# -- without a receipt --


@pytest.mark.req("MESH-RULE-4")
def test_what_has_no_receipt_is_mailed_after_longer_and_longer_pauses_and_at_once_when_its_machine_is_back(
    pair: Machines,
) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    desk.house.run(desk.post.disconnect)
    # Longer than all of them: that its sender stops waiting is said to the other machine, too.
    laptop.send("Ada", "Jerry@desk", timeoutMs=604_800_000)
    pair.advance(0)
    for pause in (1, 3, 6, 12, 24, 48, 96, 192, 384, 768, 1_536, 3_072, 3_600, 3_600):
        before = _mailed_to(pair, "desk")
        pair.advance(pause - 0.1)
        assert _mailed_to(pair, "desk") == before, pause
        pair.advance(0.2)
        assert _mailed_to(pair, "desk") == before + 1, pause
    pair.bus.mailboxes.clear()
    pair.bus.moving.clear()
    desk.house.run(desk.post.connect)
    pair.settle()
    assert len(desk.take("Jerry")) == 1


def _mailed_to(pair: Machines, name: str) -> int:
    return sum(letter.dest == name and letter.number is not None for letter in pair.bus.letters)


# -- limits --


@pytest.mark.req("MESH-TICKET-5")
@pytest.mark.parametrize("limit", ["_max_items", "_max_bytes"])
def test_a_message_to_a_machine_that_confirms_nothing_is_refused_when_its_outbox_is_full(
    pair: Machines, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    monkeypatch.setattr(laptop.engine.outbox, limit, {"_max_items": 3, "_max_bytes": 2_000}[limit])
    desk.house.run(desk.post.disconnect)
    payload = "x" * 400
    for _ in range(3):
        laptop.send("Ada", "Jerry@desk", payload)
    with pytest.raises(Overloaded) as refused:
        laptop.send("Ada", "Jerry@desk", payload, ticketId="one-more")
    assert refused.value.status == 429
    assert refused.value.retry_after == 60
    assert "3 messages" in refused.value.message
    hint = refused.value.hint or ""
    assert "bascule mesh status" in hint
    assert {"_max_items": "mesh_outbox_items (3)", "_max_bytes": "mesh_outbox_bytes (2000)"}[limit] in hint
    # Nothing is left of it: the same ticket is taken when there is room.
    desk.house.run(desk.post.connect)
    pair.settle()
    laptop.send("Ada", "Jerry@desk", payload, ticketId="one-more")
    pair.settle()
    assert len(desk.take("Jerry")) == 4


def test_a_machine_that_is_no_member_any_more_tries_to_send_nothing(pair: Machines) -> None:
    """As one whose disk was copied. If a person keeps it, what waited is sent by the engine that it has then."""
    laptop, desk = pair["laptop"], pair["desk"]
    desk.house.run(desk.post.disconnect)
    laptop.send("Ada", "Jerry@desk")
    outbox, due = laptop.engine.outbox, []
    laptop.house.run(laptop.mesh.not_member)
    outbox.on_due = lambda *given: due.append(given)
    pair.advance(7_200)
    assert due == []
    laptop.house.run(lambda: laptop.mesh.member(laptop.membership))
    desk.house.run(desk.post.connect)
    laptop.open()
    pair.settle()
    assert len(desk.take("Jerry")) == 1


def test_more_receipts_than_one_letter_holds_go_in_several(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a disk that stood still for seconds."""
    laptop, desk = pair["laptop"], pair["desk"]
    confirmed: list[Taken] = []
    receipts = laptop.engine._arrivals.receipts
    monkeypatch.setattr(receipts, "add", lambda _name, receipt, _envelope: confirmed.extend(receipt.taken))
    many = [Taken(id=f"i-{number}", ticket="t") for number in range(MAX_ITEMS * (MAX_ITEMS + 1))]
    desk.house.run(lambda: [desk.engine.courier.confirm("laptop", each) for each in many])
    pair.settle()
    assert confirmed == many


@pytest.mark.req("MESH-RULE-3")
def test_an_offer_as_old_as_the_copies_that_were_dropped_is_refused_as_late(
    pair: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would make it the same offer is gone: taken again, it would be delivered twice."""
    laptop, desk = pair["laptop"], pair["desk"]
    monkeypatch.setattr(desk.engine.copies, "_max_copies", 10)
    for number in range(12):
        laptop.send("Ada", "Jerry@desk", number, ticketId=f"t-{number}")
        pair.advance(1)
        pair.settle()
    assert len(desk.take("Jerry")) == 12
    kept = {copy.home for copy in desk.mesh.state.copies.rows.values()}
    assert kept == {f"t-{number}" for number in range(2, 12)}
    answers = _answers(monkeypatch)
    _send_all_letters_again(pair)
    assert {taken.ticket for taken in answers if taken.refused == "late"} == {"t-0", "t-1"}
    assert {taken.ticket for taken in answers if taken.refused is None} >= kept
    assert desk.take("Jerry") == []
    assert _count_of_offers(desk) == 12


def test_without_the_floor_an_offer_whose_copy_was_dropped_would_be_delivered_again(
    pair: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    laptop, desk = pair["laptop"], pair["desk"]
    monkeypatch.setattr(desk.engine.copies, "_max_copies", 10)
    for number in range(12):
        laptop.send("Ada", "Jerry@desk", number, ticketId=f"t-{number}")
        pair.advance(1)
        pair.settle()
    peers = desk.mesh.state.peers.rows
    peers["laptop"] = msgspec.structs.replace(peers["laptop"], floor=0)
    _send_all_letters_again(pair)
    assert _count_of_offers(desk) > 12


def _answers(monkeypatch: pytest.MonkeyPatch) -> list[Taken]:
    answers: list[Taken] = []
    confirm = Courier.confirm

    def noting(self: Courier, node: str, taken: Taken) -> None:
        answers.append(taken)
        confirm(self, node, taken)

    monkeypatch.setattr(Courier, "confirm", noting)
    return answers


def _send_all_letters_again(machines: Machines) -> None:
    for letter in [each for each in machines.bus.letters if each.dest == "desk"]:
        machines.bus.slip_in(letter, mailed=False)
    machines.settle()


def _count_of_offers(machine: Machine) -> int:
    return sum(each["method"] == "mesh.offer" for each in machine.house.ledger())


# -- mailboxes --


def _noted_mail(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of what is read out of mailboxes from now on."""
    read: list[int] = []
    mailed = Engine.mailed

    def noting(self: Any, src: str, data: bytes, number: int) -> None:
        read.append(number)
        mailed(self, src, data, number)

    monkeypatch.setattr(Engine, "mailed", noting)
    return read


def _read_in_two_lives(machines: Machines, read: list[int]) -> tuple[list[int], list[int]]:
    """Desk was away, has read its mail since, and is killed."""
    desk = machines["desk"]
    desk.house.run(desk.post.disconnect)
    machines.advance(120)
    for number in range(3):
        machines["laptop"].send("Ada", "Jerry@desk", number)
    machines.advance(5)
    desk.house.run(desk.post.connect)
    machines.settle()
    machines.advance(1)
    before = list(read)
    read.clear()
    desk.crash()
    machines.settle()
    return before, list(read)


def test_mail_that_was_read_is_not_read_again_by_the_next_life(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    before, again = _read_in_two_lives(pair, _noted_mail(monkeypatch))
    assert before
    assert not {*before} & {*again}
    assert [each["payload"] for each in pair["desk"].take("Jerry")] == [0, 1, 2]


def test_without_the_cursor_all_mail_would_be_read_again_and_handed_over_once(
    pair: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control; and as after a crash before the cursor was written."""
    monkeypatch.setattr(Engine, "_store_cursor", lambda *_: None)
    before, again = _read_in_two_lives(pair, _noted_mail(monkeypatch))
    assert before
    assert {*before} <= {*again}
    assert [each["payload"] for each in pair["desk"].take("Jerry")] == [0, 1, 2]


# -- conversations --


def test_each_machine_shows_what_it_holds_of_a_conversation(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk", "how?", ticketId="ask", conversationId="plan")
    pair.settle()
    (asked,) = desk.take("Jerry")
    desk.reply("Jerry", asked["ticketId"], "so")
    desk.send("Jerry", "Ada@laptop", "and then?", ticketId="back", conversationId="plan")
    # Of the same conversation, and of this machine alone.
    desk.house.register("Rita")
    desk.send("Jerry", "Rita", "you too?", ticketId="here", conversationId="plan")
    pair.settle()
    (back,) = laptop.take("Ada")
    assert back["conversationId"] == "plan"
    shown = {
        machine.name: machine.call(f"agent:{agent}", "conversations.show", {"conversationId": "plan"})["tickets"]
        for machine, agent in ((laptop, "Ada"), (desk, "Jerry"))
    }
    ids = {name: [each["ticketId"] for each in tickets] for name, tickets in shown.items()}
    assert ids == {"laptop": ["ask", back["ticketId"]], "desk": [asked["ticketId"], "back", "here"]}
    assert [tickets[0]["response"] for tickets in shown.values()] == ["so", "so"]


# -- machines of other people --


@pytest.fixture
def with_bob() -> Iterator[Machines]:
    """One's own desk and Bob's machine both have reviewers; Bob has let us in."""
    with Machines("laptop", "desk", "bob", owners={"bob": "Bob"}) as machines:
        machines["laptop"].house.register("Ada")
        for name in ("desk", "bob"):
            machines[name].house.register(f"R-{name}", groups=["reviewers"])
        peers = machines["bob"].mesh.state
        peers.peers.rows["laptop"] = msgspec.structs.replace(
            peers.peer("laptop"), met=True, met_key=machines["laptop"].card.sign
        )
        machines.advance(1)
        machines.settle()
        yield machines


def _wait_for_work(machines: Machines, *names: str) -> dict[str, Pending]:
    waiting = {
        name: machines[name].house.begin(f"agent:R-{name}", "inbox.take", {"agentId": f"R-{name}", "waitMs": 600_000})
        for name in names
    }
    machines.advance(31)
    machines.settle()
    return waiting


def _who_gets_one_for_any(machines: Machines, waiting: dict[str, Pending]) -> list[str]:
    machines["laptop"].send("Ada", "reviewers@any")
    machines.settle()
    return [name for name, poll in waiting.items() if poll.done]


@pytest.mark.req("MESH-NAME-3")
def test_a_message_for_any_machine_goes_to_ones_own_first(with_bob: Machines) -> None:
    waiting = _wait_for_work(with_bob, "bob", "desk")
    assert _who_gets_one_for_any(with_bob, waiting) == ["desk"]


def test_a_message_for_any_machine_goes_to_another_persons_when_nobody_is_free_on_ones_own(
    with_bob: Machines,
) -> None:
    waiting = _wait_for_work(with_bob, "bob")
    assert _who_gets_one_for_any(with_bob, waiting) == ["bob"]
    (message,) = waiting["bob"].result()["messages"]
    assert message["from"] == "Ada@laptop"


def _deny_laptop(bob: Machine) -> None:
    peers = bob.mesh.state.peers.rows
    peers["laptop"] = msgspec.structs.replace(peers["laptop"], met=False)


def test_a_message_for_any_machine_that_one_of_them_refuses_goes_to_the_next(with_bob: Machines) -> None:
    laptop, desk = with_bob["laptop"], with_bob["desk"]
    _deny_laptop(with_bob["bob"])
    _wait_for_work(with_bob, "bob")
    ticket = laptop.send("Ada", "reviewers@any")
    with_bob.settle()
    assert laptop.mesh.state.home.rows[ticket].refused == ("bob",)
    waiting = desk.house.begin("agent:R-desk", "inbox.take", {"agentId": "R-desk", "waitMs": 600_000})
    for _ in range(20):
        with_bob.advance(3)
        with_bob.settle()
    assert len(waiting.result()["messages"]) == 1
    assert laptop.mesh.state.home.rows[ticket].nodes == ("bob", "desk"), "control: nobody was asked twice"


def test_a_message_for_any_machine_ends_when_the_last_that_has_the_group_refuses_it(with_bob: Machines) -> None:
    laptop = with_bob["laptop"]
    _deny_laptop(with_bob["bob"])
    with_bob.revoke("desk")
    ticket = laptop.send("Ada", "reviewers@any")
    with_bob.settle()
    assert laptop.show(ticket)["status"] == "cancelled"
    assert "bob does not take it" in laptop.show(ticket)["reason"]


def test_without_the_order_another_persons_machine_would_be_asked_first(
    with_bob: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    candidates: Any = Nodes.candidates
    monkeypatch.setattr(Nodes, "candidates", lambda self, group: candidates(self, group)[::-1])
    waiting = _wait_for_work(with_bob, "bob", "desk")
    assert _who_gets_one_for_any(with_bob, waiting) == ["bob"]


def test_a_broadcast_to_the_mesh_includes_the_agents_of_other_people(with_bob: Machines) -> None:
    laptop = with_bob["laptop"]
    sent = laptop.call("agent:Ada", "messages.broadcast", {"payload": "all", "scope": "mesh"})
    assert {each["agentId"] for each in sent["tickets"]} == {"R-desk@desk", "R-bob@bob"}
    with_bob.settle()
    for name in ("desk", "bob"):
        assert [each["payload"] for each in with_bob[name].take(f"R-{name}")] == ["all"]
