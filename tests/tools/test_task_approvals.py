"""A call that waits for the person is a task, whichever tool it is: it goes on when they have answered."""

import pytest
from test_link_sessions import Scene
from test_mcp_tasks import ended, get, handle

from bascule.surfaces.mcp.calling import Facts
from bascule.surfaces.mcp.link_sessions import LinkSessions
from bascule.surfaces.mcp.tools import toolsets_of
from bascule.testing.house import House
from bascule.testing.machine import Machine

PATH = "/home/jerry/project"


class Asking(Scene):
    """A space whose commands and deletions ask the person."""

    def __init__(self):
        machine = Machine()
        machine.command("rm -rf data", does=lambda files: [files.pop(name) for name in list(files) if "data/" in name])
        self.files = machine.directory(PATH, {"data/1": b"1", "data/2": b"2"})
        self.house = House(machine=machine)
        self.house.register("Jerry")
        self.faults = []
        self.sessions = LinkSessions(
            self.house.gate,
            lambda event, **fields: self.faults.append((event, fields)),
            toolsets_of(),
            facts=Facts("link", grace_seconds=0.0),
        )

    def pending(self):
        return [each.approval_id for each in self.house.desk.pending()]

    def decide(self, decision):
        (approval,) = self.pending()
        self.house.call("person", "approvals.decide", {"approvalId": approval, "decision": decision})


@pytest.fixture
def scene():
    made = Asking()
    yield made
    made.close()
    assert made.faults == []


CALLS = {"exec": {"command": "rm -rf data"}, "create_file": {"path": ".envrc", "content": "export A=1"}}
DONE = {"exec": lambda files: "data/1" not in files, "create_file": lambda files: ".envrc" in files}


@pytest.mark.parametrize("tool", CALLS)
def test_a_call_that_asks_the_person_is_a_task_and_acts_when_they_approve(scene, tool):
    program = scene.program(directory=PATH)
    task_id = handle(program, tool, **CALLS[tool])
    scene.until(scene.pending)
    assert get(program, task_id)["result"]["status"] == "working"
    assert not DONE[tool](scene.files)
    scene.decide("approved")
    found = ended(scene, program, task_id)
    assert (found["status"], found["result"]["structuredContent"]["status"]) == ("completed", "completed"), found
    assert DONE[tool](scene.files)


@pytest.mark.parametrize("tool", CALLS)
def test_what_the_person_denies_is_not_done_and_the_task_says_so(scene, tool):
    program = scene.program(directory=PATH)
    task_id = handle(program, tool, **CALLS[tool])
    scene.until(scene.pending)
    scene.decide("denied")
    found = ended(scene, program, task_id)
    assert found["status"] == "completed"
    assert found["result"]["structuredContent"]["status"] == "denied", found
    assert not DONE[tool](scene.files)


def test_while_it_waits_the_task_says_for_which_question(scene):
    program = scene.program(directory=PATH)
    task_id = handle(program, "exec", command="rm -rf data")
    (approval,) = scene.until(scene.pending) or scene.pending()
    scene.until(lambda: scene.sessions.mcp_tasks.find("agent:Jerry", task_id).message is not None)
    assert get(program, task_id)["result"]["statusMessage"] == f"waits for the person: {approval}"


def test_a_client_without_tasks_is_told_to_call_again_as_before(scene):
    program = scene.program(directory=PATH)
    result = program.call("exec", command="rm -rf data")["structuredContent"]
    assert (result["status"], result["next"]) == ("awaiting_approval", "workspace_run")


def test_undo_names_the_runs_of_this_agent_newest_first(scene):
    program = scene.program(directory=PATH)
    runs = [program.call("create_file", path=f"new{each}", content="x")["structuredContent"]["runId"] for each in "ab"]
    number = program.start("", method="prompts/get", name="undo", arguments={})
    text = program.wait(number)["message"]["result"]["messages"][0]["content"]["text"]
    assert text.index(runs[1]) < text.index(runs[0])
    assert "run_undo" in text
