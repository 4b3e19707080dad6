"""Lives of a machine that a backup has lost: the others hear of its next one, whatever clocks and liars say."""

from collections.abc import Iterator

import msgspec
import pytest
from machines import Machine, Machines

from bascule.mesh import own_lives
from bascule.mesh.own_lives import FARTHEST_MS

DAY_MS = 24 * 3_600_000


@pytest.fixture
def three() -> Iterator[Machines]:
    """Ada on the laptop, Jerry on the desk; and a third machine of the same person, which may lie."""
    with Machines("laptop", "desk", "vm") as machines:
        machines["laptop"].house.register("Ada")
        machines["desk"].house.register("Jerry")
        machines.advance(1)
        machines.settle()
        for name in ("laptop", "vm"):
            machines["desk"].house.run(lambda name=name: machines["desk"].engine.hello(name))
        machines.settle()
        yield machines


def _lie(machines: Machines, start: int) -> None:
    """The third machine says that it has heard of a life of the desk that began then."""
    vm = machines["vm"]
    peers = vm.engine._state.peers.rows
    peers["desk"] = msgspec.structs.replace(peers["desk"], started=start)
    vm.house.run(lambda: vm.engine.hello("desk"))


def _begin_late(machines: Machines, seconds: float) -> None:
    """A life of the desk that began when its clock was ahead."""
    machines.clock.jump_wall(seconds)
    machines["desk"].crash()
    machines.settle()
    machines.clock.jump_wall(-seconds)


def _say_something(machines: Machines) -> None:
    """The desk confirms it, and will forget it."""
    machines["laptop"].send("Ada", "Jerry@desk")
    machines.settle()
    assert not machines["laptop"].mesh.state.out.rows


def _has_it(desk: Machine) -> bool:
    return len(desk.take("Jerry")) == 1


def test_a_lost_life_and_the_next_one_do_not_begin_at_the_same_time(three: Machines) -> None:
    """The clock was ahead once, so each life begins behind the one before: as the one did that the backup has lost."""
    desk = three["desk"]
    _begin_late(three, 1_800)
    backup = desk.snapshot()
    desk.crash()
    three.settle()
    _say_something(three)
    desk.restore(backup)
    three.settle()
    assert _has_it(desk)


def test_lives_that_began_right_behind_each_other_would_not_be_told_apart(
    three: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(own_lives, "SPREAD_MS", 1)
    desk = three["desk"]
    _begin_late(three, 1_800)
    backup = desk.snapshot()
    desk.crash()
    three.settle()
    _say_something(three)
    desk.restore(backup)
    three.settle()
    assert not _has_it(desk)


def test_a_liar_cannot_have_a_life_begin_when_a_lost_one_did(three: Machines) -> None:
    desk = three["desk"]
    backup = desk.snapshot()
    future = three.clock.wall_ms() + DAY_MS
    _lie(three, future)
    three.settle()
    assert desk.engine.lives.started > future
    _say_something(three)
    _lie(three, future)
    desk.restore(backup)
    three.settle()
    assert _has_it(desk)


def test_a_lie_as_late_as_can_be_leaves_room_for_the_next_life(three: Machines) -> None:
    """Else the others would know of a life that no later one can begin behind."""
    desk = three["desk"]
    backup = desk.snapshot()
    _lie(three, three.clock.wall_ms() + FARTHEST_MS + 1)
    three.settle()
    assert desk.engine.lives.started <= three.clock.wall_ms(), "nobody believes that"
    _lie(three, three.clock.wall_ms() + FARTHEST_MS - 1)
    three.settle()
    assert desk.engine.lives.started > three.clock.wall_ms() + FARTHEST_MS - DAY_MS
    _say_something(three)
    desk.restore(backup)
    three.settle()
    assert _has_it(desk)


def test_a_life_that_begins_later_than_it_said_is_not_taken_for_one_that_was_put_back(three: Machines) -> None:
    """One lie would have every other machine say everything again, and note in its ledger what never was."""
    laptop, desk = three["laptop"], three["desk"]
    _say_something(three)
    (message,) = desk.take("Jerry")
    desk.send("Jerry", "Ada@laptop")
    three.settle()
    (asked,) = laptop.take("Ada")
    laptop.reply("Ada", asked["ticketId"])
    three.settle()
    before = desk.engine.lives.started
    late = [each for each in three.bus.letters if (each.src, each.dest) == ("desk", "laptop")]
    _lie(three, before + DAY_MS)
    three.settle()
    assert desk.engine.lives.started > before
    assert laptop.mesh.state.peer("desk").started == desk.engine.lives.started
    # Under way when it began to say so.
    for letter in late:
        three.bus.slip_in(letter, mailed=True)
    three.settle()
    desk.reply("Jerry", message["ticketId"])
    three.settle()
    assert [each for each in laptop.house.ledger() if each["method"] == "mesh.restored"] == []


def test_that_a_life_begins_later_is_heard_by_its_sign_where_no_hello_comes_through(three: Machines) -> None:
    """Else what it says from then on is of a life that nobody heard of. If it is put back from a backup then, its next
    life begins before that one by the clock, and what it had confirmed is missing for ever."""
    laptop, desk = three["laptop"], three["desk"]
    backup = desk.snapshot()
    desk.engine.hello = lambda *_, **__: None
    _lie(three, three.clock.wall_ms() + DAY_MS)
    three.settle()
    assert laptop.mesh.state.peer("desk").started == desk.engine.lives.started
    _say_something(three)
    three["vm"].house.run(three["vm"].post.disconnect)
    desk.restore(backup)
    three.settle()
    assert _has_it(desk)


def test_a_life_that_its_machine_does_not_know_is_told_though_that_machine_has_said_more_since(three: Machines) -> None:
    """Its letter is taken for one of a life that was lost; what follows from that must not take the answer's place."""
    desk = three["desk"]
    backup = desk.snapshot()
    _begin_late(three, 1_800)
    _say_something(three)
    three.bus.down = True
    desk.restore(backup)
    desk.house.register("Rita")
    desk.house.register("Rosa")
    three.bus.down = False
    desk.house.run(desk.post.connect)
    three.settle()
    assert _has_it(desk)


def test_letters_of_a_second_lost_life_that_come_late_do_not_keep_machines_busy(pair: Machines) -> None:
    """This life has begun behind the first one by then; to whoever reads of the second it would stay an earlier one."""
    laptop, desk = pair["laptop"], pair["desk"]
    backup = desk.snapshot()
    _begin_late(pair, 1_800)
    laptop.house.run(laptop.post.disconnect)
    pair.bus.letters.clear()
    _begin_late(pair, 2 * 1_800)
    late = [each for each in pair.bus.letters if (each.src, each.dest) == ("desk", "laptop")]
    assert late
    desk.restore(backup)
    pair.settle()
    laptop.house.run(laptop.post.connect)
    pair.settle()
    for letter in late:
        pair.bus.slip_in(letter, mailed=True)
    pair.settle()
    laptop.send("Ada", "Jerry@desk")
    pair.settle(rounds=300)
    assert _has_it(desk)
