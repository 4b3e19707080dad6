"""The a2a-sdk of protocol 0.3 itself, not the 0.3 of a newer one: its client asks agents here, its server is asked."""

import json
import os
import subprocess

import pytest
from edge_scene import BINDINGS, PeerAgent
from test_a2a_out import add, ask, ended

from npm_tools import python_with
from patience import PATIENCE
from ports import free_port

# The last release that speaks 0.3 alone, with both of its bindings.
SDK = "a2a-sdk[http-server]==0.3.26"
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_0_3.py")


@pytest.fixture(scope="module")
def python():
    return python_with(SDK, "uvicorn")


class AgentOfBefore(PeerAgent):
    def __init__(self, python, binding):
        self._python, self._binding = python, binding
        super().__init__("", port=free_port())

    def command(self):
        return [self._python, PROGRAM, "serve", str(self.port), self._binding]


@pytest.fixture(params=BINDINGS)
def old(python, request):
    with AgentOfBefore(python, request.param) as peer:
        yield peer


def test_an_agent_of_before_answers_asks_back_and_is_cancelled(edge, old):
    agent = edge.agent(published=False)
    added = add(edge, old.url, name="Old")
    assert added["protocol"].startswith("0.3")
    for text, answer in (("echo hello", "echo hello"), ("rain?", "done: rain?")):
        assert ended(agent, ask(agent, text, target="Old@a2a"))["response"] == answer
    asked = ended(agent, ask(agent, "which weather?", target="Old@a2a"))
    assert asked["response"] == "which city?"
    assert asked["replies"][0]["metadata"]["a2a"]["state"] == "input-required"
    waits = ask(agent, "wait", wait_ms=0, target="Old@a2a")
    agent.link.call("tickets.cancel", {"ticketId": waits["ticketId"]})
    assert ended(agent, waits)["status"] == "cancelled"


@pytest.mark.parametrize("streaming", ["streaming", "polling"])
@pytest.mark.parametrize("binding", BINDINGS)
def test_a_client_of_before_asks_and_gets_the_answer(edge, python, binding, streaming):
    agent, token = edge.agent(), edge.token()
    command = [python, PROGRAM, "ask", f"{edge.base}/{agent.handle}", token, binding, streaming, "an old question"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as client:
        assert agent.answer("an answer")["payload"] == "an old question"
        printed, _ = client.communicate(timeout=PATIENCE)
    shown = json.loads(printed)
    assert shown["states"][-1] == shown["state"] == "completed"
    assert shown["texts"] == ["an answer"]
