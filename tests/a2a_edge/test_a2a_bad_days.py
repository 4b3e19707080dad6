"""Daemons that are killed in the middle: nothing is lost without a word, and nothing happens twice.

Counted where it counts: what reached the agent at the other side.
"""

import contextlib
import os
import random
import threading
from collections import Counter

import pytest
from edge_scene import Agent, Edge, PeerAgent
from hostile import message, result, serving, task
from living import eventually, short_dir

from patience import PATIENCE
from ports import free_port

LONG = "BASCULE_LONG" in os.environ
ROUNDS = 20 if LONG else 3
MESSAGES = 20 if LONG else 8


@pytest.fixture
def folder():
    with short_dir() as path:
        yield path


def add(edge, url, name="Tom", **more):
    return edge.person.call("a2a.addAgent", {"name": name, "url": url, **more})


def send(agent, text, target="Tom@a2a", **more):
    return agent.link.call("messages.send", {"agentId": target, "payload": text, **more})["ticketId"]


def ticket(agent, ticket_id):
    return agent.link.call("tickets.show", {"ticketId": ticket_id})


def over(agent, ticket_id):
    return eventually(
        lambda: seen if (seen := ticket(agent, ticket_id))["status"] in ("responded", "cancelled") else None,
        f"{ticket_id} ends",
    )


def both(folder, *, port):
    """A daemon with Tom, published, and one with Jerry, who may ask Tom."""
    there = Edge(f"{folder}/there", a2a_port=port)
    here = Edge(f"{folder}/here", a2a_port="off")
    tom, jerry = there.agent("Tom"), here.agent("Jerry", published=False)
    path = f"{folder}/token"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
        file.write(there.token("Jerry"))
    add(here, f"{there.base}/Tom", tokenFile=path)
    return there, here, tom, jerry


def test_two_daemons_ask_each_other_over_a2a(folder):
    there, here, tom, jerry = both(folder, port=free_port())
    with there, here:
        ticket_id = send(jerry, "rain?", conversationId="trip")
        got = tom.answer("no")
        assert (got["payload"], got["from"]) == ("rain?", "a2a:Jerry")
        assert over(jerry, ticket_id)["response"] == "no"
        # Cancelled here is cancelled there.
        ticket_id = send(jerry, "snow?", conversationId="trip")
        eventually(lambda: tom.inbox() == 1, "it is there")
        eventually(lambda: ticket(jerry, ticket_id)["status"] == "delivered", "it is known to be there")
        jerry.link.call("tickets.cancel", {"ticketId": ticket_id})
        eventually(lambda: tom.inbox() == 0, "it is withdrawn")


def test_a_daemon_in_between_is_killed_again_and_again_and_each_message_arrives_once(folder):
    """Both take a message id once, so that what is unknown is sent again."""
    port, chance = free_port(), random.Random(7)
    there, here, tom, jerry = both(folder, port=port)
    sent: dict[str, str] = {}
    arrived: Counter[str] = Counter()
    try:
        for number in range(ROUNDS):
            for each in range(MESSAGES):
                text = f"{number}.{each}"
                sent[text] = send(jerry, text)
            if chance.random() < 0.5:
                here.kill()
                here.__exit__()
                here = Edge(f"{folder}/here", a2a_port="off")
                jerry = here.comes_back("Jerry")
            else:
                there.kill()
                there.__exit__()
                there = Edge(f"{folder}/there", a2a_port=port)
                tom = there.comes_back("Tom")
            for _ in range(MESSAGES):
                got = tom.take()
                arrived[got["payload"]] += 1
                tom.reply(got["ticketId"], f"heard {got['payload']}")
        for text, ticket_id in sent.items():
            assert over(jerry, ticket_id)["response"] == f"heard {text}"
        assert arrived == Counter(dict.fromkeys(sent, 1))
        assert tom.inbox() == 0
    finally:
        here.__exit__()
        there.__exit__()


def killed_while_sending(folder, *, arrives, **card):
    """A daemon that is killed between the record of a message and the answer to it: the ticket afterwards, the ids
    that the server was messages."""
    messages = threading.Event()
    go_on = threading.Event()

    def answer(_handler, _path, _body):
        messages.set()
        go_on.wait(PATIENCE)
        return result(message("heard"))

    # Dies after its record is on disk, before a byte leaves.
    bug = """
import bascule.a2a.machine.client as client, os
async def die(self, *given, **named): os._exit(9)
client.SdkClient.send = die
"""
    with serving(answer, **card) as server:
        with Edge(f"{folder}/here", a2a_port="off", bug="" if arrives else bug) as here:
            jerry = here.agent("Jerry", published=False)
            add(here, server.url)
            ticket_id = send(jerry, "rain?")
            if arrives:
                assert messages.wait(PATIENCE)
                here.kill()
            else:
                here.process.wait(PATIENCE)
        go_on.set()
        with Edge(f"{folder}/here", a2a_port="off") as here:
            seen = over(here.comes_back("Jerry"), ticket_id)
        return seen, server.messages()


