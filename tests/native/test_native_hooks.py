"""What the three clients send, as typed values; and what they are answered."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.policy.decision import Decision, Verdict
from bascule.native.answers import answer
from bascule.native.hooks import Hook, read
from bascule.native.protocol import CLIENTS

TIMES = 40 if os.environ.get("BASCULE_LONG") else 1
ASK = Verdict(Decision.ASK, "native-sends", "it sends")
DENY = Verdict(Decision.DENY, "native-ground", "it is the home")
ALLOW = Verdict(Decision.ALLOW, "native-work", "work")


def read_hook(client, event):
    return read(client, json.dumps(event).encode())


def event(name, tool=None, arguments=None, **more):
    return {"session_id": "s", "cwd": "/p", "hook_event_name": name, "tool_name": tool, "tool_input": arguments, **more}


@pytest.mark.parametrize(
    ("client", "tool", "arguments", "kind", "command", "paths"),
    [
        ("claude", "Bash", {"command": "ls", "description": "x"}, "shell", "ls", ()),
        ("claude", "Write", {"file_path": "/p/a", "content": "secret"}, "write", None, ("/p/a",)),
        ("claude", "Edit", {"file_path": "/p/a", "old_string": "x"}, "write", None, ("/p/a",)),
        ("claude", "NotebookEdit", {"notebook_path": "/p/n.ipynb"}, "write", None, ("/p/n.ipynb",)),
        ("claude", "Read", {"file_path": "/p/a"}, "read", None, ("/p/a",)),
        ("claude", "WebFetch", {"url": "https://x", "prompt": "p"}, "fetch", None, ()),
        ("claude", "mcp__agent-bridge__exec", {"command": "ls"}, "other", None, ()),
        ("claude", "Agent", {"prompt": "p"}, "other", None, ()),
        ("codex", "Bash", {"command": "ls"}, "shell", "ls", ()),
        ("codex", "Bash", {"command": ["sh", "-c", "ls x"]}, "shell", "sh -c 'ls x'", ()),
        (
            "codex",
            "apply_patch",
            {"command": "*** Begin Patch\n*** Update File: a b.py\n@@\n-x\n*** Add File: n\n+y\n*** Move to: m\n"},
            "write",
            None,
            ("a b.py", "n", "m"),
        ),
        ("gemini", "run_shell_command", {"command": "ls"}, "shell", "ls", ()),
        ("gemini", "write_file", {"file_path": "/p/a", "content": "x"}, "write", None, ("/p/a",)),
        ("gemini", "replace", {"file_path": "/p/a"}, "write", None, ("/p/a",)),
        ("gemini", "read_file", {"absolute_path": "/p/a"}, "read", None, ("/p/a",)),
    ],
)
def test_a_clients_own_tools_are_known(client, tool, arguments, kind, command, paths):  # noqa: PLR0917 - one row each
    hook = read_hook(client, event("PreToolUse", tool, arguments, tool_use_id="t1"))
    assert (hook.kind, hook.command, hook.paths, hook.call_id) == (kind, command, paths, "t1")


def test_a_title_names_the_command_or_the_paths_and_no_text_of_a_file():
    assert read_hook("claude", event("PreToolUse", "Bash", {"command": "rm -rf\n  src"})).title == "rm -rf src"
    written = read_hook("claude", event("PreToolUse", "Write", {"file_path": "/p/a", "content": "secret"}))
    assert written.title == "Write /p/a"


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=12,
)
_names = st.sampled_from(
    ["session_id", "cwd", "hook_event_name", "tool_name", "tool_input", "tool_use_id", "agent_id", "prompt",
     "transcript_path", "notification_type"]
)  # fmt: skip


@settings(max_examples=200 * TIMES, deadline=None)
@given(
    st.sampled_from(CLIENTS), st.dictionaries(_names, _json, max_size=8), st.sampled_from(["Bash", "apply_patch", "x"])
)
def test_whatever_a_client_sends_is_read_without_an_exception(client, fields, tool):
    hook = read_hook(client, {"tool_name": tool, **fields})
    known = hook if isinstance(hook, Hook) else hook.hook
    assert known.session
    assert len(hook.title) <= 200


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("verdict", [ASK, DENY, ALLOW, None])
def test_observing_says_nothing(client, verdict):
    assert answer(client, "observe", verdict, ["a line"]) == ({}, False)


def test_claude_code_is_told_to_ask_and_the_others_are_never_sent_what_they_take_for_a_failure():
    decisions = {}
    for client in ("claude", "codex"):
        output, decided = answer(client, "enforce", ASK, [])
        assert decided
        decisions[client] = output["hookSpecificOutput"]["permissionDecision"]
    assert decisions == {"claude": "ask", "codex": "deny"}
    assert answer("gemini", "enforce", ASK, [])[0]["decision"] == "deny"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_warning_decides_nothing_and_names_the_rule(client):
    output, decided = answer(client, "warn", DENY, [])
    assert not decided
    assert "native-ground" in output["hookSpecificOutput"]["additionalContext"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_denial_carries_its_reason(client):
    output, decided = answer(client, "enforce", DENY, [])
    assert decided
    assert "it is the home" in str(output)
