"""STOP EVERYTHING against the whole house: what is refused, what goes on, what a restart and kill -9 leave."""

import pytest
from workspace_scene import Scene

from bascule.bridge_list import methods_of
from bascule.foundation.errors import BasculeError, Forbidden, Stopped, StorageFull
from bascule.kernel.rows import Effect, Shape
from bascule.testing.house import House

LEFT_OPEN = {Effect.READ, Effect.PROCESS_CONTROL, Effect.ADMIN}
BEING_THERE = {"agents.register", "inbox.ack"}


@pytest.fixture
def house():
    with House() as house:
        house.register("Jerry")
        house.register("Spock")
        yield house


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
