"""What an agent's own shell destroyed comes back: every byte, mode and link."""

import os
import subprocess

import pytest

from bascule.foundation.errors import Conflict
from native_scene import DESTRUCTIVE, Scene, git, make_project, snapshot
from undo_of import left_alone


def test_fifty_destructive_scripts_are_undone_exactly(scene):
    was = snapshot(scene.root)
    # Put back while `private` belongs to a mode that root ignores and a user does not.
    for script in DESTRUCTIVE:
        answer = scene.run(script)
        assert answer["record"] == "observed", script
        assert answer.get("output", {}) == {}, script
        assert snapshot(scene.root) != was or "prune" in script, f"{script} did nothing"
        scene.undo(answer["runId"])
        assert snapshot(scene.root) == was, script
    assert len(DESTRUCTIVE) >= 50


def test_what_git_obeys_comes_back_and_what_it_knows_further_down_is_named(scene):
    lib = scene.root / "vendor" / "lib"
    lib.mkdir(parents=True)
    git(lib, "init", "-q", "-b", "main")
    git(lib, "commit", "-q", "--allow-empty", "-m", "first")
    config = (scene.root / ".git" / "config").read_bytes()
    answer = scene.run("git config user.name lost; rm -r .git/hooks; git -C vendor/lib branch -q -m other")
    undone = scene.undo(answer["runId"])
    assert (scene.root / ".git" / "config").read_bytes() == config
    assert list((scene.root / ".git" / "hooks").iterdir())
    assert [each["path"] for each in undone["leftAlone"]] == ["vendor/lib/.git"]


def test_a_call_that_its_client_refused_is_nobody_elses_work(scene):
    """Such a call is announced, and its end is never reported."""
    scene.before("rm -rf src")
    answer = scene.run("echo x > new.txt")
    assert "others worked here" not in (scene.undo(answer["runId"]).get("note") or "")


def test_an_open_call_of_another_session_is_named_as_somebody_elses_work(scene):
    other = Scene(scene.daemon, scene.root, "codex", "session-2")
    try:
        other.before("rm -rf src")
        answer = scene.run("echo x > new.txt")
        assert "others worked here" in scene.undo(answer["runId"])["note"]
    finally:
        other.close()


def test_without_a_checkpoint_the_scripts_destroy(scene):
    """The control: the same script, and nobody takes it back."""
    was = snapshot(scene.root)
    scene.run("rm -rf src")
    assert snapshot(scene.root) != was


def test_an_undo_does_not_lose_later_work(scene):
    answer = scene.run("sed -i s/value/broken/ src/*.py")
    (scene.root / "src" / "m5.py").write_text("a person's own work\n")
    undone = scene.undo(answer["runId"])
    assert left_alone(undone) == {"src/m5.py": "was changed since"}
    assert (scene.root / "src" / "m5.py").read_text() == "a person's own work\n"
    assert (scene.root / "src" / "m4.py").read_text() == "value = 4\n"


def test_a_commit_after_a_reset_stays_and_the_files_come_back(scene):
    (files, *_) = snapshot(scene.root)
    answer = scene.run("git reset -q --hard HEAD~1")
    git(scene.root, "commit", "-q", "--allow-empty", "-m", "later")
    _, *record = snapshot(scene.root)
    undone = scene.undo(answer["runId"])
    assert left_alone(undone) == {".git/refs/heads/main": "was changed since"}
    assert snapshot(scene.root) == (files, *record)


def test_two_sessions_in_one_directory_are_undone_apart(scene):
    other = Scene(scene.daemon, scene.root, "codex", "session-2")
    try:
        was = (scene.root / "src" / "m1.py").read_text()
        mine = scene.run("echo mine > src/m1.py")
        theirs = other.run("echo theirs > src/m6.py")
        scene.undo(mine["runId"])
        assert (scene.root / "src" / "m1.py").read_text() == was
        assert (scene.root / "src" / "m6.py").read_text() == "theirs\n"
        other.undo(theirs["runId"])
    finally:
        other.close()


def test_a_call_that_only_looks_keeps_nothing(scene):
    _, answer = scene.before("git status && ls -la | head")
    assert "runId" not in answer
    assert "note" not in answer


