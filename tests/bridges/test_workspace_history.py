"""What a run changed: shown, taken back, tried on a copy first. Commands in the background. Files by themselves."""

import pytest
from workspace_scene import JERRY, PATH, Scene, create, delete, edit, make_machine, read, say, shell

from bascule.foundation.errors import (
    ApprovalRequired,
    Conflict,
    InvalidRequest,
    NotFound,
    Overloaded,
    PolicyDenied,
    Unavailable,
)
from bascule.testing.house import House
from bascule.workspace.limits import WorkspaceLimits
from undo_of import left_alone

FILES = {"a.txt": b"one\n", "data/1": b"1\n"}


@pytest.fixture
def scene():
    with House(machine=make_machine()) as house:
        made = Scene(house, FILES)
        yield made
        assert made.faults() == []


# -- diff and undo -----------------------------------------------------------------------------------------


def test_the_diff_of_a_run_is_what_all_its_operations_changed(scene):
    run = scene.run(edit("a.txt", "one", "uno"), create("b.txt", "two\n"), delete("data/1"))
    shown = scene.call("runs.diff", run)
    assert {(change["path"], change["change"]) for change in shown["changes"]} == {
        ("a.txt", "modified"),
        ("b.txt", "added"),
        ("data/1", "deleted"),
    }
    assert "-one\n+uno\n" in shown["diff"]


def test_undo_shows_what_it_would_do_and_then_does_it_once(scene):
    run = scene.run(edit("a.txt", "one", "uno"), create("b.txt"))
    would = scene.call("runs.undo", run, dryRun=True)
    assert would["dryRun"] is True
    assert scene.files["a.txt"] == b"uno\n"
    done = scene.call("runs.undo", run)
    assert done["changes"] == would["changes"]
    assert scene.files == FILES
    assert scene.view(run)["undone"] is True
    with pytest.raises(Conflict, match="undone already"):
        scene.call("runs.undo", run)
    assert [row["outcome"] for row in scene.records("runs.undo")][-2:] == ["begun", "conflict"]


def test_what_a_later_run_changed_stays_and_is_named_and_the_rest_is_undone(scene):
    run = scene.run(edit("a.txt", "one", "uno"), create("b.txt"))
    later = scene.run(edit("a.txt", "uno", "due"))
    undone = scene.call("runs.undo", run)
    assert left_alone(undone) == {"a.txt": f"was changed later by {later['runId']}"}
    assert scene.files == {**FILES, "a.txt": b"due\n"}
    # The later one first, and then this one again.
    scene.call("runs.undo", later)
    scene.call("runs.undo", run)
    assert scene.files == FILES


def test_an_undo_that_could_only_lose_later_changes_changes_nothing_and_is_not_used_up(scene):
    run = scene.run(edit("a.txt", "one", "uno"))
    later = scene.run(edit("a.txt", "uno", "due"))
    for _ in range(2):
        undone = scene.call("runs.undo", run)
        assert (undone["changes"], list(left_alone(undone))) == ([], ["a.txt"])
        assert "takenBackBy" not in undone
        assert scene.files["a.txt"] == b"due\n"
        assert scene.view(run).get("undone") is not True
    scene.call("runs.undo", later)
    scene.call("runs.undo", run)
    assert scene.files == FILES


def test_what_a_command_changed_is_undone_too(scene):
    run = scene.resume(scene.run(shell("rm -rf data")))
    assert "data/1" not in scene.files
    scene.call("runs.undo", run)
    assert scene.files == FILES


def test_a_run_that_only_reads_takes_no_checkpoint(scene):
    run = scene.run(read("a.txt"), say())
    assert scene.machine.trees == {}
    assert scene.call("runs.diff", run)["changes"] == []
    assert scene.view(run).get("undoable") is None


