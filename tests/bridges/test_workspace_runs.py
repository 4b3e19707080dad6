"""A run: operations in order, one event for each, and what the ledger says about them."""

import base64

import pytest
from workspace_scene import JERRY, PATH, Scene, create, delete, edit, make_machine, read, say, shell

from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, Overloaded
from bascule.testing.house import House
from bascule.workspace.limits import WorkspaceLimits
from patience import PATIENCE


@pytest.fixture
def scene():
    with House(machine=make_machine()) as house:
        made = Scene(house, {"a.txt": b"one\ntwo\n", "bin": b"\xff\xfe"})
        yield made
        assert made.faults() == []


def test_all_six_operations_are_executed_in_order_with_one_event_each(scene):
    run = scene.run(
        say(id="m"),
        create("src/x.txt", "hey", id="c"),
        read("a.txt", id="r"),
        edit("a.txt", "one", "uno", id="e"),
        delete("src/x.txt", id="d"),
        shell("echo hi", id="s"),
    )
    assert run["status"] == "completed"
    assert [(event["type"], event["operationId"]) for event in run["events"]] == [
        ("message", "m"),
        ("createFile", "c"),
        ("readFile", "r"),
        ("editFile", "e"),
        ("deleteFile", "d"),
        ("shell", "s"),
    ]
    assert all(event["success"] for event in run["events"])
    assert scene.files == {"a.txt": b"uno\ntwo\n", "bin": b"\xff\xfe"}


def test_an_operation_that_fails_does_not_stop_the_rest_and_the_run_is_completed(scene):
    run = scene.run(read("nope"), shell("make test"), edit("a.txt", "three", "x"), create("a.txt"), create("b.txt"))
    assert run["status"] == "completed"
    assert [event["success"] for event in run["events"]] == [False, False, False, False, True]
    assert run["events"][3]["error"] == "File already exists"
    assert run["events"][1]["exitCode"] == 2
    assert scene.files["b.txt"] == b"new\n"


def test_operations_without_an_id_are_numbered_from_one_and_never_take_anothers_id(scene):
    run = scene.run(say(), say(id="op-1"), say(id="x"), say())
    assert [event["operationId"] for event in run["events"]] == ["op-1.1", "op-1", "x", "op-4"]


def test_an_empty_message_is_a_run_that_did_nothing(scene):
    assert scene.run() | {"runId": ""} == {"protocolVersion": "1.0", "runId": "", "status": "completed", "events": []}


def test_a_bad_operation_has_its_event_and_the_others_run(scene):
    run = scene.run(create("ok.txt"), {"type": "createFile", "path": "../x", "content": ""}, 7, say())
    kinds = [(event["type"], event.get("category")) for event in run["events"]]
    assert kinds == [("createFile", None), ("error", "validation"), ("error", "validation"), ("message", None)]
    assert run["events"][1]["message"].startswith("operations[1].path: the path contains `..`")
    assert run["events"][2]["operationId"] == "op-3"
    assert run["status"] == "completed"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"operations": []}, "protocolVersion"),
        ({"protocolVersion": "2.0", "operations": []}, "2.0"),
        ({"protocolVersion": "1.0"}, "operations"),
        ({"protocolVersion": "1.0", "operations": {"type": "message"}}, "an object"),
        ({"protocolVersion": "1.0", "operations": [say(id="x"), say(id="x")]}, "operations[1].id"),
    ],
)
def test_a_bad_message_is_answered_in_the_protocols_form_and_nothing_of_it_is_kept(scene, message, sentence):
    before = len(scene.records())
    run = scene.house.call(JERRY, "runs.start", {"spaceId": scene.space, **message})
    (event,) = run["events"]
    assert (run["status"], event["type"], event["category"]) == ("error", "error", "validation")
    assert sentence in event["message"]
    assert len(scene.records()) == before
    with pytest.raises(NotFound):
        scene.show(run)


def test_what_is_denied_is_told_with_what_to_change_is_recorded_and_never_started(scene):
    run = scene.run(shell("sudo make install"), say())
    denied = run["events"][0]
    assert denied["type"] == "policyDenied"
    assert denied["reason"] == "Command 'sudo' is blocked"
    assert denied["suggestion"] == "Remove sudo from command"
    assert run["status"] == "completed"
    assert scene.machine.ran == []
    assert [row["outcome"] for row in scene.records("workspace.shell")] == ["policy_denied"]


