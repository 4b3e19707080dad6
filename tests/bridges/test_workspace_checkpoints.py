"""Checkpoints around runs that meet trouble, and around runs that work side by side."""

import pytest
from workspace_scene import JERRY, Scene, create, edit, make_machine, say, shell

from bascule.foundation.errors import Conflict, NotFound, Unavailable
from bascule.testing.house import House
from bascule.testing.machine import FakeCheckpoints
from bascule.workspace.limits import WorkspaceLimits

FILES = {"a.txt": b"one\n", "data/1": b"1\n"}
LARGE = "has more than 64 MiB"


@pytest.fixture
def scene():
    with House(machine=make_machine()) as house:
        made = Scene(house, FILES)
        yield made
        assert made.faults() == []


def paths(listed):
    return {each["path"]: each.get("reason") for each in listed}


def changed(scene, run):
    return sorted(change["path"] for change in scene.call("runs.diff", run)["changes"])


def background(scene, command="serve"):
    started = scene.house.begin(JERRY, "processes.start", {"spaceId": scene.space, "command": command})
    return scene.answer(started)


def stop(scene, process):
    return scene.answer(scene.house.begin(JERRY, "processes.stop", {"processId": process["processId"]}))


# -- what cannot be held -------------------------------------------------------------------------------


def test_a_file_that_no_checkpoint_holds_is_named_in_the_event_the_list_the_diff_and_the_undo(scene):
    scene.machine.not_held["large.bin"] = LARGE
    run = scene.run(edit("a.txt", "one", "uno"), create("large.bin"), say())
    assert [event.get("notUndoable") for event in run["events"]] == [
        None,
        None,
        [{"path": "large.bin", "reason": LARGE}],
    ]
    assert scene.show(run) == run
    assert scene.view(run)["undoable"] is True
    assert scene.view(run)["note"] == f"undo leaves alone: `large.bin` {LARGE}"
    shown = scene.call("runs.diff", run)
    assert [change["path"] for change in shown["changes"]] == ["a.txt"]
    assert paths(shown["unknown"]) == {"large.bin": LARGE}
    done = scene.call("runs.undo", run)
    assert paths(done["leftAlone"]) == {"large.bin": LARGE}
    assert scene.files == {**FILES, "large.bin": b"new\n"}
    assert scene.view(run)["undone"] is True


def test_of_many_such_files_an_event_names_some_and_the_diff_all(scene):
    names = [f"large-{number:02}" for number in range(30)]
    scene.machine.not_held.update(dict.fromkeys(names, LARGE))
    run = scene.run(*(create(name) for name in names))
    named = run["events"][-1]["notUndoable"]
    assert (len(named), named[-1]["reason"]) == (21, "10 more: runs.diff names them")
    assert sorted(paths(scene.call("runs.diff", run)["unknown"])) == names


def test_a_run_without_a_checkpoint_says_so_at_once_and_its_diff_is_unknown_not_nothing(scene):
    scene.machine.no_checkpoints = "no checkpoint could be stored: No space left on device"
    run = scene.run(create("b.txt"))
    assert paths(run["events"][0]["notUndoable"]) == {".": "no checkpoint could be stored: No space left on device"}
    shown = scene.call("runs.diff", run)
    assert shown["changes"] == []
    assert paths(shown["unknown"]) == {".": "not undoable: no checkpoint could be stored: No space left on device"}


def test_when_the_checkpoint_after_fails_the_one_before_is_kept_and_undo_works_later(scene):
    held = scene.begin(create("b.txt"), shell("serve"))
    command = scene.running("serve")
    scene.machine.no_checkpoints = "no checkpoint could be stored: No space left on device"
    scene.say(command.end)
    run = scene.answer(held)
    assert "No space left" in paths(run["events"][-1]["notUndoable"])["."]
    assert "No space left" in scene.view(run)["note"]
    assert "No space left" in paths(scene.call("runs.diff", run)["unknown"])["."]
    with pytest.raises(Conflict, match="No space left"):
        scene.call("runs.undo", run)
    scene.machine.no_checkpoints = None
    scene.files["mine.txt"] = b"saved by hand\n"
    scene.machine.changed_at["mine.txt"] = 2**62
    shown = scene.call("runs.diff", run)
    assert [change["path"] for change in shown["changes"]] == ["b.txt"]
    assert "as it is now" in shown["note"]
    assert paths(shown["unknown"]) == {"mine.txt": "was changed later"}
    assert paths(scene.call("runs.undo", run)["leftAlone"]) == {"mine.txt": "was changed later"}
    assert scene.files == {**FILES, "mine.txt": b"saved by hand\n"}