def test_without_a_checkpoint_a_run_works_and_says_why_it_cannot_be_undone(scene):
    scene.machine.no_checkpoints = "the workspace has 3,000,000 files"
    run = scene.run(create("b.txt"))
    assert run["status"] == "completed"
    assert scene.view(run)["note"] == "not undoable: the workspace has 3,000,000 files"
    with pytest.raises(Conflict, match="3,000,000 files"):
        scene.call("runs.undo", run)


def test_what_others_changed_while_a_run_waited_is_neither_its_diff_nor_its_undo(scene):
    run = scene.run(create("mine.txt"), shell("rm -rf data"))
    scene.run(create("others.txt"))
    run = scene.resume(run)
    changed = {change["path"] for change in scene.call("runs.diff", run)["changes"]}
    assert changed == {"mine.txt", "data/1"}
    scene.call("runs.undo", run)
    assert set(scene.files) == {"a.txt", "data/1", "others.txt"}


def test_two_changes_of_the_same_file_are_undone_though_others_worked_in_between(scene):
    run = scene.run(create("x.txt", "1"), shell("rm -rf data"), edit("x.txt", "1", "2"))
    scene.run(create("others.txt"))
    run = scene.resume(run)
    undone = scene.call("runs.undo", run)
    assert "leftAlone" not in undone
    assert set(scene.files) == {*FILES, "others.txt"}


def test_where_others_changed_the_same_file_in_between_only_what_came_after_them_is_undone(scene):
    run = scene.run(create("x.txt", "1"), shell("rm -rf data"), edit("x.txt", "2", "3"))
    other = scene.run(edit("x.txt", "1", "2"))
    run = scene.resume(run)
    undone = scene.call("runs.undo", run)
    assert list(left_alone(undone)) == ["x.txt"]
    assert f"was changed later by {other['runId']}, after a part" in left_alone(undone)["x.txt"]
    assert scene.files == {**FILES, "x.txt": b"2"}


def test_checkpoints_that_no_kept_run_needs_are_collected(scene):
    run = scene.run(create("b.txt"))
    scene.machine.trees["old"] = {}
    scene.machine.trees_of[scene.space].add("old")
    scene.house.advance(2 * 60 * 60)
    scene.until(lambda: "old" not in scene.machine.trees, "the collection")
    scene.call("runs.undo", run)


def test_a_run_is_undone_whatever_number_of_its_undos_are_no_longer_kept():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_undos=3)) as house:
        scene = Scene(house, FILES)
        run = scene.run(edit("a.txt", "one", "uno"), delete("data/1"))
        for _ in range(5):
            scene.call("runs.undo", run)
            assert scene.files == FILES
            redo(scene)
            assert scene.files == {"a.txt": b"uno\n"}
        assert [each["kind"] for each in log(scene)] == ["redo", "undo", "run"]


def test_the_oldest_undo_that_is_kept_is_taken_back_as_any_other():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_undos=3)) as house:
        scene = Scene(house, FILES)
        run = scene.run(edit("a.txt", "one", "uno"))
        scene.call("runs.undo", run)
        oldest = log(scene)[0]["operationId"]
        for name in ("b.txt", "c.txt"):
            scene.call("runs.undo", scene.run(create(name)))
        redo(scene, undoId=oldest)
        assert scene.files == {**FILES, "a.txt": b"uno\n"}
        assert scene.view(run).get("undone") is not True
        scene.call("runs.undo", run)
        assert scene.files == FILES


def redo(scene, **more):
    return scene.house.call(JERRY, "runs.redo", {"spaceId": scene.space, **more})


def log(scene):
    return scene.house.call(JERRY, "spaces.log", {"spaceId": scene.space})


# -- on a copy -----------------------------------------------------------------------------------------------


def test_on_a_copy_nothing_asks_and_nothing_lasts_until_it_is_committed(scene):
    run = scene.run(create("b.txt", "two\n"), shell("rm -rf data"), onCopy=True)
    assert run["status"] == "completed"
    assert [event["type"] for event in run["events"]] == ["createFile", "shell"]
    assert scene.files == FILES
    scene.until(lambda: list(scene.machine.directories) == [PATH], "the copy is gone")
    assert {change["path"] for change in scene.call("runs.diff", run)["changes"]} == {"b.txt", "data/1"}


