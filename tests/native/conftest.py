import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hook_ways import HiddenTool, Program

from daemon_process import DaemonProcess
from native_scene import Scene, make_project
from undo_place import Place


@pytest.fixture
def scene(start_daemon, tmp_path):
    """A session of Claude Code in a project inside a home of its own."""
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    make_project(project)
    made = Scene(start_daemon(None, env={"HOME": str(home)}), project)
    made.note("SessionStart")
    yield made
    made.close()


@pytest.fixture
def make_place(start_daemon, tmp_path):
    made = []

    def make(*options):
        root = tmp_path / "home" / "project"
        root.mkdir(parents=True)
        make_project(root)
        made.append(Place(start_daemon(None, *options, env={"HOME": str(root.parent)}), root))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def place(make_place):
    return make_place()


@pytest.fixture
def short_path():
    """Pytest's directories are too long for a unix socket's path."""
    with tempfile.TemporaryDirectory(prefix="bsc") as directory:
        yield Path(directory)


@pytest.fixture
def mount_small():
    """`mount_small(place)`: a disk of two megabytes, or of another size."""
    mounted = []

    def mount(place, size="2m"):
        place.mkdir(parents=True, mode=0o700)
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", place]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            assert os.environ.get("CI") != "true", done.stderr
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        # Lazily: a process that a failed test left behind must not keep the mount.
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def small_disk(mount_small, tmp_path):
    return mount_small(tmp_path / "small")


@pytest.fixture(scope="module")
def hooked(tmp_path_factory):
    """A daemon and a project for all tests of a module, which choose modes for themselves."""
    home = tmp_path_factory.mktemp("home")
    project = home / "project"
    project.mkdir()
    make_project(project)
    daemon = DaemonProcess(None, "--durability", "memory", env={"HOME": str(home)})
    made = Scene(daemon, project)
    yield made
    made.close()
    daemon.remove()


@pytest.fixture(scope="module", params=[Program, HiddenTool])
def way(request, hooked):
    made = request.param(hooked.daemon, hooked.root)
    yield made
    made.close()


@pytest.fixture
def observing(hooked):
    for client in ("claude", "codex", "gemini"):
        hooked.wire.call("native.mode", {"client": client, "mode": "observe"})
    return hooked


@pytest.fixture
def enforcing(hooked):
    for client in ("claude", "codex", "gemini"):
        hooked.wire.call("native.mode", {"client": client, "mode": "enforce"})
    yield hooked
    for client in ("claude", "codex", "gemini"):
        hooked.wire.call("native.mode", {"client": client, "mode": "observe"})
