"""Hooks that somebody made up, or that say more than anybody can look at: noise, never a permission."""

import json
import time

import pytest

from bascule.foundation.errors import BasculeError, Forbidden
from bascule.native import dialogs, sessions
from bascule.native.hooks import Unreadable, read
from bascule.native.machine.projects import Projects
from bascule.native.protocol import MAX_COMMAND_CHARS, MAX_PATHS, MAX_SESSION_CHARS
from bascule.testing.house import House
from patience import PATIENCE

PROJECT = "/projects/project"
PADDING = "ls #" + "x" * MAX_COMMAND_CHARS


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        yield made


def read_hook(client, event):
    return read(client, json.dumps(event).encode())


def native_of(house):
    return house.life.bridges["native"].service


def enforce(house, client="claude"):
    house.call("local", "native.mode", {"client": client, "mode": "enforce"})


def until(house, ready):
    end = time.monotonic() + PATIENCE
    while not (found := ready()) and time.monotonic() < end:
        house.advance(0.001)
    return found


def hook(house, method, name, client="claude", session="s", **fields):
    event = {"hook_event_name": name, "session_id": session, "cwd": PROJECT, "tool_name": "Bash", **fields}
    pending = house.begin("local", method, {"client": client, "event": event})
    until(house, lambda: pending.done)
    return house.shown(pending.result())


def before(house, command, **more):
    return hook(house, "native.before", "PreToolUse", tool_input={"command": command}, **more)


@pytest.mark.parametrize("client", ["claude", "codex", "gemini"])
def test_a_command_too_long_to_be_shown_is_refused_and_nobody_is_asked_about_a_part_of_it(house, client):
    enforce(house, client)
    answer = before(house, f"{PADDING}\nrm -rf ~", client=client)
    assert answer["verdict"] == "deny"
    assert answer["rule"] == "unreadable"
    assert answer["record"] == "decided"
    assert "question" not in answer
    # The control: what can be looked at is judged for what it is.
    assert before(house, "npm test", client=client)["verdict"] == "allow"


def test_a_dialog_about_a_command_too_long_to_be_shown_is_answered_with_no(house):
    dialog = {"tool_input": {"command": f"{PADDING}\nrm -rf ~"}}
    # While hooks observe, the client's own dialog is nobody else's.
    assert "output" not in hook(house, "sessions.note", "PermissionRequest", **dialog)
    enforce(house)
    answer = hook(house, "sessions.note", "PermissionRequest", **dialog)
    assert answer["output"]["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    assert "question" not in answer
    # The control: what can be shown is shown.
    assert "question" in hook(house, "sessions.note", "PermissionRequest", tool_input={"command": "npm test"})


def test_while_hooks_observe_it_runs_with_an_undo(house):
    answer = before(house, f"{PADDING}\nrm -rf src")
    assert answer["runId"].startswith("run_")
    assert "output" not in answer or answer["output"] == {}


def test_a_patch_cannot_hide_a_file_behind_a_thousand_others(house):
    enforce(house, "codex")

    def patch(files):
        text = "\n".join(f"*** Add File: {name}" for name in files)
        return before(house, text, client="codex", tool_name="apply_patch")

    inside = [f"src/{number}" for number in range(MAX_PATHS)]
    assert patch(inside)["verdict"] == "allow"
    assert patch([*inside, "/home/somebody/.bashrc"])["verdict"] == "deny"


def test_names_and_ids_that_are_remembered_have_an_end():
    huge = "x" * 1_000_000
    event = {"hook_event_name": huge, "session_id": huge, "tool_use_id": huge, "agent_id": huge, "tool_name": huge}
    refused = read_hook(
        "claude", {**event, "notification_type": huge, "cwd": f"/{huge}", "transcript_path": f"/{huge}"}
    )
    found = refused.hook
    for value in (found.name, found.session, found.call_id, found.agent, found.tool, found.about):
        assert len(value) == MAX_SESSION_CHARS
    assert found.cwd is None
    assert found.transcript is None
    fetched = read_hook("claude", {"tool_name": "WebFetch", "tool_input": {"url": huge}})
    assert isinstance(fetched, Unreadable)


@pytest.mark.parametrize(
    ("arguments", "cwd"),
    [({}, "/w"), ({"directory": "sub"}, "/w/sub"), ({"dir_path": "../x"}, "/w/../x"), ({"directory": "/y"}, "/y")],
)
def test_geminis_commands_stand_where_they_say(arguments, cwd):
    event = {"cwd": "/w", "tool_name": "run_shell_command", "tool_input": {"command": "rm -rf *", **arguments}}
    assert read_hook("gemini", event).cwd == cwd


def test_a_link_that_was_turned_to_another_project_leads_to_that_one(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / ".git").mkdir(parents=True)
    link = tmp_path / "current"
    link.symlink_to("a")
    projects = Projects(str(tmp_path / "home"))
    assert projects.find(str(link)) == str(tmp_path / "a")
    link.unlink()
    link.symlink_to("b")
    assert projects.find(str(link)) == str(tmp_path / "b")


@pytest.mark.parametrize(("most", "left"), [(5, 5), (500, 12)])
def test_dialogs_of_sessions_that_somebody_made_up_make_room(house, monkeypatch, most, left):
    """The second is the control."""
    monkeypatch.setattr(dialogs, "MAX_SESSIONS", most)
    for number in range(12):
        question = {"client": "claude", "kind": "shell", "cwd": PROJECT, "command": "ls", "dialog": f"made up {number}"}
        pending = house.begin("local", "native.question", question)
        until(house, lambda pending=pending: pending.done)
        with pytest.raises(BasculeError):
            pending.result()
    assert len(native_of(house)._dialogs._open) == left


def test_ids_of_announced_calls_make_room(house, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_ANNOUNCED", 10)
    for number in range(15):
        before(house, "ls", tool_use_id=f"id-{number}")
    (session,) = native_of(house).sessions.all()
    assert list(session.announced) == [f"id-{number}" for number in range(5, 15)]


def test_sessions_that_somebody_made_up_do_not_push_one_out_that_works(house, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    run_id = before(house, "rm -rf src", session="real", tool_use_id="t")["runId"]
    for number in range(10):
        hook(house, "sessions.note", "UserPromptSubmit", session=f"made up {number}")
    assert len(native_of(house).sessions.all()) == 3
    assert hook(house, "native.after", "PostToolUse", session="real", tool_use_id="t")["runId"] == run_id


def test_a_call_of_a_session_that_was_pushed_out_ends_and_can_be_undone(house, monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    run_id = before(house, "rm -rf src", session="real", tool_use_id="t")["runId"]
    assert house.call("local", "runs.show", {"runId": run_id})["status"] == "running"
    for number in range(4):
        before(house, "rm -rf src", session=f"made up {number}")
    assert until(house, lambda: house.call("local", "runs.show", {"runId": run_id})["status"] != "running")


def test_an_agent_that_acts_through_us_does_not_choose_what_hooks_do(house):
    enforce(house)
    house.call("local", "agents.register", {"agentId": "Tom"})
    with pytest.raises(Forbidden):
        house.call("agent:Tom", "native.mode", {"client": "claude", "mode": "observe"})
    (mode,) = house.call("agent:Tom", "native.modes", {})
    assert mode["mode"] == "enforce"
    # The control, and what SECURITY.md says: whatever runs as the user can.
    house.call("local", "native.mode", {"client": "claude", "mode": "observe"})
