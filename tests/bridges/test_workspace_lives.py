"""Who stays with a run and who leaves it, what ends it early, and what a crash leaves of it."""

import time

import pytest
from workspace_scene import JERRY, PATH, Scene, create, make_machine, read, say, shell

from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.foundation.errors import Forbidden, NotFound, Overloaded
from bascule.testing.house import House
from bascule.testing.stores import HeldStore
from bascule.workspace import runner
from bascule.workspace.limits import WorkspaceLimits

SERVE = shell("serve", id="serve")


@pytest.fixture
def scene():
    with House(machine=make_machine()) as house:
        made = Scene(house, {"a.txt": b"one\n"})
        yield made
        assert made.faults() == []


def messages(run):
    return [event.get("message") for event in run["events"]]


@pytest.mark.parametrize("method", ["runs.list", "processes.list"])
def test_a_space_that_is_not_there_has_no_empty_list(scene, method):
    with pytest.raises(NotFound, match="unknown space spc_nowhere"):
        scene.house.call(JERRY, method, {"spaceId": "spc_nowhere"})
    assert scene.house.call(JERRY, method, {"spaceId": scene.space}) == []


# -- who waits ------------------------------------------------------------------------------------------


def test_a_caller_that_leaves_takes_its_run_along_and_the_record_stays(scene):
    held = scene.begin(create("x.txt"), SERVE, create("never.txt"))
    command = scene.running("serve")
    held.cancel()
    scene.until(lambda: not scene.house.workspace.runs.live, "the end")
    assert not command.running
    assert "never.txt" not in scene.files
    (end,) = scene.records("runs.end")
    assert end["outcome"] == "cancelled"
    assert [row["outcome"] for row in scene.records("workspace.shell")] == ["begun", "failed"]
    run = scene.show({"runId": end["subject"]})
    assert [event["type"] for event in run["events"]] == ["createFile", "shell", "error"]
    assert run["events"][1]["endedBy"] == "cancelled"
    assert run["events"][2]["message"] == "not run: cancelled: the caller that started it left"


def test_with_waitms_the_run_lives_by_itself_and_is_waited_for_in_slices(scene):
    run = scene.run(SERVE, waitMs=0)
    assert run["status"] == "running"
    command = scene.running("serve")
    held = scene.house.begin(JERRY, "runs.wait", {"spaceId": scene.space, "runId": run["runId"], "waitMs": 60_000})
    held.cancel()
    assert command.running
    assert scene.call("runs.wait", run, waitMs=1)["status"] == "running"
    scene.say(command.end)
    assert scene.call("runs.wait", run, waitMs=60_000)["status"] == "completed"


def test_a_detached_run_goes_on_when_its_caller_leaves(scene):
    held = scene.begin(SERVE, waitMs=60_000)
    command = scene.running("serve")
    held.cancel()
    scene.say(command.end)
    scene.until(lambda: not scene.house.workspace.runs.live, "the end")
    assert scene.records("runs.end")[0]["outcome"] == "completed"


# -- turns ------------------------------------------------------------------------------------------------


def test_runs_that_change_a_space_take_turns_and_reading_does_not_wait(scene):
    first = scene.begin(SERVE)
    command = scene.running("serve")
    second = scene.begin(create("x.txt"), who="agent:Tom")
    assert scene.run(read("a.txt"), say())["status"] == "completed"
    assert not second.done
    assert "x.txt" not in scene.files
    scene.say(command.end)
    assert scene.answer(first)["status"] == "completed"
    assert scene.answer(second)["status"] == "completed"


def test_a_run_cancelled_in_the_queue_gives_up_its_place(scene):
    first = scene.begin(SERVE)
    command = scene.running("serve")
    second, third = scene.begin(create("x.txt")), scene.begin(create("y.txt"))
    second.cancel()
    scene.say(command.end)
    assert scene.answer(first)["status"] == scene.answer(third)["status"] == "completed"
    assert set(scene.files) == {"a.txt", "y.txt"}


# -- ended early ------------------------------------------------------------------------------------------


def test_a_cancelled_run_says_of_every_operation_what_became_of_it(scene):
    held = scene.begin(create("x.txt"), SERVE, say(id="m"), {"type": "nonsense"})
    command = scene.running("serve")
    run = {"runId": next(iter(scene.house.workspace.runs.live))}
    cancelled = scene.call("runs.cancel", run, reason="enough")
    assert not command.running
    assert cancelled == scene.answer(held)
    assert cancelled["status"] == "error"
    assert scene.view(run)["status"] == "cancelled"
    assert [event["operationId"] for event in cancelled["events"]] == ["op-1", "serve", "m", "op-4"]
    assert messages(cancelled)[2:] == ["not run: cancelled: enough"] * 2


