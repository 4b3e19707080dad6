"""A node of the mesh with a good card that says too much, too often, or nonsense: the others go on."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from machines import Machines

from bascule.foundation.errors import Unavailable
from bascule.mesh import nodes
from bascule.mesh.cards import Keys, read_directory, sign_directory, text_of
from bascule.mesh.knock import BadKnock, Knock, Party, commitment_of, read_knock, write_knock
from bascule.mesh.listing import free_groups, signed_listing
from bascule.mesh.ports import MAX_VALUE_BYTES, Board
from bascule.mesh.protocol import (
    LISTING,
    MAX_FREE_GROUPS,
    MAX_LIVES,
    VERSION,
    Acked,
    Anchor,
    Body,
    Cancel,
    Hello,
    Item,
    LifeSign,
    ListedAgent,
    Listing,
    Offer,
    Receipt,
    Reply,
    Taken,
)
from bascule.mesh.records import Peer
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


def _say(machines: Machines, to: str, *items: Item, settle: bool = True, **more: Any) -> None:
    body = Body(**{"v": VERSION, "anchor": Anchor(1, "0" * 64), "items": list(items), **more})
    receiver = machines[to]
    letter = machines["evil"].engine.nodes.get(to).pair.seal(codec.encode(body))
    receiver.house.run(lambda: receiver.engine.live("evil", letter))
    if settle:
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


# -- numbers and words that mean nothing --


def test_times_beyond_all_calendars_break_no_list(three: Machines) -> None:
    desk = three["desk"]
    _say(three, "desk", _offer(three, left_ms=2**53, use_by=2**53))
    (message,) = desk.take("Jerry")
    desk.call("person", "tickets.list", {})
    desk.show(message["ticketId"])
    desk.call("agent:Jerry", "inbox.ack", {"agentId": "Jerry", "ticketIds": [message["ticketId"]]})
    desk.crash()
    assert desk.show(message["ticketId"])["from"] == "Mallory@evil"


def test_a_copy_is_kept_for_no_longer_than_a_message_can_be_of_use(three: Machines) -> None:
    _say(three, "desk", _offer(three, use_by=2**53))
    _say(three, "desk", Cancel(id="i-2", ticket="t-2", rank=1, use_by=2**53))
    week = 8 * 24 * 3_600_000
    assert all(each.use_by < three.clock.wall_ms() + week for each in three["desk"].mesh.state.copies.rows.values())


def test_a_receipt_with_a_status_that_is_none_costs_nobody_elses_receipts(three: Machines) -> None:
    desk, laptop = three["desk"], three["laptop"]
    _say(three, "desk", _offer(three))
    (message,) = desk.take("Jerry")
    three["evil"].house.run(three["evil"].post.disconnect)
    desk.reply("Jerry", message["ticketId"])
    own = laptop.send("Ada", "Jerry@desk")
    (item,) = [each for each, row in desk.mesh.state.out.rows.items() if row.kind == "reply"]
    receipt = Receipt(taken=[Taken(id=item, ticket="t-1", status="nonsense", rank=9)])
    _say(three, "desk", receipt)
    assert item not in desk.mesh.state.out.rows
    assert desk.show(message["ticketId"])["status"] == "responded"
    assert [each["payload"] for each in desk.take("Jerry")] == ["hello"]
    assert laptop.show(own)["delivery"]["state"] == "arrived"


# -- what is kept --


@pytest.mark.req("MESH-TRUST-7")
def test_metadata_of_another_machine_has_the_limit_that_it_has_here(three: Machines) -> None:
    big = {"x": "y" * (three["desk"].house.limits.max_metadata_bytes + 1)}
    _say(three, "desk", _offer(three, metadata=big))
    assert three["desk"].take("Jerry") == []
    # The control: metadata that an agent here may give is taken.
    _say(three, "desk", _offer(three, "t-2", metadata={"x": "y"}))
    assert len(three["desk"].take("Jerry")) == 1


@pytest.mark.req("MESH-TRUST-7")
def test_a_reply_of_another_machine_has_the_limits_that_it_has_here(three: Machines) -> None:
    laptop, limits = three["laptop"], three["laptop"].house.limits
    ticket = laptop.send("Ada", "Mallory@evil")
    three.settle()
    long = msgspec.Raw(b'"%s"' % (b"x" * limits.max_payload_bytes))
    big = {"x": "y" * (limits.max_metadata_bytes + 1)}
    for number, more in enumerate(({"payload": long}, {"payload": msgspec.Raw(b"1"), "metadata": big})):
        _say(three, "laptop", Reply(id=f"i-{number}", ticket=ticket, number=1, sender="Mallory", **more))
        assert laptop.show(ticket)["status"] == "pending"
    _say(three, "laptop", Reply(id="i-9", ticket=ticket, number=1, sender="Mallory", payload=msgspec.Raw(b"1")))
    assert laptop.show(ticket)["status"] == "responded"


@pytest.mark.req("MESH-TRUST-7")
def test_many_names_of_one_machine_have_kept_no_more_than_one(three: Machines) -> None:
    """Sent and withdrawn: nothing of it is in an inbox, and all of it is kept for a while."""
    desk = three["desk"]
    state = desk.house.broker.state
    state.limits = msgspec.structs.replace(state.limits, max_kept_messages=20)
    for number in range(40):
        name = f"t-{number}"
        withdrawn = Cancel(id=f"c-{number}", ticket=name, rank=1, use_by=three.clock.wall_ms() + 3_600_000)
        _say(three, "desk", _offer(three, name, sender=f"M{number}"), withdrawn, settle=False)
        desk.house.advance(0)
    kept = [each for each in state.messages.rows.values() if each.sender.endswith("@evil")]
    assert len(kept) == 20
    desk.call("local", "messages.send", {"agentId": "Jerry", "payload": "there is room for others"})


def test_how_a_ticket_ended_waits_once_for_a_node_that_asks_for_it_without_end(three: Machines) -> None:
    """As one that lives in a life which it has lost: each of its words may be one that it has forgotten since. It is
    told each time, and confirms nothing."""
    desk = three["desk"]
    ticket = desk.send("Jerry", "Mallory@evil")
    three.settle()
    (message,) = three["evil"].take("Mallory")
    three["evil"].reply("Mallory", message["ticketId"])
    three.settle()
    assert desk.show(ticket)["status"] == "responded"
    three["evil"].house.run(three["evil"].post.disconnect)
    now = three.clock.wall_ms()
    _say(three, "desk", Hello(life="new", began=Anchor(), started=now + 1_000_000))
    for number in range(40):
        _say(three, "desk", Acked(id=f"a-{number}", ticket=ticket), started=now, settle=False)
    assert [each.kind for each in desk.mesh.state.out.rows.values()] == ["over"]
    for number in range(5):
        _say(three, "desk", Hello(life=f"n{number}", began=Anchor(), started=now + 2_000_000 + number))
        _say(three, "desk", Acked(id=f"b-{number}", ticket=ticket), started=now + 2_000_000 + number)
    assert [each.kind for each in desk.mesh.state.out.rows.values()] == ["over"]


# -- how fast --


@pytest.mark.req("MESH-TRUST-8")
def test_words_about_tickets_that_nobody_has_are_taken_as_fast_as_the_limit_says(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = three["desk"]
    monkeypatch.setattr(desk.engine._arrivals, "_max_items", 10)
    for number in range(40):
        cancel = Cancel(id=f"c-{number}", ticket=f"t-{number}", rank=1, use_by=three.clock.wall_ms() + 3_600_000)
        _say(three, "desk", cancel, settle=False)
    three.settle()
    assert len([each for each in desk.house.ledger() if each["method"] == "mesh.cancel"]) == 10


def test_a_node_that_says_hello_without_end_has_its_outbox_once_in_a_while(three: Machines) -> None:
    """Each one means a look at every ticket, and everything that waits for it once more."""
    desk = three["desk"]
    # Its daemon would begin a life behind those that it is told of, and say hello once more.
    three["evil"].house.run(three["evil"].post.disconnect)
    looks: list[str] = []
    again = desk.engine.home.again
    desk.engine.home.again = lambda tx, name: (looks.append(name), again(tx, name))[1]
    started = three.clock.wall_ms()
    for number in range(20):
        hellos = [Hello(life=f"l{number}.{each}", began=Anchor(), started=started + number) for each in range(64)]
        _say(three, "desk", *hellos, settle=False)
    assert looks == ["evil"]
    three.settle()
    # The last one is not forgotten.
    assert looks == ["evil", "evil"]


def test_a_hello_is_no_look_at_every_ticket(three: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = three["laptop"]
    tickets = [laptop.send("Ada", "Mallory@evil") for _ in range(30)]
    three.settle()
    arrived = laptop.mesh.state.home.rows
    assert all("evil" in arrived[each].arrived for each in tickets)
    evil = laptop.mesh.state.peer("evil")
    three["evil"].house.run(three["evil"].post.disconnect)
    looks: list[int] = []
    has_lost = Peer.has_lost
    monkeypatch.setattr(Peer, "has_lost", lambda peer, life, seq: looks.append(seq) or has_lost(peer, life, seq))

    def hello(life: str, began: Anchor, started: int) -> int:
        looks.clear()
        _say(three, "laptop", Hello(life=life, began=began, started=started), settle=False)
        laptop.house.advance(1)
        return len(looks)

    assert hello(evil.life, Anchor(evil.seq, evil.head), evil.started) < 10
    # Behind all that it has confirmed: an honest restart.
    assert hello("later", Anchor(evil.seq + 100, evil.head), evil.started + 1) < 10
    # The control: one that says it has lost all of it is looked at ticket by ticket, and gets them again.
    assert hello("lost", Anchor(), evil.started + 2) >= 30
    assert all("evil" not in arrived[each].arrived for each in tickets)


@pytest.mark.req("MESH-TRUST-8")
def test_hellos_and_receipts_count_against_the_limit_of_their_node(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = three["desk"]
    three["evil"].house.run(three["evil"].post.disconnect)
    monkeypatch.setattr(desk.engine._arrivals, "_max_items", 10)
    greeted: list[str] = []
    desk.engine.on_hello.append(lambda name, _hello: greeted.append(name))
    hello = Hello(life="l", began=Anchor(), started=three.clock.wall_ms())
    _say(three, "desk", *[hello] * 40, settle=False)
    assert len(greeted) == 10
    read: list[int] = []
    add = desk.engine._arrivals.receipts.add
    monkeypatch.setattr(
        desk.engine._arrivals.receipts,
        "add",
        lambda name, item, about: (read.append(len(item.taken)), add(name, item, about)),
    )
    nothing = Receipt(taken=[Taken(id=f"i-{number}", ticket="t") for number in range(20)])
    _say(three, "desk", *[nothing] * 5, settle=False)
    assert read == [20, 20]


def test_a_node_that_forgets_all_of_a_full_outbox_costs_nobody_else_anything(three: Machines) -> None:
    """It confirms, says that it was restored from a backup, and confirms nothing any more."""
    laptop = three["laptop"]
    tickets = [laptop.send("Ada", "Mallory@evil") for _ in range(5)]
    three.settle()
    three["evil"].house.run(three["evil"].post.disconnect)
    laptop.engine.outbox._max_items = 3
    hello = Hello(life="new", began=Anchor(), started=three.clock.wall_ms() + 1)
    offer = _offer(three, target="Ada")
    _say(three, "laptop", hello, offer)
    assert len(laptop.take("Ada")) == 1
    out = laptop.mesh.state.out.rows
    assert len([each for each in out.values() if each.ticket in tickets]) == 3


# -- keys that are none --

_NO_KEY = text_of(b"\0" * 32)


def test_a_card_whose_key_is_none_is_no_node_and_breaks_nobodys_list(three: Machines) -> None:
    """The mesh key signs what the joiner shows; one that was signed before the door looked must not stop the rest."""
    evil = three["evil"]
    evil.card = msgspec.structs.replace(evil.card, box=_NO_KEY, sign=Keys.new().public[0])
    listed = three["laptop"].call("agent:Ada", "agents.list")
    assert "Jerry@desk" in {each["agentId"] for each in listed}
    three["laptop"].send("Ada", "Jerry@desk")
    three.settle()
    assert len(three["desk"].take("Jerry")) == 1


def test_a_joiner_with_a_key_that_is_none_is_not_let_in() -> None:
    keys, number = Keys.new(), text_of(b"n" * 32)
    sign, box, bus = keys.public
    for shown, good in ((box, True), (_NO_KEY, False)):
        party = Party(node="evil", sign=sign, box=shown, bus=bus)
        knock = write_knock(Knock(joiner=party, commitment=commitment_of(number)), keys.sign, None)
        if good:
            read_knock(knock)
            continue
        with pytest.raises(BadKnock):
            read_knock(knock)


@pytest.mark.req("MESH-DAY-12")
@pytest.mark.parametrize("lives", [1, MAX_LIVES + 1])
def test_a_server_that_repeats_a_sign_of_an_earlier_life_stops_nobody(three: Machines, lives: int) -> None:
    """Also of one so long ago that this machine has forgotten it."""
    desk = three["desk"]
    old = three.bus.boards[Board.LIVE, "desk"]
    for _ in range(lives):
        desk.crash()
        three.settle()
    assert desk.engine._seen_ourselves
    for _ in range(3):
        desk.house.run(lambda: desk.engine.posted(Board.LIVE, "desk", old, 0))
    assert desk.engine.halted is None


# -- values on the boards --


def test_a_value_larger_than_anybody_needs_is_not_read(three: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, evil = three["desk"], three["evil"]
    agents = [ListedAgent(handle=f"a{number}", type="x" * 64, groups=["g" * 60]) for number in range(9_000)]
    large = sign_directory(evil.keys.sign, "evil", Listing(agents=agents))
    groups = {f"g{number:03}" + "x" * 200: 1 for number in range(100)}
    sign = LifeSign(life="l", began=Anchor(1, "0" * 64), free=groups)
    alive = sign_directory(evil.keys.sign, "evil", sign)

    def post() -> tuple[int, bool]:
        desk.house.run(lambda: desk.engine.nodes.posted(Board.DIRECTORY, "evil", large, 0))
        desk.house.run(lambda: desk.engine.nodes.posted(Board.LIVE, "evil", alive, 0))
        node = desk.engine.nodes.get("evil")
        return len(node.agents), node.life_sign_data == alive

    assert post() == (1, False)
    # The control: with the guard off all of it is kept.
    monkeypatch.setattr(nodes, "MAX_VALUE_BYTES", dict.fromkeys(Board, 2**30))
    assert post() == (9_000, True)


def test_values_of_nobody_fill_no_more_than_the_boards_hold(three: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = three["desk"]
    known = desk.engine.nodes

    def flood() -> int:
        for number in range(60):
            value = b"x" * 1_000_000
            desk.house.run(lambda number=number, value=value: known.posted(Board.DIRECTORY, f"n{number}", value, 0))
        return sum(len(value) for value, _ in known._early.values())

    assert flood() == known._early_bytes <= nodes.MAX_EARLY_BYTES
    assert flood() == known._early_bytes <= nodes.MAX_EARLY_BYTES
    monkeypatch.setattr(nodes, "MAX_EARLY_BYTES", 2**40)
    assert flood() == 60_000_000
    # What is gone is kept no longer.
    for number in range(60):
        known.posted(Board.DIRECTORY, f"n{number}", None, 0)
    assert (known._early, known._early_bytes) == ({}, 0)


def test_a_node_with_very_many_agents_lists_those_that_the_others_read(three: Machines) -> None:
    identity = three["desk"].engine.identity
    agents = [ListedAgent(handle=f"{'x' * 50}{number}", online=number % 2 == 1) for number in range(20_000)]
    value = signed_listing(identity, agents)
    assert len(value) <= MAX_VALUE_BYTES[Board.DIRECTORY]
    listed = read_directory(identity.keys.public[0], "desk", value, LISTING).agents
    assert len(listed) > 5_000
    assert all(each.online for each in listed)
    assert len(free_groups(f"g{number}" for number in range(1_000))) == MAX_FREE_GROUPS


# -- a card that ends in the middle --


def test_a_card_that_ends_while_its_letter_is_acted_on_breaks_nothing(three: Machines) -> None:
    desk = three["desk"]
    _say(three, "desk", _offer(three))
    before = desk.engine.copies.id_of("evil", "t-1")
    three.revoked.add("evil")
    assert desk.engine.nodes.get("evil") is None
    assert desk.engine.copies.id_of("evil", "t-1") == before
    with pytest.raises(Unavailable):
        desk.engine.copies.id_of("nobody", "t-1")
