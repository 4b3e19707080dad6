"""Git in a cell: used as ever, and no way from there into the user's own `git status`."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from adapters.sandbox.cells import a_space
from daemon.living import eventually
from patience import PATIENCE

ME = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(folder: Path, *words: str, check: bool = True) -> str:
    """The user's own, outside."""
    environment = {**os.environ, **ME, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        environment.pop(name, None)
    words = ("-c", "safe.directory=*", "-c", "protocol.file.allow=always", *words)
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def a_repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "file").write_text("one\n")
    git(folder, "add", "file")
    git(folder, "commit", "-qm", "one")
    return folder


def with_a_submodule(outside: Path) -> Path:
    a_repository(outside / "library")
    work = a_repository(outside / "work")
    git(work, "submodule", "--quiet", "add", str(outside / "library"), "vendor/library")
    git(work, "commit", "-qm", "library")
    return work


# Settings under which `git status` runs a program; the canary is a file in the workspace, where both sides can write.
EVIL = r"""
evil="touch $PWD/canary; false"
settings() { printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "%s"\n' "$evil"; }
"""
# Each: a preparation outside, then an attack inside.
PLAIN, SUBMODULE, WORKTREE, NO_HOOKS, WORKTREE_CONFIG, NESTED, EMPTY_SUBMODULE = range(7)
ATTACKS = {
    "config": (PLAIN, "settings > .git/config"),
    "config-renamed": (PLAIN, "settings > evil; mv -f evil .git/config"),
    "commondir": (
        PLAIN,
        "mkdir -p x/objects x/refs; cp -r .git/objects .git/refs x; settings > x/config; echo $PWD/x > .git/commondir",
    ),
    "git-becomes-a-file": (
        PLAIN,
        "mkdir x; cp -r .git/. x; chmod -R u+w x; settings > x/config; rm -rf .git; echo gitdir: $PWD/x > .git",
    ),
    "linked-worktree": (
        WORKTREE,
        (
            "mkdir -p x/objects x/refs; echo ref: refs/heads/main > x/HEAD; settings > x/config; "
            "echo gitdir: x > .git; echo gitdir: x > new; mv -f new .git; rm -f .git; echo gitdir: x > .git"
        ),
    ),
    "absent-hooks": (
        NO_HOOKS,
        (
            "mkdir -p .git/hooks; printf '#!/bin/sh\n%s\n' \"$evil\" > .git/hooks/post-index-change; "
            "chmod +x .git/hooks/post-index-change; touch -d yesterday file"
        ),
    ),
    "config.worktree": (WORKTREE_CONFIG, "settings > .git/config.worktree"),
    "gitlink": (
        PLAIN,
        "git init -q sub; cd sub; echo x > x; git add x; git commit -qm x; settings > .git/config; cd ..; git add sub",
    ),
    "gitlink-committed": (
        PLAIN,
        (
            "git init -q sub; cd sub; echo x > x; git add x; git commit -qm x; settings > .git/config; cd ..; "
            "git add sub; git commit -qm sub"
        ),
    ),
    "submodule-config": (SUBMODULE, "settings > .git/modules/vendor/library/config"),
    "submodule-link": (
        SUBMODULE,
        (
            "cp -r .git/modules/vendor/library x; chmod -R u+w x; settings > x/config; "
            "cd vendor/library; echo gitdir: ../../x > .git; rm -f .git; echo gitdir: ../../x > .git"
        ),
    ),
    "submodule-exchanged": (
        SUBMODULE,
        (
            "mv vendor old; git init -q vendor/library; cd vendor/library; echo x > x; git add x; git commit -qm x; "
            "settings > .git/config"
        ),
    ),
    "empty-submodule": (
        EMPTY_SUBMODULE,
        "cd vendor/library; git init -q .; echo x > x; git add x; git commit -qm x; settings > .git/config",
    ),
    "bare-at-the-top": (
        PLAIN,
        (
            "echo nonsense > .git/HEAD; rm -f .git/HEAD; rm -rf .git/refs .git/objects; "
            "mkdir -p objects refs; echo ref: refs/heads/main > HEAD; "
            'settings | sed "s|bare.*|worktree = $PWD|" > config'
        ),
    ),
}


def prepared(outside: Path, kind: int) -> Path:
    """A workspace, and the directory in which the user says `git status`."""
    if kind == SUBMODULE:
        return with_a_submodule(outside)
    if kind == EMPTY_SUBMODULE:
        work = with_a_submodule(outside)
        git(work, "submodule", "--quiet", "deinit", "--all", "-f")
        subprocess.run(["rm", "-rf", str(work / ".git" / "modules")], check=True)
        return work
    if kind == WORKTREE:
        a_repository(outside / "main")
        git(outside / "main", "worktree", "add", "-q", str(outside / "work"), "-b", "other")
        return outside / "work"
    work = a_repository(outside / "work")
    if kind == NO_HOOKS:
        subprocess.run(["rm", "-rf", str(work / ".git" / "hooks")], check=True)
    if kind == WORKTREE_CONFIG:
        git(work, "config", "extensions.worktreeConfig", "true")
    return work


