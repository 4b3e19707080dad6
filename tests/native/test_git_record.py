"""Git's record name by name: what an edit of it is, and which of them come back, with a real git."""

import itertools
import os
import shutil
import subprocess

import msgspec
import pytest

from bascule.testing.machine import NothingOutside
from bascule.workspace.elsewhere import Elsewhere, Segments
from bascule.workspace.machine.checkpoints import git_record
from bascule.workspace.machine.checkpoints.git_states import GitStates
from bascule.workspace.records import GitSegment
from native_scene import Scene, git, make_project, snapshot
from patience import PATIENCE

SPACE = "spc_1"


@pytest.fixture
def root(tmp_path):
    place = tmp_path / "project"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for number in range(3):
        (place / "file").write_text(f"{number}\n")
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", str(number))
    git(place, "branch", "feature", "HEAD~1")
    git(place, "tag", "-m", "first", "v1")
    return place


@pytest.fixture
def states(tmp_path):
    return GitStates(str(tmp_path / "states"))


@pytest.fixture
def scene(root, states):
    return Record(root, states)


class Record:
    def __init__(self, root, states):
        self.root = root
        self.states = states

    def take(self):
        return self.states.take(SPACE, str(self.root))

    def edits(self, before, after):
        return self.states.edits(SPACE, before, after)

    def undo(self, before, after, *, dry_run=False):
        return self.states.undo(SPACE, str(self.root), before, after, dry_run=dry_run)


def seen(root):
    """As git sees it, whatever files that is in."""
    git(root, "fsck", "--no-dangling")
    return (
        git(root, "for-each-ref", "--format=%(refname) %(objectname) %(symref)"),
        git(root, "rev-parse", "HEAD"),
        (root / ".git" / "HEAD").read_text() if (root / ".git").is_dir() else "",
        git(root, "ls-files", "-s", "-t"),
        git(root, "stash", "list"),
        git(root, "status", "--porcelain=v2", "--branch", "--untracked-files=no"),
        git(root, "worktree", "list", "--porcelain"),
    )


def leftovers(root):
    return [str(path) for path in (root / ".git").rglob("*.lock")]


def test_refs_that_are_merely_packed_are_no_edit_and_no_later_work(scene):
    """U3 and U6."""
    before = scene.take()
    git(scene.root, "pack-refs", "--all")
    assert scene.edits(before, scene.take()) == {}
    git(scene.root, "commit", "-q", "--allow-empty", "-m", "more")
    after = scene.take()
    git(scene.root, "gc", "-q")
    assert scene.edits(after, scene.take()) == {}
    edits = scene.edits(before, after)
    assert sorted(edits) == ["refs/heads/main"]
    back, left = scene.undo(before, after)
    assert (back, left) == (["refs/heads/main"], {})
    assert scene.edits(before, scene.take()) == {}


def test_a_commit_between_two_packings_is_taken_back(scene):
    """U3: `git pack-refs --all; git commit; git pack-refs --all`."""
    was = seen(scene.root)
    before = scene.take()
    git(scene.root, "pack-refs", "--all")
    (scene.root / "file").write_text("more\n")
    git(scene.root, "commit", "-q", "-a", "-m", "more")
    git(scene.root, "tag", "v2")
    git(scene.root, "branch", "-D", "feature")
    git(scene.root, "pack-refs", "--all")
    after = scene.take()
    back, left = scene.undo(before, after)
    assert (back, left) == (["index", "refs/heads/feature", "refs/heads/main", "refs/tags/v2"], {})
    git(scene.root, "reset", "-q", "--hard")
    assert seen(scene.root) == was
    assert "v2" not in (scene.root / ".git" / "packed-refs").read_text()
    assert not leftovers(scene.root)


def test_an_annotated_tag_goes_from_packed_refs_with_its_line(scene):
    before = scene.take()
    git(scene.root, "tag", "-m", "second", "v2")
    git(scene.root, "pack-refs", "--all")
    packed = (scene.root / ".git" / "packed-refs").read_text()
    scene.undo(before, scene.take())
    now = (scene.root / ".git" / "packed-refs").read_text()
    assert len(packed.splitlines()) - len(now.splitlines()) == 2
    assert (
        git(scene.root, "for-each-ref", "refs/tags", "--format=%(refname) %(*objectname)").split()[0] == "refs/tags/v1"
    )


