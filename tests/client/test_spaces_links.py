"""A link that a script made in its sandbox, and file operations through it: a real daemon, real files, real git."""

import os
import shutil
import subprocess
import time

import pytest

from bascule.client import OperationFailed, SyncClient
from bascule.workspace.protocol import ApprovalRequiredEvent, CreateFileEvent
from faults.swapping import swapping
from patience import PATIENCE

if shutil.which("bwrap") is None and os.environ.get("CI") != "true":
    pytest.skip("bubblewrap is not installed", allow_module_level=True)

# Operations of one run against names that are swapped.
MANY = 50
ROUNDS = 20


@pytest.fixture
def space(shared, tmp_path):
    with SyncClient.connect(shared.state_dir) as client:
        yield client.space(str(tmp_path))


def git(directory, *words):
    """As the user runs it, in their own shell and with nobody's configuration."""
    environment = {"PATH": os.environ["PATH"], "HOME": os.fspath(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(
        ["git", *words], cwd=directory, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE
    ).stdout


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a.txt").write_text("one\n")
    return tmp_path


def steer(repository, config: str) -> str:
    """What makes the user's `git status` run a program, which leaves a mark."""
    mark = repository / "mark"
    return config + f'[core]\n\tfsmonitor = "touch {mark}; false"\n'


def test_the_control_what_is_in_the_configuration_is_run_by_the_next_git_status(repository):
    config = repository / ".git/config"
    config.write_text(steer(repository, config.read_text()))
    git(repository, "status")
    assert (repository / "mark").exists()


@pytest.mark.parametrize(
    ("target", "link", "path"),
    [(".git", "gg", "gg/config"), (".git/config", "c", "c"), ("../.git", "d/gg", "d/gg/config")],
)
def test_a_link_that_a_script_made_leads_no_operation_into_the_repository(space, repository, target, link, path):
    config = (repository / ".git/config").read_text()
    # Nothing in the command says what it does.
    space.create_file("make.py", f"import os; os.makedirs('d'); os.symlink({target!r}, {link!r})")
    assert space.exec("python3 make.py").exit_code == 0
    for act in (
        lambda: space.create_file(path, steer(repository, config), overwrite=True),
        lambda: space.edit_file(path, [("[core]", steer(repository, "") + "[core]")]),
    ):
        with pytest.raises(OperationFailed) as failed:
            act()
        assert isinstance(failed.value.event, ApprovalRequiredEvent)
        assert "Writing .git/config requires approval" in failed.value.event.reason
        assert f"`{path}` leads to `.git/config` through a link" in failed.value.event.reason
    assert (repository / ".git/config").read_text() == config
    git(repository, "status")
    assert not (repository / "mark").exists()


def test_a_directory_swapped_with_a_link_leads_no_operation_past_the_question(space, repository):
    """`mine` is a directory one moment and a link to `.git` the next; both answers must be seen, and no third."""
    config = (repository / ".git/config").read_text()
    (repository / "mine").mkdir()
    (repository / "other").symlink_to(".git")
    operations = [
        {"type": "createFile", "path": "mine/config", "content": "evil", "overwrite": True} for _ in range(MANY)
    ]
    seen = {"allowed": 0, "asked": 0}
    rounds = 0
    with swapping(repository / "mine", repository / "other"):
        deadline = time.monotonic() + PATIENCE
        while rounds < ROUNDS or not all(seen.values()):
            assert time.monotonic() < deadline, seen
            rounds += 1
            run = space.run(operations)
            for event in run.events:
                if isinstance(event, ApprovalRequiredEvent):
                    seen["asked"] += 1
                elif isinstance(event, CreateFileEvent) and event.success:
                    seen["allowed"] += 1
            if run.status == "awaiting_approval":
                space.cancel(run.run_id)
            assert (repository / ".git/config").read_text() == config


def test_a_link_to_what_is_not_asked_about_is_followed(space, repository):
    assert space.exec("mkdir src && echo one > src/a && ln -s src s").exit_code == 0
    space.edit_file("s/a", [("one", "two")])
    assert (repository / "src/a").read_text() == "two\n"
    assert space.read_file("s/a") == b"two\n"


def test_a_path_of_255_characters_is_taken_and_a_name_of_400_bytes_is_the_file_systems_no(space, tmp_path):
    path = "/".join(["é" * 100, "ü" * 100, "ø" * 53])
    space.create_file(path, "x")
    assert space.read_file(path) == b"x"
    with pytest.raises(OperationFailed) as failed:
        space.create_file("é" * 200, "x")
    assert "a name in it has 400 bytes, and this file system takes 255; use a shorter one" in failed.value.message
    assert sorted(os.listdir(tmp_path)) == ["é" * 100]