@pytest.mark.parametrize("name", ATTACKS)
def test_a_command_cannot_make_the_users_git_run_a_program(outside: Path, name: str):
    kind, attack = ATTACKS[name]
    work = prepared(outside, kind)

    async def story():
        async with a_space(outside) as space:
            running = await space.start(f"{EVIL}\n{attack}\necho done; exec sleep 60", env=ME, on_output=on_data)
            async with asyncio.timeout(PATIENCE):
                await printed.wait()
            git(work, "status", check=False)
            assert not (work / "canary").exists(), "while the command runs"
            running.stop()
            await running.wait()
            git(work, "status", check=False)
            assert not (work / "canary").exists(), "after it has ended"

    printed = asyncio.Event()

    def on_data(stream: str, data: bytes) -> None:
        if stream == "stdout" and b"done" in data:
            printed.set()

    asyncio.run(story())


@pytest.mark.parametrize("name", ATTACKS)
def test_without_a_sandbox_the_users_git_runs_the_program(outside: Path, name: str):
    """The control: the same attack, the same `git status`."""
    kind, attack = ATTACKS[name]
    work = prepared(outside, kind)

    async def story():
        async with a_space(outside, kind="none") as space:
            await space.run(f"{EVIL}\n{attack}", env=ME)

    asyncio.run(story())
    git(work, "status", check=False)
    assert (work / "canary").exists()


# A mode that no git writes, and every git takes for a gitlink's.
FORGED = r"""
git init -q sub; cd sub; echo x > x; git add x; git commit -qm x; settings > .git/config; cd ..; git add sub
python3 -c '
import hashlib
data = open(".git/index", "rb").read()[:-20].replace(b"\0\0\xe0\0", b"\0\0\xe1\xa4")
open(".git/index", "wb").write(data + hashlib.sha1(data).digest())'
"""


@pytest.mark.parametrize(("kind", "runs"), [("bubblewrap", False), ("none", True)])
def test_a_forged_index_hides_no_repository(outside: Path, kind: str, runs: bool):
    work = a_repository(outside / "work")

    async def story():
        async with a_space(outside, kind=kind) as space:
            return await space.run(EVIL + FORGED, env=ME)

    outcome = asyncio.run(story())
    git(work, "status", check=False)
    assert (work / "canary").exists() is runs
    assert runs or "`sub` is a repository of its own" in (outcome.note or "")


@pytest.mark.parametrize(("kind", "read"), [("bubblewrap", False), ("none", True)])
def test_the_users_git_takes_no_file_into_the_repository_that_a_command_names(outside: Path, kind: str, read: bool):
    """`MERGE_RR` names files; git keeps copies of them in `rr-cache`, which commands may read."""
    work = a_repository(outside / "work")
    (outside / "secret").write_text("secret\n")
    kept = work / ".git" / "rr-cache" / ("1" * 40)
    kept.mkdir(parents=True)
    (kept / "preimage").write_text("<<<<<<<\na\n=======\nb\n>>>>>>>\n")

    async def story():
        async with a_space(outside, kind=kind) as space:
            await space.output_of(f"printf '%s\\t%s\\0' {'1' * 40} ../secret > .git/MERGE_RR")

    asyncio.run(story())
    git(work, "commit", "-q", "--allow-empty", "-m", "two")
    assert (kept / "postimage").exists() is read


# Each: a command, then what the user does. A branch's name stands in the line that git adds to a log.
LINKS = {
    "log-of-head": (
        "rm -f .git/logs/HEAD; ln -s {target} .git/logs/HEAD",
        ("commit", "-q", "--allow-empty", "-m", "two"),
    ),
    "log-of-branch": (
        "rm -f .git/logs/refs/heads/main; ln -s {target} .git/logs/refs/heads/main",
        ("commit", "-q", "--allow-empty", "-m", "two"),
    ),
    "commit-graph": (
        "ln -s {target} .git/objects/info/commit-graph",
        ("gc", "-q"),
    ),
    "about-objects": (
        "rm -rf .git/objects/info; ln -s {folder} .git/objects/info",
        ("gc", "-q"),
    ),
    "packs": (
        "rm -rf .git/objects/pack; ln -s {folder} .git/objects/pack",
        ("gc", "-q"),
    ),
    "index-of-packs": (
        "git gc -q; ln -s {target} .git/objects/pack/multi-pack-index",
        ("repack", "-adq", "--write-midx"),
    ),
    "branches": (
        "ln -s {folder} .git/refs/heads/of; echo ref: refs/heads/of/other > .git/HEAD",
        ("commit", "-q", "--allow-empty", "-m", "two"),
    ),
}


