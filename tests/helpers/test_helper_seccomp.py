"""The helpers in a shell without sockets: they say so, and what to do instead."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.local_client import exits
from patience import PATIENCE

HERE = Path(__file__).parent
COMMANDS = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="seccomp filters are Linux's, and the numbers of system calls the machine's",
)


def sandboxed(forbidden: str, state: str, *command: str) -> subprocess.CompletedProcess[str]:
    program, *rest = command
    return subprocess.run(
        [sys.executable, HERE / "without_sockets.py", forbidden, COMMANDS / program, "--state-dir", state, *rest],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def jerry(daemon):
    assert sandboxed("none", daemon.state, "bridge-register", "--agent", "Jerry", "--type", "script").returncode == 0


@pytest.mark.usefixtures("jerry")
@pytest.mark.parametrize("forbidden", ["connect", "socket"])
def test_a_reply_from_a_shell_without_sockets_names_the_tool_that_does_it(forbidden, daemon):
    done = sandboxed(forbidden, daemon.state, "bridge-reply", "--agent", "Jerry", "t-1", "done")
    assert done.returncode == exits.NO_SOCKETS
    assert "post_reply" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("jerry")
def test_outside_the_sandbox_the_same_command_reaches_the_daemon(daemon):
    done = sandboxed("none", daemon.state, "bridge-reply", "--agent", "Jerry", "t-1", "done")
    assert done.returncode == exits.NOT_FOUND


def test_a_send_from_a_shell_without_sockets_names_the_tool_that_does_it(daemon):
    done = sandboxed("connect", daemon.state, "bridge-send", "Jerry", "hello")
    assert done.returncode == exits.NO_SOCKETS
    assert "send_message" in done.stderr
