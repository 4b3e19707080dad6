"""What a run leaves that other programs of the user obey is in every answer about it."""

import os
import shutil
import subprocess
import sys

import pytest

from bascule.client import SyncClient
from patience import PATIENCE
from policy.steering_files import EXECUTED, READ

if shutil.which("bwrap") is None and os.environ.get("CI") != "true":
    pytest.skip("bubblewrap is not installed", allow_module_level=True)

# As a file: a command whose text names these would ask.
LEAVES = """
git init -q nested
git init -q --bare mirror.git
mkdir .vscode .claude
echo '{}' > .vscode/tasks.json
echo '{}' > .claude/settings.json
echo 'export A=b' > .envrc
echo '{"scripts": {"postinstall": "make"}}' > package.json
echo changed > ordinary
"""
OBEYED = "other programs of the user execute or obey it"
NEW = "a repository that was not there before; git obeys its configuration and hooks"
CHANGED = "a repository whose configuration or hooks changed; git obeys them"
EXPECTED = {
    f"nested/.git: {NEW}",
    f"mirror.git: {NEW}",
    f".vscode/tasks.json: {OBEYED}",
    f".claude/settings.json: {OBEYED}",
    f".envrc: {OBEYED}",
    "package.json: its scripts changed; npm runs some of them by itself",
}


@pytest.fixture
def space(shared, tmp_path):
    with SyncClient.connect(shared.state_dir) as client:
        yield client.space(str(tmp_path))


def test_a_run_names_what_it_left(space, shared, tmp_path):
    (tmp_path / "make.sh").write_text(LEAVES)
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert result.events[0].success, result
    assert set(result.steering) == EXPECTED
    assert set(space.runs()[0].steering) == EXPECTED
    assert set(space.diff(result.run_id).steering) == EXPECTED
    assert set([*space.follow(result.run_id)][-1].steering) == EXPECTED
    for words in (("runs", "show", "last"), ("runs", "diff", "last")):
        ran = bascule(shared, tmp_path, *words)
        assert all(f"[look at it: {each}]" in ran for each in EXPECTED), ran


def test_whatever_file_programs_or_agents_obey_is_named_by_a_run_that_leaves_them_all(space, shared, tmp_path):
    paths = [*EXECUTED, *READ]
    script = "".join(f"mkdir -p '{os.path.dirname(path) or '.'}'; echo x > '{path}'\n" for path in paths)
    (tmp_path / "make.sh").write_text(f"{script}echo x > main.py; mkdir src; echo x > src/README.md\n")
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert result.events[0].success, result
    named = dict(line.split(": ", 1) for line in result.steering)
    assert named.keys() == set(paths)
    assert {path for path, why in named.items() if why == "agents take it for instructions"} == set(READ)
    # What is executed comes first: there is a limit.
    assert list(named)[-len(READ) :] == sorted(READ, key=list(named).index)
    ran = bascule(shared, tmp_path, "runs", "show", "last")
    assert all(f"[look at it: {path}: " in ran for path in paths), ran


def test_a_person_at_the_terminal_sees_it_at_once(shared, tmp_path):
    (tmp_path / "make.sh").write_text("git init -q .\necho > .envrc\n")
    ran = bascule(shared, tmp_path, "exec", "--", "sh", "make.sh")
    assert f"[look at it: .git: {NEW}]" in ran
    assert f"[look at it: .envrc: {OBEYED}]" in ran


def test_ordinary_work_is_not_reported(space, tmp_path):
    (tmp_path / "package.json").write_text('{"scripts": {"test": "x"}, "dependencies": {}}')
    (tmp_path / ".envrc").write_text("as it was\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=PATIENCE)
    (tmp_path / "make.sh").write_text(
        """echo '{"scripts": {"test": "x"}, "dependencies": {"left-pad": "1"}}' > package.json
        echo x > Makefile; mkdir src; echo x > src/HEAD; rm .envrc
        git add -A && git -c user.name=a -c user.email=b commit -qm x && git status"""
    )
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert result.events[0].success, result
    assert result.steering == []


def test_a_repository_that_takes_anothers_place_is_named(space, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / ".git").symlink_to("old")
    (tmp_path / "make.sh").write_text("ln -sfn new .gitx; mv -T .gitx .git")
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert result.events[0].success, result
    assert result.steering == [f".git: {NEW}"]


def test_a_command_in_the_background_is_reported_as_well(space, tmp_path):
    (tmp_path / "make.sh").write_text(LEAVES)
    process = space.spawn("sh make.sh")
    assert set([*space.follow(process.run_id)][-1].steering) == EXPECTED
    assert set(space.diff(process.run_id).steering) == EXPECTED


def test_names_that_are_no_text_are_reported_in_one_line(space, tmp_path):
    (tmp_path / "make.sh").write_text(
        """d="$(printf 'a\\377\\nb')"; mkdir "$d"; git init -q "$d"; echo > "$d/.envrc" """
    )
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert set(result.steering) == {f"a\\udcff\\nb/.git: {NEW}", f"a\\udcff\\nb/.envrc: {OBEYED}"}


def test_a_repository_without_a_name_for_it_is_named_however_it_comes_about(space, tmp_path):
    for script, expected in (
        ("mkdir -p mirror/objects mirror/refs", []),
        ("echo ref: refs/heads/main > mirror/HEAD", [f"mirror: {NEW}"]),
        ("echo x > mirror/description", []),
        ("echo '[core]' > mirror/config", [f"mirror: {CHANGED}"]),
        ("mkdir mirror/hooks; echo x > mirror/hooks/post-receive", [f"mirror: {CHANGED}"]),
    ):
        (tmp_path / "make.sh").write_text(script)
        result = space.run([{"type": "shell", "command": "sh make.sh"}])
        assert result.steering == expected, script


def test_a_file_that_is_too_large_or_a_link_is_reported_by_its_name(space, tmp_path):
    (tmp_path / "make.sh").write_text("head -c 70000000 /dev/zero > .envrc; ln -s '{}' package.json")
    result = space.run([{"type": "shell", "command": "sh make.sh"}])
    assert set(result.steering) == {
        f".envrc: {OBEYED}",
        "package.json: its scripts changed; npm runs some of them by itself",
    }


def bascule(shared, folder, *words):
    """What the program says, on both streams."""
    first, rest = (1, words[1:]) if words[0] == "exec" else (2, words[2:])
    command = [sys.executable, "-P", "-m", "bascule.cli.start", *words[:first], "--state-dir", shared.state_dir, *rest]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return done.stdout + done.stderr
