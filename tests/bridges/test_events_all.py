"""`events.all`: one order for everything that happens, a cursor to come back with, and never what was said."""

import asyncio
import json
import time

import pytest
from desktop_scene import CLICK, Desktop
from workspace_scene import JERRY, Scene, create, make_machine, shell

from bascule.foundation.errors import Forbidden, InvalidRequest, Overloaded, Unavailable
from bascule.kernel import event_ring
from bascule.kernel.event_ring import READER_ITEMS, EventRing, Fact, Kind
from bascule.testing.clock import FakeClock
from bascule.testing.house import House
from patience import PATIENCE

# Letters that draw something else than they say, in whatever an agent may choose.
SECRET = "hunter2-\x1b[31m-\u202e-<script>"


@pytest.fixture
def house():
    with House() as house:
        yield house


def follow(house, who="local", **params):
    return house.call(who, "events.all", params)


def names(items):
    return [(item["kind"], item["event"]) for item in items]


def talk(house, ticket="t1"):
    house.call("agent:Tom", "messages.send", {"agentId": "Jerry", "payload": SECRET, "ticketId": ticket})
    house.call("agent:Jerry", "inbox.ack", {"agentId": "Jerry", "ticketIds": [ticket]})
    house.call("agent:Jerry", "replies.post", {"ticketId": ticket, "payload": SECRET})


def register(house):
    for name in ("Tom", "Jerry"):
        house.register(name)


# -- what is in it --


def test_agents_and_tickets_come_in_the_order_in_which_they_happen(house):
    stream = follow(house)
    register(house)
    talk(house)
    opened, *items = stream.items()
    assert (opened["kind"], opened["event"]) == ("daemon", "open")
    assert names(items) == [
        *(("agent", "online"), ("agent", "registered")),
        *(("agent", "online"), ("agent", "registered")),
        *(("ticket", "sent"), ("ticket", "delivered"), ("ticket", "responded")),
    ]
    sent = next(item for item in items if item["event"] == "sent")
    assert (sent["id"], sent["agentId"], sent["from"], sent["status"]) == ("t1", "Jerry", "Tom", "pending")
    cursors = [item["cursor"] for item in (opened, *items)]
    assert cursors == list(range(cursors[0], cursors[0] + len(cursors)))


def test_a_run_its_question_and_its_command_are_in_it():
    with House(machine=make_machine()) as house:
        scene = Scene(house, {"data/a": b"1"})
        stream = follow(house, kinds="run,approval,process")
        done = scene.run(shell("echo hi"))
        asks = scene.run(shell("rm -rf data"))
        scene.resume(asks)
        scene.until(lambda: scene.view(asks)["status"] == "completed", "the end of the run")
        items = [item for item in stream.items() if item["kind"] != "daemon"]
    assert [(item["kind"], item["event"]) for item in items if item["id"] == done["runId"]] == [
        ("run", "started"),
        ("run", "ended"),
    ]
    assert [item["event"] for item in items if item["id"] == asks["runId"]] == ["started", "asks", "resumed", "ended"]
    approvals = [item for item in items if item["kind"] == "approval"]
    assert [item["event"] for item in approvals] == ["asked", "approved"]
    assert {item["principal"] for item in items} == {JERRY}
    processes = [item for item in items if item["kind"] == "process"]
    assert [(item["event"], item["status"]) for item in processes] == [("started", "running"), ("ended", "exit 0")] * 2
    assert {item["text"] for item in processes} == {"echo", "rm"}


def test_an_undo_is_in_it():
    with House(machine=make_machine()) as house:
        scene = Scene(house)
        done = scene.run(create("new.txt"))
        stream = follow(house, kinds="run")
        scene.call("runs.undo", done)
        found = stream.items()
        deadline = time.monotonic() + PATIENCE
        while len(found) < 2 and time.monotonic() < deadline:
            # What is told after a commit may come a turn of the loop later than the answer.
            house.run(lambda: None)
            found += stream.items()
        assert [item["event"] for item in found] == ["open", "undone"]