def test_packed_refs_that_git_holds_stay_and_the_rest_comes_back(scene):
    before = scene.take()
    git(scene.root, "tag", "v2")
    git(scene.root, "pack-refs", "--all")
    git(scene.root, "rm", "-q", "--cached", "file")
    after = scene.take()
    lock = scene.root / ".git" / "packed-refs.lock"
    lock.touch()
    planned = scene.undo(before, after, dry_run=True)
    back, left = scene.undo(before, after)
    assert (back, left) == planned
    assert (back, list(left)) == (["index"], ["refs/tags/v2"])
    assert "git is at work" in left["refs/tags/v2"]
    lock.unlink()
    assert scene.undo(before, after) == (["refs/tags/v2"], {})


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("first", "commands"),
    [
        ("feature", ["git branch -D feature", "git branch feature/x"]),
        ("deep/feature/x", ["git branch -D deep/feature/x", "git branch deep/feature"]),
        ("feature", ["git branch -m feature feature/x/y"]),
    ],
)
def test_a_branch_comes_back_where_a_directory_of_branches_was(scene, first, commands, packed):
    if first != "feature":
        git(scene.root, "branch", first)
    if packed:
        git(scene.root, "pack-refs", "--all")
    was = seen(scene.root)
    before = scene.take()
    for command in (*commands, *(["git pack-refs --all"] if packed else [])):
        run(scene.root, command)
    after = scene.take()
    assert seen(scene.root) != was
    _, left = scene.undo(before, after)
    assert left == {}
    assert seen(scene.root) == was
    # Git itself can go on there.
    git(scene.root, "checkout", "-q", first)
    git(scene.root, "commit", "-q", "--allow-empty", "-m", "goes on")
    # And the undo is taken back as well.
    git(scene.root, "reset", "-q", "--soft", "HEAD~1")
    git(scene.root, "checkout", "-q", "main")
    scene.undo(after, before)
    assert scene.edits(after, scene.take()).keys() <= {"index", "ORIG_HEAD"}


def run(root, script):
    env = os.environ | {
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
        "GIT_EDITOR": "true",
    }  # fmt: skip
    subprocess.run(["sh", "-c", script], cwd=root, env=env, check=False, capture_output=True, timeout=PATIENCE)


def test_an_index_with_other_times_is_no_later_work(scene):
    """U6: `touch; git status` writes an index with the same entries."""
    before = scene.take()
    git(scene.root, "rm", "-q", "--cached", "file")
    git(scene.root, "add", "file")
    (scene.root / "new").write_text("new\n")
    git(scene.root, "add", "new")
    after = scene.take()
    index = scene.root / ".git" / "index"
    left = index.read_bytes()
    os.utime(scene.root / "file", (1, 1))
    git(scene.root, "update-index", "--index-version", "4")
    git(scene.root, "status")
    assert index.read_bytes() != left
    now = scene.take()
    known, found = (scene.states.value(SPACE, state, "index") for state in (after, now))
    assert known != found
    assert scene.states.same("index", known, found)
    assert scene.edits(after, now) == {}
    assert scene.undo(before, after) == (["index"], {})


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree", "--chmod=+x", "--force-remove"])
def test_an_index_with_another_entry_is_later_work(scene, flag):
    before = scene.take()
    git(scene.root, "branch", "other")
    (scene.root / "new").write_text("new\n")
    git(scene.root, "add", "new")
    after = scene.take()
    git(scene.root, "update-index", flag, "file")
    assert scene.undo(before, after) == (["refs/heads/other"], {"index": "was changed since"})


def test_an_index_that_is_added_only_by_intent_is_another(scene):
    (scene.root / "empty").touch()
    git(scene.root, "add", "empty")
    known = scene.states.value(SPACE, scene.take(), "index")
    git(scene.root, "rm", "-q", "--cached", "empty")
    git(scene.root, "add", "-N", "empty")
    assert not scene.states.same("index", known, scene.states.value(SPACE, scene.take(), "index"))


