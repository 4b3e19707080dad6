"""A node of the mesh that lies: it has a good card, and everything else may be forged."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from machines import Machine, Machines

from bascule.foundation.errors import BasculeError, Forbidden, NotFound
from bascule.kernel.call import Call, Principal
from bascule.kernel.rows import OTHER_NODE
from bascule.mesh import arrivals, envelope
from bascule.mesh.cards import Keys, bytes_of
from bascule.mesh.envelope import BadEnvelope, Opened, Pair
from bascule.mesh.protocol import VERSION, Anchor, Body, Item, Offer, Receipt, Reply, Taken
from bascule.testing.policies import preset
from gabp import codec


@pytest.fixture
def three() -> Iterator[Machines]:
    with Machines("laptop", "desk", "evil") as machines:
        machines["laptop"].house.register("Ada")
        machines["desk"].house.register("Jerry")
        machines["evil"].house.register("Mallory")
        machines.advance(1)
        machines.settle()
        yield machines


def _say(machines: Machines, to: str, *items: Item, src: str = "evil", keys_of: str = "evil") -> None:
    """A letter as this node's keys seal it, under any name on the subject."""
    receiver, sender = machines[to], machines[keys_of]
    body = Body(v=VERSION, anchor=Anchor(1, "0" * 64), items=list(items))  # type: ignore[arg-type] # any of them
    letter = sender.engine.nodes.get(to).pair.seal(codec.encode(body))
    receiver.house.run(lambda: receiver.engine.live(src, letter))
    machines.settle()


def _offer(machines: Machines, ticket: str = "t-1", **more: Any) -> Offer:
    given: dict[str, Any] = {
        "id": f"i-{ticket}",
        "ticket": ticket,
        "sender": "Mallory",
        "target": "Jerry",
        "payload": msgspec.Raw(b'"hello"'),
        "left_ms": 60_000,
        "use_by": machines.clock.wall_ms() + 3_600_000,
        **more,
    }
    return Offer(**given)


def test_the_control_a_letter_under_its_own_name_counts(three: Machines) -> None:
    _say(three, "desk", _offer(three))
    (message,) = three["desk"].take("Jerry")
    assert message["from"] == "Mallory@evil"


@pytest.mark.req("MESH-M-5")
def test_a_letter_under_the_name_of_another_node_does_not_count(three: Machines) -> None:
    _say(three, "desk", _offer(three, sender="Ada"), src="laptop")
    assert three["desk"].take("Jerry") == []


