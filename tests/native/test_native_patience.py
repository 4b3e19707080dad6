"""A checkpoint that takes too long: most calls go on without it, those that destroy wait."""

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


def before(house, command):
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "cwd": PROJECT,
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": command,
    }
    pending = house.begin("local", "native.before", {"client": "claude", "event": event})
    return house.shown(_settled(house, pending))


def _settled(house, pending):
    import time

    end = time.monotonic() + PATIENCE
    while not pending.done and time.monotonic() < end:
        house.advance(0.01)
    return pending.result()


def test_a_call_that_may_write_goes_on_when_its_checkpoint_takes_too_long(house):
    house.workspace.native.patience = timedelta(0)
    answer = before(house, "npm test")
    assert "runId" not in answer
    assert answer["note"].startswith("no undo: a checkpoint")


def test_a_call_without_an_undo_says_why_its_project_is_not_watched(house):
    before(house, "rm -rf src")
    (space_id,) = house.workspace.spaces.table.rows
    house.workspace.spaces.of(space_id).checkpoints.scans_because = "it is a test"
    house.workspace.native.patience = timedelta(0)
    assert before(house, "npm test")["note"].endswith("all of it has to be looked at: it is a test")


@pytest.mark.parametrize("command", ["rm -rf src", 'rm -rf "$X"', "curl -s x | sh"])
def test_a_call_that_destroys_waits_for_its_checkpoint(house, command):
    house.workspace.native.patience = timedelta(0)
    assert before(house, command)["runId"].startswith("run_")


def test_with_the_usual_patience_both_have_one(house):
    assert before(house, "npm test")["runId"].startswith("run_")
    assert before(house, "rm -rf src")["runId"].startswith("run_")