def test_what_is_no_index_is_compared_as_it_is(scene):
    index = scene.root / ".git" / "index"
    good = index.read_bytes()
    values = []
    for content in (good, b"DIRC" + good[4:40], b"DIRC" + good[4:41], b"", b"x"):
        index.write_bytes(content)
        values.append(scene.states.value(SPACE, scene.take(), "index"))
    for one, other in itertools.product(values, values):
        assert scene.states.same("index", one, other) is (one is other)
    assert scene.states.same("index", None, None)
    assert not scene.states.same("index", None, values[0])
    index.write_bytes(good)
    git(scene.root, "update-index", "--split-index")
    known = scene.states.value(SPACE, scene.take(), "index")
    assert scene.states.same("index", known, scene.states.value(SPACE, scene.take(), "index"))


def test_a_state_is_composed_of_several(scene):
    first = scene.take()
    git(scene.root, "branch", "-D", "feature")
    second = scene.take()
    git(scene.root, "tag", "v2")
    git(scene.root, "config", "user.name", "other")
    third = scene.take()
    composed = scene.states.compose(SPACE, third, {"refs/heads/feature": first, "refs/tags/v2": second})
    assert sorted(scene.edits(composed, third)) == ["refs/heads/feature", "refs/tags/v2"]
    assert scene.states.value(SPACE, composed, "config") == scene.states.value(SPACE, third, "config")
    assert scene.states.compose(SPACE, third, {}) == third
    back, left = scene.undo(composed, third)
    assert (sorted(back), left) == (["refs/heads/feature", "refs/tags/v2"], {})
    assert scene.take() == composed


@pytest.mark.parametrize(
    "script",
    [
        "git rebase side",
        "git rebase --apply side",
        "git -c sequence.editor='sed -i 1s/pick/edit/' rebase -i HEAD~2",
        "git merge side",
        "git cherry-pick side~1 side",
        "git revert --no-edit HEAD~1 HEAD~2",
        "git bisect start HEAD HEAD~2",
        "echo more >> file; git rebase --autostash side",
    ],
)
def test_half_done_work_is_taken_back_and_comes_back(scene, script):
    """U10: a stopped rebase."""
    git(scene.root, "checkout", "-q", "-b", "side", "HEAD~1")
    for number in range(2):
        (scene.root / "file").write_text(f"side {number}\n")
        git(scene.root, "commit", "-q", "-a", "-m", f"side {number}")
    git(scene.root, "checkout", "-q", "main")
    was, names = seen(scene.root), everything_in(scene.root)
    before = scene.take()
    run(scene.root, script)
    after = scene.take()
    stopped = everything_in(scene.root)
    assert stopped > names, "it has stopped half way"
    _, left = scene.undo(before, after)
    assert left == {}
    git(scene.root, "reset", "-q", "--hard")
    assert seen(scene.root) == was
    assert everything_in(scene.root) == names
    now = scene.take()
    assert scene.edits(before, now).keys() <= {"ORIG_HEAD"}
    # And again.
    _, left = scene.undo(after, now)
    assert everything_in(scene.root) == stopped
    assert scene.edits(after, scene.take()).keys() <= {"ORIG_HEAD"}


def everything_in(root):
    """Without what git leaves anyway: objects, reflogs, and notes of the last commands."""
    passing = {"objects", "logs", "packed-refs", "COMMIT_EDITMSG", "FETCH_HEAD", "ORIG_HEAD", "rr-cache"}
    found = set()
    for folder, inner, files in os.walk(root / ".git"):
        inner[:] = [name for name in inner if name not in passing]
        found.update(os.path.relpath(os.path.join(folder, name), root) for name in files if name not in passing)
        if os.path.basename(folder) in ("rebase-merge", "rebase-apply", "sequencer"):
            found.add(os.path.relpath(folder, root))
    return found


