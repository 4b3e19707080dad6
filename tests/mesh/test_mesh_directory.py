"""The directory of other machines' agents follows what they list, and costs no more in a large mesh; receipts leave the
outbox together."""

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from machines import Machines

from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import NotFound
from bascule.foundation.ids import new_ticket_id
from bascule.mesh.arrivals import HOLD_MS
from bascule.mesh.cards import DAY_MS, Card, Keys, sign_directory
from bascule.mesh.copies import copy_id
from bascule.mesh.identity import Identity
from bascule.mesh.nodes import Nodes
from bascule.mesh.own_lives import SPREAD_MS
from bascule.mesh.ports import Board
from bascule.mesh.protocol import MAX_LIVES, Anchor, LifeSign, ListedAgent, Listing
from bascule.mesh.receipts import TAKE_OUT_MS
from bascule.mesh.traffic import MeshTraffic


class Mesh:
    """Other nodes with their keys, and one directory that hears of them."""

    def __init__(self, count: int) -> None:
        self.clock = SystemClock()
        self.keys = {f"node-{number}": Keys.new() for number in range(count)}
        self.cards = {name: self.make_card(name) for name in self.keys}
        self.nodes = Nodes(Identity("here", "me", Keys.new()), self, self.clock)
        self.alive: list[str] = []
        self.nodes.on_alive = lambda node: self.alive.append(node.card.node)

    def make_card(self, name: str) -> Card:
        sign, box, bus = self.keys[name].public
        end = self.clock.wall_ms() + DAY_MS
        return Card(mesh="home", node=name, sign=sign, box=box, bus=bus, owner="me", owner_name="me", not_after=end)

    def card(self, node: str) -> Card | None:
        return self.cards.get(node)

    def all(self) -> list[Card]:
        return list(self.cards.values())

    def revocations(self) -> tuple[int, bytes]:
        return 0, b""

    def list(self, name: str, *handles: str, group: str | None = None) -> None:
        agents = [ListedAgent(handle=each, groups=[group] if group else []) for each in handles]
        value = sign_directory(self.keys[name].sign, name, Listing(agents=agents))
        self.nodes.posted(Board.DIRECTORY, name, value, 0)

    def sign(self, name: str, keys: Keys, life: str = "lif_1", **free: int) -> bytes:
        return sign_directory(keys.sign, name, LifeSign(life=life, began=Anchor(), free=free))

    def found(self, target: str) -> str | None:
        found = self.nodes.find(target)
        return None if found is None else found.agent_id


def test_a_bare_handle_follows_the_lists_of_the_nodes() -> None:
    mesh = Mesh(3)
    mesh.list("node-0", "Jerry")
    assert mesh.found("Jerry") == "Jerry@node-0"
    mesh.list("node-1", "Jerry", "Tom")
    with pytest.raises(NotFound) as refused:
        mesh.found("Jerry")
    assert "Jerry@node-0, Jerry@node-1" in (refused.value.hint or "")
    mesh.list("node-0", "Spike")
    assert mesh.found("Jerry") == "Jerry@node-1"
    mesh.list("node-1")
    assert mesh.found("Jerry") is None
    assert mesh.found("Tom") is None


def test_agents_of_a_node_without_a_card_and_of_one_with_new_keys_are_not_found() -> None:
    mesh = Mesh(2)
    mesh.list("node-0", "Jerry", group="reviewers")
    card = mesh.cards.pop("node-0")
    assert mesh.found("Jerry") is None
    mesh.cards["node-0"] = card
    assert mesh.found("Jerry") == "Jerry@node-0"
    mesh.keys["node-0"] = Keys.new()
    mesh.cards["node-0"] = mesh.make_card("node-0")
    assert mesh.found("Jerry") is None, "listed by whoever had the name before"
    assert mesh.nodes.candidates("reviewers") == []
    mesh.list("node-0", "Jerry")
    assert mesh.found("Jerry") == "Jerry@node-0"