def test_after_a_crash_the_next_life_knows_the_checkpoint_before_and_undoes_the_run(scene):
    scene.begin(create("x.txt"), shell("serve"), create("y.txt"))
    scene.running("serve")
    (run_id,) = scene.house.workspace.runs.live
    scene.house.restart(clean=False)
    run = {"runId": run_id}
    assert scene.view(run)["status"] == "unknown"
    assert scene.view(run)["undoable"] is True
    assert changed(scene, run) == ["x.txt"]
    scene.files["a.txt"] = b"saved by hand\n"
    scene.machine.changed_at["a.txt"] = 2**62
    assert paths(scene.call("runs.undo", run)["leftAlone"]) == {"a.txt": "was changed later"}
    assert scene.files == {**FILES, "a.txt": b"saved by hand\n"}


def test_a_run_that_is_under_way_shows_what_it_changed_so_far(scene):
    scene.begin(create("x.txt"), shell("serve"))
    scene.running("serve")
    (run_id,) = scene.house.workspace.runs.live
    shown = scene.call("runs.diff", {"runId": run_id})
    assert [change["path"] for change in shown["changes"]] == ["x.txt"]
    assert "not over yet" in shown["note"]


# -- commands in the background ------------------------------------------------------------------------------


def writes(scene, command="build", *, ends=False, **files):
    scene.machine.command(command, does=lambda there: there.update(files), ends=ends)
    return background(scene, command)


def test_a_command_in_the_background_is_a_run_that_is_shown_and_undone_once_it_is_over(scene):
    process = writes(scene, made=b"x\n")
    run = {"runId": process["runId"]}
    view = scene.view(run)
    assert (view["status"], view["background"], view["operations"]) == ("running", True, 1)
    assert changed(scene, run) == ["made"]
    with pytest.raises(Conflict, match="not over yet") as refused:
        scene.call("runs.undo", run)
    assert f"bascule runs cancel {run['runId']}" in refused.value.hint
    stop(scene, process)
    assert scene.view(run)["status"] == "cancelled"
    (event,) = scene.show(run)["events"]
    assert (event["type"], event["command"], event["processId"]) == ("shell", "build", process["processId"])
    shown = scene.call("runs.diff", run)
    assert [change["path"] for change in shown["changes"]] == ["made"]
    assert "in the background" in shown["note"]
    scene.call("runs.undo", run)
    assert scene.files == FILES


def test_a_background_command_is_cancelled_waited_for_and_followed_like_any_run(scene):
    process = background(scene)
    run = {"runId": process["runId"]}
    waiting = scene.house.begin(JERRY, "runs.wait", {"spaceId": scene.space, **run, "waitMs": 60_000})
    assert scene.call("runs.cancel", run)["status"] == "error"
    assert scene.answer(waiting)["events"][0]["endedBy"] == "cancelled"
    assert scene.view(run)["status"] == "cancelled"


def test_one_that_ends_by_itself_is_completed_and_what_it_left_unheld_is_in_its_event(scene):
    scene.machine.not_held["made"] = LARGE
    process = writes(scene, made=b"x\n", ends=True)
    run = {"runId": process["runId"]}
    scene.until(lambda: scene.view(run)["status"] == "completed", "its end")
    assert paths(scene.show(run)["events"][0]["notUndoable"]) == {"made": LARGE}


def test_runs_do_not_wait_for_it_and_each_says_that_it_met_the_other(scene):
    process = writes(scene, made=b"x\n")
    served = {"runId": process["runId"]}
    inner = scene.run(edit("a.txt", "one", "uno"))
    assert served["runId"] in scene.call("runs.diff", inner)["note"]
    stop(scene, process)
    shown = scene.call("runs.diff", served)
    assert sorted(change["path"] for change in shown["changes"]) == ["a.txt", "made"]
    assert inner["runId"] in shown["note"]


def test_undoing_it_does_not_touch_what_other_runs_changed_meanwhile(scene):
    process = writes(scene, made=b"x\n")
    inner = scene.run(edit("a.txt", "one", "uno"))
    stop(scene, process)
    done = scene.call("runs.undo", {"runId": process["runId"]})
    assert paths(done["leftAlone"]) == {"a.txt": f"was changed at the same time by {inner['runId']}"}
    assert "others worked here at the same time" in done["note"]
    assert inner["runId"] in done["note"]
    assert scene.files == {**FILES, "a.txt": b"uno\n"}
    scene.call("runs.undo", inner)
    assert scene.files == FILES


def test_beside_it_a_run_is_undone_except_for_what_was_changed_since(scene):
    process = background(scene)
    inner = scene.run(edit("a.txt", "one", "uno"), create("b.txt"))
    scene.files["b.txt"] = b"the server's log grows\n"
    left = paths(scene.call("runs.undo", inner)["leftAlone"])
    assert left == {"b.txt": f"was changed later by {process['runId']}"}
    assert scene.files == {**FILES, "b.txt": b"the server's log grows\n"}
    stop(scene, process)


