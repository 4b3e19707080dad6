"""STOP EVERYTHING against the whole house: what is refused, what goes on, what a restart and kill -9 leave."""

import pytest
from desktop_scene import CLICK
from workspace_scene import JERRY, Scene, create, make_machine, shell

from bascule.bridge_list import methods_of
from bascule.foundation.errors import Conflict, Forbidden, Stopped, StorageFull
from bascule.kernel.call import Call, Principal
from bascule.kernel.rows import Effect, Shape
from bascule.testing.policies import preset
from bascule.testing.stores import HeldStore
from gabp import codec

LEFT_OPEN = {Effect.READ, Effect.PROCESS_CONTROL, Effect.ADMIN}
BEING_THERE = {"agents.register", "inbox.ack"}


def stop(house, principal="local", **params):
    return house.call(principal, "admin.stop", params)


def send(house, sender="agent:Jerry", to="Spock", **params):
    return house.call(sender, "messages.send", {"agentId": to, "payload": "hello", **params})


def test_nothing_begins_while_everything_is_stopped(house):
    assert send(house)["status"] == "pending"
    answer = stop(house, reason="it went wild")
    assert answer["stopped"]
    assert answer["by"] == "local"
    assert {each["bridge"] for each in answer["results"]} >= {"broker", "workspace"}
    with pytest.raises(Stopped, match=r"everything was stopped by local") as refused:
        send(house)
    assert "bascule resume" in refused.value.hint
    # Words of the user reach no agent.
    assert "wild" not in str(refused.value.body())


def test_a_person_resumes_and_nobody_else(house):
    stop(house)
    for principal in ("local", "agent:Jerry"):
        with pytest.raises(Forbidden):
            house.call(principal, "admin.resume", {})
    with pytest.raises(Stopped):
        send(house)
    assert house.call("person", "admin.resume", {})["stopped"] is False
    assert send(house)["status"] == "pending"


def test_an_agent_cannot_stop_everything(house):
    with pytest.raises(Forbidden):
        stop(house, "agent:Jerry")
    assert send(house)["status"] == "pending"


def test_every_row_says_by_its_effect_whether_it_goes_on():
    for row in methods_of():
        if row.stopped is None:
            assert row.while_stopped(None) == (row.effect in LEFT_OPEN), row
        elif row.name in BEING_THERE:
            assert row.while_stopped(None), row
    open_ = {row.name for row in methods_of() if row.stopped is None and row.while_stopped(None)}
    acting = {
        row.name
        for row in methods_of()
        if row.effect not in LEFT_OPEN and row.shape is not Shape.STREAM and row.name not in BEING_THERE
    }
    assert not open_ & acting
    assert {"messages.send", "runs.start", "processes.start", "desktop.click", "games.call"} <= acting


def test_reads_waits_cancels_and_signs_of_life_go_on(house):
    ticket = send(house)["ticketId"]
    stop(house)
    assert house.call("agent:Jerry", "tickets.show", {"ticketId": ticket})["status"] == "pending"
    assert house.call("agent:Spock", "agents.heartbeat", {"agentId": "Spock"})["unread"] == 1
    taken = house.call("agent:Spock", "inbox.take", {"agentId": "Spock"})
    assert taken["messages"][0]["ticketId"] == ticket
    assert house.call("agent:Spock", "inbox.ack", {"agentId": "Spock", "ticketIds": [ticket]})["acked"] == [ticket]
    assert house.call("agent:Jerry", "tickets.cancel", {"ticketId": ticket})["status"] == "cancelled"
    assert house.register("Ada")
    assert house.call("agent:Ada", "daemon.status")["stopped"]["by"] == "local"


def test_the_reason_is_for_the_user_alone(house):
    stop(house, reason="secret plan")
    assert house.call("local", "daemon.status")["stopped"]["reason"] == "secret plan"
    assert "reason" not in house.call("agent:Jerry", "daemon.status")["stopped"]