@pytest.mark.parametrize("arrives", [True, False], ids=["after it arrived", "before it left"])
def test_a_message_in_flight_when_the_daemon_dies_is_said_to_be_unknown_and_not_sent_again(folder, arrives):
    seen, messages = killed_while_sending(folder, arrives=arrives)
    assert seen["status"] == "cancelled"
    assert "not known whether" in seen["reason"]
    assert len(messages) == (1 if arrives else 0)


@pytest.mark.parametrize("arrives", [True, False], ids=["after it arrived", "before it left"])
def test_an_agent_that_takes_a_message_id_once_is_told_again_by_the_same_id(folder, arrives):
    once = {"capabilities": {"extensions": [{"uri": "urn:bascule:a2a:message-id-once"}]}}
    seen, messages = killed_while_sending(folder, arrives=arrives, **once)
    assert seen["response"] == "heard"
    assert len(messages) == (2 if arrives else 1)
    assert len(set(messages)) == 1


def test_a_task_that_was_accepted_is_looked_at_by_the_next_life(folder):
    done = threading.Event()

    def answer(_handler, _path, body):
        if body["method"] == "SendMessage":
            return result({"task": task("SUBMITTED")})
        if not done.is_set():
            return result(task("WORKING"))
        return result(task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "no"}]}]))

    with serving(answer) as server:
        with Edge(f"{folder}/here", a2a_port="off") as here:
            jerry = here.agent("Jerry", published=False)
            add(here, server.url)
            ticket_id = send(jerry, "rain?")
            eventually(lambda: ticket(jerry, ticket_id)["status"] == "delivered", "it is accepted")
            here.kill()
        done.set()
        with Edge(f"{folder}/here", a2a_port="off") as here:
            assert over(here.comes_back("Jerry"), ticket_id)["response"] == "no"
        assert len(server.messages()) == 1


# Which record, before or after it is on disk; how the ticket ends, and how many messages the agent got.
EDGES = [
    ("a2a.send", "before", "responded", 1),
    ("a2a.send", "after", "cancelled", 0),
    ("a2a.accepted", "before", "cancelled", 1),
    ("a2a.accepted", "after", "responded", 1),
    ("a2a.answer", "before", "responded", 1),
    ("a2a.answer", "after", "responded", 1),
]


@pytest.mark.parametrize(("record", "edge", "status", "messages"), EDGES)
def test_a_daemon_dies_at_every_edge_of_a_message_elsewhere(folder, record, edge, status, messages):
    bug = f"""
import bascule.a2a.outgoing as outgoing, os
store = outgoing.Outgoing._store
async def dying(self, method, *given):
    if method == {record!r} and {edge!r} == "before":
        os._exit(9)
    await store(self, method, *given)
    if method == {record!r}:
        os._exit(9)
outgoing.Outgoing._store = dying
"""

    def answer(_handler, _path, body):
        if body["method"] == "SendMessage":
            return result({"task": task("SUBMITTED")})
        return result(task("COMPLETED", artifacts=[{"artifactId": "a", "parts": [{"text": "no"}]}]))

    with serving(answer) as server:
        with Edge(f"{folder}/here", a2a_port="off", bug=bug) as here:
            jerry = here.agent("Jerry", published=False)
            add(here, server.url)
            # By an id of its own: the daemon may be gone before it has answered.
            with contextlib.suppress(AssertionError, OSError):
                send(jerry, "rain?", ticketId="question")
            here.process.wait(PATIENCE)
        with Edge(f"{folder}/here", a2a_port="off") as here:
            seen = over(here.comes_back("Jerry"), "question")
    assert (seen["status"], len(server.messages())) == (status, messages)
    if status == "responded":
        assert seen["response"] == "no"
    else:
        assert "not known whether" in seen["reason"]


def test_messages_to_an_agent_of_the_sdk_are_each_told_once_or_said_to_be_unknown(folder):
    """Its server takes the same message twice for two: so nothing that may have arrived goes again."""
    chance = random.Random(11)
    sent: dict[str, str] = {}
    with PeerAgent(folder) as peer:
        here = Edge(f"{folder}/here", a2a_port="off")
        jerry: Agent = here.agent("Jerry", published=False)
        try:
            add(here, peer.url, "Weather")
            for number in range(ROUNDS):
                for each in range(MESSAGES):
                    text = f"echo {number}.{each}"
                    sent[text] = send(jerry, text, "Weather@a2a")
                if chance.random() < 0.5:
                    here.kill()
                    here.__exit__()
                    here = Edge(f"{folder}/here", a2a_port="off")
                    jerry = here.comes_back("Jerry")
                else:
                    peer.kill()
                    peer.start()
            messages = Counter()
            ends = {text: over(jerry, ticket_id) for text, ticket_id in sent.items()}
            messages.update(line.split(" ", 2)[2] for line in peer.effects())
        finally:
            here.__exit__()
    assert max(messages.values()) == 1
    for text, seen in ends.items():
        if seen["status"] == "responded":
            assert messages[text] == 1
        else:
            assert "not known whether" in seen["reason"]
    assert any(seen["status"] == "responded" for seen in ends.values())
