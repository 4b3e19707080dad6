"""bridge-wait by hand, and as a hook that answers at once."""

import json
import subprocess
import sys

import pytest
from hook_client import BIN, COMMON, delivery, environment, ok, payload_of, run, run_hook, send, start

from bascule.local_client import exits
from bascule.programs.helpers import hook, wait
from patience import PATIENCE

# -- by hand --


def test_bridge_wait_names_the_sender_and_takes_no_message(daemon, agents):
    jerry, spock = agents
    send(daemon, jerry, as_=spock)
    send(daemon, jerry)
    code, out, _ = run(daemon, "--agent", jerry)
    assert code == exits.OK
    assert f"2 unread messages for {jerry} from {spock} and a program of this user" in out
    assert "secret text" not in out
    assert "secret text" in ok(daemon, "bridge-recv", "--agent", jerry)


def test_bridge_wait_blocks_until_a_message_comes(daemon, agents):
    jerry, _ = agents
    waiting = start(daemon, "--wait", "60000", "--json", BRIDGE_AGENT_ID=jerry)
    ticket = send(daemon, jerry)
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == exits.OK
    assert json.loads(out) == {"agentId": jerry, "unread": 1, "from": ["local"], "oldest": ticket}


def test_nothing_in_time_is_exit_code_3(daemon, agents):
    code, out, err = run(daemon, "--agent", agents[0], "--wait", "50")
    assert (code, out) == (exits.NOTHING_CAME, "")
    assert "run bridge-wait again" in err


def test_bridge_wait_without_a_name_asks_for_one(daemon):
    code, _, err = run(daemon, "--wait", "0")
    assert code == exits.USAGE
    assert "which agent? Pass --agent NAME or set BRIDGE_AGENT_ID" in err


@pytest.mark.parametrize("words", [["--event", "Stop"], ["--queue"], ["--explain"], ["--hook", "emacs"]])
def test_what_belongs_to_hooks_is_refused_without_one(daemon, words):
    assert run(daemon, *words)[0] == exits.USAGE


def test_the_sender_sees_that_a_bell_was_rung(daemon, agents):
    ticket = send(daemon, agents[0])
    assert delivery(daemon, ticket)["state"] == "queued"
    run(daemon, "--agent", agents[0])
    seen = delivery(daemon, ticket)
    assert (seen["state"], seen["by"]) == ("rung", ["bridge-wait"])


# -- notices: one line of context, at once --


@pytest.mark.parametrize("kind", wait.CLIENTS)
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse"])
def test_a_notice_is_one_line_of_context(daemon, agents, kind, event):
    jerry, spock = agents
    ticket = send(daemon, jerry, as_=spock)
    code, out, err = run_hook(daemon, kind, event, jerry)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer.keys() == {"hookSpecificOutput"}
    assert answer["hookSpecificOutput"].keys() == {"hookEventName", "additionalContext"}
    assert answer["hookSpecificOutput"]["hookEventName"] == event
    context = answer["hookSpecificOutput"]["additionalContext"]
    assert f"1 unread message for {jerry} from {spock}: call wait_for_message" in context
    assert "not from your user" in context
    assert "\n" not in context
    assert "secret text" not in context
    assert delivery(daemon, ticket)["by"] == [f"{kind} {event}"]


def test_a_new_session_of_codex_is_told_as_well(daemon, agents):
    send(daemon, agents[0])
    _, out, _ = run_hook(daemon, "codex", "SessionStart", agents[0])
    assert json.loads(out)["hookSpecificOutput"]["hookEventName"] == "SessionStart"


@pytest.mark.parametrize("kind", wait.CLIENTS)
@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolUse"])
def test_without_a_message_a_notice_is_silent(daemon, agents, kind, event):
    assert run_hook(daemon, kind, event, agents[0]) == (0, "", "")


