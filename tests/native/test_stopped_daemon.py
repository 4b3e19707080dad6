"""A daemon whose process is stopped takes connections and never answers: a client's call must not wait for it."""

import os
import signal
import sys

import pytest
from test_native_calls import bash, hook

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says that a process is stopped")


@pytest.fixture
def stopped(scene):
    os.kill(scene.daemon.pid, signal.SIGSTOP)
    yield scene
    os.kill(scene.daemon.pid, signal.SIGCONT)


def test_a_hook_of_a_stopped_daemon_lets_the_call_go_on_before_and_after(stopped):
    arguments = {"command": "rm -rf src"}
    before, after = (stopped.event(name, "Bash", arguments, tool_use_id="t1") for name in ("PreToolUse", "PostToolUse"))
    for event in (before, after, stopped.event("UserPromptSubmit", prompt="x")):
        done = hook(stopped, event)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_closed_hook_refuses_and_names_the_stopped_process(stopped):
    done = hook(stopped, bash(stopped, "ls", "t1"), "--closed")
    assert done.returncode == 2
    # Not "did not answer in time", which takes a minute.
    assert f"the daemon is stopped: process {stopped.daemon.pid}" in done.stderr


def test_the_same_daemon_answers_again_once_it_goes_on(stopped):
    assert hook(stopped, bash(stopped, "ls", "t1"), "--closed").returncode == 2
    os.kill(stopped.daemon.pid, signal.SIGCONT)
    assert hook(stopped, bash(stopped, "ls", "t2"), "--closed").returncode == 0
