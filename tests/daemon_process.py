"""A real daemon in its own process, as `bascule up` starts it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from inside import BASCULE
from patience import PATIENCE

_POLL_SECONDS = 0.005
# Of a unix socket: 103 bytes on a Mac, some more elsewhere.
_MAX_SOCKET_PATH_BYTES = 103


class DaemonProcess:
    """Started when made. `args` are those of `bascule up`; the user's own settings are out of reach."""

    def __init__(
        self, directory: str | os.PathLike[str] | None = None, *args: str, env: dict[str, str] | None = None
    ) -> None:
        # pytest's directories are too long for a unix socket's path.
        self._root = tempfile.mkdtemp(prefix="bsc")
        self.state_dir = os.path.join(self._root, "s")
        if directory is not None:
            wanted = os.path.join(os.fspath(directory), "s")
            if len(os.fsencode(os.path.join(wanted, "link.sock"))) <= _MAX_SOCKET_PATH_BYTES:
                self.state_dir = wanted
        self._args = args
        self._env = env or {}
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            # Nobody has hold of it yet, so nobody else could end it.
            self.remove()
            raise

    def start(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "BRIDGE_"))
        }
        environment |= {"BASCULE_CONFIG_DIR": os.path.join(self._root, "config")} | self._env
        given = set(self._args)
        defaults = [("--port", "0"), ("--log", "off")]
        more = [text for pair in defaults if pair[0] not in given for text in pair]
        command = [*BASCULE, "up", "--state-dir", self.state_dir]
        with open(os.path.join(self._root, "stderr"), "ab") as errors:
            self._process = subprocess.Popen(
                [*command, *more, *self._args],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self._await_link()

    def _await_link(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(os.path.join(self.state_dir, "link.sock"))
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
            assert self._running.poll() is None, f"the daemon ended: {self.log_text()}"
            assert time.monotonic() < deadline, f"the daemon is not ready: {self.log_text()}"
            time.sleep(_POLL_SECONDS)

    @property
    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def port(self) -> int | None:
        """The TCP port; None while TCP is off (`--port 0`, the default here)."""
        address = self._doors().get("tcp")
        return int(address.rpartition(":")[2]) if address else None

    def _doors(self) -> dict[str, str]:
        """The daemon names its doors in the lock file once all are open, which is after link answers."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with open(os.path.join(self.state_dir, "daemon.lock"), encoding="utf-8") as file:
                text = file.read()
            # Between its truncation and the next note the file is empty.
            if text and "doors" in (facts := json.loads(text)):
                doors: dict[str, str] = facts["doors"]
                return doors
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"the daemon never named its doors: {self.log_text()}")

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: what a crash leaves behind."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def _end(self, number: int) -> int:
        if self._running.poll() is None:
            os.kill(self.pid, number)
        return self._running.wait(PATIENCE)

    def log_text(self) -> str:
        """What it wrote to its log and to the terminal, for assertions and for whoever reads a failure."""
        output = ""
        for path in (os.path.join(self.state_dir, "log", "daemon.log"), os.path.join(self._root, "stderr")):
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    output += file.read()
        return output

    def remove(self) -> None:
        """End it whatever it does, and leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._root, ignore_errors=True)