@pytest.mark.parametrize("place", ["../other", "inside/other"])
def test_a_worktree_that_was_added_goes_and_one_that_was_removed_comes_back(scene, place):
    other = scene.root / place
    was, names = seen(scene.root), everything_in(scene.root)
    before = scene.take()
    git(scene.root, "worktree", "add", "-q", "-b", "theirs", place)
    added = scene.take()
    there, files = seen(scene.root), everything_in(scene.root)
    assert sorted(scene.edits(before, added)) == ["refs/heads/theirs", "worktrees/other"]
    # What is done there is its own: no edit of this project.
    (other / "new").write_text("new\n")
    git(other, "add", "new")
    staged = scene.take()
    assert scene.edits(added, staged) == {}
    _, left = scene.undo(before, added)
    assert left == {"worktrees/other": "was changed since", "refs/heads/theirs": "is checked out"}
    assert (seen(scene.root), everything_in(scene.root)) == (there, files)
    index = git(other, "ls-files", "-s")
    # Taken as it is now it goes.
    back, left = scene.undo(before, staged)
    assert (back, left) == (["refs/heads/theirs", "worktrees/other"], {})
    assert (seen(scene.root), everything_in(scene.root)) == (was, names)
    assert (other / ".git").exists() is place.startswith("..")
    now = scene.take()
    assert scene.edits(before, now) == {}
    _, left = scene.undo(staged, now)
    assert left == {}
    assert (seen(scene.root), everything_in(scene.root)) == (there, files)
    assert git(other, "ls-files", "-s") == index
    assert not leftovers(scene.root)


def test_a_worktree_that_git_removed_comes_back_with_its_index(scene):
    other = scene.root / "inside" / "other"
    git(scene.root, "worktree", "add", "-q", "-b", "theirs", str(other))
    (other / "new").write_text("new\n")
    git(other, "add", "new")
    status, was = git(other, "status", "--porcelain"), seen(scene.root)
    before = scene.take()
    copy = shutil.copytree(other, scene.root.parent / "copy")
    git(scene.root, "worktree", "remove", "--force", str(other))
    after = scene.take()
    assert list(scene.edits(before, after)) == ["worktrees/other"]
    # As the undo of files brings them: without `.git`.
    (copy / ".git").unlink()
    shutil.copytree(copy, other)
    assert scene.undo(before, after) == (["worktrees/other"], {})
    assert (git(other, "status", "--porcelain"), seen(scene.root)) == (status, was)


def test_a_branch_that_somebody_has_checked_out_since_is_not_taken_away(scene):
    before = scene.take()
    git(scene.root, "branch", "new")
    git(scene.root, "branch", "other")
    after = scene.take()
    git(scene.root, "checkout", "-q", "new")
    git(scene.root, "worktree", "add", "-q", str(scene.root.parent / "there"), "other")
    _, left = scene.undo(before, after)
    assert left == {"refs/heads/new": "is checked out", "refs/heads/other": "is checked out"}
    assert git(scene.root, "rev-parse", "HEAD")


def test_the_first_commit_is_taken_back(tmp_path, states):
    root = tmp_path / "young"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    before = states.take(SPACE, str(root))
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    _, left = states.undo(SPACE, str(root), before, states.take(SPACE, str(root)), dry_run=False)
    assert left == {}
    assert git(root, "for-each-ref") == ""


def test_head_does_not_come_back_to_a_branch_that_does_not(scene):
    before = scene.take()
    git(scene.root, "checkout", "-q", "feature")
    git(scene.root, "branch", "-D", "main")
    after = scene.take()
    (scene.root / ".git" / "refs" / "heads" / "main").mkdir()
    (scene.root / ".git" / "refs" / "heads" / "main" / "x").write_text("not a ref, and in the way\n")
    back, left = scene.undo(before, after)
    assert "cannot be put back" in left["refs/heads/main"]
    assert "refs/heads/main" in left["HEAD"]
    assert "index" in back
    assert git(scene.root, "symbolic-ref", "HEAD") == "refs/heads/feature"


def test_a_hook_that_is_a_link_is_held_as_one_and_nothing_is_written_through_links(scene):
    hooks = scene.root / ".git" / "hooks"
    (hooks / "pre-push").symlink_to("../../tools/hook")
    was = sorted(os.listdir(hooks))
    before = scene.take()
    elsewhere = scene.root.parent / "elsewhere"
    elsewhere.mkdir()
    hooks.rename(scene.root / ".git" / "gone")
    hooks.symlink_to(elsewhere)
    after = scene.take()
    _, left = scene.undo(before, after)
    assert left == {}
    assert sorted(os.listdir(hooks)) == was
    assert not hooks.is_symlink()
    assert os.readlink(hooks / "pre-push") == "../../tools/hook"
    assert os.listdir(elsewhere) == []
    # Somebody else's link, later.
    shutil.rmtree(hooks)
    again = scene.take()
    hooks.symlink_to(elsewhere)
    _, left = scene.undo(before, again)
    assert any("in the way" in why for why in left.values())
    assert os.listdir(elsewhere) == []