async def after_a_command(outside: Path, command: str, *, kind: str) -> Path:
    """A directory of the user beside the workspace, to which a command made links."""
    a_repository(outside / "work")
    folder = outside / "mine"
    folder.mkdir()
    (folder / "target").write_text("mine\n")
    async with a_space(outside, kind=kind) as space:
        await space.run(command.format(target=folder / "target", folder=folder), env=ME)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("name", LINKS)
def test_the_users_git_writes_through_no_link_of_a_command(outside: Path, name: str):
    command, words = LINKS[name]
    mine = asyncio.run(after_a_command(outside, command, kind="bubblewrap"))
    git(outside / "work", *words, check=False)
    assert contents(mine) == {"target": b"mine\n"}


@pytest.mark.parametrize("name", LINKS)
def test_without_a_sandbox_the_users_git_writes_through_a_link(outside: Path, name: str):
    """The control."""
    command, words = LINKS[name]
    mine = asyncio.run(after_a_command(outside, command, kind="none"))
    git(outside / "work", *words, check=False)
    assert contents(mine) != {"target": b"mine\n"}


ORDINARY = (
    "git status --short",
    "echo two >> file && git add file && git commit -qm two",
    "git checkout -qb feature",
    "echo three > other && git add other && git commit -qm three",
    "git checkout -q main && echo four > fourth && git add fourth && git commit -qm four",
    "git merge -q --no-edit feature",
    "echo dirty >> file && git stash -q && git stash pop -q && git checkout -q file",
    "git checkout -q feature && git rebase -q main && git checkout -q main",
    "git branch topic && git branch -d topic && git tag v1 && git log --oneline | wc -l",
    "git mv other renamed && git commit -qm moved && git revert --no-edit HEAD && git reset -q --hard HEAD~1",
    "git cherry-pick --allow-empty --keep-redundant-commits feature || git cherry-pick --abort; git gc -q",
    "git fsck --no-progress && git reflog | wc -l && git diff --stat && git blame file | wc -l",
)


def owners():
    return [None] if os.getuid() != 0 else [None, 65534]


@pytest.mark.parametrize("owner", owners())
def test_git_is_used_in_a_cell_as_ever(outside: Path, owner: int | None):
    work = a_repository(outside / "work")
    if owner is not None:
        subprocess.run(["chown", "-R", f"{owner}:{owner}", str(work)], check=True)
    before = sorted(os.listdir(work / ".git"))

    async def story():
        async with a_space(outside, owner=owner) as space:
            for command in ORDINARY:
                outcome = await space.run(command, env=ME)
                assert outcome.exit_code == 0, (command, outcome)
                assert outcome.note is None, (command, outcome)
                # One repository, seen from both sides, after each command.
                both = "git rev-parse HEAD; git symbolic-ref HEAD; git status --short; git branch"
                outside_status = "".join(git(work, *line.split()[1:]) for line in both.split("; "))
                assert await space.output_of(both) == outside_status, command
            assert os.lstat(work / ".git" / "HEAD").st_uid == (os.getuid() if owner is None else owner)
            # And what the user does is seen inside.
            git(work, "checkout", "-q", "-b", "users")
            (work / "users").write_text("x\n")
            git(work, "add", "users")
            git(work, "config", "user.name", "someone")
            git(work, "pack-refs", "--all")
            await space.output_of("git branch -D feature", env=ME)
            assert await space.output_of("git symbolic-ref --short HEAD; git status --short; git config user.name") == (
                "users\nA  users\nsomeone\n"
            )
            assert (await space.output_of("git branch")).split() == git(work, "branch").split()

    asyncio.run(story())
    git(work, "fsck", "--no-progress")
    left = set(os.listdir(work / ".git")) - set(before)
    assert left <= {"ORIG_HEAD", "packed-refs", "logs", "COMMIT_EDITMSG", "AUTO_MERGE", "MERGE_RR", "index"}, left


def mark_offline(work: Path) -> bool:
    return git(work, "symbolic-ref", "HEAD") == "refs/heads/mine\n" and not git(work, "status", "--short")


def test_a_commit_of_a_long_command_is_seen_outside_before_it_ends(outside: Path):
    work = a_repository(outside / "work")

    async def story():
        async with a_space(outside) as space:
            command = "git checkout -qb mine; echo x > x; git add x; git commit -qm x; exec sleep 60"
            running = await space.start(command, env=ME)
            await asyncio.to_thread(eventually, lambda: mark_offline(work), "the commit outside", 60.0)
            running.stop()
            await running.wait()

    asyncio.run(story())


