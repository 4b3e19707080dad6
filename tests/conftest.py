"""What tests anywhere in the tree may use: real daemons, always cleaned up."""

import os
from collections.abc import Callable, Iterator

import pytest

from daemon_process import DaemonProcess

StartDaemon = Callable[..., DaemonProcess]

# The MCP SDK costs every daemon's start more than everything else together; who tests /mcp turns it on.
os.environ.setdefault("BASCULE_MCP", "off")


@pytest.fixture
def start_daemon() -> Iterator[StartDaemon]:
    """`start_daemon(tmp_path, *args, env=...)`: a daemon of the test's own; as many as it likes."""
    started: list[DaemonProcess] = []

    def start(
        directory: str | os.PathLike[str] | None = None, *args: str, env: dict[str, str] | None = None
    ) -> DaemonProcess:
        started.append(DaemonProcess(directory, *args, env=env))
        return started[-1]

    yield start
    for daemon in started:
        daemon.remove()


@pytest.fixture
def daemon(start_daemon: StartDaemon) -> DaemonProcess:
    """One daemon that keeps nothing on disk, for the test alone."""
    return start_daemon(None, "--durability", "memory")