def test_callers_that_wait_are_answered(house):
    ticket = send(house)["ticketId"]
    reply = house.begin("agent:Jerry", "replies.wait", {"ticketId": ticket, "waitMs": 60_000})
    poll = house.begin("agent:Jerry", "inbox.take", {"agentId": "Jerry", "waitMs": 60_000})
    asked = house.begin("agent:Jerry", "messages.send", {"agentId": "Spock", "payload": "?", "waitMs": 60_000})
    results = {each["bridge"]: each["text"] for each in stop(house)["results"]}
    assert results["broker"] == "3 waits answered"
    assert reply.result() is None
    assert poll.result() is None
    assert asked.result()["status"] == "pending"


@pytest.mark.parametrize("clean", [True, False], ids=["stopped and started", "killed"])
def test_a_stop_outlives_the_daemon(house, clean):
    stop(house, reason="at night")
    house.restart(clean=clean)
    with pytest.raises(Stopped):
        send(house)
    assert house.call("local", "daemon.status")["stopped"]["reason"] == "at night"
    house.call("person", "admin.resume", {})
    assert send(house)["status"] == "pending"
    house.restart(clean=clean)
    assert send(house)["status"] == "pending"
    assert "stopped" not in house.call("local", "daemon.status")


def test_stopping_again_keeps_who_was_first(house):
    first = stop(house, reason="first")
    house.advance(60)
    again = stop(house, "person", reason="second")
    assert (again["at"], again["by"]) == (first["at"], "local")
    assert house.call("local", "daemon.status")["stopped"]["reason"] == "first"


def test_the_ledger_has_the_stop_the_refusal_and_the_resume(house):
    stop(house)
    with pytest.raises(Stopped):
        send(house)
    house.call("person", "admin.resume", {})
    records = [(each["principal"], each["method"], each["outcome"]) for each in house.call("local", "ledger.tail")]
    assert [each for each in records if each[1].startswith(("admin.", "messages."))] == [
        ("local", "admin.stop", "ok"),
        ("agent:Jerry", "messages.send", "stopped"),
        ("person", "admin.resume", "ok"),
    ]


# -- runs and commands --


@pytest.fixture
def scene(make_house):
    house = make_house(machine=make_machine())
    house.register("Jerry")
    return Scene(house, {"data/1": b"1"})


def results(answer):
    return {each["bridge"]: each["text"] for each in answer["results"]}


def test_a_run_and_a_command_in_the_background_are_ended(scene):
    process = scene.house.call(JERRY, "processes.start", {"spaceId": scene.space, "command": "serve"})
    pending = scene.begin(shell("serve", id="one"), create("after.txt", id="two"))
    scene.until(lambda: len([each for each in scene.machine.ran if each.running]) == 2, "both run")
    answer = scene.answer(scene.house.begin("local", "admin.stop", {}))
    assert results(answer)["workspace"] == "2 runs and 2 commands ended"
    assert not [each for each in scene.machine.ran if each.running]
    run = scene.answer(pending)
    assert "after.txt" not in scene.files
    assert "not run: everything was stopped" in str(run["events"][-1])
    listed = scene.house.call(JERRY, "processes.list", {})
    assert all(not each["running"] for each in listed)
    assert process["processId"] in {each["processId"] for each in listed}
    with pytest.raises(Stopped):
        scene.begin(create("x.txt"))


def test_a_run_that_waits_for_the_person_waits_on_and_cannot_be_approved_meanwhile(scene):
    run = scene.run(shell("rm -rf data", id="rm"))
    approval = run["events"][-1]["details"]["approvalId"]
    stop(scene.house)
    for decide in (lambda: scene.decide(approval), lambda: scene.resume(run)):
        with pytest.raises(Stopped):
            decide()
    assert scene.house.call("local", "approvals.show", {"approvalId": approval})["state"] == "pending"
    assert "data/1" in scene.files
    scene.house.call("person", "admin.resume", {})
    scene.decide(approval)
    scene.until(lambda: scene.view(run)["status"] == "completed", "its end")
    assert "data/1" not in scene.files


