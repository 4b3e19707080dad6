"""What a caller from outside reaches: published agents and its own tickets, whatever it calls and however."""

import contextlib
from typing import Any

import pytest

from bascule.a2a.tasks import OF_STATUS, Asked, State, Tasks
from bascule.bridge_list import BRIDGES, presets_of, rows_of
from bascule.broker.protocol import TicketStatus
from bascule.foundation.errors import BasculeError, Conflict, Forbidden, NotFound, Overloaded, PolicyDenied
from bascule.kernel.identity import ownership
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.testing.house import House, StillWaiting
from outside_scene import sample

ANN = "a2a:Ann"
# Every one of them is looked at below, on one's own things and on others'.
OPEN = {"messages.send", "tickets.list", "tickets.show", "tickets.cancel", "replies.wait", "replies.stream"}
# A side of the ticket may call them, and no caller from outside can be the side that they are about.
REFUSED_INSIDE = {"replies.post"}


@pytest.fixture
def house():
    with House() as house:
        house.register("Jerry")
        house.register("Mole")
        house.call("person", "a2a.publish", {"agentId": "Jerry"})
        house.call("agent:Mole", "messages.send", {"agentId": "Jerry", "payload": "secret", "ticketId": "theirs"})
        yield house


def outcome(house: House, row: Any) -> str:
    try:
        house.call(ANN, row.name, sample(row))
    except StillWaiting:
        return "taken"
    except BasculeError as error:
        return error.code
    return "taken"


def test_every_method_but_the_open_ones_refuses_a_caller_from_outside(house):
    rows = [row for row in rows_of(BRIDGES) if row.name in house.gate.methods and row.shape != "operation"]
    assert len(rows) > 60
    refusals = {row.name: {"forbidden", "invalid_request"} for row in rows}
    for row in rows:
        if row.who.kind == "starter":
            # What nobody started is nobody's.
            refusals[row.name].add("not_found")
    reached = {row.name: code for row in rows if (code := outcome(house, row)) not in refusals[row.name]}
    # The message to Jerry, who is published, and the list of one's own.
    assert reached == {"messages.send": "taken", "tickets.list": "taken"}


def test_no_method_is_passed_over_because_its_params_were_guessed_wrong(house):
    """Whatever decoding says first, the one who may call is checked for every row that is anyone's."""
    for name, mounted in house.gate.methods.items():
        row = mounted.row
        if str(row.who) != "anyone" or mounted.is_operation or name in OPEN:
            continue
        with pytest.raises(Forbidden):
            mounted.ownership("a2a:Ann", None)


def test_a_row_that_says_nothing_is_closed_to_callers_from_outside():
    opened = {row.name for row in rows_of(BRIDGES) if row.outside is not None}
    assert opened == {"messages.send", "tickets.list", "tickets.show"}
    party = {row.name for row in rows_of(BRIDGES) if row.who.kind == "party"}
    assert party == {"replies.post", "replies.wait", "replies.stream", "tickets.cancel"}
    assert opened | party == OPEN | REFUSED_INSIDE


def test_the_walk_finds_what_the_check_keeps_closed(house, monkeypatch):
    """The control: without the check the same walk reaches the agents, the tickets and the events of this machine."""
    monkeypatch.setattr(ownership, "is_outside", lambda _principal: False)
    rows = [row for row in rows_of(BRIDGES) if row.name in house.gate.methods and row.shape != "operation"]
    reached = {row.name for row in rows if outcome(house, row) == "taken"}
    assert {"agents.list", "events.recent", "conversations.list", "messages.broadcast"} <= reached


@pytest.mark.parametrize("target", ["Mole", "nobody", "person", "Weather@a2a", "reviewers"])
def test_only_published_handles_are_written_to(house, target):
    with pytest.raises((NotFound, Forbidden)) as refusal:
        house.call(ANN, "messages.send", {"agentId": target, "payload": "x"})
    assert "secret" not in refusal.value.message
    house.call("person", "a2a.unpublish", {"agentId": "Jerry"})
    with pytest.raises(NotFound, match="not published"):
        house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": "x"})


