"""A real daemon in a process of its own, and every way in: TCP, `http.sock`, the link, the commands, MCP."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

from spec_peers import SCRIPTS, Answer, Events, Held, Link, Mcp, Unix

from patience import PATIENCE
from ports import free_port

# The machine that runs the tests may itself run agents.
OURS = ("BRIDGE_", "BASCULE_", "CODEX_", "CLAUDECODE", "TMUX")


def clean_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    # Compiled once, as on a user's machine, and not in each of the hundred processes again.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, **more}


def until(look: Callable[[], Any], what: str, *, seconds: float = PATIENCE) -> Any:
    """The first true value of `look`: for what the outside can only see by asking."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"never came: {what}"
        # Only so that the daemon has the processor for itself while we have nothing to do.
        time.sleep(0.005)
    return found


class Agent(NamedTuple):
    handle: str
    token: str


class House:
    """One daemon as `bascule up` runs it, with its settings in the environment and in files alone."""

    def __init__(
        self,
        settings: dict[str, Any] | None = None,
        *,
        config_files: dict[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        # Short: a socket's path has 103 bytes.
        self._root = tempfile.mkdtemp(prefix="bascule-")
        self.state = os.path.join(self._root, "s")
        self.config_dir = os.path.join(self._root, "c")
        os.mkdir(self.config_dir, 0o700)
        for name, text in (config_files or {}).items():
            Path(self.config_dir, name).write_text(text, "utf-8")
        self.http_sock = os.path.join(self.state, "http.sock")
        self.settings = {"port": free_port(), "durability": "relaxed", "log": "off", **(settings or {})}
        # None: a settings file names it.
        self.port: int = self.settings["port"] if port is None else port
        self._names = 0
        self._log_read = 0
        self._log_lines: list[dict[str, Any]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._commands: list[subprocess.Popen[str]] = []
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            # Four times as quick as asking; the tests that are about stopping ask.
            self.kill()
        for command in self._commands:
            command.kill()
            command.communicate()
        shutil.rmtree(self._root)

    # -- life --

    def start(self) -> None:
        set_ = {name: value for name, value in self.settings.items() if value is not None}
        environment = {f"BASCULE_{name.upper()}": str(value) for name, value in set_.items()}
        self._process = subprocess.Popen(
            [SCRIPTS / "bascule", "up", "--state-dir", self.state],
            env=clean_environment(BASCULE_CONFIG_DIR=self.config_dir, **environment),
        )
        try:
            until(self._serves, "the daemon's last door")
        except AssertionError:
            self.__exit__()
            raise

    def _serves(self) -> bool:
        """Its doors open one after the other, TCP last; what is loaded behind them is no matter of the broker's."""
        assert self._process is not None
        assert self._process.poll() is None, f"the daemon ended with {self._process.returncode}"
        family, address = (socket.AF_INET, ("127.0.0.1", self.port)) if self.port else (socket.AF_UNIX, self.http_sock)
        with socket.socket(family) as probe:
            return probe.connect_ex(address) == 0

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def ended(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def stop(self) -> None:
        self.signal()
        assert self.ended() == 0

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.ended()

    # -- HTTP --

    @property
    def local_token(self) -> str:
        return Path(self.state, "local.token").read_text("utf-8")

    def begin(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "local",
        door: str = "tcp",
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPConnection:
        if door == "tcp":
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            token = self.local_token if token == "local" else token
        else:
            connection = Unix(self.http_sock)
            token = None if token == "local" else token
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection.request(verb, path, data, sent)
        return connection

    def http(self, verb: str, path: str, body: Any = None, **how: Any) -> Answer:
        return Held(self.begin(verb, path, body, **how)).answer()

    def get(self, path: str, **how: Any) -> Answer:
        return self.http("GET", path, **how)

    def post(self, path: str, body: Any = None, **how: Any) -> Answer:
        return self.http("POST", path, body, **how)

    def hold(self, path: str, **how: Any) -> Held:
        """A GET that waits at the daemon: returns when the daemon has it."""
        before = self.waits()
        held = Held(self.begin("GET", path, **how))
        until(lambda: self.waits() > before, f"a wait on {path}")
        return held

    def events(self, path: str, **how: Any) -> Events:
        return Events(self.begin("GET", path, **how))

    def waits(self) -> int:
        text = self.get("/metrics", door="unix").body.decode()
        return int(next(line for line in text.splitlines() if line.startswith("bascule_waits ")).split()[1])

    # -- agents and messages --

    def new_name(self, base: str = "Jerry") -> str:
        self._names += 1
        return f"{base}-{self._names}"

    def register(self, handle: str | None = None, **more: Any) -> Agent:
        handle = handle or self.new_name()
        answer = self.post("/agents/register", {"agentId": handle, **more})
        assert answer.status == 200, answer.body
        return Agent(handle, answer.json["agentToken"])

    def register_offline(self) -> Agent:
        """An agent whose process was there and has ended."""
        agent = self.register()
        with self.link(agent.token):
            pass
        until(lambda: self.agent_view(agent.handle)["status"] == "offline", "the agent to be seen gone")
        return agent

    def send(self, to: str, payload: Any = "hello", *, token: str | None = "local", **more: Any) -> str:
        answer = self.post(f"/agents/{to}/send", {"payload": payload, **more}, token=token)
        assert answer.status == 200, answer.body
        return str(answer.json["ticketId"])

    def take(self, agent: Agent, query: str = "waitMs=0") -> Answer:
        return self.get(f"/agents/{agent.handle}/inbox?{query}", token=agent.token)

    def ack(self, agent: Agent, *tickets: str) -> Answer:
        return self.post(f"/agents/{agent.handle}/inbox/ack", {"ticketIds": list(tickets)}, token=agent.token)

    def reply(self, agent: Agent, ticket: str, payload: Any = "done", **more: Any) -> Answer:
        return self.post("/replies", {"ticketId": ticket, "payload": payload, **more}, token=agent.token)

    def ticket(self, ticket: str, **how: Any) -> dict[str, Any]:
        answer = self.get(f"/tickets/{ticket}", **how)
        assert answer.status == 200, answer.body
        return dict(answer.json)

    def token_path(self, handle: str) -> Path:
        name = "".join(f"+{letter.lower()}" if letter.isupper() else letter for letter in handle)
        return Path(self.state, "tokens", f"{name}.token")

    def agent_view(self, handle: str) -> dict[str, Any]:
        return next(view for view in self.get("/agents").json if view["agentId"] == handle)

    # -- other doors --

    def link(self, token: str | None = None) -> Link:
        return Link(os.path.join(self.state, "link.sock"), token)

    def environment(self, **more: str) -> dict[str, str]:
        """Of a shell in which an agent works: it knows where the daemon is, and the commands are in PATH."""
        path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
        return clean_environment(**{"BASCULE_STATE_DIR": self.state, "PATH": path, **more})

    def run(self, *command: str, stdin: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            env=self.environment(**environment),
            timeout=PATIENCE,
            check=False,
        )

    def started(self, *command: str, **environment: str) -> "subprocess.Popen[str]":
        """A command that runs on meanwhile; ended with the daemon at the latest."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(**environment),
        )
        self._commands.append(process)
        return process

    def mcp(self, *options: str, client: str = "claude-code", **environment: str) -> Mcp:
        return Mcp(self.state, *options, client=client, environment=self.environment(**environment))

    # -- the log --

    def log(self) -> list[dict[str, Any]]:
        """Every line so far; only what is new since the last look is read."""
        with open(os.path.join(self.state, "log", "daemon.log"), "rb") as file:
            file.seek(self._log_read)
            whole, found, _ = file.read().rpartition(b"\n")
        self._log_read += len(whole) + len(found)
        self._log_lines += [json.loads(line) for line in whole.splitlines()]
        return self._log_lines

    def logged(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line of `event` with these fields; the log is written a tenth of a second later."""

        def look() -> dict[str, Any] | None:
            lines = (line for line in self.log() if line["event"] == event)
            return next((line for line in lines if fields.items() <= line.items()), None)

        found: dict[str, Any] = until(look, f"{event} {fields} in the log")
        return found
