"""The fixture that everybody's daemons come from: what it promises about starting and cleaning up."""

import os
import socket

import pytest

from daemon_process import DaemonProcess
from patience import PATIENCE
from ports import free_port


def test_the_port_is_known_as_soon_as_the_daemon_is_started(start_daemon):
    port = free_port()
    daemon = start_daemon(None, "--durability", "memory", "--port", str(port))
    assert daemon.port == port
    with socket.create_connection(("127.0.0.1", port), PATIENCE):
        assert daemon.stop() == 0


def test_a_daemon_without_tcp_has_no_port(shared):
    assert shared.port is None


def test_a_daemon_that_does_not_start_leaves_nothing_behind(monkeypatch):
    made = []
    remove = DaemonProcess.remove
    monkeypatch.setattr(DaemonProcess, "remove", lambda self: (made.append(self), remove(self)))
    with pytest.raises(AssertionError, match="the daemon ended"):
        DaemonProcess(None, "--policy", "no-such-policy")
    (daemon,) = made
    assert daemon._running.poll() is not None
    assert not os.path.exists(daemon._root)