@pytest.mark.parametrize("method", ["tickets.show", "tickets.cancel", "replies.wait", "replies.stream", "replies.post"])
def test_tickets_of_others_are_nobody_elses(house, method):
    mine = house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": "x"})["ticketId"]
    more = {"payload": "forged"} if method == "replies.post" else {}
    for caller in (ANN, "a2a:Bob"):
        with pytest.raises((Forbidden, NotFound)):
            house.call(caller, method, {"ticketId": "theirs", **more})
    with pytest.raises((Forbidden, NotFound)):
        house.call("a2a:Bob", method, {"ticketId": mine, **more})


def test_a_list_holds_ones_own_tickets_and_nobody_elses(house):
    mine = house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": "x"})["ticketId"]
    for wanted in (
        {},
        {"agentId": "Jerry"},
        {"party": "Jerry"},
        {"party": "Mole"},
        {"text": "secret"},
        {"text": "theirs"},
    ):
        assert {each["ticketId"] for each in house.call(ANN, "tickets.list", wanted)} <= {mine}
    assert [each["ticketId"] for each in house.call(ANN, "tickets.list", {})] == [mine]
    assert house.call("a2a:Bob", "tickets.list", {}) == []
    with pytest.raises(NotFound):
        house.call(ANN, "tickets.list", {"before": "theirs"})


def test_a_client_has_some_tickets_open_and_no_more(house):
    for number in range(100):
        house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": number})
    with pytest.raises(Overloaded, match="100 open tickets"):
        house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": "one more"})
    # Others are not concerned.
    house.call("agent:Mole", "messages.send", {"agentId": "Jerry", "payload": "x"})


@pytest.mark.parametrize(("preset", "allowed"), [("restrictive", False), ("standard", True), ("permissive", True)])
def test_the_presets_on_messages_from_outside(preset, allowed):
    policy = Policy(presets_of()[preset], preset, preset)
    with House(policy=policy) as house:
        house.register("Jerry")
        house.call("person", "a2a.publish", {"agentId": "Jerry"})
        with contextlib.nullcontext() if allowed else pytest.raises(PolicyDenied, match="nobody outside"):
            house.call(ANN, "messages.send", {"agentId": "Jerry", "payload": "x"})


def test_only_a_person_opens_a_door_and_any_user_closes_it(house):
    opening = {
        "a2a.publish": {"agentId": "Mole"},
        "a2a.addToken": {"name": "Ann"},
        "a2a.addAgent": {"name": "Weather", "url": "http://127.0.0.1:1"},
    }
    for method, params in opening.items():
        for caller in ("local", "agent:Mole", ANN):
            with pytest.raises((Forbidden, PolicyDenied)):
                house.call(caller, method, params)
    house.call("person", "a2a.addToken", {"name": "Ann"})
    closing = {"a2a.unpublish": {"agentId": "Jerry"}, "a2a.revokeToken": {"name": "Ann"}}
    for method, params in closing.items():
        with pytest.raises((Forbidden, PolicyDenied)):
            house.call("agent:Mole", method, params)
        house.call("local", method, params)


def test_what_is_published_and_who_has_a_token_survive_a_restart_and_hold_no_token(house):
    token = house.call("person", "a2a.addToken", {"name": "Ann"})["token"]
    house.restart(clean=False)
    assert [each["agentId"] for each in house.call("local", "a2a.published")["agents"]] == ["Jerry"]
    assert [each["name"] for each in house.call("local", "a2a.tokens")] == ["Ann"]
    service = house.life.bridges["a2a"].service
    assert service.publishing.client_of(token) == ANN
    assert token not in repr(house.store.__dict__)
    assert token not in str(house.ledger())
    with pytest.raises(Conflict, match="has a token"):
        house.call("person", "a2a.addToken", {"name": "Ann"})
    house.call("local", "a2a.revokeToken", {"name": "Ann"})
    assert service.publishing.client_of(token) is None