def test_what_an_undo_or_a_commit_changed_beside_it_is_not_its_work(scene):
    earlier = scene.run(edit("a.txt", "one", "uno"))
    process = writes(scene, made=b"x\n")
    scene.call("runs.undo", earlier)
    on_copy = scene.run(create("copied"), onCopy=True)
    scene.call("runs.commit", on_copy)
    stop(scene, process)
    undone = scene.call("runs.undo", {"runId": process["runId"]})
    # An undo did exactly what it says; of a command in the background nobody says what it does.
    assert paths(undone["leftAlone"]) == {"copied": f"was changed at the same time by {on_copy['runId']}"}
    assert "others worked here at the same time" in undone["note"]
    assert on_copy["runId"] in undone["note"]
    assert scene.files == {**FILES, "copied": b"new\n"}


def test_where_more_runs_met_it_than_are_kept_it_is_not_undone():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_runs=3)) as house:
        scene = Scene(house, FILES)
        process = background(scene)
        for number in range(5):
            scene.run(create(f"made-{number}"))
        stop(scene, process)
        assert len(scene.call("runs.diff", {"runId": process["runId"]})["changes"]) == 5
        with pytest.raises(Conflict, match="more than 3 runs worked here at the same time"):
            scene.call("runs.undo", {"runId": process["runId"]})
        assert len(scene.files) == 7


def test_once_it_is_over_it_makes_room_before_what_it_met():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_runs=3)) as house:
        scene = Scene(house, FILES)
        process = writes(scene, made=b"x\n")
        inner = scene.run(edit("a.txt", "one", "uno"))
        stop(scene, process)
        for number in range(2):
            scene.run(create(f"made-{number}"))
        with pytest.raises(NotFound):
            scene.call("runs.undo", {"runId": process["runId"]})
        scene.call("runs.undo", inner)
        assert scene.files["a.txt"] == FILES["a.txt"]


@pytest.mark.parametrize("clean", [True, False])
def test_one_that_ends_with_the_daemon_can_be_undone_in_the_next_life(scene, clean):
    process = writes(scene, made=b"x\n")
    inner = scene.run(edit("a.txt", "one", "uno"))
    scene.house.restart(clean=clean)
    run = {"runId": process["runId"]}
    assert scene.view(run)["status"] == ("error" if clean else "unknown")
    (event,) = scene.show(run)["events"]
    assert event["type"] == ("shell" if clean else "error")
    assert clean or event["message"].startswith("unknown: may have run")
    assert sorted(changed(scene, run)) == ["a.txt", "made"]
    # What the run inside it changed is that one's own, and stays.
    assert list(paths(scene.call("runs.undo", run)["leftAlone"])) == ["a.txt"]
    assert scene.files == {**FILES, "a.txt": b"uno\n"}
    scene.call("runs.undo", inner)
    assert scene.files == FILES


def test_one_that_could_not_start_leaves_no_run(scene):
    scene.machine.problem = "bubblewrap is not installed: apt install bubblewrap"
    with pytest.raises(Unavailable):
        background(scene)
    assert scene.house.call(JERRY, "runs.list", {"spaceId": scene.space}) == []
    scene.machine.problem = None
    assert scene.run(create("x.txt"))["status"] == "completed"


def test_background_commands_do_not_count_as_runs_under_way():
    limits = WorkspaceLimits(max_runs=1, max_processes=3)
    with House(machine=make_machine(), workspace_limits=limits) as house:
        scene = Scene(house, FILES)
        for _ in range(3):
            background(scene)
        assert scene.run(create("x.txt"))["status"] == "completed"


def test_a_closed_space_ends_them_with_their_runs(scene):
    process = background(scene)
    command = scene.running("serve")
    scene.answer(scene.house.begin(JERRY, "spaces.close", {"spaceId": scene.space}))
    assert not command.running
    assert process["runId"] not in scene.house.workspace.runs.live


def test_a_run_under_way_signs_its_record_so_that_a_crash_is_dated(scene, monkeypatch):
    monkeypatch.setattr("bascule.workspace.checkpointing.FIRST_SIGN_SECONDS", 0.01)
    process = background(scene)
    book = scene.house.workspace.book
    first = book.find(process["runId"]).segments[-1].until
    scene.house.advance(60)
    scene.until(lambda: book.find(process["runId"]).segments[-1].until >= first + 60_000, "a later sign of life")
    stop(scene, process)
    assert [segment.until for segment in book.find(process["runId"]).segments] == []


def test_when_a_run_ends_what_changed_since_it_began_is_read_again(scene, monkeypatch):
    """Whatever was read of it meanwhile: a program that has a file mapped changes it without its times."""
    asked = []
    take = FakeCheckpoints.take

    def noting(self, until=None, since=None, **more):
        asked.append(since)
        return take(self, until, since, **more)

    monkeypatch.setattr(FakeCheckpoints, "take", noting)
    began = scene.house.clock.wall_ms()
    scene.run(edit("a.txt", "one", "uno"))
    before, after = asked
    assert before is None
    assert after <= began * 1_000_000
    assert after > 0
