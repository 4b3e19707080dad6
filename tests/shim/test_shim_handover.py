"""A message that the daemon has answered with and the client never got comes again."""

import json
import os
import signal
import subprocess
import sys

import pytest
from living import Living, eventually, short_dir
from raw_client import CLIENT_INFO, COMMAND, KEPT, RawClient

from patience import PATIENCE

# Ten times what a pipe holds: the program is still writing it when it is killed.
LARGE = "x" * 640 * 1024
# The program as it is, but that it says `mcp.done` before the client has anything.
EARLY = """
import sys
from bascule.programs.mcp_stdio import link
whole = link.Link._on_message

def early(self, message):
    result = message.get("result")
    if isinstance(result, dict) and result.pop("confirm", False):
        self._notify("mcp.done", {"call": self._sent[message["id"]].id})
    whole(self, message)

link.Link._on_message = early
from bascule.programs.mcp_stdio.command import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def daemon():
    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living


def killed_while_it_writes(daemon, command, name):
    """The program, with a client that asks for a message and reads nothing of it."""
    process = subprocess.Popen(
        [*command, "--state-dir", daemon.state, "--no-start", "--agent", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={each: os.environ[each] for each in KEPT if each in os.environ},
    )
    with process:
        for number, method, params in (
            (1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT_INFO}),
            (2, "tools/call", {"name": "wait_for_message", "arguments": {}}),
        ):
            line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
        greeting = json.loads(process.stdout.readline())
        assert greeting["id"] == 1
        # The first bytes of the message are in the pipe, the last are not: the daemon has answered.
        assert process.stdout.read(1) == b"{"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)


def next_message(daemon, name):
    with RawClient(daemon.state, "--no-start", "--agent", name) as client:
        client.initialize()
        return client.call("wait_for_message", waitMs=0)["structuredContent"]


def send(daemon, name):
    with RawClient(daemon.state, "--no-start", "--agent", name) as client:
        client.initialize()
        client.call("co_workers")
    with RawClient(daemon.state, "--no-start", "--agent", "Sender") as client:
        client.initialize()
        sent = client.call("send_message", agentId=name, payload=LARGE, awaitResponse=False)
        return sent["structuredContent"]["ticketId"]


def test_a_message_that_was_in_the_pipe_when_the_program_was_killed_comes_again(daemon):
    ticket = send(daemon, "Careful")
    killed_while_it_writes(daemon, COMMAND, "Careful")
    again = eventually(
        lambda: (got := next_message(daemon, "Careful"))["status"] == "message" and got, "the message comes again"
    )
    assert (again["ticketId"], len(again["payload"])) == (ticket, len(LARGE))


def test_the_control_a_program_that_confirms_early_loses_it(daemon):
    send(daemon, "Hasty")
    killed_while_it_writes(daemon, [sys.executable, "-c", EARLY], "Hasty")
    assert next_message(daemon, "Hasty")["status"] == "empty"


def test_a_wait_goes_on_when_the_daemon_is_stopped_and_started_again():
    with short_dir() as folder, RawClient(f"{folder}/s", "--no-start", "--agent", "Patient") as client:
        with Living(f"{folder}/s") as before:
            client.initialize()
            waiting = client.start_call("wait_for_message")
            client.call("co_workers")
            before.stop()
        with Living(f"{folder}/s"):
            client.call("send_message", agentId="Patient", payload="good", awaitResponse=False)
            assert client.answer_to(waiting)["result"]["structuredContent"]["payload"] == "good"


def test_a_command_that_runs_when_the_daemon_is_stopped_is_answered_and_not_unknown(tmp_path):
    with short_dir() as folder, RawClient(f"{folder}/s", "--no-start", "--agent", "Busy", cwd=str(tmp_path)) as client:
        with Living(f"{folder}/s") as daemon:
            client.initialize()
            running = client.start_call("exec", command="echo begun > begun; sleep 60")
            eventually((tmp_path / "begun").exists, "it runs")
            daemon.stop()
        result = client.answer_to(running)["result"]
        assert not result["isError"], result