def test_a_file_beyond_the_limit_is_named(scene, monkeypatch):
    monkeypatch.setattr(git_record.read, "__defaults__", (2_000,))
    hook = scene.root / ".git" / "hooks" / "large"
    hook.write_bytes(bytes(2_001))
    before = scene.take()
    hook.unlink()
    git(scene.root, "branch", "-D", "feature")
    after = scene.take()
    named = scene.states.not_held(SPACE, str(scene.root), before, after)
    assert ".git/hooks/large" in named
    assert "no undo holds" in named[".git/hooks/large"]
    back, left = scene.undo(before, after)
    assert (back, list(left)) == (["refs/heads/feature"], ["hooks/large"])


def test_worktrees_beyond_the_limits_are_named(scene, monkeypatch):
    monkeypatch.setattr(git_record, "MAX_WORKTREES", 1)
    before = scene.take()
    for name in ("one", "two"):
        git(scene.root, "worktree", "add", "-q", "-b", f"b-{name}", str(scene.root.parent / name))
    named = scene.states.not_held(SPACE, str(scene.root), before, scene.take())
    assert "more than 1" in named[".git/worktrees"]
    monkeypatch.setattr(git_record, "MAX_WORKTREES_BYTES", 100)
    named = scene.states.not_held(SPACE, str(scene.root), before, scene.take())
    assert "larger than" in named[".git/worktrees/one"]