def test_the_desktop_is_in_it_with_the_app_and_without_what_was_typed():
    desktop = Desktop()
    with desktop.house as house:
        stream = follow(house, kinds="desktop")
        done = desktop.approved("click", **CLICK)
        house.call("local", "desktop.stop")
        house.call("person", "desktop.resume")
        items = [item for item in stream.items() if item["kind"] == "desktop"]
    assert [item["event"] for item in items] == ["host", "click", "stopped", "resumed"]
    assert (items[1]["id"], items[1]["principal"]) == (done["executionId"], JERRY)
    assert items[1]["status"] == done["effect"]


def test_the_person_and_the_policy_are_in_it(house):
    stream = follow(house, kinds="person")
    house.call("local", "person.set", {"passphrase": "correct horse battery"})
    assert names(stream.items())[1:] == [("person", "set")]


def test_nothing_that_an_agent_wrote_is_in_it(house):
    stream = follow(house)
    house.register("Tom", metadata={"note": SECRET}, type="claude")
    house.register("Jerry")
    talk(house)
    house.call("agent:Tom", "messages.send", {"agentId": "Jerry", "payload": {"x": SECRET}, "ticketId": "t2"})
    house.call("agent:Tom", "tickets.cancel", {"ticketId": "t2", "reason": SECRET})
    text = json.dumps(stream.items(), ensure_ascii=False)
    assert "hunter2" not in text
    # The control: a side of the ticket does get it.
    assert "hunter2" in json.dumps(house.call("person", "tickets.show", {"ticketId": "t1"}))


def test_a_summary_of_a_question_is_made_visible_before_it_is_in_it():
    with House(machine=make_machine()) as house:
        scene = Scene(house)
        stream = follow(house, kinds="approval")
        scene.run(shell("rm -rf data \u202e # \x1b[31m"))
        (asked,) = scene.until(lambda: [item for item in stream.items() if item["event"] == "asked"], "the question")
    assert asked["text"].isprintable()
    assert "⟨U+202E⟩" in asked["text"]


def test_a_secret_in_front_of_a_command_is_not_its_program():
    machine = make_machine()
    machine.command("TOKEN=hunter2 echo hi", stdout="hi\n")
    with House(machine=machine) as house:
        scene = Scene(house)
        stream = follow(house, kinds="process")
        scene.run(shell("TOKEN=hunter2 echo hi"))
        texts = [item.get("text") for item in stream.items() if item["kind"] == "process"]
    assert texts == ["TOKEN=…"] * 2


# -- who --


def test_an_agent_may_not_follow_everything(house):
    register(house)
    with pytest.raises(Forbidden):
        follow(house, who="agent:Tom")
    follow(house, who="person").close()


def test_a_kind_that_there_is_not_is_refused(house):
    with pytest.raises(InvalidRequest, match="no kind 'tickets'"):
        follow(house, kinds="agent,tickets")


# -- coming back --


def test_a_reader_that_comes_back_gets_exactly_what_it_missed(house):
    register(house)
    stream = follow(house)
    talk(house, "t1")
    seen = stream.items()
    stream.close()
    talk(house, "t2")
    back = follow(house, after=seen[-1]["cursor"])
    missed = back.items()
    assert [item["id"] for item in missed] == ["t2"] * 3
    assert missed[0]["cursor"] == seen[-1]["cursor"] + 1


def test_a_reader_that_saw_nothing_yet_can_come_back(house):
    register(house)
    stream = follow(house)
    (opened,) = stream.items()
    stream.close()
    talk(house)
    assert [item["event"] for item in follow(house, after=opened["cursor"]).items()] == [
        *("sent", "delivered", "responded")
    ]


def test_a_cursor_of_the_last_life_is_answered_with_a_gap_and_cursors_rise(house):
    register(house)
    stream = follow(house)
    talk(house)
    last = stream.items()[-1]["cursor"]
    house.restart(down_seconds=1)
    gap, *rest = follow(house, after=last).items()
    assert (gap["kind"], gap["event"]) == ("daemon", "gap")
    assert names(rest)[0] == ("daemon", "started")
    assert min(item["cursor"] for item in (gap, *rest)) > last


