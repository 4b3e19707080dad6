"""Lists of runs over all spaces, page by page, and runs that are named without their space."""

import pytest
from workspace_scene import JERRY, Scene, create, make_machine, shell

from bascule.bridge_list import presets_of
from bascule.foundation.errors import Forbidden, NotFound, PolicyDenied
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.testing.house import House


@pytest.fixture
def scene():
    with House(machine=make_machine()) as house:
        yield Scene(house)


def runs(scene, **params):
    return [each["runId"] for each in scene.house.call("local", "runs.list", params)]


def second_space(scene):
    scene.machine.directory("/projects/other", {})
    return scene.house.call("agent:Spock", "spaces.open", {"path": "/projects/other"})["spaceId"]


def start_in(scene, space, who):
    params = {"spaceId": space, "protocolVersion": "1.0", "operations": [shell("echo hi")]}
    return scene.answer(scene.house.begin(who, "runs.start", params))["runId"]


def test_runs_of_all_spaces_are_one_list_with_pages(scene):
    other = second_space(scene)
    started = [
        start_in(scene, space, who) for space, who in [(scene.space, JERRY), (other, "agent:Spock")] for _ in range(3)
    ]
    newest = started[::-1]
    assert runs(scene) == newest
    assert runs(scene, limit=2) + runs(scene, limit=9, before=newest[1]) == newest
    assert runs(scene, principal="agent:Spock") == newest[:3]
    assert runs(scene, principal=JERRY, before=newest[4]) == newest[5:]
    assert runs(scene, spaceId=other, principal=JERRY) == []
    assert runs(scene, status="completed") == newest
    assert runs(scene, status="error") == []
    assert {each["spaceId"] for each in scene.house.call("local", "runs.list", {})} == {scene.space, other}
    with pytest.raises(NotFound, match="unknown run"):
        runs(scene, before="run_nobody")


def test_a_run_that_asks_or_works_is_listed_by_what_it_does_now(scene):
    process = scene.answer(scene.house.begin(JERRY, "processes.start", {"spaceId": scene.space, "command": "serve"}))
    asks = scene.run(shell("rm -rf data"), who="agent:Spock")
    (run,) = runs(scene, status="running")
    assert runs(scene, status="awaiting_approval") == [asks["runId"]]
    assert runs(scene, status="running", principal="agent:Spock") == []
    assert runs(scene, status="running", spaceId=scene.space, principal=JERRY) == [run]
    assert runs(scene, status="running", before=run) == []
    scene.resume(asks, "denied")
    scene.until(lambda: runs(scene, status="awaiting_approval") == [], "nobody asks")
    scene.answer(scene.house.begin(JERRY, "processes.stop", {"processId": process["processId"]}))
    assert runs(scene, status="running") == []
    assert runs(scene, status="cancelled") == [run]


def test_a_run_is_named_without_its_space_by_who_may(scene):
    done = scene.run(create("new.txt"))
    for method in ("runs.show", "runs.diff", "runs.wait"):
        pending = scene.house.begin(JERRY, method, {"runId": done["runId"]})
        assert scene.answer(pending)["runId"] == done["runId"]
        with pytest.raises(Forbidden):
            scene.house.call("agent:Spock", method, {"runId": done["runId"]})
    scene.answer(scene.house.begin(JERRY, "runs.undo", {"runId": done["runId"]}))
    assert "new.txt" not in scene.files


def test_a_run_of_another_space_than_the_one_that_is_named_is_not_found(scene):
    done = scene.run(create("new.txt"))
    other = second_space(scene)
    with pytest.raises(NotFound):
        scene.house.call(JERRY, "runs.show", {"runId": done["runId"], "spaceId": other})


def test_commands_of_all_spaces_are_one_list(scene):
    other = second_space(scene)
    for space, who in ((scene.space, JERRY), (other, "agent:Spock")):
        pending = scene.house.begin(who, "processes.start", {"spaceId": space, "command": "serve"})
        scene.answer(pending)
    found = scene.house.call("local", "processes.list", {})
    assert [each["spaceId"] for each in found] == [scene.space, other]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_a_rule_on_a_space_holds_for_a_run_that_is_named_without_it(guarded):
    rule = Rule(
        name="not-there",
        decision=Decision.DENY,
        reason="not in this space",
        principals=("agent:*",),
        methods=("runs.cancel", "processes.stop"),
        params={"spaceId": "spc_*"},
    )
    with House(machine=make_machine(), policy=Policy((*presets_of()["standard"], rule), "by space", "digest")) as house:
        scene = Scene(house)
        if not guarded:
            for name in ("runs.cancel", "processes.stop"):
                house.gate.methods[name] = house.gate.methods[name]._replace(complete=None)
        asks = scene.run(shell("rm -rf data"))
        process = scene.answer(house.begin(JERRY, "processes.start", {"spaceId": scene.space, "command": "serve"}))
        for method, params in [
            ("runs.cancel", {"runId": asks["runId"]}),
            ("processes.stop", {"processId": process["processId"]}),
        ]:
            if guarded:
                with pytest.raises(PolicyDenied, match="not in this space"):
                    scene.answer(house.begin(JERRY, method, params))
            else:
                scene.answer(house.begin(JERRY, method, params))