def test_an_edit_is_a_run_of_its_own(scene):
    path = scene.root / "src" / "m7.py"
    arguments = {"file_path": str(path), "old_string": "value", "new_string": "edited"}
    was = path.read_bytes()
    answer = scene.send("native.before", scene.event("PreToolUse", "Edit", arguments, tool_use_id="e1"))
    path.write_text("edited = 7\n")
    scene.send("native.after", scene.event("PostToolUse", "Edit", arguments, tool_use_id="e1"))
    scene.wire.call("runs.wait", {"runId": answer["runId"], "waitMs": 60_000})
    shown = next(run for run in scene.wire.call("runs.list", {}) if run["runId"] == answer["runId"])
    assert shown["native"] == {"client": "claude", "session": "session-1", "tool": "Edit", "title": f"Edit {path}"}
    assert "edited" in scene.wire.call("runs.diff", {"runId": answer["runId"]})["diff"]
    scene.undo(answer["runId"])
    assert path.read_bytes() == was


def test_a_worktree_is_undone_and_the_repository_it_belongs_to_stays(scene):
    other = scene.root.parent / "worktree"
    git(scene.root, "worktree", "add", "-q", str(other), "feature")
    there = Scene(scene.daemon, other)
    try:
        was, main = snapshot(other), snapshot(scene.root)
        head = git(other, "rev-parse", "HEAD")
        answer = there.run("git commit -q --allow-empty -m lost && rm -rf src")
        assert git(other, "rev-parse", "HEAD") != head
        there.undo(answer["runId"])
        assert (snapshot(other), git(other, "rev-parse", "HEAD"), snapshot(scene.root)) == (was, head, main)
    finally:
        there.close()


def test_a_file_too_large_for_a_checkpoint_is_named_and_costs_the_rest_nothing(scene):
    # A hole: it takes no room.
    with open(scene.root / "large", "wb") as file:
        file.truncate(70 * 1024 * 1024)
    was = (scene.root / "src" / "m1.py").read_bytes()
    answer = scene.run("rm -f large src/m1.py")
    undone = scene.undo(answer["runId"])
    assert (scene.root / "src" / "m1.py").read_bytes() == was
    assert [each["path"] for each in undone["leftAlone"]] == ["large"]


def test_a_full_disk_is_said_and_the_call_goes_on(short_path, mount_small, start_daemon):
    (short_path / "s").mkdir(mode=0o700)
    disk = mount_small(short_path / "s" / "workspace")
    root = short_path / "home" / "project"
    root.mkdir(parents=True)
    make_project(root)
    (root / "large").write_bytes(os.urandom(3 * 1024 * 1024))
    full = Scene(start_daemon(short_path, env={"HOME": str(root.parent)}), root)
    try:
        assert full.daemon.state_dir == str(disk.parent)
        answer = full.run("rm -f large")
        assert answer["note"].startswith(
            "no undo: no checkpoint could be stored: the disk with Bascule's state is full"
        )
        assert answer["note"] in answer["output"]["systemMessage"]
        assert not (root / "large").exists()
        assert not [name for _, _, names in os.walk(disk) for name in names if name.startswith("tmp_")]
        # With room again there is an undo again.
        was = snapshot(root)
        full.undo(full.run("rm -rf src")["runId"])
        assert snapshot(root) == was
    finally:
        full.close()


def test_a_project_without_git_is_undone_as_well(start_daemon, tmp_path):
    home = tmp_path / "home"
    root = home / "plain"
    root.mkdir(parents=True)
    (root / "a").write_text("a")
    plain = Scene(start_daemon(None, env={"HOME": str(home)}), root)
    try:
        plain.note("SessionStart")
        answer = plain.run("rm -rf a")
        plain.undo(answer["runId"])
        assert (root / "a").read_text() == "a"
    finally:
        plain.close()


def test_in_the_home_itself_there_is_no_undo_and_it_says_so(start_daemon, tmp_path):
    home = tmp_path / "home"
    make_project(home / "project")
    outside = Scene(start_daemon(None, env={"HOME": str(home)}), home)
    try:
        answer = outside.run("rm -rf build")
        assert answer["note"].startswith("no undo: ")
        (run,) = outside.wire.call("runs.list", {})
        assert (run["runId"], run["note"]) == (answer["runId"], answer["note"])
        with pytest.raises(Conflict, match="cannot be taken back: no undo"):
            outside.undo(run["runId"])
    finally:
        outside.close()
    assert os.path.isdir(home / "project")


