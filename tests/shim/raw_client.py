"""An MCP client of a few lines: starts `bascule mcp` as a client would and speaks JSON lines with it."""

import json
import os
import queue
import subprocess
import threading
from typing import Any, Self

from inside import BASCULE
from patience import PATIENCE

# What clients leave of the environment for the servers they start.
KEPT = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
COMMAND = [*BASCULE, "mcp"]
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
CLIENT_INFO = {"name": "claude-code", "version": "2.1.0"}


class RawClient:
    def __init__(self, state: str, *options: str, cwd: str | None = None, **variables: str) -> None:
        self._command = [*COMMAND, "--state-dir", state, *options]
        self._environment = {name: os.environ[name] for name in KEPT if name in os.environ} | variables
        self._cwd = cwd
        self._numbers = 0
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.aside: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd=self._cwd,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.exit_code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self._reader.join(PATIENCE)
        self.process.stdout.close()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def write(self, line: bytes) -> None:
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n")

    def ask(self, method: str, **params: Any) -> int:
        self._numbers += 1
        message = {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")
        return self._numbers

    def next(self) -> dict[str, Any]:
        message = self._lines.get(timeout=PATIENCE)
        assert message is not None, "the shim has ended"
        return message

    def answer_to(self, number: int) -> dict[str, Any]:
        for message in self.aside:
            if message.get("id") == number:
                self.aside.remove(message)
                return message
        while (message := self.next()).get("id") != number:
            self.aside.append(message)
        return message

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer_to(self.ask(method, **params))

    def initialize(self, version: str = "2025-11-25", client: dict[str, Any] = CLIENT_INFO) -> dict[str, Any]:
        answer = self.request("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.notify("notifications/initialized")
        return answer["result"]

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return self.request("tools/call", name=name, arguments=arguments)["result"]

    def start_call(self, name: str, meta: dict[str, Any] | None = None, **arguments: Any) -> int:
        params = {"name": name, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return self.ask("tools/call", **params)


def modern(version: str = "2026-07-28") -> dict[str, Any]:
    return {VERSION_KEY: version, CLIENT_KEY: CLIENT_INFO, CAPABILITIES_KEY: {}}