def test_no_can_be_said_while_everything_is_stopped(scene):
    run = scene.run(shell("rm -rf data", id="rm"))
    stop(scene.house)
    scene.decide(run["events"][-1]["details"]["approvalId"], "denied")
    scene.until(lambda: scene.view(run)["status"] == "completed", "its end")
    assert "data/1" in scene.files


def test_a_yes_that_was_given_before_has_no_effect_after(scene):
    """The run is woken by the answer in the turn in which everything is stopped."""
    run = scene.run(shell("rm -rf data", id="rm"))
    approval = run["events"][-1]["details"]["approvalId"]
    params = {"approvalId": approval, "decision": "approved"}

    def begin(principal, method, params):
        return lambda: scene.house.gate.call(call_of(principal, method, params))

    scene.house.at_once(begin("person", "approvals.decide", params), begin("local", "admin.stop", {}))
    scene.until(lambda: scene.view(run)["status"] not in ("running", "awaiting_approval"), "its end")
    assert "data/1" in scene.files


def call_of(principal, method, params):
    return Call(Principal(principal), method, codec.encode(params), door="testing")


# -- the desktop --


@pytest.fixture
def screen(make_desktop):
    made = make_desktop(policy=preset("permissive"))
    made.call("focusWindow", "person", **{key: CLICK[key] for key in ("route",)})
    return made


def test_the_desktop_is_released_and_resumes_with_the_rest(screen):
    stop(screen.house)
    assert screen.host.stopped
    assert screen.call("status")["stopped"]
    with pytest.raises(Stopped):
        screen.call("click", "person", **CLICK)
    with pytest.raises(Stopped):
        screen.call("observe", route=CLICK["route"])
    with pytest.raises(Stopped):
        screen.call("resume", "person")
    screen.house.call("person", "admin.resume", {})
    screen.until(lambda: not screen.host.stopped, "the host takes input")
    assert screen.call("click", "person", **CLICK)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_desktop_that_was_stopped_by_itself_stays_so(screen, first):
    if first:
        screen.call("stop", "local")
    stop(screen.house)
    if not first:
        screen.call("stop", "local")
    screen.house.call("person", "admin.resume", {})
    assert screen.call("status")["stopped"]
    with pytest.raises(Conflict, match="input was stopped"):
        screen.call("click", "person", **CLICK)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped and started", "killed"])
def test_a_new_host_is_stopped_too(screen, clean):
    stop(screen.house)
    screen.house.restart(clean=clean)
    assert screen.call("status")["stopped"]
    screen.house.call("person", "admin.resume", {})
    assert not screen.call("status")["stopped"]
    assert screen.call("click", "person", **CLICK)


# -- a full disk --


def refused_by_the_disk(house, principal, method):
    house.store.hold = True
    held = house.begin(principal, method, {})
    house.run(house.store.fail)
    house.store.hold = False
    with pytest.raises(StorageFull) as refused:
        held.result()
    return refused.value


@pytest.fixture
def held(make_house):
    house = make_house(store=HeldStore(hold=False))
    house.register("Jerry")
    return house


def test_a_stop_that_the_disk_does_not_take_counts_until_the_daemon_ends(held):
    refused = refused_by_the_disk(held, "local", "admin.stop")
    assert refused.message.startswith("everything is stopped, but a restart of the daemon would not know it")
    with pytest.raises(Stopped):
        send(held, to="Jerry")
    # Once more, and it is stored.
    stop(held)
    held.restart(clean=False)
    with pytest.raises(Stopped):
        send(held, to="Jerry")


def test_a_resume_that_the_disk_does_not_take_does_not_count(held):
    stop(held)
    refused_by_the_disk(held, "person", "admin.resume")
    with pytest.raises(Stopped):
        send(held, to="Jerry")
    held.call("person", "admin.resume", {})
    assert send(held, to="Jerry")


def test_a_stop_beside_a_resume_wins(house):
    stop(house)
    house.at_once(
        lambda: house.gate.call(call_of("person", "admin.resume", {})),
        lambda: house.gate.call(call_of("local", "admin.stop", {})),
    )
    with pytest.raises(Stopped):
        send(house)
    house.restart(clean=False)
    with pytest.raises(Stopped):
        send(house)
