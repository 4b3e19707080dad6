"""An undo never holds the only copy: the project itself moved or removed, undos taken back, parts that fail."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.foundation.errors import Conflict, NotFound
from native_scene import Scene, git, make_project, snapshot
from patience import PATIENCE
from undo_of import left_alone

BASCULE = str(Path(sys.executable).parent / "bascule")


def files_of(*tops):
    return sorted(str(path) for top in tops for path in Path(top).rglob("*") if path.is_file())


def bascule(scene, *words, cwd=None):
    """As in the shell of somebody who went to the project before any of it."""
    return subprocess.run(
        [BASCULE, *words, "--state-dir", scene.daemon.state_dir],
        cwd=cwd or scene.root,
        env=os.environ | {"PWD": str(scene.root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


# -- the project's own directory --


@pytest.mark.parametrize("made_again", [False, True], ids=["nothing there", "an empty directory there"])
def test_a_project_that_was_moved_away_is_moved_back_with_every_file(scene, made_again):
    was, gone = snapshot(scene.root), scene.root.parent / "gone"
    count = len(files_of(scene.root))
    answer = scene.run(f"mv {scene.root} {gone}")
    assert not scene.root.exists(), "the trigger moves it"
    if made_again:
        scene.root.mkdir()
    undone = scene.undo(answer["runId"])
    assert len(files_of(scene.root, gone)) == count
    assert snapshot(scene.root) == was
    assert git(scene.root, "fsck") == ""
    assert f"{gone} is {scene.root} again" in undone["note"]


def test_what_the_call_changed_before_it_moved_the_project_is_put_back_too(scene):
    was = snapshot(scene.root)
    answer = scene.run(f"rm -rf src && git commit -qam lost && mv {scene.root} {scene.root.parent}/gone")
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_work_that_was_done_in_the_moved_project_moves_back_with_it(scene):
    gone = scene.root.parent / "gone"
    answer = scene.run(f"mv {scene.root} {gone}")
    (gone / "later").write_text("later work")
    scene.undo(answer["runId"])
    assert (scene.root / "later").read_text() == "later work"


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("mv ../project ../gone && ln -s gone ../project", "a link to gone"),
        ("mv ../project ../gone && cp -a ../gone ../project", "another directory"),
        ("mv ../project ../gone && echo x > ../project", "a file"),
    ],
)
def test_something_else_at_the_path_is_named_and_nothing_is_removed(scene, script, seen):
    answer = scene.run(script)
    gone = scene.root.parent / "gone"
    before = files_of(scene.root.parent)
    with pytest.raises(Conflict, match="nothing was changed") as refused:
        scene.undo(answer["runId"])
    assert f"at {scene.root} is {seen}" in refused.value.message
    assert "later runs" not in refused.value.hint
    assert str(scene.root) in refused.value.hint
    assert files_of(scene.root.parent) == before
    # As it says: out of the way, and again.
    os.rename(scene.root, scene.root.parent / "aside")
    scene.undo(answer["runId"])
    assert not gone.exists()
    assert (scene.root / "src" / "m1.py").read_text() == "changed = True\n"


def test_a_project_that_was_moved_on_later_is_not_guessed_at(scene):
    answer = scene.run(f"mv {scene.root} {scene.root.parent}/gone")
    os.rename(scene.root.parent / "gone", scene.root.parent / "elsewhere")
    with pytest.raises(Conflict, match="where it no longer is"):
        scene.undo(answer["runId"])
    assert (scene.root.parent / "elsewhere" / "src").is_dir()


@pytest.mark.parametrize("script", ["cd .. && rm -rf project", "rm -rf ../project"])
def test_a_project_that_was_removed_is_made_again(scene, script):
    scene.root.chmod(0o750)
    was = snapshot(scene.root)[0]
    answer = scene.run(script)
    assert not scene.root.exists()
    dry = scene.wire.call("runs.undo", {"runId": answer["runId"], "dryRun": True})
    assert not scene.root.exists(), "a dry run makes nothing"
    undone = scene.undo(answer["runId"])
    shutil.rmtree(scene.root / ".git", ignore_errors=True)
    assert snapshot(scene.root)[0] == was
    assert scene.root.stat().st_mode & 0o7777 == 0o750
    assert dry["changes"] == undone["changes"]
    # What no checkpoint holds is named, and it is not success.
    assert [each["path"] for each in undone["failed"]] == [".git"]


def test_a_project_that_was_moved_to_another_disk_comes_back_and_the_copy_there_stays(scene, tmp_path):
    """As `mv` does it there: a copy, and then the old one is removed."""
    was = snapshot(scene.root)[0]
    there = scene.root.parent / "there"
    answer = scene.run(f"cp -a {scene.root} {there} && rm -rf {scene.root}")
    undone = scene.undo(answer["runId"])
    assert snapshot(scene.root)[0] == was
    assert git(there, "fsck") == ""
    assert str(there) in [each["path"] for each in undone["leftAlone"]]


def test_later_calls_are_recorded_against_the_directory_that_is_at_the_path_now(scene):
    """U1: removed and cloned anew; the daemon holds the old directory open."""
    copy = scene.root.parent / "copy"
    shutil.copytree(scene.root, copy, symlinks=True)
    scene.run("rm -rf ../project && cp -a ../copy ../project")
    was = snapshot(scene.root)
    answer = scene.run("rm -rf src && git branch -D feature")
    assert snapshot(scene.root) != was
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_a_person_who_puts_another_directory_there_has_an_undo_there(scene):
    """U1: by a person, between two calls."""
    scene.run("echo x > first")
    os.rename(scene.root, scene.root.parent / "old")
    make_project(scene.root)
    was = snapshot(scene.root)
    answer = scene.run("rm -rf src")
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_an_older_run_never_writes_refs_into_another_repository(scene):
    """U2: moved aside, replaced by a copy, and an older run undone."""
    answer = scene.run("git reset -q --hard HEAD~1")
    shutil.copytree(scene.root, scene.root.parent / "copy", symlinks=True)
    os.rename(scene.root, scene.root.parent / "old")
    os.rename(scene.root.parent / "copy", scene.root)
    now, old = snapshot(scene.root), snapshot(scene.root.parent / "old")
    undone = scene.undo(answer["runId"])
    assert left_alone(undone) == {".git": "another repository is there now"}
    # What it had in the files comes back: they are as the run left them.
    assert snapshot(scene.root)[1:] == now[1:]
    assert snapshot(scene.root.parent / "old") == old


def test_the_mode_of_the_project_itself_is_put_back(scene):
    """U9."""
    scene.root.chmod(0o755)
    answer = scene.run("chmod 700 .")
    assert scene.root.stat().st_mode & 0o7777 == 0o700
    scene.undo(answer["runId"])
    assert scene.root.stat().st_mode & 0o7777 == 0o755


# -- copies outside --


def test_a_repository_that_was_moved_out_stays_where_it_is_and_is_named(scene):
    """No checkpoint holds a `.git`: the one outside is the only one."""
    inner, outside = scene.root / "inner", scene.root.parent / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "file").write_text("x")
    answer = scene.run(f"mv {inner} {outside}")
    undone = scene.undo(answer["runId"])
    assert (inner / "file").read_text() == "x"
    assert (outside / ".git" / "HEAD").exists()
    assert [each["path"] for each in undone["failed"]] == ["inner/.git"]
    assert "only copy" in {each["path"]: each["reason"] for each in undone["leftAlone"]}[str(outside)]


def test_a_file_that_no_checkpoint_holds_and_that_was_moved_out_stays_outside(scene):
    with open(scene.root / "large", "wb") as file:
        file.truncate(70 * 1024 * 1024)
    outside = scene.root.parent / "large"
    answer = scene.run(f"mv large {outside}")
    scene.undo(answer["runId"])
    assert outside.stat().st_size == 70 * 1024 * 1024


# Each moves something that no checkpoint holds, to where an undo would remove what the call made.
UNHELD = [
    ("mv .git gitbak; rm -rf src", ".git", "gitbak"),
    ("mkdir -p a/b && mv .git a/b/c", ".git", "a/b/c"),
    ("mv .git/hooks hooks; echo mine > hooks/mine", ".git/hooks", "hooks"),
    ("mv .git/hooks ~/hooks", ".git/hooks", "../hooks"),
    ("mv artifacts kept", "artifacts", "kept"),
    ("mv artifacts ~/kept", "artifacts", "../kept"),
    ("rm run.sh && mkdir run.sh && mv artifacts run.sh/kept", "artifacts", "run.sh/kept"),
    ("mv artifacts kept && chmod -R 000 kept", "artifacts", "kept"),
    ("mv $(cat list) taken", "../other/data", "taken"),
    ("mv $(cat list) ~/taken", "../other/data", "../taken"),
]


@pytest.fixture
def unheld(start_daemon, tmp_path):
    """What no checkpoint holds, older than the daemon: `artifacts/`, and a place that no call names."""
    home = tmp_path / "home"
    root = home / "project"
    root.mkdir(parents=True)
    make_project(root)
    for place in (root / "artifacts", home / "other"):
        place.mkdir()
        (place / "data").write_text(f"only in {place}\n")
    (root / "list").write_text(str(home / "other" / "data"))
    made = Scene(start_daemon(None, env={"HOME": str(home)}), root)
    made.note("SessionStart")
    yield made
    made.close()


def contents(place):
    """The bytes of every file there, or of the file."""
    if place.is_file():
        return {place.read_bytes()}
    return {Path(folder, name).read_bytes() for folder, _, names in os.walk(place) for name in names}


@pytest.mark.parametrize(("command", "source", "target"), UNHELD)
def test_what_no_checkpoint_holds_stays_where_a_call_moved_it(unheld, command, source, target):
    scene = unheld
    was = contents(scene.root / source)
    answer = scene.run(command)
    assert not (scene.root / source).exists()
    undone = scene.undo(answer["runId"])
    assert any("only copy" in each["reason"] for each in undone["leftAlone"])
    # What the undo did is taken back, and done once more, without losing it either.
    if "takenBackBy" in undone:
        scene.redo()
    else:
        assert undone["changes"] == []
    scene.undo(answer["runId"])
    subprocess.run(["chmod", "-R", "u+rwX", scene.root], check=True)
    assert was <= contents(scene.root / target)


@pytest.mark.parametrize(
    "command",
    [
        "mkdir made && mv src made/",
        "cp -pr src again && cp -p run.sh run2.sh",
        "cp -a src ~/again",
        "tar cf a.tar src && mkdir made && tar xf a.tar -C made",
        "mv src/m1.py m && echo more >> m",
        "ln src/m1.py second",
        "ln ~/other/data second",
        "mv ~/other/data .",
    ],
)
def test_what_a_call_made_goes_and_so_does_what_is_elsewhere(unheld, command):
    """The control: of what an undo removes nothing else is left alone."""
    was, there = snapshot(unheld.root), contents(unheld.root.parent / "other")
    answer = unheld.run(command)
    assert snapshot(unheld.root) != was or (unheld.root.parent / "again").exists()
    undone = unheld.undo(answer["runId"])
    assert "leftAlone" not in undone
    assert snapshot(unheld.root) == was
    assert contents(unheld.root.parent / "other") == there
    assert not (unheld.root.parent / "again").exists()


@pytest.mark.parametrize(
    "script", ["mv {root} {root}-gone", "chmod 700 .", "mv .git ../git-gone", "chmod 1755 {root}", "rm -rf .git"]
)
def test_bascule_log_lists_a_call_that_changed_only_the_projects_own_directory(scene, script):
    """Else `undo` would take back an older call in its place."""
    scene.run("echo older > older.txt")
    answer = scene.run(script.format(root=scene.root))
    shell = scene.root if scene.root.exists() else Path(f"{scene.root}-gone")
    listed = json.loads(bascule(scene, "log", "--json", cwd=shell).stdout)
    assert (listed[0]["operationId"], listed[0]["undoable"]) == (answer["runId"], True)
    done = bascule(scene, "undo", cwd=shell)
    assert answer["runId"] in done.stdout + done.stderr
    assert (scene.root / "older.txt").exists()


def test_a_copy_outside_goes_once_what_it_stands_for_is_back(scene):
    """The control: what was moved out and is back is not kept twice."""
    was, outside = snapshot(scene.root), scene.root.parent / "src-gone"
    answer = scene.run(f"mv src {outside}")
    undone = scene.undo(answer["runId"])
    assert snapshot(scene.root) == was
    assert not outside.exists()
    assert "failed" not in undone


# -- taking an undo back --


def test_an_undo_is_taken_back_and_done_again_also_after_a_restart(scene):
    outside = scene.root.parent / "outside"
    was = snapshot(scene.root)
    answer = scene.run(f"git reset -q --hard HEAD~1 && rm -rf tests && mv src/deep {outside} && echo new > new")
    now, there = snapshot(scene.root), files_of(outside)
    assert scene.undo(answer["runId"])["takenBackBy"] == "bascule redo"
    assert (snapshot(scene.root), outside.exists()) == (was, False)
    scene.wire.close()
    scene.daemon.stop()
    scene.daemon.start()
    scene.wire = type(scene.wire).connect(scene.daemon.state_dir)
    redone = scene.redo()
    newest = scene.wire.call("spaces.log", {"spaceId": scene.space_id()})[0]
    assert (newest["kind"], redone["takenBackBy"]) == ("redo", f"bascule undo {newest['operationId']}")
    assert (snapshot(scene.root), files_of(outside)) == (now, there)
    # An undo that was taken back is none, and the run can be undone again.
    with pytest.raises(NotFound, match="no undo here to take back"):
        scene.redo()
    scene.undo(answer["runId"])
    assert (snapshot(scene.root), outside.exists()) == (was, False)
    with pytest.raises(Conflict, match="undone already"):
        scene.undo(answer["runId"])
    scene.redo()
    assert (snapshot(scene.root), files_of(outside)) == (now, there)
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_a_redo_is_an_operation_and_is_taken_back_as_any_other(scene):
    was = snapshot(scene.root)
    answer = scene.run("git reset -q --hard HEAD~1; rm -rf tests")
    now = snapshot(scene.root)
    scene.undo(answer["runId"])
    scene.redo()
    newest = scene.wire.call("spaces.log", {"spaceId": scene.space_id()})[0]
    assert newest["kind"] == "redo"
    scene.undo(newest["operationId"])
    assert snapshot(scene.root) == was
    with pytest.raises(Conflict, match="undone already"):
        scene.undo(answer["runId"])
    scene.redo()
    assert snapshot(scene.root) == now


def test_the_undo_of_a_move_is_taken_back_by_moving_it_once_more(scene):
    was, gone = snapshot(scene.root), scene.root.parent / "gone"
    answer = scene.run(f"rm -rf tests && mv {scene.root} {gone}")
    now = snapshot(gone)
    scene.undo(answer["runId"])
    scene.redo()
    assert not scene.root.exists()
    assert snapshot(gone) == now
    scene.undo(answer["runId"])
    assert snapshot(scene.root) == was


def test_work_done_after_an_undo_is_not_lost_by_taking_it_back(scene):
    answer = scene.run("echo call > src/m1.py")
    scene.undo(answer["runId"])
    (scene.root / "src" / "m1.py").write_text("a person's own work\n")
    redone = scene.redo()
    assert (redone["changes"], left_alone(redone)) == ([], {"src/m1.py": "was changed since"})
    assert (scene.root / "src" / "m1.py").read_text() == "a person's own work\n"


def test_without_an_undo_there_is_none_to_take_back(scene):
    scene.run("rm -rf src")
    done = bascule(scene, "redo")
    assert done.returncode == 5
    assert "there is no undo here to take back" in done.stderr
    assert not (scene.root / "src").exists()


def test_the_command_says_how_to_take_an_undo_back_and_its_exit_code_says_whether_all_is_back(scene):
    scene.run("rm -rf src")
    done = bascule(scene, "undo")
    assert done.returncode == 0, done.stderr
    assert "to take this undo back: bascule redo" in done.stdout + done.stderr
    assert bascule(scene, "redo", "--dry-run").returncode == 0
    assert (scene.root / "src").is_dir()
    assert bascule(scene, "redo").returncode == 0
    assert not (scene.root / "src").exists()
    scene.run("rm -rf .git tests")
    done = bascule(scene, "undo")
    assert done.returncode == 1
    assert "not back  .git: " in done.stdout + done.stderr
    assert (scene.root / "tests").is_dir()


def test_an_undo_that_puts_back_nothing_leaves_the_run_undoable(scene):
    first, _ = scene.before("touch other")
    second, answer = scene.before("echo call > src/m1.py")
    (scene.root / "src" / "m1.py").write_text("call\n")
    scene.after("echo call > src/m1.py", second)
    scene.after("touch other", first)
    scene.wire.call("runs.wait", {"runId": answer["runId"], "waitMs": 60_000})
    (scene.root / "src" / "m1.py").write_text("later\n")
    undone = scene.undo(answer["runId"])
    assert undone["changes"] == []
    (scene.root / "src" / "m1.py").write_text("call\n")
    scene.undo(answer["runId"])
    assert (scene.root / "src" / "m1.py").read_text() == "changed = True\n"