def test_taking_over_what_would_have_asked_asks_and_shows_the_diff(scene):
    run = scene.run(create("b.txt", "two\n"), shell("rm -rf data"), onCopy=True)
    with pytest.raises(ApprovalRequired) as asked:
        scene.call("runs.commit", run)
    shown = scene.house.call("local", "approvals.show", {"approvalId": asked.value.details["approvalId"]})
    assert "+two" in shown["preview"]
    assert "Destructive command" in shown["reason"]
    assert scene.files == FILES
    scene.decide(shown["approvalId"])
    assert scene.call("runs.commit", run)["runId"] == run["runId"]
    assert scene.files == {"a.txt": b"one\n", "b.txt": b"two\n"}
    assert scene.view(run)["committed"] is True
    scene.call("runs.undo", run)
    assert scene.files == FILES


def test_what_would_not_have_asked_is_taken_over_without_asking(scene):
    run = scene.run(create("b.txt", "two\n"), onCopy=True)
    scene.call("runs.commit", run)
    assert scene.files["b.txt"] == b"two\n"
    with pytest.raises(Conflict, match="taken over already"):
        scene.call("runs.commit", run)


def test_what_is_denied_is_denied_on_a_copy_too(scene):
    run = scene.run(shell("sudo ls"), onCopy=True)
    assert run["events"][0]["type"] == "policyDenied"


def test_a_copy_is_not_taken_over_when_the_workspace_has_moved_on(scene):
    run = scene.run(edit("a.txt", "one", "uno"), onCopy=True)
    scene.run(edit("a.txt", "one", "eins"))
    with pytest.raises(Conflict, match=r"a\.txt was changed later"):
        scene.call("runs.commit", run)
    assert scene.files["a.txt"] == b"eins\n"


def test_only_runs_on_a_copy_are_committed(scene):
    with pytest.raises(Conflict, match="onCopy"):
        scene.call("runs.commit", scene.run(create("b.txt")))


def test_without_checkpoints_there_is_no_copy_and_the_run_says_why(scene):
    scene.machine.no_checkpoints = "the workspace has 3,000,000 files"
    run = scene.run(create("b.txt"), onCopy=True)
    assert run["status"] == "error"
    assert "3,000,000 files" in run["events"][0]["message"]
    assert scene.files == FILES


# -- commands in the background -------------------------------------------------------------------------------


def start(scene, command="serve", who=JERRY):
    return scene.answer(scene.house.begin(who, "processes.start", {"spaceId": scene.space, "command": command}))


def logs(scene, process, **more):
    return scene.house.begin(JERRY, "processes.logs", {"processId": process["processId"], **more})


def test_a_command_in_the_background_is_listed_read_and_stopped(scene):
    process = start(scene)
    assert (process["running"], process["background"]) == (True, True)
    assert scene.answer(logs(scene, process))["text"] == "listening\n"
    assert scene.answer(logs(scene, process, offset=-3))["text"] == "ng\n"
    assert [each["processId"] for each in scene.house.call("local", "processes.list")] == [process["processId"]]
    stopped = scene.answer(scene.house.begin(JERRY, "processes.stop", {"processId": process["processId"]}))
    assert (stopped["running"], stopped["endedBy"]) == (False, "cancelled")
    scene.until(lambda: scene.records("processes.end"), "the record of its end")
    assert [row["outcome"] for row in scene.records("processes.start")] == ["begun", "ok"]


def test_logs_are_waited_for_and_a_waiter_hears_the_end(scene):
    process = start(scene)
    command = scene.running("serve")
    waiting = logs(scene, process, offset=10, waitMs=60_000)
    scene.until(lambda: len(scene.house.workspace.processes.find(process["processId"])._more) == 1, "the waiter")
    scene.say(lambda: command.say("more\n"))
    page = scene.answer(waiting)
    assert (page["text"], page["nextOffset"], page["running"]) == ("more\n", 15, True)
    waiting = logs(scene, process, offset=15, waitMs=60_000)
    scene.say(command.end)
    assert scene.answer(waiting)["running"] is False
    assert scene.answer(logs(scene, process, offset=15, waitMs=60_000))["exitCode"] == 0