def test_cancelling_what_is_over_changes_nothing(scene):
    run = scene.run(create("x.txt"))
    before = len(scene.records())
    assert scene.call("runs.cancel", run) == run
    assert len(scene.records()) == before


def test_only_the_starter_of_a_run_and_the_person_cancel_it(scene):
    scene.begin(SERVE, waitMs=0)
    command = scene.running("serve")
    run = {"runId": next(iter(scene.house.workspace.runs.live))}
    with pytest.raises(Forbidden):
        scene.call("runs.cancel", run, who="agent:Tom")
    assert command.running
    scene.call("runs.cancel", run, who="person")
    assert not command.running


def test_a_run_that_works_too_long_ends_with_category_timeout():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_run_ms=50)) as house:
        scene = Scene(house)
        run = scene.run(SERVE, say())
        assert run["status"] == "error"
        assert run["events"][0]["endedBy"] == "cancelled"
        assert (run["events"][1]["category"], "longer than" in run["events"][1]["message"]) == ("timeout", True)


def test_time_spent_waiting_for_the_person_is_not_time_worked():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_run_ms=60_000)) as house:
        scene = Scene(house, {"data/x": b""})
        run = scene.run(shell("rm -rf data"))
        house.advance(600)
        assert scene.resume(run)["status"] == "completed"


def test_a_stopping_daemon_answers_waiting_callers_and_leaves_no_command(scene):
    held = scene.begin(SERVE, create("x.txt"))
    command = scene.running("serve")
    scene.house.restart()
    assert not command.running
    run = scene.answer(held)
    assert run["status"] == "error"
    assert messages(run)[1] == "not run: the daemon was stopped"
    assert scene.show(run) == run


# -- a crash ----------------------------------------------------------------------------------------------


def test_after_a_crash_what_had_begun_may_have_run_and_the_rest_has_not_and_nothing_runs_again(scene):
    scene.begin(create("x.txt"), say(id="m"), SERVE, create("y.txt", id="y"), {"type": "bad"})
    scene.running("serve")
    (run_id,) = scene.house.workspace.runs.live
    scene.house.restart(clean=False)
    run = scene.show({"runId": run_id})
    assert run["status"] == "error"
    assert [event["operationId"] for event in run["events"]] == ["op-1", "m", "serve", "y", "op-5"]
    assert [event["type"] for event in run["events"]] == ["createFile", "message", "error", "error", "error"]
    assert {event["category"] for event in run["events"][2:]} == {"execution"}
    assert messages(run)[2].startswith("unknown: may have run")
    assert messages(run)[3:] == ["not run: the daemon ended"] * 2
    assert scene.view(run)["status"] == "unknown"
    assert len(scene.machine.ran) == 1
    assert "y.txt" not in scene.files
    assert [row["outcome"] for row in scene.records("workspace.shell")] == ["begun", "unknown"]


def test_a_run_with_nothing_begun_is_an_error_after_a_crash(scene):
    first = scene.begin(SERVE)
    scene.running("serve")
    scene.begin(create("x.txt"))
    queued = list(scene.house.workspace.runs.live)[1]
    scene.house.restart(clean=False)
    assert scene.view({"runId": queued})["status"] == "error"
    assert messages(scene.show({"runId": queued})) == ["not run: the daemon ended"]
    assert not first.done


def test_ended_runs_are_the_same_after_a_restart(scene):
    run = scene.run(create("x.txt"), read("a.txt"), shell("echo hi"))
    scene.house.restart(clean=False)
    assert scene.show(run) == run
    assert scene.view(run)["undoable"] is True


# -- a disk that is full ---------------------------------------------------------------------------------


def test_what_cannot_be_recorded_is_not_done():
    store = HeldStore(hold=False)
    with House(machine=make_machine(), store=store) as house:
        scene = Scene(house)
        house.machine.command("fill", does=lambda _files: setattr(store, "hold", True))
        held = scene.begin(shell("fill"), create("x.txt"), create("y.txt"))
        scene.until(lambda: store.waiting, "the next write")
        scene.say(store.fail)
        scene.until(lambda: store.waiting, "the end's own write")
        scene.say(store.fail)
        run = scene.answer(held)
        assert scene.files == {}
        assert run["status"] == "error"
        assert [event.get("category") for event in run["events"]] == [None, "system", "system"]
        # The disk has room again, and what was told is stored by the sweep.
        store.hold = False
        house.advance(61)
        assert scene.view(run)["status"] == "error"


