"""A real `bascule desktop-host` process, spoken to over its socket by a client that shares no code with it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path

from desktop_rig import until

from patience import PATIENCE


class Refused(Exception):
    """The host answered with an error object."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.error = error
        self.code = error["code"]
        self.details = error["details"]


class Wire:
    """Frames written and read by hand, as any client of the contract would."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self._buffer = b""
        # Notifications come whenever they come; whoever waits for an answer is not disturbed by them.
        self.notifications = []

    def send_raw(self, body):
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def send(self, method, params, id_=None):
        id_ = id_ or str(uuid.uuid4())
        self.send_raw(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode())
        return id_

    def read(self):
        """The next answer; None at the end."""
        while (message := self.read_any()) is not None and "method" in message:
            self.notifications.append(message)
        return message

    def read_any(self):
        """The next whole message."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, rest = self._buffer.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        while len(rest) < length:
            if not self._more():
                return None
            rest = self._buffer.split(b"\r\n\r\n", 1)[1]
        self._buffer = rest[length:]
        return json.loads(rest[:length])

    def _more(self):
        data = self.socket.recv(1 << 20)
        self._buffer += data
        return bool(data)

    def close(self):
        self.socket.close()


class HostProcess:
    """`call` is one request and its answer; `act` confirms with the phrase."""

    def __init__(self, desktop, root, *options, env=None, stop_keys=False):
        self.desktop = desktop
        self.root = Path(root)
        # Socket paths are short; pytest's directories are not.
        self._directory = tempfile.mkdtemp(prefix="host")
        self.socket_path = os.path.join(self._directory, "desktop.sock")
        self.log = Path(self._directory) / "log"
        self.workspace = None
        self.new_workspace()
        command = [sys.executable, "-P", "-m", "bascule.cli.start", "desktop-host", "--listen", self.socket_path]
        if not stop_keys:
            # Several hosts share a display here; only one can have the chord.
            command.append("--no-stop-keys")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--workspace-root", str(self.root), *options],
                env={**(desktop.environment if desktop else os.environ), **(env or {})},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        until(lambda: os.path.exists(self.socket_path) or self.process.poll() is not None, "the host listens")
        try:
            assert self.process.poll() is None, self.log.read_text()
            self._wire = self.connect()
            until(lambda: self.call("desktop.health")["permissions"]["accessibility"] != "unknown", "the host is ready")
        except BaseException:
            self._wire.close()
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def new_workspace(self):
        self.workspace = self.root / f"ws-{uuid.uuid4().hex[:8]}"
        self.workspace.mkdir()
        return self.workspace

    def connect(self):
        return Wire(self.socket_path)

    def meta(self, **more):
        return {
            "schemaVersion": 1,
            "requestId": str(uuid.uuid4()),
            "workspacePath": str(self.workspace),
            "timeoutMs": 60_000,
            **more,
        }

    def call(self, method, /, wire=None, meta=None, **params):
        wire = wire or self._wire
        id_ = wire.send(method, {"meta": meta or self.meta(), **params})
        answer = wire.read()
        assert answer is not None, "the host closed the connection: " + self.log.read_text()[-2000:]
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == id_
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def act(self, method, /, wire=None, **params):
        return self.call(method, wire=wire, confirm={"phrase": "CONFIRM"}, **params)

    def issue(self, method, params, wire=None, **more):
        return self.call("desktop.confirm.issue", wire=wire, intent={"method": method, "params": params}, **more)

    def later(self, method, /, **params):
        """A call on a connection of its own; `.result()` waits for the answer."""
        return Later(self, method, params)

    def evidence(self, result):
        return Path(result["evidence"]["dir"])

    def close(self):
        self._wire.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        self.process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


class Later:
    def __init__(self, host, method, params):
        self._outcome = None
        meta = params.pop("meta", None) or host.meta()
        self.request_id = meta["requestId"]
        self.wire = host.connect()
        self.wire.send(method, {"meta": meta, **params})
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self):
        self._outcome = self.wire.read()

    @property
    def done(self):
        return not self._thread.is_alive()

    def answer(self):
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "no answer came"
        self.wire.close()
        return self._outcome

    def result(self):
        answer = self.answer()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]


def route(program, **more):
    """The window of a program of ours."""
    return {"window": {"titlePattern": "^" + re.escape(program.title) + "$"}, **more}