def test_a_group_of_any_node_means_those_that_list_a_member_the_free_first() -> None:
    mesh = Mesh(3)
    for name in ("node-0", "node-2"):
        mesh.list(name, "Jerry", group="reviewers")
    free = mesh.sign("node-2", mesh.keys["node-2"], reviewers=1)
    mesh.nodes.posted(Board.LIVE, "node-2", free, 0)
    assert mesh.nodes.candidates("reviewers") == ["node-2", "node-0"]
    assert mesh.found("reviewers@any") == "reviewers@any"
    mesh.list("node-2", "Jerry")
    mesh.list("node-0")
    with pytest.raises(NotFound):
        mesh.found("reviewers@any")


@pytest.mark.parametrize(
    "agent",
    [
        ListedAgent(handle="Evil\x1b[2J"),
        ListedAgent(handle="Evil\u202e"),
        ListedAgent(handle="Evil\n"),
        ListedAgent(handle="Evil@node-1"),
        ListedAgent(handle="E" * 65),
        ListedAgent(handle="Evil", type="x" * 65),
        ListedAgent(handle="Evil", groups=["<b>"]),
    ],
)
def test_a_list_with_a_name_that_no_agent_can_have_is_refused_and_the_one_before_stays(agent: ListedAgent) -> None:
    mesh = Mesh(1)
    key = mesh.keys["node-0"].sign

    def post(*agents: ListedAgent) -> list[str]:
        mesh.nodes.posted(Board.DIRECTORY, "node-0", sign_directory(key, "node-0", Listing(agents=[*agents])), 0)
        return [each.agent_id for each in mesh.nodes.agents()]

    mesh.list("node-0", "Jerry")
    assert post(ListedAgent(handle="Tom"), agent) == ["Jerry@node-0"]
    # The control: the longest that there is, and any letters in its type.
    longest = ListedAgent(handle="E" * 64, type="\x1b[2J\u202e".ljust(64, "x"))
    assert post(ListedAgent(handle="Tom"), longest) == ["Tom@node-0", f"{'E' * 64}@node-0"]


def test_a_sign_of_life_that_another_key_made_counts_for_nothing_after_a_good_one_either() -> None:
    mesh = Mesh(2)
    name, keys = "node-0", mesh.keys["node-0"]
    good, forged = mesh.sign(name, keys), mesh.sign(name, mesh.keys["node-1"], "lif_2")
    mesh.nodes.posted(Board.LIVE, name, forged, 0)
    assert mesh.alive == []
    mesh.nodes.posted(Board.LIVE, name, good, 0)
    mesh.nodes.posted(Board.LIVE, name, forged, 0)
    mesh.nodes.posted(Board.LIVE, name, good, 0)
    assert mesh.alive == [name]
    mesh.nodes.posted(Board.LIVE, name, mesh.sign(name, keys, "lif_2"), 0)
    assert mesh.alive == [name, name]
    # Its name with other keys: what was checked with the old ones is checked again.
    mesh.keys[name] = Keys.new()
    mesh.cards[name] = mesh.make_card(name)
    mesh.nodes.posted(Board.LIVE, name, good, 0)
    assert mesh.alive == [name, name]


