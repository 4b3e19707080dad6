"""A daemon that ends while a call works: what the call did is known to the next life."""

import subprocess
import time

import pytest

from bascule.client import SyncClient
from bascule.foundation.errors import Conflict
from native_scene import snapshot
from patience import PATIENCE


def _restart(scene, *, kill):
    scene.close()
    scene.daemon.restart(kill=kill)
    scene.wire = SyncClient.connect(scene.daemon.state_dir)


def _undone(scene, run_id):
    """In the first moment of the new life what the call did to git is still being looked at."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return scene.undo(run_id)
        except Conflict as error:
            if "is being looked at" not in str(error) or time.monotonic() > end:
                raise


@pytest.mark.parametrize("kill", [False, True], ids=["down and up", "kill -9"])
@pytest.mark.parametrize(
    "command",
    [
        "git reset -q --hard HEAD~1",
        "git branch -D feature && rm -rf src",
        "git stash drop -q",
        "git checkout -q -b other",
    ],
)
def test_what_a_call_did_to_git_before_a_restart_is_undone(scene, command, kill):
    was = snapshot(scene.root)
    _, answer = scene.before(command)
    subprocess.run(command, shell=True, cwd=scene.root, check=True, capture_output=True, timeout=PATIENCE)
    assert snapshot(scene.root) != was
    _restart(scene, kill=kill)
    _undone(scene, answer["runId"])
    assert snapshot(scene.root) == was
