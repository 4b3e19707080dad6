"""Every view of what others wrote, attacked with the same letters through its real surface.

The control is the same command with --json: the letters are there, as they were sent, so the view had them to show.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from living import Living, forked, short_dir
from wires import Caller, LinkWire

from patience import PATIENCE

# Default ignorable, variation selectors, a look-alike space, blanks, bidi, tags: as no font shows them.
ATTACK = "\u200b\ufe0f\U000e0100\u3000\ufffc\U00016fe4\u202e\u2800\u00ad\U000e0041"
# Long values are cut; the first letter says that the view had them.
NAMED = "⟨U+200B⟩"


@pytest.fixture(scope="module")
def scene():
    """A daemon whose directory has such a name, agents that write such texts, and a run that leaves such a file."""
    with short_dir() as folder, Living(f"{folder}/s{ATTACK}") as daemon:
        project = f"{folder}/project"
        os.mkdir(project)
        local = Caller(daemon)
        jerry = local.register("Jerry", metadata={"cwd": f"cwd {ATTACK}"})
        local.send("Jerry", f"hi {ATTACK}", ticketId="t-1")
        jerry.post("/replies", {"ticketId": "t-1", "payload": f"yes {ATTACK}"})
        local.send("Jerry", "bye", ticketId="t-2")
        local.post("/tickets/t-2/cancel", {"reason": f"tired {ATTACK}"})
        local.send("Jerry", f"next {ATTACK}", ticketId="t-3")
        with LinkWire(daemon.link_socket) as link:
            link.hello()
            assert link.refusal(f"no {ATTACK}")
            space = link.call("spaces.open", {"path": project})["spaceId"]
        operations = [
            {"type": "createFile", "path": f"made {ATTACK}", "content": f"text {ATTACK}\n"},
            {"type": "shell", "command": f"rm -rf gone{ATTACK}"},
        ]
        message = {"protocolVersion": "1.0", "operations": operations}
        with open(f"{folder}/ops.json", "w") as file:
            json.dump(message, file)
        os.chdir(project)
        ran = forked("run", "--no-wait", "-f", f"{folder}/ops.json", "--state-dir", daemon.state, seconds=PATIENCE)
        # This one waits for its answer.
        local.post(f"/v1/spaces/{space}/runs", {**message, "operations": operations[1:]})
        yield daemon, ran.output
        os.chdir("/")


def bascule(daemon, *arguments):
    return forked(*arguments, "--state-dir", daemon.state, seconds=PATIENCE).output


def helper(name, daemon, *arguments):
    """Of a program that is installed beside `bascule`."""
    command = [Path(sys.executable).parent / name, *arguments, "--state-dir", daemon.state]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout


def listed(daemon, what):
    return json.loads(bascule(daemon, what, "list", "--json"))


def oldest_run(daemon):
    return listed(daemon, "runs")[-1]["runId"]


VIEWS = {
    "approvals list": lambda daemon: ("approvals", "list"),
    "approvals show": lambda daemon: ("approvals", "show", listed(daemon, "approvals")[0]["approvalId"]),
    "runs show": lambda daemon: ("runs", "show", oldest_run(daemon)),
    "runs diff": lambda daemon: ("runs", "diff", oldest_run(daemon)),
    "ledger tail": lambda daemon: ("ledger", "tail", "-n", "100"),
    "watch": lambda daemon: ("watch", "t-1"),
    "top": lambda daemon: ("top", "--once"),
    "status": lambda daemon: ("status",),
    "doctor": lambda daemon: ("doctor",),
    "logs": lambda daemon: ("logs", "-n", "500"),
}


def hidden(text):
    return [f"U+{ord(letter):04X}" for letter in ATTACK if letter in text]


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_shows_a_letter_that_hides(scene, view):
    daemon, _ = scene
    command = VIEWS[view](daemon)
    ran = bascule(daemon, *command)
    assert hidden(ran) == []
    assert NAMED in ran
    control = bascule(daemon, *command, "--json")
    # One document, or one to a line; the head of `logs` and `watch` is for people.
    texts = control.splitlines() if view in ("watch", "logs") else [control]
    sent = json.dumps([json.loads(text) for text in texts if text[:1] in "[{"], ensure_ascii=False)
    # What a person is asked was made visible by the daemon; the call itself is in `runs show`.
    assert hidden(sent) == ([] if command[0] == "approvals" else hidden(ATTACK))


def test_a_run_is_followed_without_a_letter_that_hides(scene):
    assert hidden(scene[1]) == []
    assert "approvals show" in scene[1]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bridge-recv", ("--agent", "Jerry", "--wait", "0")),
        ("bridge-recv", ("--agent", "Jerry", "--wait", "0", "--json")),
    ],
)
def test_a_received_message_hides_nothing_from_its_reader_and_nothing_is_lost_to_a_program(scene, name, arguments):
    daemon, _ = scene
    Caller(daemon).send("Jerry", f"letter {ATTACK}")
    ran = helper(name, daemon, *arguments)
    assert hidden(ran) == []
    assert (NAMED in ran) if "--json" not in arguments else (ATTACK in json.loads(ran)["payload"])


@pytest.mark.parametrize(
    "verb",
    [
        ("show", "t-1", "--agent", "Jerry"),
        ("tail", "logs", "--no-follow", "-n", "500"),
        ("list", "agents"),
    ],
    ids=lambda verb: " ".join(verb[:2]),
)
def test_bridgectl_hides_nothing(scene, verb):
    daemon, _ = scene
    ran = helper("bridgectl", daemon, *verb)
    assert hidden(ran) == []
    assert NAMED in ran
