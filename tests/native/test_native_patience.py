"""Every call waits for the tree before it; one that goes on without it is a run that says so."""

import os
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from bascule.testing.house import House
from patience import PATIENCE

PROJECT = "/projects/project"


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        yield made


def event(name, command):
    return {
        "hook_event_name": name,
        "session_id": "s",
        "cwd": PROJECT,
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": command,
    }


def begin(house, command, **more):
    return house.begin("local", "native.before", {"client": "claude", "event": event("PreToolUse", command), **more})


def before(house, command, **more):
    return house.shown(_settled(house, begin(house, command, **more)))


def _settled(house, pending):
    end = time.monotonic() + PATIENCE
    while not pending.done and time.monotonic() < end:
        house.advance(0.01)
    return pending.result()


def listed(house, run_id):
    runs = house.shown(house.call("local", "runs.list", {}))
    return next(run for run in runs if run["runId"] == run_id)


@pytest.mark.parametrize("command", ["npm test", "rm -rf src", 'rm -rf "$X"', "curl -s x | sh"])
def test_every_call_waits_for_the_tree_before_it(house, command):
    answer = before(house, command)
    assert answer["runId"].startswith("run_")
    assert "note" not in answer
    assert "output" not in answer


@pytest.mark.parametrize("command", ["npm test", "rm -rf src"])
def test_a_call_that_waited_too_long_goes_on_and_is_listed_without_an_undo(house, command):
    house.workspace.native.patience = timedelta(0)
    answer = before(house, command)
    assert answer["note"].startswith("no undo: the tree before it was not taken: it takes more than 0 s")
    run = listed(house, answer["runId"])
    assert "undoable" not in run
    assert (run["note"], run["native"]["title"]) == (answer["note"], command)


def test_a_call_without_an_undo_says_why_its_project_is_not_watched(house):
    before(house, "rm -rf src")
    (space_id,) = house.workspace.spaces.table.rows
    house.workspace.spaces.of(space_id).checkpoints.scans_because = "it is a test"
    house.workspace.native.patience = timedelta(0)
    assert before(house, "npm test")["note"].endswith("all of it has to be looked at: it is a test")


def test_the_model_and_the_person_are_told_once_until_that_changes(house):
    house.workspace.native.patience = timedelta(0)
    first = before(house, "npm test")
    words = f"Bascule: {first['note']}"
    assert first["output"] == {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": words},
        "systemMessage": words,
    }
    assert "output" not in before(house, "npm run other")
    house.workspace.native.patience = timedelta(seconds=45)
    assert "output" not in before(house, "npm run third")
    house.workspace.native.patience = timedelta(0)
    assert before(house, "npm run fourth")["output"] == first["output"]


def test_calls_without_an_undo_are_counted_in_the_report_and_in_their_session(house):
    before(house, "npm test")
    house.workspace.native.patience = timedelta(0)
    note = before(house, "npm run one")["note"]
    before(house, "npm run two")
    before(house, "ls")
    report = house.shown(house.call("local", "native.report", {}))
    assert (report["calls"], report["undoable"], report["withoutUndo"]) == (4, 1, 2)
    (session,) = house.shown(house.call("local", "sessions.list", {}))
    assert (session["withoutUndo"], session["noUndo"]) == (2, note)


def test_a_client_that_went_on_before_the_tree_was_taken_has_no_undo(house):
    """The tree would hold a part of what the call did."""
    pending = begin(house, "rm -rf src")
    pending.cancel()
    end = time.monotonic() + PATIENCE
    while not (runs := house.shown(house.call("local", "runs.list", {}))) and time.monotonic() < end:
        house.advance(0.01)
    assert [run["note"] for run in runs] == ["no undo: the tree before it was not taken: its client went on before"]
    assert "undoable" not in runs[0]


def test_a_client_that_waited_for_its_answer_has_an_undo(house):
    """The control."""
    run_id = before(house, "rm -rf src")["runId"]
    assert "note" not in listed(house, run_id)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_process_that_stays_too_long_ends_the_run_and_is_named(house, monkeypatch):
    monkeypatch.setattr("bascule.native.service.LEFT_SECONDS", 0.0)
    run_id = before(house, "npm start", pid=os.getpid())["runId"]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as left:
        house.call("local", "native.after", {"client": "claude", "event": event("PostToolUse", "npm start")})
        end = time.monotonic() + PATIENCE
        while listed(house, run_id)["status"] == "running" and time.monotonic() < end:
            house.advance(0.01)
        run = listed(house, run_id)
        left.communicate()
    assert run["status"] == "completed"
    assert run["note"] == f"a process of the call ran on ({left.pid}, cat): what it changed later is not in this"
