"""Agents of the house: a space's commands, whom nobody can be but they."""

import pytest
from broker_acts import send, status_of, take_ids

from bascule.broker.limits import BrokerLimits
from bascule.foundation.errors import BasculeError, InvalidRequest, NotFound, Overloaded

SPACE = "spc_0123456789abcdef0123"
INSIDE = f"agent:{SPACE}"
HOUR = 3600.0


@pytest.fixture
def house(make_house):
    house = make_house()
    add_agent(house)
    house.register("Jerry")
    return house


def add_agent(house):
    house.run(lambda: house.broker.space_agents.add_agent(SPACE, "space", {"space": "work"}))


def remove_agent(house):
    from bascule.kernel.journal import Transaction

    tx = Transaction()
    house.run(lambda: (house.broker.space_agents.remove_agent(tx, SPACE), house.journal.commit_quietly(tx)))


def test_a_space_agent_is_online_from_its_first_call_until_its_door_closes(house):
    assert status_of(house, SPACE) == "offline"
    house.call(INSIDE, "agents.heartbeat", {"agentId": SPACE})
    assert status_of(house, SPACE) == "online"
    # Nobody is sent there by a hint: it answers no one.
    with pytest.raises(NotFound) as refused:
        send(house, to="Nobody")
    assert "spc_" not in refused.value.hint
    house.run(lambda: house.broker.space_agents.mark_offline(SPACE))
    assert status_of(house, SPACE) == "offline"


def test_what_is_sent_to_it_waits_across_lives_and_for_as_long_as_any_message(house):
    send(house, "t", to=SPACE)
    house.restart(clean=False)
    add_agent(house)
    assert take_ids(house, SPACE) == ["t"]


@pytest.mark.parametrize("who", ["local", "agent:Jerry", "person", INSIDE])
def test_nobody_registers_its_handle_however_long_it_is_silent(house, who):
    house.advance(30 * HOUR)
    with pytest.raises(InvalidRequest, match="handles like this are those of spaces"):
        house.call(who, "agents.register", {"agentId": SPACE})
    # Of an agent that registered, somebody else may take over by then.
    assert house.call("person", "agents.register", {"agentId": "Jerry"})["agentToken"]


def test_a_space_agent_is_not_forgotten_with_the_agents_that_are_long_gone(house):
    house.advance(8 * 24 * HOUR)
    known = {agent["agentId"] for agent in house.call("local", "agents.list")}
    assert SPACE in known
    assert "Jerry" not in known


def test_a_space_agent_is_removed_with_its_space(house):
    remove_agent(house)
    with pytest.raises(NotFound, match="agent not registered"):
        send(house, to=SPACE)
    assert not house.broker.space_agents.may_connect(SPACE)
    # Twice is once.
    remove_agent(house)


def test_one_that_a_person_revoked_is_not_let_in_again_by_moving_in(house):
    assert house.broker.space_agents.may_connect(SPACE)
    house.call("person", "agents.revoke", {"agentId": SPACE})
    assert not house.broker.space_agents.may_connect(SPACE)
    house.restart()
    add_agent(house)
    assert not house.broker.space_agents.may_connect(SPACE)
    with pytest.raises(BasculeError):
        house.call("local", "agents.register", {"agentId": SPACE})


def test_the_arrival_of_a_space_agent_is_recorded_once(house):
    add_agent(house)
    records = [record for record in house.ledger() if record["method"] == "agents.declare"]
    assert [(record["principal"], record["subject"]) for record in records] == [("daemon", SPACE)]


@pytest.mark.parametrize(("sender", "room"), [(INSIDE, 5), ("local", 10), ("agent:Tom", 10)])
def test_commands_in_sandboxes_fill_half_an_inbox_others_all_of_it(make_house, sender, room):
    house = make_house(limits=BrokerLimits(max_inbox_messages=10))
    house.register("Jerry")
    house.register("Tom")
    add_agent(house)
    for _ in range(room):
        # Timed out at once, so that no limit of open tickets stands in the way.
        send(house, by=sender, timeoutMs=1)
        house.advance(0.01)
    with pytest.raises(Overloaded, match="the inbox of Jerry is full"):
        send(house, by=sender)


def test_a_flood_from_inside_leaves_room_for_those_outside(make_house):
    house = make_house(limits=BrokerLimits(max_inbox_messages=10, max_inbox_bytes=100))
    house.register("Jerry")
    add_agent(house)
    send(house, payload="x" * 40, by=INSIDE)
    with pytest.raises(Overloaded):
        send(house, payload="x" * 40, by=INSIDE)
    send(house, payload="x" * 40, by="local")
