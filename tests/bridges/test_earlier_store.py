"""A store that an earlier Bascule wrote and left by a crash: it opens, and everything in it goes on."""

import sqlite3
from pathlib import Path

import pytest
from test_workspace_asks import ASKING, FILES
from workspace_scene import JERRY, PATH, Scene, make_machine

from bascule.bridge_list import tables_of
from bascule.stores.sqlite import SqliteStore
from bascule.testing.house import House

DUMP = Path(__file__).parent.parent / "stores" / "earlier_store.sql"


class Checkpoints(dict[str, dict[str, bytes]]):
    """The fake machine's: those of its last life had the files that were there when the space was opened."""

    def __missing__(self, tree):
        return dict(FILES)


@pytest.fixture
def scene(tmp_path):
    database = tmp_path / "store.db"
    with sqlite3.connect(database) as connection:
        connection.executescript(DUMP.read_text("utf-8"))
    connection.close()
    machine = make_machine()
    machine.trees = Checkpoints()
    files = machine.directory(PATH, {**FILES, "x.txt": b"new\n", "y.txt": b"new\n"})
    with House(store=SqliteStore(str(database), tables=tables_of()), machine=machine, policy=ASKING) as house:
        scene = Scene.__new__(Scene)
        scene.house, scene.machine, scene.files = house, machine, files
        scene.space = house.call(JERRY, "spaces.list")[0]["spaceId"]
        yield scene
        assert house.call("local", "ledger.verify")["ok"]


def questions(scene):
    return {each["method"]: each for each in scene.house.call("person", "approvals.list")}


def test_a_run_that_waited_for_the_person_goes_on_when_it_is_approved(scene):
    (paused,) = [run for run in runs(scene) if run["status"] == "awaiting_approval"]
    asked = questions(scene)["workspace.shell"]
    assert asked["runId"] == paused["runId"]
    scene.decide(asked["approvalId"])
    scene.until(lambda: scene.view(paused)["status"] == "completed", "the end of the run")
    assert [event["type"] for event in scene.show(paused)["events"]] == ["createFile", "shell", "message"]
    assert not [name for name in scene.files if name.startswith("data/")]


def test_a_call_that_waited_for_the_person_is_executed_once_when_it_is_made_again(scene):
    asked = questions(scene)["processes.start"]
    scene.decide(asked["approvalId"])
    assert scene.machine.ran == [], "nothing runs without a waiting caller"
    params = {"spaceId": scene.space, "command": "rm -rf data"}
    assert scene.answer(scene.house.begin(JERRY, "processes.start", params))["command"] == "rm -rf data"
    again = scene.house.begin(JERRY, "processes.start", params)
    assert not again.done, "the grant was for one call"
    again.cancel()


def test_an_effect_that_had_begun_is_unknown_and_does_not_happen_again(scene):
    (interrupted,) = [run for run in runs(scene) if run["status"] == "unknown"]
    kinds = [event["type"] for event in scene.show(interrupted)["events"]]
    assert kinds == ["createFile", "error", "error"]
    assert [row["outcome"] for row in records(scene, "workspace.shell")][-1] == "unknown"
    assert scene.machine.ran == []
    assert not scene.house.effects.table.rows


def test_a_message_that_waited_is_delivered(scene):
    (message,) = scene.house.call(JERRY, "inbox.take", {"agentId": "Jerry"})["messages"]
    assert (message["ticketId"], message["payload"]) == ("t-1", "are you there?")


def runs(scene):
    return scene.house.call(JERRY, "runs.list", {"spaceId": scene.space})


def records(scene, method):
    return [row for row in scene.house.ledger() if row["method"] == method]