def test_every_prompt_reminds_and_a_tool_only_once(daemon, agents):
    send(daemon, agents[0])
    assert run_hook(daemon, "claude", "PostToolUse", agents[0])[1]
    assert not run_hook(daemon, "claude", "PostToolUse", agents[0])[1]
    for _ in range(2):
        assert run_hook(daemon, "claude", "UserPromptSubmit", agents[0])[1]
    send(daemon, agents[0])
    assert "2 unread" in run_hook(daemon, "claude", "PostToolUse", agents[0])[1]


def test_a_subagent_is_told_nothing(daemon, agents):
    send(daemon, agents[0])
    more = {"agent_id": "a1", "agent_type": "Explore"}
    assert run_hook(daemon, "claude", "PostToolUse", agents[0], **more) == (0, "", "")


def test_a_large_tool_result_is_read_to_its_end(daemon, agents):
    send(daemon, agents[0])
    code, out, _ = run_hook(daemon, "codex", "PostToolUse", agents[0], tool_response="x" * 3_000_000)
    assert code == 0
    assert "1 unread" in out


def test_a_pipe_that_stays_open_does_not_hold_a_hook(daemon, agents):
    send(daemon, agents[0])
    process = subprocess.Popen(
        [BIN / "bridge-wait", "--hook", "claude", "--state-dir", daemon.state],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(BRIDGE_AGENT_ID=agents[0]),
    )
    process.stdin.write(payload_of("claude", "UserPromptSubmit"))
    process.stdin.flush()
    assert process.wait(timeout=PATIENCE) == 0
    assert "1 unread" in process.stdout.read()
    process.stdin.close()
    process.stdout.close()


# -- never in the way --


BROKEN = {
    "nothing": "",
    "not JSON": "{",
    "a list": "[1]",
    "not UTF-8": "\udcff",
    "another event": json.dumps({**COMMON, "hook_event_name": "PreToolUse"}),
    "no fields": "{}",
    "fields of other types": json.dumps({"hook_event_name": 7, "cwd": [], "session_id": {}, "agent_id": 0}),
}


@pytest.mark.parametrize("kind", wait.CLIENTS)
@pytest.mark.parametrize("what", BROKEN)
def test_a_hook_exits_0_and_prints_nothing_for_any_input(daemon, agents, kind, what):
    process = subprocess.run(
        [BIN / "bridge-wait", "--hook", kind, "--state-dir", daemon.state],
        input=BROKEN[what].encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=PATIENCE,
        env=environment(BRIDGE_AGENT_ID=agents[0]),
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")


@pytest.mark.parametrize("event", hook.EVENTS)
def test_without_a_daemon_a_hook_is_silent(state, event, client):
    class Nobody:
        pass

    nobody = Nobody()
    nobody.state = state
    code, out, err = run_hook(nobody, "codex", event, "Jerry")
    assert (code, out.strip("{}\n"), err) == (0, "", "")


def test_without_an_agent_a_hook_is_silent(daemon):
    assert run(daemon, "--hook", "claude", stdin=payload_of("claude", "UserPromptSubmit")) == (0, "", "")


def test_a_hook_explains_itself_when_it_is_asked_to(daemon):
    _, _, err = run(daemon, "--hook", "claude", "--explain", stdin=payload_of("claude", "UserPromptSubmit"))
    assert "its agent is not known" in err


HEAVY = {
    *("asyncio", "msgspec", "http", "http.client", "pathlib", "subprocess", "logging", "uuid", "secrets", "ssl"),
    *("typing", "email", "urllib", "urllib.parse", "dataclasses", "inspect", "random", "hashlib", "tempfile", "shlex"),
    *(
        "bascule.wire",
        "gabp",
        "bascule.foundation.errors",
        "bascule.foundation.ids",
        "bascule.kernel.call",
    ),
}


def test_bridge_wait_loads_nothing_heavy():
    code = (
        f"import sys, json; sys.path[:0] = {sys.path!r}; "
        "import bascule.programs.helpers.program, bascule.programs.helpers.wait, bascule.programs.helpers.hook; "
        "print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True, timeout=PATIENCE)
    assert HEAVY.isdisjoint(json.loads(done.stdout)), sorted(HEAVY & set(json.loads(done.stdout)))
