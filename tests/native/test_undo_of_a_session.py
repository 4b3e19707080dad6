"""Two sessions in one project, and a person who takes one of them back step by step, as the answers say."""

import re

import pytest

from native_scene import Scene, snapshot
from typed_commands import bascule

LINES = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
SAYS_HOW = re.compile(r"to take this undo back: bascule (.*)")


@pytest.fixture
def codex(scene):
    """A second session beside that of Claude Code."""
    made = Scene(scene.daemon, scene.root, client="codex", session="session-2")
    made.note("SessionStart")
    yield made
    made.close()


def typed(scene, *words):
    return bascule(scene.daemon.state_dir, scene.root, *words)


def test_what_an_undo_left_alone_is_merged_by_the_next_one_that_may(scene, codex):
    file = scene.root / "lines"
    file.write_text(LINES)
    codex.run("sed -i s/six/SIX/ lines; echo x > new")
    scene.run("sed -i s/two/TWO/ lines")
    first = typed(scene, "undo", "--session", "codex")
    assert first.code == 0, first
    assert re.search(r"left alone lines: was changed later by run_\w+ \(claude: ", first.errors), first
    assert not (scene.root / "new").exists()
    # Not all of it is taken back yet.
    second = typed(scene, "undo", "--session", "codex", "--merge")
    assert second.code == 0, second
    assert file.read_text() == LINES.replace("two", "TWO")
    assert not (scene.root / "new").exists()


def test_what_an_answer_names_takes_it_back(scene, codex):
    """Each answer's own words are typed: after the undo, after its redo, and after the undo of that."""
    codex.run("rm -rf src")
    states = [snapshot(scene.root)]
    answer = typed(scene, "undo", "--session", "codex")
    states.append(snapshot(scene.root))
    assert states[0] != states[1]
    for number in range(4):
        assert answer.code == 0, answer
        (words,) = SAYS_HOW.findall(answer.out + answer.errors)
        answer = typed(scene, *words.split())
        assert snapshot(scene.root) == states[number % 2], (words, answer)


def test_what_a_redo_could_bring_back_only_in_part_can_be_taken_back_again(scene, codex):
    was = snapshot(scene.root)
    codex.run("sed -i s/value/CODEX/ src/m5.py; echo x > new")
    assert typed(scene, "undo", "--session", "codex").code == 0
    (scene.root / "src" / "m5.py").write_text("a person's\n")
    redone = typed(scene, "redo")
    assert "left alone src/m5.py" in redone.errors, redone
    assert (scene.root / "new").exists()
    assert typed(scene, "undo", "--session", "codex").code == 0
    (scene.root / "src" / "m5.py").write_text("value = 5\n")
    assert snapshot(scene.root) == was


def test_a_run_counts_as_it_is_after_its_undo_and_redo_are_taken_back_together(scene):
    """Names of operations are of no order: several times, so that no luck hides it."""
    for number in range(6):
        run_id = scene.run(f"echo x > new{number}")["runId"]
        scene.undo(run_id)
        scene.redo()
        scene.wire.call("runs.undo", {"spaceId": scene.space_id(), "to": run_id})
        last = scene.wire.call("runs.undo", {"spaceId": scene.space_id(), "dryRun": True})
        assert last["operations"] == [run_id]
        assert (scene.root / f"new{number}").exists()
