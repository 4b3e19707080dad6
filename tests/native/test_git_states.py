"""HEAD, refs and index: put back, and never over somebody's later work."""

import contextlib
import os
import subprocess
import time
from functools import partial

import pytest

from bascule.workspace.machine.checkpoints import git_record
from bascule.workspace.machine.checkpoints.git_states import GitStates
from bascule.workspace.ports import CheckpointFault
from patience import PATIENCE


def git(directory, *words):
    identity = ["-c", "user.email=a@example.org", "-c", "user.name=a", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for number in range(3):
        (root / "file").write_text(f"{number}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", str(number))
    git(root, "branch", "feature")
    for number in range(2):
        (root / "file").write_text(f"stashed {number}\n")
        git(root, "stash", "-q")
    return root


@pytest.fixture
def states(tmp_path):
    return GitStates(str(tmp_path / "states"))


def everything(root):
    return (
        git(root, "for-each-ref"),
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        git(root, "ls-files", "-s"),
        git(root, "stash", "list"),
    )


@pytest.mark.parametrize(
    "commands",
    [
        [("reset", "-q", "--hard", "HEAD~2")],
        [("branch", "-D", "feature")],
        [("checkout", "-q", "feature"), ("branch", "-D", "main")],
        [("update-ref", "refs/heads/main", "HEAD~1")],
        [("rm", "-q", "--cached", "file")],
        [("pack-refs", "--all"), ("branch", "-D", "feature")],
        [("stash", "drop", "-q")],
        [("stash", "drop", "-q", "stash@{1}")],
        [("stash", "clear")],
        [("stash", "pop", "-q")],
        [("tag", "v1"), ("commit", "-q", "--allow-empty", "-m", "more")],
    ],
)
def test_what_git_lost_comes_back(repository, states, commands):
    was = everything(repository)
    before = states.take("spc_1", str(repository))
    for words in commands:
        git(repository, *words)
    assert everything(repository) != was
    after = states.take("spc_1", str(repository))
    planned, left = states.undo("spc_1", str(repository), before, after, dry_run=True)
    assert planned
    assert not left
    assert everything(repository) != was, "a dry run changes nothing"
    states.undo("spc_1", str(repository), before, after, dry_run=False)
    assert everything(repository) == was


def test_a_later_commit_stays_and_does_not_stop_the_undo_of_the_rest(repository, states):
    was = everything(repository)
    before = states.take("spc_1", str(repository))
    git(repository, "reset", "-q", "--hard", "HEAD~1")
    git(repository, "branch", "-D", "feature")
    after = states.take("spc_1", str(repository))
    git(repository, "commit", "-q", "--allow-empty", "-m", "later work")
    head = git(repository, "rev-parse", "HEAD")
    planned = states.undo("spc_1", str(repository), before, after, dry_run=True)
    back, left = states.undo("spc_1", str(repository), before, after, dry_run=False)
    assert (back, left) == planned
    assert left == {"refs/heads/main": "was changed since"}
    assert "refs/heads/feature" in back
    refs, now, *rest = everything(repository)
    main = "commit\trefs/heads/main"
    assert refs == was[0].replace(f"{was[1]} {main}", f"{head} {main}")
    assert (now, rest) == (head, list(was[2:]))


def test_git_at_work_is_not_disturbed(repository, states):
    before = states.take("spc_1", str(repository))
    git(repository, "branch", "-D", "feature")
    after = states.take("spc_1", str(repository))
    (repository / ".git" / "refs" / "heads" / "feature.lock").touch()
    for dry_run in (True, False):
        back, left = states.undo("spc_1", str(repository), before, after, dry_run=dry_run)
        assert (back, list(left)) == ([], ["refs/heads/feature"])
        assert "git is at work" in left["refs/heads/feature"]
    assert "feature" not in git(repository, "branch")


@pytest.mark.parametrize("deadly", ["open", "rename_new", "replace", "unlink"])
def test_the_lock_of_a_killed_undo_goes(repository, states, deadly):
    """Control: the lock of the test above, which git has, stays."""
    before = states.take("spc_1", str(repository))
    git(repository, "branch", "-D", "feature")
    after = states.take("spc_1", str(repository))
    undo = partial(states.undo, "spc_1", str(repository), before, after, dry_run=False)
    assert killed(undo, deadly) == -9
    assert deadly != "replace" or list(repository.glob(".git/**/*.lock"))
    again = GitStates(str(repository.parent / "states"))
    now = again.take("spc_1", str(repository))
    assert not [each for each in repository.glob(".git/**/*.lock") if not each.name.endswith(".bascule.lock")]
    again.undo("spc_1", str(repository), before, now, dry_run=False)
    assert again.take("spc_1", str(repository)) == before
    assert not list(repository.glob(".git/**/*.lock"))


def killed(undo, deadly):
    """It dies after it has its lock, or before the step of this name."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    module = git_record if deadly == "rename_new" else os
    call = getattr(module, deadly)

    def die(*arguments, **more):
        if deadly == "rename_new":
            call(*arguments, **more)
        if deadly != "open" or "bascule" in str(arguments[0]):
            os.kill(os.getpid(), 9)
        return call(*arguments, **more)

    setattr(module, deadly, die)
    try:
        undo()
    finally:
        os._exit(1)


def test_the_lock_of_an_undo_in_another_worktree_goes_with_it(repository, states, tmp_path):
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", str(other), "feature")
    before = states.take("spc_2", str(other))
    git(other, "rm", "-q", "--cached", "file")
    after = states.take("spc_2", str(other))
    undo = partial(states.undo, "spc_2", str(other), before, after, dry_run=False)
    assert killed(undo, "rename_new") == -9
    again = GitStates(str(tmp_path / "states"))
    again.take("spc_1", str(repository))
    again.take("spc_2", str(other))
    assert not list(repository.glob(".git/**/*.lock"))
    git(other, "add", "file")


@pytest.mark.parametrize("content", ["", "ref: refs/heads/x\n", "a lock of Bascule's undo, process {} began {}\n"])
def test_a_lock_of_git_or_of_a_process_that_lives_stays(repository, states, content):
    """The third is what another daemon of the same user has there, while it is at work."""
    lock = repository / ".git" / "index.lock"
    lock.write_text(content.format(os.getpid(), git_record.began(os.getpid())))
    # What only looks like ours has nothing to do with any lock.
    other = repository / ".git" / "bascule-lock-notes"
    other.write_text("notes")
    before = states.take("spc_1", str(repository))
    git(repository, "branch", "-D", "feature")
    states.undo("spc_1", str(repository), before, states.take("spc_1", str(repository)), dry_run=False)
    assert lock.exists()
    assert other.exists()
    lock.write_text("a lock of Bascule's undo, process 4194305 began 7\n")
    GitStates(str(repository.parent / "states")).take("spc_1", str(repository))
    assert not lock.exists(), "the control: of a process that is gone"


def test_a_worktree_has_its_own_head_and_the_shared_refs(repository, states, tmp_path):
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", str(other), "feature")
    was = everything(other)
    before = states.take("spc_1", str(other))
    git(other, "reset", "-q", "--hard", "HEAD~1")
    states.undo("spc_1", str(other), before, states.take("spc_1", str(other)), dry_run=False)
    assert everything(other) == was


def test_a_submodule_has_a_record_of_its_own(repository, states, tmp_path):
    above = tmp_path / "above"
    above.mkdir()
    git(above, "init", "-q", "-b", "main")
    git(above, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repository), "part")
    part = above / "part"
    assert (part / ".git").is_file()
    was = everything(part)
    before = states.take("spc_1", str(part))
    git(part, "reset", "-q", "--hard", "HEAD~2")
    assert everything(part) != was
    states.undo("spc_1", str(part), before, states.take("spc_1", str(part)), dry_run=False)
    assert everything(part) == was


def test_a_git_file_that_leads_nowhere_is_no_repository(states, tmp_path):
    (tmp_path / ".git").write_text("gitdir: gone\n")
    assert states.take("spc_1", str(tmp_path)) is None


def test_an_unchanged_record_is_not_read_again(repository, states, monkeypatch):
    for path in [repository / ".git", *(repository / ".git").rglob("*")]:
        os.utime(path, (0, 0))
    # Times of change cannot be set: what counts as just now is moved instead.
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.git_states._TICK_NS", -PATIENCE * 10**9)
    before = states.take("spc_1", str(repository))
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.git_states._state", None)
    assert states.take("spc_1", str(repository)) == before
    monkeypatch.undo()
    git(repository, "tag", "v1")
    assert states.take("spc_1", str(repository)) != before


def test_configuration_and_hooks_come_back_as_programs(repository, states):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    was = (repository / ".git" / "config").read_bytes()
    before = states.take("spc_1", str(repository))
    git(repository, "config", "core.hooksPath", "/tmp/elsewhere")
    git(repository, "remote", "add", "lost", "/nowhere")
    hook.unlink()
    (repository / ".git" / "info" / "exclude").write_text("*\n")
    after = states.take("spc_1", str(repository))
    back, left = states.undo("spc_1", str(repository), before, after, dry_run=False)
    assert (sorted(back), left) == (["config", "hooks/pre-commit", "info/exclude"], {})
    assert (repository / ".git" / "config").read_bytes() == was
    assert hook.stat().st_mode & 0o777 == 0o755


def test_a_hook_that_may_no_longer_be_executed_is_one_that_changed(repository, states):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    before = states.take("spc_1", str(repository))
    hook.chmod(0o644)
    after = states.take("spc_1", str(repository))
    states.undo("spc_1", str(repository), before, after, dry_run=False)
    assert hook.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("commands", "is_named"),
    [
        ([("commit", "-q", "--allow-empty", "-m", "more")], True),
        ([("branch", "other")], True),
        ([("config", "user.name", "other")], True),
        ([("status",), ("update-index", "--refresh")], False),
        ([("log",), ("diff", "HEAD"), ("stash", "list")], False),
    ],
)
def test_a_change_in_a_repository_further_down_is_named(repository, states, commands, is_named):
    lib = repository / "lib"
    lib.mkdir()
    git(lib, "init", "-q", "-b", "main")
    git(lib, "commit", "-q", "--allow-empty", "-m", "first")
    before = states.take("spc_1", str(repository), further=[".git", "lib/.git"])
    assert states.further("spc_1", before) == ["lib/.git"]
    for words in commands:
        git(lib, *words)
    after = states.take("spc_1", str(repository), further=["lib/.git"])
    named = [] if before == after else list(states.not_held("spc_1", str(repository), before, after))
    assert named == (["lib/.git"] if is_named else [])


def test_a_repository_further_down_needs_none_at_the_top(tmp_path, states):
    lib = tmp_path / "plain" / "lib"
    lib.mkdir(parents=True)
    git(lib, "init", "-q", "-b", "main")
    before = states.take("spc_1", str(tmp_path / "plain"), further=["lib/.git"])
    (lib / ".git" / "HEAD").unlink()
    after = states.take("spc_1", str(tmp_path / "plain"), further=["lib/.git"])
    assert states.undo("spc_1", str(tmp_path / "plain"), before, after, dry_run=False) == ([], {})
    assert list(states.not_held("spc_1", str(tmp_path / "plain"), before, after)) == ["lib/.git"]


def test_a_record_that_changed_just_now_is_read_again(repository, states):
    before = states.take("spc_1", str(repository))
    head = repository / ".git" / "HEAD"
    found = head.stat()
    head.write_text(head.read_text().replace("main", "niam"))
    os.utime(head, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert states.take("spc_1", str(repository)) != before


def test_a_full_disk_keeps_no_half_of_a_state(small_disk, repository):
    with open(small_disk / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))
    os.truncate(small_disk / "ballast", (small_disk / "ballast").stat().st_size - 8_192)
    (repository / ".git" / "index").write_bytes(bytes(100_000))
    states = GitStates(str(small_disk))
    with pytest.raises(CheckpointFault, match="state is full"):
        states.take("spc_1", str(repository))
    assert os.listdir(small_disk / "spc_1") == []


def test_without_a_repository_there_is_no_state(states, tmp_path):
    assert states.take("spc_1", str(tmp_path)) is None


def test_a_changed_state_is_not_put_back(repository, states, tmp_path):
    before = states.take("spc_1", str(repository))
    git(repository, "branch", "-D", "feature")
    after = states.take("spc_1", str(repository))
    kept = tmp_path / "states" / "spc_1" / before
    kept.chmod(0o600)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointFault, match="was changed"):
        states.undo("spc_1", str(repository), before, after, dry_run=False)


def test_states_that_nobody_needs_go_after_an_hour(repository, states, tmp_path):
    kept, lost = states.take("spc_1", str(repository)), None
    git(repository, "tag", "v1")
    lost = states.take("spc_1", str(repository))
    for name in (kept, lost):
        os.utime(tmp_path / "states" / "spc_1" / name, (0, 0))
    states.collect({"spc_1": [kept]})
    assert os.listdir(tmp_path / "states" / "spc_1") == [kept]


def test_what_changed_later_than_the_last_sign_of_a_daemon_is_not_taken_for_the_calls_work(tmp_path, repository):
    states = GitStates(str(tmp_path / "states"))
    before = states.take("spc_1", str(repository))
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    head = git(repository, "rev-parse", "HEAD")
    unknown = states.take("spc_1", str(repository), until_ms=1)
    back, left = states.undo("spc_1", str(repository), before, unknown, dry_run=False)
    assert "refs/heads/main" in left
    assert not back
    assert git(repository, "rev-parse", "HEAD") == head
    # The control: known to be as the call left it.
    known = states.take("spc_1", str(repository), until_ms=round(time.time() * 1000) + 3_600_000)
    back, left = states.undo("spc_1", str(repository), before, known, dry_run=False)
    assert "refs/heads/main" in back
    assert not left
    assert git(repository, "rev-parse", "HEAD") != head


def test_another_mode_of_the_repository_is_named_and_nobodys_later_one_is_changed(repository, states):
    place = repository / ".git"
    place.chmod(0o755)
    before = states.take("spc_1", str(repository))
    place.chmod(0o777)
    after = states.take("spc_1", str(repository))
    place.chmod(0o700)
    assert "had mode 0755" in states.not_held("spc_1", str(repository), before, after)[".git"]
    assert states.undo("spc_1", str(repository), before, after, dry_run=False) == ([], {})
    assert place.stat().st_mode & 0o7777 == 0o700
    # What a later commit moves is no business of an undo that changes nothing in git.
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    now, left = states.expect("spc_1", str(repository), before, after)
    assert now == left