def test_every_status_of_a_ticket_is_a_state_of_a_task():
    assert set(OF_STATUS) == {status.value for status in TicketStatus}
    assert OF_STATUS == {
        "pending": State.SUBMITTED,
        "delivered": State.WORKING,
        "responded": State.COMPLETED,
        "timeout": State.WORKING,
        "cancelled": State.CANCELED,
    }


@pytest.mark.parametrize(
    ("decision", "state"), [(Decision.ASK, State.AUTH_REQUIRED), (Decision.DENY, State.REJECTED)], ids=str
)
def test_what_the_policy_does_not_allow_is_a_task_without_a_ticket(decision, state):
    rule = Rule(
        name="strangers", decision=decision, reason="not yet", principals=("a2a:*",), methods=("messages.send",)
    )
    policy = Policy((*presets_of()["standard"], rule), "strict", "strict")
    with House(policy=policy) as house:
        house.register("Jerry")
        house.call("person", "a2a.publish", {"agentId": "Jerry"})
        tasks = Tasks(house.gate, b"key", max_refused=2)
        asked = [Asked(f"m{number}", "trip", "x") for number in range(3)]

        def run(work):
            return house._within(work)

        refused = [run(tasks.send(ANN, "Jerry", each, "2026-01-01T00:00:00.000Z")) for each in asked]
        assert {(each.state, each.reason) for each in refused} == {(state, "not yet")}
        assert run(tasks.show(ANN, "Jerry", refused[2].task_id)) == refused[2]
        # The oldest are forgotten, another client never knew of them.
        for client, task in ((ANN, refused[0]), ("a2a:Bob", refused[2])):
            with pytest.raises(NotFound):
                run(tasks.show(client, "Jerry", task.task_id))
        assert house.call("agent:Jerry", "inbox.watch", {"agentId": "Jerry", "waitMs": 0}) in (
            None,
            {"unread": 0, "from": []},
        )
        # Once it is allowed, the same message is the same task.
        house.gate.policy = Policy(presets_of()["standard"], "standard", "standard")
        sent = run(tasks.send(ANN, "Jerry", asked[2], "2026-01-01T00:00:00.000Z"))
        assert (sent.task_id, sent.state) == (refused[2].task_id, State.SUBMITTED)


def test_what_a_refused_client_says_fills_no_memory_and_touches_nobody_elses_tasks():
    """They have no ticket and no quota of one, so they are kept in memory: a few, small ones, of each client."""
    rule = Rule(
        name="strangers", decision=Decision.ASK, reason="not yet", principals=("a2a:*",), methods=("messages.send",)
    )
    with House(policy=Policy((*presets_of()["standard"], rule), "strict", "strict")) as house:
        for handle in ("Jerry", "Mia"):
            house.register(handle)
            house.call("person", "a2a.publish", {"agentId": handle})
        tasks = Tasks(house.gate, b"key", max_refused=3)

        def run(work):
            return house._within(work)

        def send(client, message_id, payload="x"):
            return run(tasks.send(client, "Jerry", Asked(message_id, "trip", payload), "2026-01-01T00:00:00.000Z"))

        kept = send("a2a:Bob", "m")
        for number in range(10):
            refused = send(ANN, f"m{number}", "x" * 100_000)
        assert len(str(run(tasks.show(ANN, "Jerry", refused.task_id)))) < 1_000
        assert "100002 bytes" in run(tasks.show(ANN, "Jerry", refused.task_id)).payload
        # Another client's, however much this one sends; and not at another agent.
        assert run(tasks.show("a2a:Bob", "Jerry", kept.task_id)) == kept
        with pytest.raises(NotFound):
            run(tasks.show("a2a:Bob", "Mia", kept.task_id))
        # Withdrawn by whose it is.
        assert run(tasks.cancel("a2a:Bob", "Jerry", kept.task_id)).state is State.CANCELED
        with pytest.raises(NotFound):
            run(tasks.show("a2a:Bob", "Jerry", kept.task_id))