def test_one_file_that_another_changed_later_does_not_keep_the_rest_from_coming_back(scene):
    """U5: one conflict refused the whole undo."""
    was = snapshot(scene.root)
    other = Scene(scene.daemon, scene.root, "codex", "session-2")
    try:
        answer = scene.run("sed -i s/value/broken/ src/*.py; rm -r tests node_modules run.sh; git branch -D feature")
        other.run("echo theirs > src/m5.py")
        undone = scene.undo(answer["runId"])
    finally:
        other.close()
    assert list(left_alone(undone)) == ["src/m5.py"]
    now = snapshot(scene.root)
    assert {path for path in was[0] if now[0].get(path) != was[0][path]} == {"src/m5.py"}
    assert now[1:] == was[1:]
    assert (scene.root / "src" / "m5.py").read_text() == "theirs\n"


def test_what_another_agent_adds_to_the_index_keeps_no_file_from_coming_back(scene):
    """U5: a second agent's `git add` blocked all files of the first."""
    was = snapshot(scene.root)
    other = Scene(scene.daemon, scene.root, "codex", "session-2")
    try:
        answer = scene.run("echo mine > src/m5.py; rm src/m6.py; git add src/m6.py")
        other.run("echo theirs > theirs; git add theirs src/m5.py")
        undone = scene.undo(answer["runId"])
    finally:
        other.close()
    assert list(left_alone(undone)) == [".git/index"]
    assert git(scene.root, "diff", "--cached", "--name-only").split() == ["src/m5.py", "src/m6.py", "theirs"]
    assert {path: value for path, value in snapshot(scene.root)[0].items() if path != "theirs"} == was[0]


@pytest.mark.parametrize(
    "command",
    [
        "chmod 755 src/deep src/deep/er; rm -r src/deep/er; chmod 555 src/deep",
        "chmod 755 src/deep/er; rm src/deep/er/data.bin; chmod 555 src/deep/er src/deep",
        "chmod 755 src/deep; echo x > src/deep/new; chmod 555 src/deep",
        "chmod 755 src/deep src/deep/er && rm -r src/deep",
        "echo x > src/deep/er/data.bin",
    ],
)
def test_a_directory_that_forbids_writing_is_undone_as_its_dry_run_says(scene, command):
    """U7: the dry run said yes, and the undo stopped half way; for a user who is not root (test_undo_without_root)."""
    for place in ("src/deep/er", "src/deep"):
        (scene.root / place).chmod(0o555)
    try:
        was = snapshot(scene.root)
        answer = scene.run(command)
        assert snapshot(scene.root) != was
        dry = scene.wire.call("runs.undo", {"runId": answer["runId"], "dryRun": True})
        undone = scene.undo(answer["runId"])
        assert snapshot(scene.root) == was
        assert (undone["changes"], left_alone(undone), "failed" in undone) == (dry["changes"], {}, False)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", scene.root / "src"], check=True)


@pytest.mark.parametrize("edit_first", [True, False])
def test_the_undo_of_a_call_leaves_what_the_hook_of_another_named_at_the_same_time(scene, edit_first):
    """U11: of two calls that overlap, the undo of a command took the other session's edit away."""
    path = scene.root / "src" / "m7.py"
    arguments = {"file_path": str(path), "old_string": "value", "new_string": "edited"}
    was = snapshot(scene.root)
    other = Scene(scene.daemon, scene.root, "codex", "session-2")

    def begin_edit():
        return scene.send("native.before", scene.event("PreToolUse", "Edit", arguments, tool_use_id="e1"))["runId"]

    try:
        if edit_first:
            edit = begin_edit()
        call, answer = other.before("python3 build.py")
        if not edit_first:
            edit = begin_edit()
        path.write_text("edited = 7\n")
        (scene.root / "src" / "m6.py").write_text("built\n")
        if edit_first:
            other.after("python3 build.py", call)
        scene.send("native.after", scene.event("PostToolUse", "Edit", arguments, tool_use_id="e1"))
        if not edit_first:
            other.after("python3 build.py", call)
        for run in (edit, answer["runId"]):
            scene.wire.call("runs.wait", {"runId": run, "waitMs": 60_000})
        undone = other.undo(answer["runId"])
        assert [each["path"] for each in undone["changes"]] == ["src/m6.py"]
        assert path.read_text() == "edited = 7\n"
        scene.undo(edit)
        assert snapshot(scene.root) == was
    finally:
        other.close()
