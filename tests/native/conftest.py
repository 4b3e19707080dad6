import os
import subprocess

import pytest
from native_scene import ENVIRONMENT, Scene, make_project


@pytest.fixture
def scene(start_daemon, tmp_path):
    """A session of Claude Code in a project inside a home of its own."""
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    make_project(project)
    made = Scene(start_daemon(None, env=ENVIRONMENT | {"HOME": str(home)}), project)
    made.note("SessionStart")
    yield made
    made.close()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of two megabytes."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        assert os.environ.get("CI") != "true", done.stderr
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield place
    # Lazily: a process that a failed test left behind must not keep the mount.
    subprocess.run(["umount", "-l", place], check=True)
