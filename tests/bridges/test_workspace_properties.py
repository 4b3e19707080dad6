"""Whatever a message holds and whatever the person says: one event for each operation, in order, and nothing twice."""

import os
from collections import Counter
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from workspace_scene import Scene, create, delete, edit, make_machine, read, say, shell

from bascule.testing.house import House

FILES = {"a.txt": b"one\n", "data/1": b"1"}
# Operation, and the types of event that it may come to.
CHOICES = {
    "say": (say(), {"message"}),
    "read": (read("a.txt"), {"readFile"}),
    "read-missing": (read("missing"), {"readFile"}),
    "create": (create("new.txt"), {"createFile"}),
    "edit": (edit("a.txt", "one", "one"), {"editFile"}),
    "delete": (delete("missing"), {"deleteFile"}),
    "run": (shell("echo hi"), {"shell"}),
    "fail": (shell("make test"), {"shell"}),
    "ask": (shell("rm -rf data"), {"shell", "policyDenied"}),
    "deny": (shell("sudo id"), {"policyDenied"}),
    "invalid": ({"type": "readFile", "path": ".."}, {"error"}),
    "no-object": (7, {"error"}),
}
ANSWERS = st.sampled_from(["approved", "denied", "restart", "crash", "expire"])


@settings(max_examples=1_000 if os.environ.get("BASCULE_LONG") == "1" else 40, deadline=None)
@given(st.lists(st.sampled_from(sorted(CHOICES)), max_size=8), st.lists(ANSWERS, min_size=8, max_size=8), st.booleans())
def test_every_operation_has_one_event_of_its_own_and_is_executed_at_most_once(names, answers, detached):
    with House(machine=make_machine()) as house:
        scene = Scene(house, FILES)
        run = scene.run(*(CHOICES[name][0] for name in names), **({"waitMs": 60_000} if detached else {}))
        approved = 0
        for answer in answers:
            if run["status"] != "awaiting_approval":
                break
            asked = run["events"][-1]["operationId"]
            # So far: one event each, the last of them the question.
            assert [event["operationId"] for event in run["events"]] == [
                f"op-{n + 1}" for n in range(len(run["events"]))
            ]
            assert run["events"][-1]["type"] == "approvalRequired"
            match answer:
                case "approved" | "denied":
                    approved += answer == "approved"
                    run = scene.resume(run, answer)
                case "expire":
                    house.advance(16 * 60)
                    scene.until(partial(_moved_on, scene, run, asked), "the next question, or the end")
                    run = scene.show(run)
                case _:
                    house.restart(clean=answer == "restart")
                    run = scene.show(run)
        if run["status"] == "awaiting_approval":
            return
        assert run["status"] == "completed"
        assert [event["operationId"] for event in run["events"]] == [f"op-{n + 1}" for n in range(len(names))]
        assert all(event["type"] in CHOICES[name][1] for name, event in zip(names, run["events"], strict=True))
        ran = Counter(each.command.command for each in house.machine.ran)
        assert ran["rm -rf data"] == approved
        assert ran["echo hi"] == names.count("run")
        assert ran["sudo id"] == 0
        # What began was finished, and was told to the ledger as often as it happened.
        assert not house.effects.table.rows
        begun = [row for row in house.ledger() if row["outcome"] == "begun" and row["method"] == "workspace.shell"]
        assert len(begun) == ran.total()
        assert scene.faults() == []


def _moved_on(scene, run, asked):
    now = scene.show(run)
    return now["status"] == "completed" or (
        now["status"] == "awaiting_approval" and now["events"][-1]["operationId"] != asked
    )