def test_a_run_goes_on_beside_a_command_in_the_background(scene):
    start(scene)
    assert scene.run(create("x.txt"), shell("echo hi"))["status"] == "completed"


def test_commands_in_the_background_are_limited():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_processes=1)) as house:
        scene = Scene(house)
        start(scene)
        with pytest.raises(Overloaded, match="1 commands run in the background"):
            start(scene)


def test_a_command_in_the_background_ends_with_the_daemon(scene):
    start(scene)
    command = scene.running("serve")
    scene.house.restart()
    assert not command.running
    assert scene.house.call("local", "processes.list") == []


def test_a_bad_command_and_a_missing_sandbox_are_refused_with_a_sentence(scene):
    with pytest.raises(InvalidRequest, match="null byte"):
        start(scene, "a\0b")
    scene.machine.problem = "bubblewrap is not installed: apt install bubblewrap"
    with pytest.raises(Unavailable, match="apt install bubblewrap"):
        start(scene)


def test_output_of_old_commands_makes_room():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_processes=2)) as house:
        scene = Scene(house)
        first = scene.event(shell("echo hi"))["processId"]
        for _ in range(3):
            scene.event(shell("echo hi"))
        with pytest.raises(NotFound, match="unknown process"):
            house.call(JERRY, "processes.logs", {"processId": first})
        assert len(house.machine.ran) == 2


# -- files by themselves ------------------------------------------------------------------------------------------


def test_files_are_listed_read_written_and_deleted_without_a_message(scene):
    where = {"spaceId": scene.space}
    listed = scene.answer(scene.house.begin(JERRY, "files.list", where))
    assert [(entry["name"], entry["type"]) for entry in listed["entries"]] == [("a.txt", "file"), ("data", "directory")]
    assert scene.answer(scene.house.begin(JERRY, "files.read", {**where, "path": "a.txt"}))["content"] == "one\n"
    written = scene.answer(scene.house.begin(JERRY, "files.write", {**where, "path": "a.txt", "content": "2"}))
    assert written["events"][0]["bytesWritten"] == 1
    scene.answer(scene.house.begin(JERRY, "files.delete", {**where, "path": "data/1"}))
    assert scene.files == {"a.txt": b"2"}
    scene.call("runs.undo", written)
    assert scene.files["a.txt"] == b"one\n"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a\0b", "", "x" * 256])
def test_a_path_that_is_none_is_refused_everywhere(scene, path):
    where = {"spaceId": scene.space, "path": path}
    with pytest.raises(InvalidRequest, match="path"):
        scene.house.call(JERRY, "files.read", where)
    event = scene.answer(scene.house.begin(JERRY, "files.write", {**where, "content": ""}))["events"][0]
    assert (event["type"], event["category"]) == ("error", "validation")


def test_a_file_that_may_not_be_read_in_a_run_may_not_be_read_without_one():
    from bascule.bridge_list import presets_of
    from bascule.kernel.policy.decision import Decision
    from bascule.kernel.policy.engine import Policy
    from bascule.kernel.policy.rules import Rule

    for decision, reason in ((Decision.DENY, None), (Decision.ASK, "in a run")):
        rule = Rule(name="keys", decision=decision, reason="keys", methods=("workspace.*",), paths=("keys/**",))
        policy = Policy((*presets_of()["standard"], rule), "keys", "digest")
        with House(machine=make_machine(), policy=policy) as house:
            scene = Scene(house, {"keys/id": b"secret"})
            with pytest.raises(PolicyDenied, match="keys") as refused:
                house.call(JERRY, "files.read", {"spaceId": scene.space, "path": "keys/id"})
            assert reason is None or reason in refused.value.hint