def test_what_the_user_changed_meanwhile_wins(outside: Path):
    work = a_repository(outside / "work")

    async def story():
        async with a_space(outside) as space:
            running = await space.start("read x < go; git checkout -q -b inside; git status", cwd=None)
            git(work, "checkout", "-q", "-b", "outside")
            (work / "go").write_text("go\n")
            return await running.wait()

    os.mkfifo(work / "go")
    outcome = asyncio.run(asyncio.wait_for(story(), PATIENCE))
    assert git(work, "symbolic-ref", "HEAD") == "refs/heads/outside\n"
    assert ".git/HEAD was changed outside while the command changed it" in (outcome.note or "")


def test_a_rebase_in_the_middle_stays_in_the_sandbox_and_can_go_on_there(outside: Path):
    work = a_repository(outside / "work")
    git(work, "checkout", "-q", "-b", "topic")
    (work / "file").write_text("topic\n")
    git(work, "commit", "-qam", "topic")
    git(work, "checkout", "-q", "main")
    (work / "file").write_text("main\n")
    git(work, "commit", "-qam", "main")

    async def story():
        async with a_space(outside) as space:
            outcome = await space.run("git rebase main topic", env=ME)
            assert "stays in the sandbox" in (outcome.note or ""), outcome
            assert not (work / ".git" / "rebase-merge").exists()
            await space.output_of("echo both > file; git add file; GIT_EDITOR=true git rebase --continue", env=ME)
            assert (await space.run("git status --short")).note is None

    asyncio.run(story())
    assert git(work, "log", "--format=%s", "topic").split() == ["topic", "main", "one"]


def test_nothing_but_known_names_leaves_and_nothing_else_stays_for_the_next_command(outside: Path):
    work = a_repository(outside / "work")

    async def story():
        async with a_space(outside) as space:
            await space.output_of(
                "echo evil > .git/commondir2; mkdir .git/own; ln -s / .git/link; echo x > .git/index.lock"
            )
            assert "own" not in await space.output_of("ls .git")
            # A link instead of a file is not followed, and HEAD comes back.
            outcome = await space.run("rm .git/HEAD; ln -s /etc/passwd .git/HEAD; ln -sf /etc/passwd .git/MERGE_MSG")
            assert ".git/HEAD" in (outcome.note or "")
            assert await space.output_of("git symbolic-ref HEAD") == "refs/heads/main\n"

    names = set(os.listdir(work / ".git")) | {"COMMIT_EDITMSG"}
    asyncio.run(story())
    assert set(os.listdir(work / ".git")) <= names
    assert git(work, "symbolic-ref", "HEAD") == "refs/heads/main\n"


def test_a_nested_repository_is_sealed_and_used_as_well(outside: Path):
    work = outside / "work"
    nested = a_repository(work / "deep" / "down" / "project")

    async def story():
        async with a_space(outside) as space:
            await space.output_of("cd deep/down/project; echo two >> file; git commit -qam two", env=ME)
            for attack in (
                "echo x > .git/config",
                "echo x > .git/hooks/post-checkout",
                "mv .git x",
                "rm -rf .git/hooks",
            ):
                assert (await space.run(f"cd deep/down/project; {attack}")).exit_code != 0, attack

    asyncio.run(story())
    assert git(nested, "log", "--format=%s").split() == ["two", "one"]
    assert git(nested, "status", "--short") == ""


def test_refs_that_a_command_packed_or_put_away_are_all_there(outside: Path):
    work = a_repository(outside / "work")

    async def story():
        async with a_space(outside) as space:
            await space.output_of(
                "git branch a; git branch b/c; git tag t; git pack-refs --all; rm -rf .git/logs", env=ME
            )
            assert git(work, "for-each-ref", "--format=%(refname:short)").split() == ["a", "b/c", "main", "t"]
            # A branch becomes a directory of branches, and the other way round.
            await space.output_of(
                "git branch -D -q a b/c; git update-ref refs/heads/a/d HEAD; git update-ref refs/heads/b HEAD"
            )
            assert git(work, "for-each-ref", "--format=%(refname:short)").split() == ["a/d", "b", "main", "t"]
            await space.output_of("rm -rf .git/refs; ln -s /nowhere .git/refs")
            assert "a/d" in await space.output_of("git branch")
            # What both sides wrote to a log stays.
            running = await space.start("read x < go; git commit -q --allow-empty -m inside", env=ME)
            git(work, "checkout", "-q", "b")
            (work / "go").write_text("go\n")
            await running.wait()

    os.mkfifo(work / "go")
    asyncio.run(asyncio.wait_for(story(), PATIENCE))
    assert git(work, "for-each-ref", "--format=%(refname:short)").split() == ["a/d", "b", "main", "t"]
    assert "moving from main to b" in git(work, "reflog")
    git(work, "fsck", "--no-progress")