def test_a_forged_name_would_count_if_whoever_can_write_were_believed(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: neither the key of the pair nor the signature is asked for."""
    evil = three["desk"].engine.nodes.get("evil").pair
    pair_open = Pair.open

    def believing(self: Pair, data: bytes) -> Opened:
        try:
            return pair_open(self, data)
        except BadEnvelope:
            return Opened(_plain(evil, data), signed=True)

    monkeypatch.setattr(Pair, "open", believing)
    _say(three, "desk", _offer(three, sender="Ada"), src="laptop")
    (message,) = three["desk"].take("Jerry")
    assert message["from"] == "Ada@laptop"


def _plain(pair: Pair, data: bytes) -> bytes:
    plain: bytes = pair._cipher.decrypt(data[:12], data[12:], None)[64:]
    return plain


@pytest.mark.req("MESH-TRUST-9")
def test_a_node_that_says_the_sender_is_a_person_or_local_is_a_stranger_all_the_same(three: Machines) -> None:
    for kind in ("person", "local"):
        _say(three, "desk", _offer(three, f"t-{kind}", sender_kind=kind, sender="-"))
    assert [each["from"] for each in three["desk"].take("Jerry")] == ["person@evil", "local@evil"]


@pytest.mark.req("MESH-RULE-2")
def test_a_letter_that_is_played_again_has_no_second_effect(three: Machines) -> None:
    three["laptop"].send("Ada", "Jerry@desk")
    three.settle()
    assert len(three["desk"].take("Jerry")) == 1
    letters = [each for each in three.bus.letters if each.dest == "desk" and each.src == "laptop"]
    for letter in letters * 3:
        three["desk"].house.run(lambda letter=letter: three["desk"].engine.live("laptop", letter.data))
    three.settle()
    records = [each for each in three["desk"].house.ledger() if each["method"] == "mesh.offer"]
    assert len(records) == 1


@pytest.mark.req("MESH-M-5")
def test_a_letter_for_one_node_cannot_be_passed_on_to_another(three: Machines) -> None:
    three["laptop"].send("Ada", "Mallory@evil", "for evil alone")
    three.settle()
    letter = next(each for each in three.bus.letters if each.dest == "evil" and each.src == "laptop")
    three["desk"].house.run(lambda: three["desk"].engine.live("laptop", letter.data))
    three.settle()
    assert three["desk"].take("Jerry") == []


def test_a_signature_names_its_destination_so_an_opened_letter_is_not_one_for_somebody_else() -> None:
    a, b, c = Keys.new(), Keys.new(), Keys.new()
    to_b = _pair("a", a, "b", b).seal(b"pay")
    body = _plain(_pair("b", b, "a", a), to_b)
    # `b` has the signature of `a` and seals it again for `c`, as if it were `a`: it lacks the key of that pair.
    forged = _pair("b", b, "c", c)
    signature = _pair("b", b, "a", a)._cipher.decrypt(to_b[:12], to_b[12:], None)[:64]
    nonce = b"\0" * 12
    sealed = nonce + forged._cipher.encrypt(nonce, signature + body, None)
    with pytest.raises(BadEnvelope):
        _pair("c", c, "a", a).open(sealed)
    # Not even with that key: the signature is for `b`.
    sealed = nonce + _pair("a", a, "c", c)._cipher.encrypt(nonce, signature + body, None)
    with pytest.raises(BadEnvelope, match="signature"):
        _pair("c", c, "a", a).open(sealed)


@pytest.mark.req("MESH-TRUST-3")
def test_what_a_login_to_nats_signs_is_no_letter() -> None:
    """A rogue server chooses the nonce of the login: the bytes that a letter would sign."""
    a, b = Keys.new(), Keys.new()
    body = b'{"v":1}'
    nonce_of_server = envelope.DOMAIN + b"b\0a\0" + body
    signature = a.bus.sign(nonce_of_server)
    pair = _pair("a", a, "b", b)
    sealed = b"\0" * 12 + pair._cipher.encrypt(b"\0" * 12, signature + body, None)
    with pytest.raises(BadEnvelope, match="signature"):
        _pair("b", b, "a", a).open(sealed)
    # The control: with one key for both it would be one.
    with_one_key = b"\0" * 12 + pair._cipher.encrypt(b"\0" * 12, a.sign.sign(nonce_of_server) + body, None)
    assert _pair("b", b, "a", a).open(with_one_key).body == body


def _pair(own: str, keys: Keys, peer: str, peer_keys: Keys) -> Pair:
    return Pair(
        own=own,
        sign=keys.sign,
        box=keys.box,
        peer=peer,
        peer_sign=bytes_of(peer_keys.public[0]),
        peer_box=bytes_of(peer_keys.public[1]),
    )


@pytest.mark.req("MESH-TICKET-6")
def test_an_id_that_stands_for_a_ticket_here_is_another_ticket_when_it_comes_from_elsewhere(three: Machines) -> None:
    desk = three["desk"]
    desk.call("local", "messages.send", {"agentId": "Jerry", "payload": "mine", "ticketId": "t-1"})
    _say(three, "desk", _offer(three, "t-1"))
    assert sorted(each["payload"] for each in desk.take("Jerry")) == ["hello", "mine"]
    assert desk.show("t-1")["from"] == "local"


@pytest.mark.req("MESH-TRUST-5")
def test_only_the_node_that_was_asked_can_answer(three: Machines) -> None:
    laptop = three["laptop"]
    ticket = laptop.send("Ada", "Jerry@desk")
    three.settle()
    reply = Reply(id="i-r", ticket=ticket, number=1, sender="Jerry", payload=msgspec.Raw(b'"a lie"'))
    _say(three, "laptop", reply)
    assert laptop.show(ticket)["status"] == "pending"
    assert "replies" not in laptop.show(ticket)


@pytest.mark.req("MESH-TRUST-5")
def test_a_receipt_for_what_another_node_was_sent_takes_nothing_out_of_the_outbox(three: Machines) -> None:
    laptop = three["laptop"]
    three["desk"].house.run(three["desk"].post.disconnect)
    ticket = laptop.send("Ada", "Jerry@desk")
    laptop.house.advance(0)
    (item,) = laptop.mesh.state.out.rows
    _say(three, "laptop", Receipt(taken=[Taken(id=item, ticket=ticket)]))
    assert item in laptop.mesh.state.out.rows


@pytest.mark.req("MESH-TRUST-6")
def test_one_machine_fills_a_fifth_of_an_inbox_and_no_more(three: Machines) -> None:
    """Many names do not help: they are of one machine. What does not fit waits at its sender."""
    desk = three["desk"]
    share = desk.house.limits.max_inbox_messages // 5
    for number in range(share + 20):
        _say_without_settling(three, _offer(three, f"t-{number}", sender=f"M{number}"))
    three.settle()
    assert desk.call("agent:Jerry", "agents.heartbeat", {"agentId": "Jerry"})["unread"] == share
    desk.call("local", "messages.send", {"agentId": "Jerry", "payload": "there is room for others"})


def _say_without_settling(machines: Machines, item: Item) -> None:
    body = Body(v=VERSION, anchor=Anchor(1, "0" * 64), items=[item])  # type: ignore[list-item] # an offer
    letter = machines["evil"].engine.nodes.get("desk").pair.seal(codec.encode(body))
    machines["desk"].house.run(lambda: machines["desk"].engine.live("evil", letter))


@pytest.mark.req("MESH-TRUST-8")
def test_a_flood_of_offers_is_taken_as_fast_as_the_limit_says(three: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(three["desk"].engine._arrivals, "_max_items", 10)
    for number in range(40):
        _say_without_settling(three, _offer(three, f"t-{number}"))
    assert len(three["desk"].take("Jerry")) == 10


@pytest.mark.parametrize("data", [b"", b"\0" * 20, b"\0" * 4096, b'{"v":1}' * 20])
def test_bytes_that_are_no_envelope_are_passed_over(three: Machines, data: bytes) -> None:
    desk = three["desk"]
    desk.house.run(lambda: desk.engine.live("evil", data))
    desk.house.run(lambda: desk.engine.mailed("evil", data, 7))
    desk.house.run(lambda: desk.engine.live("nobody", data))
    assert desk.take("Jerry") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b'{"v":2,"anchor":[0,""],"items":[]}',
        b'{"v":1,"anchor":[0,""],"items":[{"kind":"offer"}]}',
        b'{"v":1,"anchor":[0,""],"items":[{"kind":"agents.revoke","id":"x","ticket":"t"}]}',
        b'{"v":1,"anchor":[-1,"zz"],"items":[]}',
        b'{"v":1,"anchor":[0,""],"items":' + b"[" * 200 + b"]" * 200 + b"}",
    ],
)
def test_a_body_that_is_not_one_of_ours_is_passed_over(three: Machines, body: bytes) -> None:
    desk = three["desk"]
    letter = three["evil"].engine.nodes.get("desk").pair.seal(body)
    desk.house.run(lambda: desk.engine.live("evil", letter))
    assert desk.take("Jerry") == []


# -- M6: what a principal of another machine reaches --


@pytest.mark.req("MESH-M-6")
def test_the_mesh_calls_no_method_but_its_own(three: Machines) -> None:
    """Whatever a node writes becomes one of these calls, or none."""
    desk = three["desk"]
    called: list[str] = []

    class Listening:
        def call(self, call: Call) -> Any:
            called.append(call.method)
            return desk.house.gate.call(call)

    desk.engine._arrivals._gate = Listening()
    for item in (
        _offer(three),
        Reply(id="i-r", ticket="t-9", number=1, sender="Mallory", payload=msgspec.Raw(b"1")),
        Receipt(taken=[Taken(id="i", ticket="t")]),
    ):
        _say(three, "desk", item)
    assert called
    assert all(method.startswith("mesh.") for method in called)
    with pytest.raises(AssertionError):
        desk.engine._arrivals.call(Principal("agent:Mallory@evil"), "messages.send", {}, lambda _error: None)


def test_no_principal_of_this_machine_calls_what_is_for_other_nodes(three: Machines) -> None:
    desk = three["desk"]
    rows = [each.row for each in desk.mesh.methods() if each.row.who == OTHER_NODE]
    for row in rows:
        for principal in ("local", "person", "agent:Jerry"):
            with pytest.raises(BasculeError):
                desk.call(principal, row.name)
    offer = arrivals.rows.OfferParams(item=_offer(three), envelope=arrivals.rows.Envelope(digest="0", anchor=Anchor()))
    for principal in ("local", "person", "agent:Jerry"):
        with pytest.raises(Forbidden):
            desk.house.run(
                lambda principal=principal: desk.house.gate.call(
                    Call(Principal(principal), "mesh.offer", offer, door="testing")
                )
            )


@pytest.mark.req("MESH-TRUST-9")
def test_the_person_and_the_commands_in_sandboxes_are_not_written_to_from_elsewhere(three: Machines) -> None:
    for target in ("person", "spc_0123456789"):
        ticket = three["evil"].call("agent:Mallory", "messages.send", {"agentId": f"{target}@desk", "payload": "psst"})[
            "ticketId"
        ]
        three.settle()
        assert three["evil"].show(ticket)["status"] == "cancelled"


# -- machines of other people --


@pytest.fixture
def strangers() -> Iterator[Machines]:
    with Machines("laptop", "bob", owners={"bob": "Bob"}) as machines:
        machines["laptop"].house.register("Ada")
        machines["bob"].house.register("Eve")
        machines.advance(1)
        machines.settle()
        yield machines


def _set_person(machine: Machine) -> None:
    machine.call("local", "person.set", {"passphrase": "a long enough passphrase"})


@pytest.mark.req("MESH-TRUST-10")
def test_a_machine_of_another_person_asks_once(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    first = bob.send("Eve", "Ada@laptop", "one")
    strangers.settle()
    assert laptop.take("Ada") == []
    (question,) = laptop.call("person", "approvals.list")
    assert question["principal"] == "node:bob"
    laptop.call("person", "approvals.decide", {"approvalId": question["approvalId"], "decision": "approved"})
    strangers.advance(10)
    strangers.settle()
    bob.send("Eve", "Ada@laptop", "two")
    strangers.settle()
    assert [each["payload"] for each in laptop.take("Ada")] == ["one", "two"]
    assert bob.show(first)["delivery"]["state"] == "arrived"


@pytest.mark.req("MESH-TRUST-10")
def test_a_machine_of_another_person_that_was_denied_is_told_so(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    ticket = bob.send("Eve", "Ada@laptop")
    strangers.settle()
    (question,) = laptop.call("person", "approvals.list")
    laptop.call("person", "approvals.decide", {"approvalId": question["approvalId"], "decision": "denied"})
    strangers.advance(10)
    strangers.settle()
    assert bob.show(ticket)["status"] == "cancelled"
    assert laptop.take("Ada") == []


def _answer(laptop: Machine, strangers: Machines, decision: str) -> dict[str, Any]:
    (question,) = laptop.call("person", "approvals.list")
    shown: dict[str, Any] = laptop.call("person", "approvals.show", {"approvalId": question["approvalId"]})
    laptop.call("person", "approvals.decide", {"approvalId": question["approvalId"], "decision": decision})
    strangers.settle()
    return shown


@pytest.mark.req("MESH-TRUST-10")
def test_a_question_about_a_machine_says_how_long_its_answer_holds_and_offers_no_minutes(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    bob.send("Eve", "Ada@laptop")
    strangers.settle()
    shown = _answer(laptop, strangers, "approved")
    assert shown["lasts"] == "for this machine, until you take it back (bascule mesh forget NODE)"
    assert "offers" not in shown


@pytest.mark.req("MESH-TRUST-10")
def test_a_no_is_told_at_once_as_a_yes_is(strangers: Machines) -> None:
    """No time passes: nothing waits for a next try."""
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    ticket = bob.send("Eve", "Ada@laptop")
    strangers.settle()
    strangers.advance(13 * 60)
    strangers.settle()
    assert bob.show(ticket)["status"] == "pending"
    _answer(laptop, strangers, "denied")
    assert bob.show(ticket)["status"] == "cancelled"


@pytest.mark.req("MESH-TRUST-10")
@pytest.mark.parametrize(("first", "allowed"), [("approved", True), ("denied", False)])
def test_an_answer_is_listed_and_taken_back_and_the_next_message_asks_anew(
    strangers: Machines, first: str, allowed: bool
) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    assert laptop.call("local", "mesh.met") == []
    bob.send("Eve", "Ada@laptop", "one")
    strangers.settle()
    _answer(laptop, strangers, first)
    (listed,) = laptop.call("local", "mesh.met")
    assert listed == {"node": "bob", "owner": "Bob", "allowed": allowed}
    second = bob.send("Eve", "Ada@laptop", "two")
    strangers.settle()
    assert laptop.call("person", "approvals.list") == [], "nobody is asked a second time"
    assert bob.show(second)["status"] == ("pending" if allowed else "cancelled")
    with pytest.raises(Forbidden):
        laptop.call("local", "mesh.forget", {"node": "bob"})
    assert laptop.call("person", "mesh.forget", {"node": "bob"}) == listed
    assert laptop.call("local", "mesh.met") == []
    with pytest.raises(NotFound, match="nothing was answered"):
        laptop.call("person", "mesh.forget", {"node": "bob"})
    bob.send("Eve", "Ada@laptop", "three")
    strangers.settle()
    _answer(laptop, strangers, "approved")
    assert [each["payload"] for each in laptop.take("Ada")] == (["one", "two", "three"] if allowed else ["three"])


@pytest.mark.req("MESH-TRUST-10")
def test_what_the_policy_refuses_is_no_answer_of_the_person(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    standard = laptop.house.gate.policy
    laptop.house.gate.policy = preset("restrictive")
    ticket = bob.send("Eve", "Ada@laptop", "one")
    strangers.settle()
    assert bob.show(ticket)["status"] == "cancelled"
    assert "restrictive policy" in json.dumps(bob.show(ticket))
    assert laptop.call("local", "mesh.met") == []
    laptop.house.gate.policy = standard
    strangers.advance(61)
    bob.send("Eve", "Ada@laptop", "two")
    strangers.settle()
    _answer(laptop, strangers, "approved")
    assert [each["payload"] for each in laptop.take("Ada")] == ["two"]


@pytest.mark.req("MESH-TRUST-10")
def test_a_new_machine_under_the_name_of_one_that_was_let_in_is_asked_about_again(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    peers = laptop.mesh.state.peers.rows
    for key, taken in ((bob.card.sign, ["one"]), (Keys.new().public[0], [])):
        peers["bob"] = msgspec.structs.replace(laptop.mesh.state.peer("bob"), met=True, met_key=key)
        bob.send("Eve", "Ada@laptop", "one")
        strangers.settle()
        assert [each["payload"] for each in laptop.take("Ada")] == taken


def test_a_yes_is_for_the_machine_that_was_asked_about_and_not_for_the_next_of_its_name(strangers: Machines) -> None:
    laptop, bob = strangers["laptop"], strangers["bob"]
    _set_person(laptop)
    bob.send("Eve", "Ada@laptop")
    strangers.settle()
    (question,) = laptop.call("person", "approvals.list")
    asked_about = bob.card.sign
    bob.card = strangers.new_card("bob", Keys.new(), "Mallory")
    laptop.call("person", "approvals.decide", {"approvalId": question["approvalId"], "decision": "approved"})
    strangers.settle()
    assert laptop.mesh.state.peer("bob").met_key == asked_about != laptop.engine.nodes.get("bob").card.sign


@pytest.mark.req("MESH-NAME-2")
def test_a_bare_handle_never_means_an_agent_of_another_persons_machine(strangers: Machines) -> None:
    with pytest.raises(BasculeError) as refused:
        strangers["laptop"].send("Ada", "Eve")
    assert "Eve@bob" in (refused.value.hint or "")


# -- revoked --


def test_a_revoked_node_is_cut_off_and_its_open_tickets_end(three: Machines) -> None:
    laptop = three["laptop"]
    three["evil"].house.run(three["evil"].post.disconnect)
    ticket = laptop.send("Ada", "Mallory@evil")
    three.settle()
    three.revoke("evil")
    three.settle()
    assert laptop.show(ticket)["status"] == "cancelled"
    assert "revoked" in laptop.show(ticket)["reason"]
    with pytest.raises(BasculeError):
        laptop.send("Ada", "Mallory@evil")


def test_a_machine_that_takes_the_name_of_a_revoked_one_gets_nothing_that_was_for_it(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop, evil = three["laptop"], three["evil"]
    for ticket in ("answered", "open"):
        evil.send("Mallory", "Ada@laptop", ticketId=ticket)
        three.settle()
    answered, still_open = laptop.take("Ada")
    laptop.reply("Ada", answered["ticketId"], "for the old one alone")
    three.settle()
    assert evil.show("answered")["status"] == "responded"
    three.revoke("evil")
    three.settle()
    assert laptop.show(still_open["ticketId"])["reason"] == "evil was revoked"
    with pytest.raises(BasculeError):
        laptop.reply("Ada", still_open["ticketId"])

    three.machines.pop("evil").house.close()
    three.revoked.clear()
    added: list[Item] = []
    monkeypatch.setattr(laptop.engine.outbox, "add", lambda _tx, _node, item, *_: added.append(item))
    three.machines["evil"] = Machine(three, "evil", "Eve")
    laptop.house.run(lambda: laptop.engine.card_changed("evil"))
    three.settle()
    # Its ledger is a short one, as after a backup was put back.
    assert laptop.mesh.state.peer("evil").began < 5
    assert added == []