def test_a_reftable_comes_back_as_a_whole(tmp_path, states):
    """Fault 10. The files are made by hand, for the git here knows no reftable; no git reads them."""
    root = tmp_path / "young"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    place = root / ".git"
    (place / "HEAD").write_text("ref: refs/heads/.invalid\n")
    shutil.rmtree(place / "refs")
    (place / "refs").mkdir()
    (place / "refs" / "heads").write_text("this repository uses the reftable format\n")
    tables = place / "reftable"
    tables.mkdir()

    def write(*names):
        for name in names:
            (tables / name).write_bytes(b"REFT" + name.encode())
        (tables / "tables.list").write_text("".join(f"{name}\n" for name in names))
        for path in set(tables.iterdir()) - {tables / name for name in (*names, "tables.list")}:
            path.unlink()

    one, two, both = (f"0x{a:012x}-0x{b:012x}-{c:08x}.ref" for a, b, c in ((1, 1, 7), (2, 2, 8), (1, 2, 9)))
    write(one)
    was = contents(tables)
    record = Record(root, states)
    before = record.take()
    write(one, two)
    after = record.take()
    assert list(record.edits(before, after)) == ["refs"]
    (tables / "tables.list.lock").touch()
    assert "git is at work" in record.undo(before, after)[1]["refs"]
    (tables / "tables.list.lock").unlink()
    assert record.undo(before, after) == (["refs"], {})
    assert contents(tables) == was
    assert record.take() == before
    # Compacted since: that is a later edit.
    write(both)
    assert record.undo(after, before) == ([], {"refs": "was changed since"})
    assert (tables / both).exists()
    # What the list names is not looked for elsewhere.
    (tables / "tables.list").write_text("../config\n")
    named = states.not_held(SPACE, str(root), before, record.take())
    assert "tables.list" in named[".git/refs"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_linked_worktree_has_its_own_half_done_work_and_the_shared_refs(scene, tmp_path):
    other = tmp_path / "other"
    git(scene.root, "worktree", "add", "-q", "-b", "theirs", str(other))
    main = seen(scene.root)
    record = Record(other, scene.states)
    was = seen(other)
    before = record.take()
    git(other, "bisect", "start", "HEAD", "HEAD~2")
    after = record.take()
    assert any(name.startswith("refs/bisect/") for name in record.edits(before, after))
    assert not any(name.startswith("worktrees/") for name in record.edits(before, after))
    _, left = record.undo(before, after)
    assert left == {}
    git(other, "reset", "-q", "--hard")
    assert seen(other) == was
    assert seen(scene.root) == main
    refs = scene.root / ".git" / "worktrees" / "other" / "refs"
    assert [path for path in refs.rglob("*") if path.is_file()] == []


def test_a_state_of_an_earlier_version_is_read_as_one_of_today(scene):
    """It had files of refs, with their ends of line, and `packed-refs` as one of them."""
    git(scene.root, "pack-refs", "--all")
    git(scene.root, "branch", "loose")
    before = scene.take()
    state = scene.states._load(SPACE, before)
    files = {name: content for name, content in state.files.items() if not name.startswith("refs/")}
    files["packed-refs"] = (scene.root / ".git" / "packed-refs").read_bytes()
    files["refs/heads/loose"] = (scene.root / ".git" / "refs" / "heads" / "loose").read_bytes()
    old = scene.states._keep(scene.states._folder(SPACE), msgspec.structs.replace(state, files=files))
    assert scene.edits(old, before) == {}


def test_what_stays_of_git_is_named_as_files_are(scene):
    """U8: with its path and the reason, beside what came back."""
    elsewhere = Elsewhere(scene.states, NothingOutside(), lambda: 1)
    before = scene.take()
    git(scene.root, "branch", "-D", "feature")
    git(scene.root, "tag", "v2")
    after = scene.take()
    (scene.root / ".git" / "refs" / "tags" / "v2.lock").touch()
    segments = Segments(SPACE, str(scene.root), GitSegment(before=before, after=after), None, None, resumes=False)
    planned = elsewhere.rehearse(segments)
    done = elsewhere.put_back(segments, lambda _failed, _older: None)
    assert planned.refs == done.refs == ["refs/heads/feature"]
    assert [each.path for each in planned.left_alone] == [each.path for each in done.failed] == [".git/refs/tags/v2"]
    assert "git is at work" in done.failed[0].reason


# -- with a daemon --


@pytest.fixture
def project(start_daemon, tmp_path):
    (tmp_path / "home" / "project").mkdir(parents=True)
    made = Scene(start_daemon(), make_project(tmp_path / "home" / "project"))
    yield made
    made.close()


def test_a_rebase_that_an_agent_left_stopped_is_taken_back_and_taken_back_again(project):
    """U10."""
    git(project.root, "commit", "-qam", "all")
    git(project.root, "checkout", "-q", "feature")
    (project.root / "src" / "m1.py").write_text("other = 1\n")
    git(project.root, "commit", "-qam", "other")
    git(project.root, "checkout", "-q", "main")
    was = snapshot(project.root), git(project.root, "status")
    answer = project.run("git rebase feature")
    stopped = snapshot(project.root), git(project.root, "status")
    assert "rebase" in stopped[1]
    done = project.undo(answer["runId"])
    assert not done.get("failed")
    assert not done.get("leftAlone")
    assert (snapshot(project.root), git(project.root, "status")) == was
    assert not (project.root / ".git" / "rebase-merge").exists()
    project.redo()
    assert (snapshot(project.root), git(project.root, "status")) == stopped
    git(project.root, "rebase", "--abort")
    assert (snapshot(project.root), git(project.root, "status")) == was


def test_commits_between_two_collections_are_taken_back(project):
    """U3."""
    was = snapshot(project.root)
    answer = project.run("git pack-refs --all; git commit -qam more; git tag v1; git gc -q")
    git(project.root, "status")
    done = project.undo(answer["runId"])
    assert not done.get("failed")
    assert not done.get("leftAlone")
    assert snapshot(project.root) == was


def test_a_look_at_the_project_by_git_is_no_later_work(project):
    """U6."""
    was = snapshot(project.root)
    answer = project.run("git commit -qam more; git branch -D feature")
    os.utime(project.root / "src" / "m4.py", (1, 1))
    git(project.root, "status")
    git(project.root, "pack-refs", "--all")
    project.undo(answer["runId"])
    assert snapshot(project.root) == was


def test_a_worktree_inside_of_the_project_goes_and_comes_back(project):
    was = snapshot(project.root)
    answer = project.run("git worktree add -q -b theirs other")
    there = snapshot(project.root), git(project.root / "other", "status")
    project.undo(answer["runId"])
    assert (snapshot(project.root), git(project.root, "worktree", "list").count("\n")) == (was, 0)
    project.redo()
    assert (snapshot(project.root), git(project.root / "other", "status")) == there
    answer = project.run("git worktree remove --force other")
    project.undo(answer["runId"])
    assert (snapshot(project.root), git(project.root / "other", "status")) == there