def test_the_end_of_an_operation_and_the_beginning_of_the_next_are_one_write():
    store = HeldStore(hold=False)
    with House(machine=make_machine(), store=store) as house:
        scene = Scene(house)
        before = len(store.batches)
        scene.run(*(create(f"{n}.txt") for n in range(10)))
        # The start, a beginning for each with the end of the one before, and the end of the run.
        assert len(store.batches) - before == 12


# -- following --------------------------------------------------------------------------------------------


def follow(scene, run, since=0):
    return scene.house.call(JERRY, "runs.stream", {"spaceId": scene.space, "runId": run["runId"], "since": since})


def test_a_run_is_followed_as_it_happens(scene):
    run = scene.run(create("x.txt"), SERVE, waitMs=0)
    command = scene.running("serve")
    stream = follow(scene, run)
    seen = [item["kind"] for item in stream.items()]
    assert seen == ["event", "stdout"]
    scene.say(lambda: command.say("warning\n", "stderr"))
    (item,) = stream.items()
    assert (item["kind"], item["text"], item["operationId"]) == ("stderr", "warning\n", "serve")
    scene.say(command.end)
    scene.until(lambda: stream.ended, "the end")
    last = stream.items()
    assert [(item["kind"], item.get("status")) for item in last] == [("event", None), ("status", "completed")]
    assert [item["seq"] for item in last] == [4, 5]


def test_a_reader_that_comes_back_gets_what_came_after_its_last_item(scene):
    run = scene.run(SERVE, waitMs=0)
    command = scene.running("serve")
    scene.say(lambda: [command.say(f"{n}\n") for n in range(5)])
    assert [item["text"] for item in follow(scene, run, since=4).items()] == ["3\n", "4\n"]
    scene.say(command.end)
    scene.until(lambda: not scene.house.workspace.runs.live, "the end")
    again = follow(scene, run, since=6)
    assert [item["kind"] for item in again.items()] == ["event", "status"]
    assert again.ended


def test_half_a_character_waits_for_its_other_half(scene):
    run = scene.run(SERVE, waitMs=0)
    command = scene.running("serve")
    stream = follow(scene, run)
    stream.items()
    letter = "ü".encode()
    scene.say(lambda: command._on_output("stdout", letter[:1]))
    assert stream.items() == []
    scene.say(lambda: command._on_output("stdout", letter[1:]))
    assert stream.items()[0]["text"] == "ü"
    scene.say(command.end)


def test_a_slow_reader_is_told_how_much_it_missed_and_memory_is_bounded(scene):
    run = scene.run(SERVE, waitMs=0)
    command = scene.running("serve")
    stream = follow(scene, run)
    scene.say(lambda: [command._on_output("stdout", b"x" * 65_536) for _ in range(200)])
    feed = scene.house.workspace.runs.live[run["runId"]].feed
    assert feed._bytes <= 2 * 1024 * 1024
    got, missed = 0, 0
    while True:
        items, dropped = stream.stream.drain()
        got, missed = got + len(items), missed + dropped
        scene.house.run(lambda: None)
        if not items:
            break
    assert missed > 0
    assert got + missed == 201
    scene.say(command.end)


def test_a_run_of_an_earlier_life_is_told_again_from_what_is_kept(scene):
    run = scene.run(create("x.txt"), shell("echo hi"))
    scene.house.restart()
    stream = follow(scene, run)
    assert [item["kind"] for item in stream.items()] == ["event", "event", "status"]
    assert stream.ended
    # Who had followed it before the restart hears only how it ended, with a number it has not seen.
    (end,) = follow(scene, run, since=50).items()
    assert (end["kind"], end["seq"]) == ("status", 51)


def test_the_question_of_a_paused_run_is_an_event_of_its_stream_and_the_stream_goes_on(scene):
    run = scene.run(shell("rm -rf data"), say())
    stream = follow(scene, run)
    assert [(item["kind"], item.get("status")) for item in stream.items()] == [
        ("event", None),
        ("status", "awaiting_approval"),
    ]
    scene.resume(run)
    scene.until(lambda: stream.ended, "the end")
    assert [item["kind"] for item in stream.items()] == ["status", "event", "event", "status"]


