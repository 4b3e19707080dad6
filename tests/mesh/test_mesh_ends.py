"""What comes to nothing ends visibly: replies that nobody gets, machines that are revoked or have left."""

import msgspec
import pytest
from machines import Machine, Machines
from test_mesh_promises import _answers, _send_all_letters_again

from bascule.foundation.errors import Conflict
from bascule.kernel.call import PERSON
from bascule.kernel.journal import Transaction
from bascule.kernel.ports import TicketCancelled
from bascule.mesh.home import USE_FOR_MS

# -- replies --


@pytest.mark.req("MESH-M-4")
def test_a_reply_that_crosses_a_cancel_is_an_event_where_it_was_made(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    for ticket in ("kept", "withdrawn"):
        laptop.send("Ada", "Jerry@desk", ticketId=ticket)
    pair.settle()
    kept, withdrawn = (each["ticketId"] for each in desk.take("Jerry"))
    laptop.call("agent:Ada", "tickets.cancel", {"ticketId": "withdrawn"})
    for id_ in (kept, withdrawn):
        desk.reply("Jerry", id_)
    assert _refused(desk) == []
    pair.settle()
    assert laptop.show("withdrawn")["status"] == "cancelled"
    assert laptop.show("kept")["status"] == "responded"
    assert _refused(desk) == [(withdrawn, "cancelled")]


@pytest.mark.req("MESH-M-4")
def test_a_reply_that_never_reaches_home_is_reported_when_its_time_is_over(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    laptop.house.run(laptop.post.disconnect)
    desk.reply("Jerry", message["ticketId"])
    pair.advance(USE_FOR_MS / 1000 - 60)
    assert _refused(desk) == []
    pair.advance(120)
    assert _refused(desk) == [(message["ticketId"], "late")]
    assert desk.engine._state.out.rows == {}


@pytest.mark.req("MESH-M-4")
def test_a_reply_to_a_ticket_that_its_home_lost_to_a_backup_is_refused_there(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    backup = laptop.snapshot()
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    laptop.restore(backup)
    pair.settle()
    (message,) = desk.take("Jerry")
    desk.reply("Jerry", message["ticketId"])
    pair.settle()
    assert _refused(desk) == [(message["ticketId"], "unknown")]
    assert desk.engine._state.out.rows == {}


def test_nothing_else_that_is_over_waits_for_a_machine_that_nobody_knows_any_more(pair: Machines) -> None:
    """Its card has ended, or this machine has joined another mesh since: what was said to it is given up."""
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    laptop.house.run(laptop.post.disconnect)
    desk.reply("Jerry", message["ticketId"])
    pair.revoked.add("laptop")
    desk.mesh.not_member()
    desk.house.run(lambda: desk.mesh.member(desk.membership))
    pair.advance(USE_FOR_MS / 1000 + 60)
    assert _refused(desk) == [(message["ticketId"], "late")]
    assert [each["error"] for event, each in desk.house.log if event == "fault"] == []
    assert desk.engine._state.out.rows == {}
    assert desk.engine._state.copies.rows == {}


def test_what_is_too_large_for_the_server_that_is_there_at_last_ends_at_once(pair: Machines) -> None:
    """It was accepted while there was none, or one that took more."""
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk", ticketId="asked")
    pair.settle()
    (message,) = desk.take("Jerry")
    for machine in (laptop, desk):
        machine.house.run(machine.post.disconnect)
    for ticket, size in (("large", 10_000), ("small", 5_000)):
        laptop.send("Ada", "Jerry@desk", "x" * size, ticketId=ticket)
    desk.reply("Jerry", message["ticketId"], "x" * 10_000)
    for machine in (laptop, desk):
        machine.post.max_bytes = 10_000
        machine.house.run(machine.post.connect)
    pair.settle()
    assert laptop.show("large")["status"] == "cancelled"
    assert "the server between the machines takes" in laptop.show("large")["reason"]
    assert _refused(desk) == [(message["ticketId"], "too_large")]
    assert [len(each["payload"]) for each in desk.take("Jerry")] == [5_000]
    assert laptop.engine._state.out.rows == desk.engine._state.out.rows == {}


def test_a_reply_to_what_nobody_waits_for_any_more_is_not_accepted(pair: Machines) -> None:
    """It was on its way for a day, so it is kept for longer than its home cares."""
    laptop, desk = pair["laptop"], pair["desk"]
    desk.house.run(desk.post.disconnect)
    laptop.send("Ada", "Jerry@desk")
    for day in range(7):
        # The agent is heard of now and then, and reads it at last.
        pair.advance(24 * 3_600 + 1_200)
        desk.send("Jerry", "Jerry")
        if day == 0:
            desk.house.run(desk.post.connect)
            pair.settle()
    message = next(each for each in desk.take("Jerry") if each["from"] == "Ada@laptop")
    with pytest.raises(Conflict, match="is over where it was sent"):
        desk.reply("Jerry", message["ticketId"])


@pytest.mark.parametrize("later", [False, True])
def test_what_a_revoked_machine_sent_is_withdrawn_and_replies_to_it_are_refused(pair: Machines, later: bool) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    for ticket in ("unread", "read", "answered"):
        laptop.send("Ada", "Jerry@desk", ticketId=ticket)
        pair.settle()
    laptop.house.run(laptop.post.disconnect)
    ids = {copy.home: id_ for id_, copy in desk.engine._state.copies.rows.items()}
    desk.take("Jerry", count=2)
    desk.reply("Jerry", ids["answered"])
    if later:
        # It died before it had done so.
        pair.revoked.add("laptop")
        desk.crash()
    else:
        pair.revoke("laptop")
    pair.settle()
    assert _refused(desk) == [(ids["answered"], "revoked")]
    shown = [desk.show(ids[ticket]) for ticket in ("unread", "read")]
    assert [(each["status"], each["reason"]) for each in shown] == [("cancelled", "laptop was revoked")] * 2
    assert desk.take("Jerry") == []
    with pytest.raises(Conflict, match="cancelled"):
        desk.reply("Jerry", ids["read"])
    desk.call("agent:Jerry", "inbox.ack", {"agentId": "Jerry", "ticketIds": [ids["read"]]})
    assert desk.engine._state.out.rows == {}


def test_a_reply_is_not_accepted_by_a_machine_that_has_left_the_mesh(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    desk.house.run(desk.mesh.not_member)
    with pytest.raises(Conflict, match="in no mesh any more"):
        desk.reply("Jerry", message["ticketId"])


def _refused(machine: Machine) -> list[tuple[str, str]]:
    stream = machine.call("person", "events.all", {"after": 0, "kinds": "node"})
    events = stream.items()
    stream.close()
    return [(each["id"], each["text"]) for each in events if each["event"] == "reply.refused"]


# -- leaving --


def _leave(machine: Machine) -> None:
    def leave() -> None:
        tx = Transaction()
        machine.mesh.left(tx)
        machine.house.journal.commit(tx, PERSON, "mesh.leave")

    machine.house.run(leave)


def test_a_copy_of_a_mesh_that_was_left_is_withdrawn_and_nothing_is_said_of_it(pair: Machines) -> None:
    """There may be another laptop in the next mesh, which would get the reply, or what was replied before once more."""
    laptop, desk = pair["laptop"], pair["desk"]
    for ticket in ("answered", "waiting", "read"):
        laptop.send("Ada", "Jerry@desk", ticketId=ticket)
    pair.settle()
    answered, waiting, read = (each["ticketId"] for each in desk.take("Jerry"))
    desk.reply("Jerry", answered)
    desk.call("agent:Jerry", "inbox.ack", {"agentId": "Jerry", "ticketIds": [read]})
    pair.settle()
    _leave(desk)
    assert [desk.show(each)["status"] for each in (answered, waiting, read)] == ["responded", "cancelled", "cancelled"]
    with pytest.raises(TicketCancelled):
        desk.reply("Jerry", read)
    with pytest.raises(Conflict, match="has left its mesh"):
        desk.reply("Jerry", answered, "and one more thing")
    assert desk.mesh.state.out.rows == {}
    # Its next life was rolled back, it seems.
    tx = Transaction()
    peers = desk.mesh.state.peers.rows
    peers["laptop"] = msgspec.structs.replace(desk.mesh.state.peer("laptop"), started=2**50, began=0)
    assert desk.engine.copies.again(tx, "laptop") == 0


def test_an_offer_that_comes_again_after_one_has_left_and_joined_anew_is_refused(
    pair: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk", ticketId="t")
    pair.settle()
    _leave(desk)
    answers = _answers(monkeypatch)
    _send_all_letters_again(pair)
    assert {taken.refused for taken in answers if taken.ticket == "t"} == {"unknown"}
    assert desk.take("Jerry") == []
