"""The disk with all of Bascule's state is full: calls go on, and it is said everywhere where anything can be said."""

import contextlib
import json
from pathlib import Path

import pytest
from test_native_calls import bash, hook

from bascule.foundation.errors import Conflict
from native_scene import Scene, make_project, snapshot


@pytest.fixture
def full(short_path, mount_small, start_daemon):
    """A session with one call that has an undo; then the disk is filled."""
    disk = mount_small(short_path / "s", "16m")
    root = short_path / "home" / "project"
    root.mkdir(parents=True)
    make_project(root)
    scene = Scene(start_daemon(short_path, env={"HOME": str(root.parent)}), root)
    assert scene.daemon.state_dir == str(disk)
    scene.note("SessionStart")
    assert "note" not in scene.run("echo first > first.txt")
    with open(disk / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4_096))
    yield scene
    scene.close()


def test_a_call_goes_on_and_is_told_counted_and_listed_without_an_undo(full):
    (full.root / "new").write_bytes(b"x" * 100_000)
    done = hook(full, bash(full, "rm -rf src", "full-1"))
    assert done.returncode == 0
    words = json.loads(done.stdout)["systemMessage"]
    assert words.startswith("Bascule: no undo: ")
    assert "the disk with Bascule's state is full" in words
    full.after("rm -rf src", "full-1")
    report = full.wire.call("native.report", {})
    assert (report["calls"], report["undoable"], report["withoutUndo"]) == (2, 1, 1)
    (session,) = full.wire.call("sessions.list", {})
    assert session["withoutUndo"] == 1
    run = full.wire.call("runs.list", {})[0]
    assert run["native"]["title"] == "rm -rf src"
    assert f"Bascule: {run['note']}" == words


def test_with_room_again_there_is_an_undo_again(full):
    answer = full.run("rm -rf tests")
    assert "the disk with Bascule's state is full" in answer["note"]
    Path(full.daemon.state_dir, "ballast").unlink()
    # It was kept in memory meanwhile.
    with pytest.raises(Conflict, match=r"cannot be taken back: no undo: .* is full"):
        full.undo(answer["runId"])
    was = snapshot(full.root)
    later = full.run("rm -rf src")
    assert "note" not in later
    full.undo(later["runId"])
    assert snapshot(full.root) == was