def test_the_beginning_is_recorded_before_the_effect_and_the_end_before_the_answer(scene):
    begun = scene.house.effects.table.rows
    seen = []
    scene.machine.command("look", does=lambda _files: seen.append(len(begun)))
    scene.run(shell("look"))
    assert seen == [1]
    assert [row["outcome"] for row in scene.records("workspace.shell")] == ["begun", "ok"]
    assert len(begun) == 0


def test_messages_and_reads_leave_no_record_of_their_own(scene):
    scene.run(say(), read("a.txt"), read("nope"))
    methods = [row["method"] for row in scene.records()]
    assert methods == ["spaces.open", "runs.start", "runs.end"]


def test_neither_content_nor_command_reaches_the_ledger_or_the_log(scene):
    scene.machine.command("echo s3cret", stdout="s3cret\n")
    scene.run(create("k.txt", "s3cret"), edit("k.txt", "s3cret", "s3cret2"), shell("echo s3cret"), read("k.txt"))
    assert "s3cret" not in repr(scene.records())
    assert "s3cret" not in repr(scene.house.log)


def test_files_are_read_as_text_or_base64_and_sizes_are_bytes(scene):
    scene.files["ä.txt"] = "grün".encode()
    text = scene.event(read("ä.txt"))
    assert (text["content"], text["encoding"], text["size"]) == ("grün", "utf-8", 5)
    binary = scene.event(read("bin", encoding="base64"))
    assert (base64.b64decode(binary["content"]), binary["size"]) == (b"\xff\xfe", 2)
    failed = scene.event(read("bin"))
    assert failed["success"] is False
    assert "base64" in failed["error"]


def test_base64_content_is_written_as_bytes(scene):
    event = scene.event(create("b.bin", base64.b64encode(b"\x00\xff").decode(), encoding="base64"))
    assert event["bytesWritten"] == 2
    assert scene.files["b.bin"] == b"\x00\xff"


def test_a_command_that_runs_too_long_is_a_shell_event_with_124(scene):
    event = scene.event(shell("serve", timeout=PATIENCE))
    assert (event["success"], event["timedOut"], event["exitCode"]) == (False, True, 124)
    # What it had said is kept.
    assert event["stdout"] == "listening\n"


def test_a_missing_sandbox_is_an_execution_error_with_its_remedy_and_files_still_work(scene):
    scene.machine.problem = "bubblewrap is not installed: apt install bubblewrap"
    run = scene.run(shell("echo hi"), create("x.txt"))
    assert (run["events"][0]["type"], run["events"][0]["category"]) == ("error", "execution")
    assert "apt install bubblewrap" in run["events"][0]["message"]
    assert run["events"][1]["success"]


def test_a_full_disk_is_a_system_error(scene):
    scene.machine.disk_full = True
    event = scene.event(create("x.txt"))
    assert (event["type"], event["category"], event["operationId"]) == ("error", "system", "op-1")
    assert "No space left" in event["message"]


def test_without_a_sandbox_every_shell_event_says_so():
    machine = make_machine()
    machine.sandbox = "none"
    with House(machine=machine) as house:
        scene = Scene(house)
        assert scene.event(shell("echo hi"))["sandbox"] == "none"
        assert scene.event(shell("make test"))["sandbox"] == "none"
        assert house.call(JERRY, "spaces.show", {"spaceId": scene.space})["sandbox"] == "none"


def test_with_a_sandbox_no_event_speaks_of_it(scene):
    assert "sandbox" not in scene.event(shell("echo hi"))


def test_a_directory_that_is_gone_is_an_execution_error(scene):
    scene.house.restart()
    del scene.machine.directories[PATH]
    event = scene.event(create("x.txt"))
    assert (event["type"], event["category"]) == ("error", "execution")
    assert "does not exist" in event["message"]


def test_events_over_the_limit_are_said_not_cut():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_event_bytes=2_500)) as house:
        scene = Scene(house, {"big": b"x" * 1_500, "small": b"y"})
        house.machine.command("talk", stdout="z" * 3_000)
        run = scene.run(read("big"), read("big"), read("small"), shell("talk"))
        assert [event["success"] for event in run["events"]] == [True, False, True, True]
        assert "a run of its own" in run["events"][1]["error"]
        talk = run["events"][3]
        assert (talk["stdout"], talk["truncated"]) == ("", True)
        logs = scene.answer(house.begin(JERRY, "processes.logs", {"processId": talk["processId"]}))
        assert logs["text"] == "z" * 3_000


# -- whose run it is -----------------------------------------------------------------------------------


