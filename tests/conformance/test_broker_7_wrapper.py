"""Sections 4.3, 4.4, 7.2 and 9 of the broker spec: the PTY wrapper, launching in tmux, and the way without a broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from living import eventually
from panes import Server
from person import Person
from spec_peers import Mcp

from bascule.client import SyncClient
from patience import PATIENCE

BIN = os.path.dirname(sys.executable)


@pytest.fixture
def wrapped(daemon):
    """A shell in the wrapper, as the agent Jerry."""
    people = []

    def start(*options):
        words = [f"{BIN}/bridge-wrap", "--no-start", "--state-dir", daemon.state_dir, "--agent", "Jerry", *options]
        people.append(Person([*words, "--", "bash", "--norc"], environment={"BASCULE_CONFIG_DIR": "/nonexistent"}))
        people[-1].sees(r"^\$")
        return people[-1]

    yield start
    for person in people:
        person.leave()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.mark.req("BRK-4.3-4", "BRK-7.2-1", "BRK-7.2-2", "BRK-7.2-3")
def test_a_wrapped_program_s_output_is_posted_as_the_reply_to_the_ticket_it_answers(daemon, wrapped):
    wrapped("--deliver", "payload", "--auto-reply")
    with SyncClient.connect(daemon.state_dir) as client:
        tickets = {client.send("Jerry", f"echo $(({number}*7))").ticket_id: str(number * 7) for number in (6, 7)}
        assert {ticket: client.wait(ticket, timeout=PATIENCE).payload for ticket in tickets} == tickets


@pytest.mark.req("BRK-4.3-6", "DEC-BRK-31")
def test_the_wrapper_watches_its_program_and_rings_for_it(daemon, wrapped):
    person = wrapped()
    with SyncClient.connect(daemon.state_dir) as client:

        def status():
            return next(agent.status for agent in client.agents() if agent.agent_id == "Jerry")

        assert status() == "online"
        client.send("Jerry", "hello")
        person.sees(r"^\$ # \[bascule\] 1 unread message for Jerry")
        person.type("exit\r")
        person.ends()
        eventually(lambda: status() == "offline", "its end is told")


@pytest.mark.req("DEC-BRK-41")
def test_what_is_typed_for_a_program_is_text_and_its_enter_comes_by_itself(daemon, tmp_path):
    log = tmp_path / "keys"
    typewriter = [sys.executable, str(Path(__file__).parent.parent / "wrap" / "typewriter.py"), str(log), "-p"]
    options = ["--state-dir", daemon.state_dir, "--agent", "Jerry", "--deliver", "payload"]
    person = Person([f"{BIN}/bridge-wrap", "--no-start", *options, "--", *typewriter])
    try:
        person.sees("ready>")
        with SyncClient.connect(daemon.state_dir) as client:
            client.send("Jerry", "a\x1b[201~\rb\x07\x9b201~c")
        read = eventually(lambda: (keys := log.read_text().splitlines()) and '"\\r"' in keys[-1] and keys, "Enter")
        typed = "".join(json.loads(line)["keys"] for line in read[:-1])
        assert typed.endswith("\na[201~\nb201~c\x1b[201~")
        assert json.loads(read[-1])["keys"] == "\r"
        assert typed.count("\x1b") == 2
    finally:
        person.leave()


@pytest.mark.req("BRK-4.4-3")
def test_an_agent_is_launched_in_a_pane_with_the_wrapper_attached(daemon, server):
    words = ["launch", "--socket", server.socket, "--state-dir", daemon.state_dir, "--agent", "Jerry", "--", "dash"]
    subprocess.run([f"{BIN}/bascule", "tmux", *words], check=True, capture_output=True, timeout=PATIENCE, cwd="/")
    with SyncClient.connect(daemon.state_dir) as client:
        eventually(lambda: [agent.agent_id for agent in client.agents()] == ["Jerry"], "it registers")


@pytest.mark.req("BRK-4.1-5", "BRK-9-6", "DEC-BRK-43")
def test_without_a_broker_the_tools_type_into_a_pane_if_told_to_and_say_what_is_missing(server, tmp_path):
    pane = server.open("dash", cwd=tmp_path)
    server.sees(pane, "$")
    server.tmux.run("set-option", "-p", "-t", pane, "@bascule_agent", "Jerry")

    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "BASCULE_CONFIG_DIR": "/nonexistent",
        "TMUX": f"{server.socket},1,0",
    }

    def call(*options):
        with Mcp(
            f"{tmp_path}/s", "--agent", "Spock", *options, client="claude-code", environment=environment
        ) as client:
            return client.call("send_message", agentId="Jerry", payload="hi")

    refused = call()
    assert refused.failed
    assert "Bascule is not running" in refused.text
    assert "not from your user" not in "\n".join(server.shows(pane))
    ran = call("--tmux-fallback")
    assert not ran.failed
    assert ran.structured["reduced"].startswith("reduced functionality: Bascule is not running")
    server.sees(pane, "from agent Spock, not from your user, no reply path: hi")