# -- what a run may answer -----------------------------------------------------------------------------------


def test_over_the_link_a_run_answers_what_fits_into_a_frame(scene):
    budget = scene.house.workspace.runs._event_budget
    assert budget("link") < MAX_LINK_FRAME_BYTES < budget("tcp")


def test_the_events_of_a_long_run_are_kept_in_one_row_once_it_is_over(scene):
    run = scene.run(*(create(f"{n}.txt") for n in range(30)))
    rows = [key for key in scene.house.workspace.book.table.rows if key.startswith(run["runId"])]
    assert len(rows) == 2
    scene.house.restart(clean=False)
    assert scene.show(run) == run


def test_a_directory_put_in_place_of_the_old_one_is_worked_in_after_opening_it_again(scene):
    scene.run(create("x.txt"))
    fresh = scene.machine.directory(PATH, {"b.txt": b"new"})
    scene.house.call(JERRY, "spaces.open", {"path": PATH})
    scene.run(create("y.txt"))
    assert set(fresh) == {"b.txt", "y.txt"}


def test_other_agents_see_which_program_runs_and_not_its_arguments(scene):
    scene.machine.command("serve --token s3cret", ends=False)
    scene.run(shell("serve --token s3cret"), waitMs=0)
    scene.running("serve --token s3cret")
    seen = {who: scene.house.call(who, "processes.list")[0]["command"] for who in (JERRY, "agent:Tom", "person")}
    assert seen == {JERRY: "serve --token s3cret", "agent:Tom": "serve", "person": "serve --token s3cret"}


def test_waits_of_one_principal_are_limited_before_anything_is_started():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_followers=1)) as house:
        scene = Scene(house)
        scene.begin(SERVE)
        command = scene.running("serve")
        with pytest.raises(Overloaded, match="waits for 1 runs"):
            scene.begin(say())
        assert len(house.call(JERRY, "runs.list")) == 1
        # Ending it is never refused for that.
        run = {"runId": next(iter(house.workspace.runs.live))}
        assert scene.call("runs.cancel", run)["status"] == "error"
        assert not command.running


@pytest.mark.parametrize(("seconds", "shared"), [(0.0, True), (60.0, False)], ids=["shared", "the control"])
def test_a_long_message_leaves_the_loop_to_others_and_is_answered_whole(scene, monkeypatch, seconds, shared):
    monkeypatch.setattr(runner, "MAX_TURN_SECONDS", seconds)
    turns = []

    def tick():
        turns.append(1)
        scene.house._loop.call_soon(tick)

    scene.say(tick)
    before = len(turns)
    run = scene.run(*[shell("sudo id")] * 300, {"type": "nonsense"})
    assert len(run["events"]) == 301
    assert run["events"][300]["message"].startswith("operations[300].type")
    # Nothing of it is waited for, and still the loop turns for everybody else.
    assert (len(turns) - before > 300) is shared


def test_a_fault_in_the_middle_is_reported_by_an_id_recorded_and_the_rest_goes_on():
    with House(machine=make_machine()) as house:
        scene = Scene(house)

        def fail(_files):
            raise RuntimeError("on purpose")

        house.machine.command("boom", does=fail)
        run = scene.run(shell("boom"), create("x.txt"))
        assert (run["events"][0]["category"], run["events"][0]["message"][:14]) == ("system", "internal error")
        assert "on purpose" not in str(run)
        assert run["events"][1]["success"]
        assert [row["outcome"] for row in scene.records("workspace.shell")] == ["begun", "internal"]
        assert len(scene.faults()) == 1
        assert not house.effects.table.rows


def test_the_ledger_says_how_long_a_run_worked_pauses_apart(scene):
    """It once said 0 of every run: the time was added when the record was written already."""
    began = time.monotonic()
    pending = scene.begin(shell("serve"), shell("rm -rf data"))
    command = scene.running("serve")
    running = time.monotonic()
    scene.until(lambda: time.monotonic() - running > 0.02, "a moment of work")
    scene.say(command.end)
    run = scene.answer(pending)
    assert run["status"] == "awaiting_approval"
    # The pause is on disk, and what it worked so far with it.
    scene.house.restart(clean=False)
    scene.resume(run)
    (ended,) = scene.records("runs.end")
    assert 20 <= ended["details"]["ms"] <= 1_000 * (time.monotonic() - began)