def test_only_the_starter_of_a_run_and_the_person_see_its_answer(scene):
    run = scene.run(read("a.txt"))
    for who in ("agent:Tom", "local"):
        with pytest.raises(Forbidden):
            scene.call("runs.show", run, who=who)
    assert scene.call("runs.show", run, who="person") == run


def test_a_run_is_found_in_its_own_space_only(scene):
    run = scene.run(say())
    scene.machine.directory("/projects/other")
    other = scene.house.call(JERRY, "spaces.open", {"path": "/projects/other"})["spaceId"]
    with pytest.raises(NotFound):
        scene.house.call(JERRY, "runs.show", {"spaceId": other, "runId": run["runId"]})


def test_the_same_directory_is_the_same_space_for_everybody(scene):
    again = scene.house.call("local", "spaces.open", {"path": PATH, "name": "mine"})
    assert again["spaceId"] == scene.space
    assert again["openedBy"] == JERRY
    assert len(scene.records("spaces.open")) == 1


def test_a_space_is_an_absolute_directory_that_exists(scene):
    with pytest.raises(InvalidRequest, match="absolute"):
        scene.house.call(JERRY, "spaces.open", {"path": "work"})
    with pytest.raises(Conflict, match="does not exist"):
        scene.house.call(JERRY, "spaces.open", {"path": "/projects/nothing"})


def test_closing_a_space_ends_its_commands_forgets_its_runs_and_leaves_its_files(scene):
    held = scene.begin(shell("serve"))
    command = scene.running("serve")
    queued = scene.begin(create("never.txt"))
    paused = scene.run(shell("rm -rf x"), who="agent:Tom", waitMs=0)
    closed = scene.answer(scene.house.begin(JERRY, "spaces.close", {"spaceId": scene.space}))
    assert closed["spaceId"] == scene.space
    assert not command.running
    assert scene.answer(held)["status"] == scene.answer(queued)["status"] == "error"
    assert paused["runId"] not in scene.house.workspace.runs.live
    assert scene.house.call("local", "approvals.list") == []
    assert scene.house.call(JERRY, "spaces.list") == []
    assert scene.files["a.txt"] == b"one\ntwo\n"
    assert scene.house.call(JERRY, "runs.list") == []
    with pytest.raises(NotFound):
        scene.begin(say())


# -- limits --------------------------------------------------------------------------------------------


def test_runs_of_one_principal_are_limited_and_others_are_not_hindered():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_runs=2)) as house:
        scene = Scene(house)
        held = [scene.begin(shell("serve")) for _ in range(2)]
        with pytest.raises(Overloaded, match="2 runs under way"):
            scene.begin(say())
        scene.machine.directory("/projects/tom")
        scene.space = house.call("agent:Tom", "spaces.open", {"path": "/projects/tom"})["spaceId"]
        assert scene.run(say(), who="agent:Tom")["status"] == "completed"
        for each in held:
            each.cancel()


def test_the_queue_of_a_space_is_limited():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_queued_runs=1)) as house:
        scene = Scene(house)
        held = [scene.begin(shell("serve")) for _ in range(2)]
        scene.running("serve")
        with pytest.raises(Overloaded, match="wait for their turn"):
            scene.begin(create("x"), who="agent:Tom")
        for each in held:
            each.cancel()


def test_old_runs_make_room_for_new_ones():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_runs=3)) as house:
        scene = Scene(house)
        runs = [scene.run(create(f"{n}.txt")) for n in range(5)]
        kept = [view["runId"] for view in house.call(JERRY, "runs.list", {"spaceId": scene.space})]
        assert kept == [run["runId"] for run in reversed(runs[2:])]
        with pytest.raises(NotFound):
            scene.show(runs[0])
        assert len(house.workspace.book.table.rows) == 2 * 3


def test_events_of_old_runs_make_room_when_all_together_are_too_large():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_kept_event_bytes=3_000)) as house:
        scene = Scene(house, {"big": b"x" * 1_500})
        first, second = scene.run(read("big")), scene.run(read("big"))
        assert scene.show(first)["events"] == []
        assert scene.show(second) == second
        assert house.workspace.book.event_bytes <= 3_000


def test_a_space_more_than_are_allowed_is_refused():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_spaces=1)) as house:
        scene = Scene(house)
        scene.machine.directory("/projects/other")
        with pytest.raises(Overloaded, match="1 spaces"):
            scene.answer(house.begin(JERRY, "spaces.open", {"path": "/projects/other"}))
