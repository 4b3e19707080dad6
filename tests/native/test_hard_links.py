"""Files with several names: what an undo brings back, what it says of the rest; it never writes through a name."""

import os
import subprocess

import pytest

from native_scene import snapshot
from undo_of import left_alone


def are_one(*paths):
    return len({(os.stat(path).st_dev, os.stat(path).st_ino) for path in paths}) == 1


@pytest.fixture
def outside(scene):
    """A file of the home."""
    file = scene.root.parent / "outside.txt"
    file.write_text("before\n")
    return file


def test_what_was_written_through_a_link_comes_back_here_and_the_undo_says_that_it_does_not_elsewhere(scene, outside):
    os.link(outside, scene.root / "named")
    was = snapshot(scene.root)
    answer = scene.run("echo after > named")
    assert outside.read_text() == "after\n"
    rehearsed = scene.wire.call("runs.undo", {"runId": answer["runId"], "dryRun": True})
    undone = scene.undo(answer["runId"])
    assert left_alone(rehearsed) == left_alone(undone)
    assert snapshot(scene.root) == was
    assert "other names" in left_alone(undone)["named"]
    assert outside.read_text() == "after\n"


def test_an_undo_writes_nothing_through_a_link_that_the_call_has_put_there(scene, outside):
    """Else a project could choose what is written over any file of the user."""
    (scene.root / "bait").write_text("what the attacker wants in it\n")
    answer = scene.run(f"ln -f {outside} bait")
    assert are_one(outside, scene.root / "bait")
    scene.undo(answer["runId"])
    assert (scene.root / "bait").read_text() == "what the attacker wants in it\n"
    assert outside.read_text() == "before\n"
    assert not are_one(outside, scene.root / "bait")


def test_a_link_put_there_between_the_call_and_its_undo_is_later_work(scene, outside):
    answer = scene.run("echo changed > src/m1.py")
    (scene.root / "src" / "m1.py").unlink()
    os.link(outside, scene.root / "src" / "m1.py")
    undone = scene.undo(answer["runId"])
    assert (undone["changes"], left_alone(undone)) == ([], {"src/m1.py": "was changed since"})
    assert outside.read_text() == "before\n"
    assert are_one(outside, scene.root / "src" / "m1.py")


def test_two_names_in_the_project_both_come_back_and_nothing_is_said(scene):
    os.link(scene.root / "src" / "m1.py", scene.root / "src" / "second.py")
    was = snapshot(scene.root)
    answer = scene.run("echo after > src/m1.py")
    assert (scene.root / "src" / "second.py").read_text() == "after\n"
    undone = scene.undo(answer["runId"])
    assert snapshot(scene.root) == was
    assert left_alone(undone) == {}


def test_a_deleted_name_comes_back_with_its_text(scene, outside):
    os.link(outside, scene.root / "named")
    was = snapshot(scene.root)
    answer = scene.run("rm named")
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was
    assert outside.read_text() == "before\n"


@pytest.mark.parametrize("then", ["", "sed -i s/work/WORK/ l"], ids=["linked still", "linked no more"])
def test_work_written_through_another_name_does_not_count_for_the_next_call_that_looks(scene, then):
    """U4: only the directory of the name that was used is reported as changed."""
    scene.run("ln src/m1.py l")
    subprocess.run(["sh", "-c", f"echo work >> l; {then}"], cwd=scene.root, check=True)
    was = snapshot(scene.root)
    answer = scene.run("touch src/made; echo more >> src/m2.py")
    undone = scene.undo(answer["runId"])
    assert (scene.root / "src" / "m1.py").read_text() == "changed = True\nwork\n"
    assert snapshot(scene.root) == was
    assert left_alone(undone) == {}


def test_work_written_through_a_name_outside_does_not_count_for_the_next_call_that_looks(scene, outside):
    os.link(outside, scene.root / "src" / "named")
    scene.run("echo x > new")
    outside.write_text("work\n")
    answer = scene.run("touch src/made")
    scene.undo(answer["runId"])
    assert outside.read_text() == "work\n"
    assert (scene.root / "src" / "named").read_text() == "work\n"


def test_work_written_through_another_name_is_not_lost_by_an_undo_of_what_was_there(scene):
    scene.run("ln src/m1.py l")
    answer = scene.run("echo call > src/m1.py; echo call > src/m2.py")
    with open(scene.root / "l", "a") as file:
        file.write("work\n")
    undone = scene.undo(answer["runId"])
    assert (scene.root / "src" / "m1.py").read_text() == "call\nwork\n"
    assert left_alone(undone)["src/m1.py"] == "was changed since"
    assert [each["path"] for each in undone["changes"]] == ["src/m2.py"]