def test_the_end_of_the_daemon_is_the_last_item(house):
    stream = follow(house)
    house.run(house.life.end)
    assert names(stream.items())[-1] == ("daemon", "stopping")
    assert stream.ended
    with pytest.raises(Unavailable):
        follow(house)


# -- the ring itself --


def fact(number):
    return Fact(kind=Kind.TICKET, event="sent", id=str(number))


def in_loop(act):
    async def inside():
        ring = EventRing(FakeClock(), size=8, max_readers=2)
        await act(ring)

    asyncio.run(inside())


async def turns():
    for _ in range(4):
        await asyncio.sleep(0)


def ids(stream):
    return [item.fact.id or item.fact.event for item in stream.drain()[0]]


def test_a_reader_that_is_too_late_is_told_how_much_is_gone():
    async def act(ring):
        start = ring.cursor
        for number in range(20):
            ring.publish(fact(number))
        late = ring.open(start + 2, None, lambda entry: entry)
        await turns()
        gap, *rest = late.drain()[0]
        assert gap.fact.event == "gap"
        assert gap.fact.text == "10 facts are no longer kept"
        assert [entry.fact.id for entry in rest] == [str(number) for number in range(12, 20)]
        assert [entry.cursor for entry in (gap, *rest)] == list(range(start + 12, start + 21))
        # In time: the oldest that is kept is the next one.
        in_time = ring.open(start + 12, None, lambda entry: entry)
        await turns()
        assert ids(in_time)[0] == "12"

    in_loop(act)


def test_a_reader_that_does_not_read_holds_nothing_but_its_own_few_items():
    async def act(ring):
        slow = ring.open(None, None, lambda entry: entry)
        await turns()
        for number in range(10 * READER_ITEMS):
            ring.publish(fact(number))
            if number % 8 == 7:
                await turns()
        assert slow.waiting == READER_ITEMS
        taken = ids(slow)
        await turns()
        gap, *rest = ids(slow)
        assert taken == ["open", *(str(number) for number in range(READER_ITEMS - 1))]
        assert gap == "gap"
        assert rest == [str(number) for number in range(10 * READER_ITEMS - 8, 10 * READER_ITEMS)]
        assert slow.dropped == 0

    in_loop(act)


def test_without_readers_nothing_is_scheduled_and_nothing_is_made_of_a_fact():
    class Counted:
        made = 0

        def as_fact(self):
            self.made += 1
            return fact(1)

    async def act(ring):
        loop = asyncio.get_running_loop()
        before = len(loop._ready)
        counted = Counted()
        ring.publish(counted)
        assert (counted.made, len(loop._ready)) == (0, before)
        # The control: with a reader both happen.
        reader = ring.open(None, None, lambda entry: entry)
        await turns()
        ring.publish(counted)
        ring.publish(counted)
        assert len(loop._ready) == before + 1, "one turn for all that comes within it"
        await turns()
        assert counted.made == 2
        reader.close()
        assert ring.readers == 0

    in_loop(act)


def test_readers_are_counted():
    async def act(ring):
        readers = [ring.open(None, None, lambda entry: entry) for _ in range(2)]
        with pytest.raises(Overloaded):
            ring.open(None, None, lambda entry: entry)
        readers[0].close()
        ring.open(None, None, lambda entry: entry)

    in_loop(act)


def test_a_reader_of_few_kinds_is_not_held_up_by_the_others():
    async def act(ring):
        few = ring.open(None, frozenset({"person"}), lambda entry: entry)
        for number in range(3):
            ring.publish(fact(number))
        ring.publish(Fact(kind=Kind.PERSON, event="set"))
        await turns()
        assert ids(few) == ["open", "set"]

    in_loop(act)


def test_a_million_facts_a_second_is_what_the_cursor_allows():
    """A restart a second later begins behind every cursor that was given out, unless there were more."""
    clock = FakeClock()
    ring = EventRing(clock)
    for number in range(event_ring.RING_FACTS):
        ring.publish(fact(number))
    clock.advance(1.0)
    assert EventRing(clock).cursor > ring.cursor