def steps(work: Callable[[], Any]) -> int:
    """Calls of Python functions; not those of the garbage collector, which ends what earlier tests have left."""
    count = 0

    def step(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()
    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_finding_an_agent_takes_no_more_steps_in_a_larger_mesh() -> None:
    taken = []
    for count in (3, 30):
        mesh = Mesh(count)
        for number in range(count):
            mesh.list(f"node-{number}", f"Jerry-{number}", group="reviewers" if number == 1 else None)
        last = count - 1
        targets = (f"Jerry-{last}", f"Jerry-{last}@node-{last}", "Nobody", "reviewers@any")
        taken.append([steps(lambda target=target, mesh=mesh: mesh.found(target)) for target in targets])
    assert taken[0] == taken[1]


def test_a_sign_of_life_that_says_the_same_is_not_read_again() -> None:
    mesh = Mesh(1)
    value = mesh.sign("node-0", mesh.keys["node-0"])

    def come() -> None:
        mesh.nodes.posted(Board.LIVE, "node-0", value, 0)

    first = steps(come)
    assert steps(come) < first


def test_ids_of_copies_lie_on_disk_as_they_came_and_cannot_be_chosen() -> None:
    tickets = [new_ticket_id(1_700_000_000_000 + number * 50) for number in range(50)]
    copies = [copy_id("key", ticket) for ticket in tickets]
    assert copies == sorted(copies)
    assert copy_id("key", tickets[0]) != copy_id("another", tickets[0])
    assert len({copy_id("key", ticket) for ticket in (tickets[0], tickets[0] + "a", "mine")}) == 3


# -- receipts --


def let_letters_arrive(machines: Machines) -> None:
    while machines.deliver_one():
        pass


def test_receipts_of_a_moment_leave_the_outbox_in_one_commit(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    laptop = pair["laptop"]
    for _ in range(5):
        laptop.send("Ada", "Jerry@desk", expectReply=False)
        pair.advance(0.001)
        let_letters_arrive(pair)
    # Desk waits for something that its commits, and then its receipts, could ride with.
    pair.advance(HOLD_MS / 1_000)
    pair.advance(0.05)
    let_letters_arrive(pair)
    quiet: list[int] = []
    commit = laptop.house.journal.commit_quietly
    monkeypatch.setattr(laptop.house.journal, "commit_quietly", lambda tx: quiet.append(len(tx.puts)) or commit(tx))
    assert len(laptop.mesh.state.out.rows) == 5
    pair.advance(TAKE_OUT_MS / 1_000)
    assert not laptop.mesh.state.out.rows
    assert len(quiet) == 1


@pytest.mark.req("MESH-RULE-4")
def test_a_daemon_that_dies_with_receipts_in_hand_sends_again_and_nothing_is_done_twice(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.advance(0.001)
    let_letters_arrive(pair)
    pair.advance(HOLD_MS / 1_000)
    pair.advance(0.05)
    let_letters_arrive(pair)
    assert laptop.engine._arrivals.receipts._waiting
    assert laptop.mesh.state.out.rows
    laptop.crash()
    pair.settle()
    assert not laptop.mesh.state.out.rows
    assert len(desk.take("Jerry")) == 1
    assert desk.take("Jerry") == []


def test_a_node_restored_from_a_backup_gets_what_it_had_just_confirmed(pair: Machines) -> None:
    """Its hello comes while its receipt still waits to be taken out of the outbox."""
    laptop, desk = pair["laptop"], pair["desk"]
    backup = desk.snapshot()
    laptop.send("Ada", "Jerry@desk")
    pair.advance(0.001)
    let_letters_arrive(pair)
    pair.advance(0.05)
    let_letters_arrive(pair)
    assert laptop.mesh.state.out.rows, "the receipt is in hand"
    desk.restore(backup)
    let_letters_arrive(pair)
    pair.settle()
    assert len(desk.take("Jerry")) == 1


def test_a_letter_of_a_lost_life_does_not_take_the_place_of_an_answer_that_is_due(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    node = desk.engine.nodes.get("laptop")
    # The pause after a sign of life: what comes now waits until it is over.
    desk.house.run(lambda: desk.engine._alive(node))
    let_letters_arrive(pair)
    asked = laptop.house.begin("local", "mesh.anchors")
    let_letters_arrive(pair)
    assert not asked.done
    desk.house.run(lambda: desk.engine._arrivals._on_lost_life(node))
    pair.settle()
    assert asked.done


def test_a_reply_of_a_lost_life_that_comes_late_is_known_to_the_machine_that_forgot_it(pair: Machines) -> None:
    """It has more records by then than it had when it said it."""
    laptop, desk = pair["laptop"], pair["desk"]
    ticket = laptop.send("Ada", "Jerry@desk", timeoutMs=1_000)
    pair.settle()
    (message,) = desk.take("Jerry")
    pair.advance(2)
    pair.settle()
    assert laptop.show(ticket)["status"] == "timeout"
    backup = desk.snapshot()
    # Its letters do not come through for now.
    pair.bus.letters.clear()
    desk.reply("Jerry", message["ticketId"])
    pair.advance(2)
    late = [each for each in pair.bus.letters if each.src == "desk"]
    pair.bus.moving.clear()
    pair.bus.mailboxes.clear()
    desk.restore(backup)
    for _ in range(5):
        desk.send("Jerry", "Ada@laptop")
    pair.settle()
    desk.crash()
    pair.settle()
    for letter in late:
        pair.bus.slip_in(letter, mailed=True)
    pair.settle()
    assert laptop.show(ticket)["status"] == "responded"
    assert desk.show(message["ticketId"])["status"] == "responded"


def test_a_machine_that_only_lost_its_connection_is_not_taken_for_one_that_was_put_back(pair: Machines) -> None:
    """What it confirmed in this life is behind the record that the life began with, of course."""
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    (message,) = desk.take("Jerry")
    for machine in (desk, laptop):
        machine.post.disconnect()
        machine.post.connect()
        pair.advance(1)
        pair.settle()
    assert [each for each in laptop.house.ledger() if each["method"] == "mesh.restored"] == []
    desk.reply("Jerry", message["ticketId"])
    pair.settle()
    for machine in (desk, laptop):
        machine.post.disconnect()
        machine.post.connect()
        pair.advance(1)
        pair.settle()
    assert [each for each in desk.house.ledger() if each["method"] == "mesh.restored"] == []


@pytest.mark.req("MESH-DAY-10")
@pytest.mark.parametrize("knows_its_lives", [True, False])
def test_a_machine_whose_clock_was_set_back_is_not_taken_for_one_that_was_put_back(
    pair: Machines, *, knows_its_lives: bool
) -> None:
    """Its word would be that of an earlier life for ever: each letter of it had everything sent to it again."""
    laptop, desk = pair["laptop"], pair["desk"]
    pair.clock.jump_wall(-60)
    if not knows_its_lives:
        pair.on_life = lambda _name, mesh: _set_back(mesh, pair.clock.wall_ms())
    desk.crash()
    pair.settle()
    laptop.send("Ada", "Jerry@desk")
    with contextlib.nullcontext() if knows_its_lives else pytest.raises(AssertionError, match="do not come to rest"):
        pair.settle(rounds=200)
    restored = [each for each in laptop.house.ledger() if each["method"] == "mesh.restored"]
    assert (restored == []) is knows_its_lives


def _set_back(mesh: MeshTraffic, started: int) -> None:
    """As if it did not know when its lives before began, nor heard it from others."""
    assert mesh.engine is not None
    mesh.engine.lives.started = started
    _keep_start(mesh)


def _keep_start(mesh: MeshTraffic) -> None:
    assert mesh.engine is not None
    mesh.engine.lives.begin_behind = lambda _start: False  # type: ignore[method-assign] # the guard is off


@pytest.mark.req("MESH-DAY-11")
@pytest.mark.parametrize("others_know", [True, False])
def test_a_life_with_a_clock_ahead_that_a_backup_has_lost_is_told_by_others(
    pair: Machines, *, others_know: bool
) -> None:
    """The backup does not know that life, and the next one begins before it by the clock: others would take its word
    for that of an earlier one, and what was confirmed in the lost life would be missing for ever."""
    laptop, desk = pair["laptop"], pair["desk"]
    snapshot = desk.snapshot()
    pair.clock.jump_wall(1_800)
    desk.crash()
    pair.settle()
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    pair.clock.jump_wall(-1_800)
    if not others_know:
        pair.on_life = lambda _name, mesh: _keep_start(mesh)
    desk.restore(snapshot)
    pair.settle()
    assert len(desk.take("Jerry")) == others_know
    laptop.send("Ada", "Jerry@desk")
    with contextlib.nullcontext() if others_know else pytest.raises(AssertionError, match="do not come to rest"):
        pair.settle(rounds=200)


def test_a_machine_that_lies_about_our_lives_has_this_one_begin_later_a_few_times(pair: Machines) -> None:
    laptop, desk = pair["laptop"], pair["desk"]
    laptop.send("Ada", "Jerry@desk")
    pair.settle()
    begun = [desk.engine.lives.started]
    for _ in range(MAX_LIVES + 4):
        # The first is too late to be true.
        for start in (2**53, begun[-1] + 10):
            peer = laptop.engine._state.peers
            peer.rows["desk"] = msgspec.structs.replace(peer.rows["desk"], started=start)
            laptop.house.run(lambda: laptop.engine.hello("desk"))
            pair.advance(1)
            pair.settle()
        begun.append(desk.engine.lives.started)
    assert begun == sorted(begun)
    assert max(begun) <= begun[0] + MAX_LIVES * (10 + SPREAD_MS)
    assert len({*begun}) == 1 + MAX_LIVES
    assert len(desk.engine.lives.listed()) == 1
