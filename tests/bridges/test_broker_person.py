"""The person is asked in words and answers in words; words approve nothing."""

import pytest
from workspace_scene import JERRY, Scene, make_machine, shell

from bascule.broker.person import MAX_QUESTION_BYTES, MAX_QUESTIONS_PER_SENDER
from bascule.foundation.errors import BasculeError, Forbidden, NotFound, Overloaded, TooLarge
from bascule.kernel.call import Call, Principal
from bascule.testing.house import House
from gabp import codec


def ask(house, sender=JERRY, payload="Which branch?", **more):
    return house.call(sender, "messages.send", {"agentId": "person", "payload": payload, **more})["ticketId"]


def reply(house, ticket, principal="person", payload="main"):
    return house.call(principal, "replies.post", {"ticketId": ticket, "payload": payload})


def test_an_agent_asks_and_the_person_answers(house):
    ticket = ask(house)
    waiting = house.begin(JERRY, "replies.wait", {"ticketId": ticket, "waitMs": 60_000})
    shown = house.call("person", "tickets.show", {"ticketId": ticket})
    assert (shown["from"], shown["targetAgent"], shown["payload"]) == ("Jerry", "person", "Which branch?")
    reply(house, ticket)
    answer = waiting.result()
    assert (answer["status"], answer["payload"], answer["from"]) == ("responded", "main", "person")


@pytest.mark.parametrize("principal", ["local", "agent:Spock", JERRY])
def test_nobody_else_answers_for_the_person(house, principal):
    ticket = ask(house)
    with pytest.raises(Forbidden):
        reply(house, ticket, principal)
    assert house.call(JERRY, "tickets.show", {"ticketId": ticket})["status"] == "pending"


def test_without_authentication_nobody_answers_for_the_person_either(house):
    """`--auth off` lets plain curl reply for agents. The control: a ticket to an agent is answered that way."""

    def as_owner(ticket):
        params = codec.encode({"ticketId": ticket, "payload": "yes"})
        call = Call(Principal("local"), "replies.post", params, door="tcp", as_owner=True)
        return house.run(lambda: house.gate.call(call))

    with pytest.raises(Forbidden):
        as_owner(ask(house))
    to_spock = house.call(JERRY, "messages.send", {"agentId": "Spock", "payload": "?"})["ticketId"]
    as_owner(to_spock)
    assert house.call(JERRY, "tickets.show", {"ticketId": to_spock})["status"] == "responded"


@pytest.mark.parametrize("method", ["inbox.take", "inbox.watch"])
def test_the_persons_inbox_is_the_persons(house, method):
    ask(house)
    params = {"agentId": "person", "waitMs": 0}
    for principal in ("local", JERRY, "agent:Spock"):
        with pytest.raises(Forbidden):
            house.call(principal, method, params)
    assert house.call("person", method, params)


def test_others_see_that_the_person_is_asked_and_not_what(house):
    ask(house, payload="my secret")
    for principal in ("local", "agent:Spock"):
        (view,) = house.call(principal, "tickets.list", {"agentId": "person"})
        assert view["targetAgent"] == "person"
        assert "secret" not in str(view)
        assert "secret" not in str(house.call(principal, "tickets.show", {"ticketId": view["ticketId"]}))


def test_one_sender_has_a_share_and_the_next_has_one_too(house):
    tickets = [ask(house, payload=str(number)) for number in range(MAX_QUESTIONS_PER_SENDER)]
    with pytest.raises(Overloaded, match="questions wait for the person"):
        ask(house)
    assert ask(house, "agent:Spock")
    reply(house, tickets[0])
    assert ask(house)
    house.call(JERRY, "tickets.cancel", {"ticketId": tickets[1]})
    assert ask(house)


def test_a_long_text_is_not_put_before_a_person(house):
    with pytest.raises(TooLarge):
        ask(house, payload="x" * MAX_QUESTION_BYTES)


def test_a_question_that_timed_out_gives_its_place_back(house):
    for number in range(MAX_QUESTIONS_PER_SENDER):
        ask(house, payload=str(number), timeoutMs=1_000)
    house.advance(2)
    assert ask(house)


def test_code_in_a_sandbox_does_not_reach_the_person():
    with House(machine=make_machine()) as house:
        house.register("Jerry")
        space = Scene(house).space
        house.run(lambda: house.broker.space_agents.add_agent(space, "space", {}))
        with pytest.raises(Forbidden, match="sandbox"):
            ask(house, f"agent:{space}")
        # The control: to an agent it may write.
        assert house.call(f"agent:{space}", "messages.send", {"agentId": "Jerry", "payload": "hi"})


def test_where_no_person_is_set_the_sender_learns_it():
    with House() as house:
        house.register("Jerry")
        house.broker.tickets._has_person = lambda: False
        with pytest.raises(NotFound, match="nobody can answer"):
            ask(house)


def test_a_question_and_its_answer_outlive_a_crash(house):
    ticket = ask(house)
    house.restart(clean=False)
    assert house.call("person", "inbox.take", {"agentId": "person"})["messages"][0]["ticketId"] == ticket
    reply(house, ticket)
    house.restart(clean=False)
    assert house.call(JERRY, "replies.wait", {"ticketId": ticket, "waitMs": 0})["from"] == "person"


def test_the_person_writes_to_an_agent_under_a_name_that_nobody_else_can_have(house):
    ticket = house.call("person", "messages.send", {"agentId": "Spock", "payload": "stop that"})["ticketId"]
    (item,) = house.call("agent:Spock", "inbox.take", {"agentId": "Spock"})["messages"]
    assert (item["from"], item["ticketId"]) == ("person", ticket)
    house.call("agent:Spock", "replies.post", {"ticketId": ticket, "payload": "done"})
    assert house.call("person", "replies.wait", {"ticketId": ticket, "waitMs": 0})["payload"] == "done"
    for taken in ("person", "local"):
        with pytest.raises(BasculeError, match="reserved"):
            house.register(taken)


def test_words_of_the_person_approve_nothing():
    """The control at the end: the same question, decided, lets the same run go on."""
    with House(machine=make_machine()) as house:
        house.register("Jerry")
        scene = Scene(house, {"data/1": b"1"})
        run = scene.run(shell("rm -rf data", id="rm"))
        assert run["status"] == "awaiting_approval"
        approval = run["events"][-1]["details"]["approvalId"]
        ticket = ask(house, payload=f"May I? It is {approval}")
        reply(house, ticket, payload=f"yes, approve {approval}")
        house.call("person", "messages.send", {"agentId": "Jerry", "payload": f"approved: {approval}"})
        assert house.call("local", "approvals.show", {"approvalId": approval})["state"] == "pending"
        assert scene.view(run)["status"] == "awaiting_approval"
        assert "data/1" in scene.files
        scene.decide(approval)
        scene.until(lambda: scene.view(run)["status"] == "completed", "the end of the run")
        assert "data/1" not in scene.files
