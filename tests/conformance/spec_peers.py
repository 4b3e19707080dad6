"""Those who talk to the daemon: an HTTP client, a reader of events, a link connection, an MCP client.

Nothing here knows Bascule's own clients: what a stranger reads in the specification must be enough.
"""

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from patience import PATIENCE

# Where `bascule` and its sisters are installed.
SCRIPTS = Path(sys.executable).parent


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.json) == {"error"}, self.body
        return self.json["error"]


class Unix(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Held:
    """A request that was sent and is not answered yet."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def answer(self) -> Answer:
        with self._connection.getresponse() as response:
            headers = {name.lower(): value for name, value in response.getheaders()}
            body = response.read()
        self._connection.close()
        return Answer(response.status, headers, body)

    def hang_up(self) -> None:
        self._connection.close()


class Events:
    """Server-sent events of one open answer."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._response = connection.getresponse()
        assert self._response.status == 200, self._response.read()
        assert self._response.headers["content-type"] == "text/event-stream"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """(name, data) of each event until the daemon ends the stream."""
        name, data = "message", []
        for raw in self._response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and data:
                yield name, json.loads("\n".join(data))
                name, data = "message", []

    def next(self) -> tuple[str, Any]:
        return next(iter(self))


class LinkRefused(Exception):
    """A JSON-RPC error; `error` is the whole object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class Link:
    """JSON-RPC in Content-Length frames on `link.sock`."""

    def __init__(self, path: str, token: str | None) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(PATIENCE)
        self._sock.connect(path)
        self._file = self._sock.makefile("rb")
        self._last = 0
        self.answers: dict[int, dict[str, Any]] = {}
        self.notices: list[dict[str, Any]] = []
        hello = {"protocol": 1, "version": "0.1.0"}
        try:
            self.hello = self.call("hello", {**hello, "token": token} if token else hello)
        except LinkRefused:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._sock.close()

    def begin(self, method: str, params: dict[str, Any]) -> int:
        self._last += 1
        self._write({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def call(self, method: str, params: dict[str, Any]) -> Any:
        return self.answer(self.begin(method, params))

    def answer(self, number: int) -> Any:
        while number not in self.answers:
            self._read()
        message = self.answers.pop(number)
        if "error" in message:
            raise LinkRefused(message["error"])
        return message["result"]

    def notice(self) -> dict[str, Any]:
        while not self.notices:
            self._read()
        return self.notices.pop(0)

    def _write(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        self._sock.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def _read(self) -> None:
        length = int(self._file.readline().partition(b":")[2])
        assert self._file.readline() == b"\r\n"
        message = json.loads(self._file.read(length))
        if "method" in message:
            self.notices.append(message)
        else:
            self.answers[message["id"]] = message


class Tool(NamedTuple):
    """What a tool call came back with."""

    failed: bool
    text: str
    structured: dict[str, Any]


class Mcp:
    """An MCP client with its own `bascule mcp`."""

    def __init__(self, state: str, *options: str, client: str, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [SCRIPTS / "bascule", "mcp", "--state-dir", state, "--no-start", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._last = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._notices: list[dict[str, Any]] = []
        try:
            self._introduce(client)
        except BaseException:
            self.__exit__()
            raise

    def _introduce(self, client: str) -> None:
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}
        self.initialized = self.answer(self.request("initialize", opening))
        self.tools = {tool["name"]: tool for tool in self.answer(self.request("tools/list", {}))["tools"]}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()

    def request(self, method: str, params: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
        return self._last

    def answer(self, number: int) -> dict[str, Any]:
        while number not in self._answers:
            self._read()
        return self._answers.pop(number)["result"]

    def notice(self) -> dict[str, Any]:
        while not self._notices:
            self._read()
        return self._notices.pop(0)

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"bascule mcp ended with {self._process.wait(PATIENCE)}"
        message = json.loads(line)
        if "id" in message:
            self._answers[message["id"]] = message
        else:
            self._notices.append(message)

    def begin(self, tool: str, **arguments: Any) -> int:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def result(self, number: int) -> Tool:
        answer = self.answer(number)
        return Tool(answer["isError"], answer["content"][0]["text"], answer.get("structuredContent", {}))

    def call(self, tool: str, **arguments: Any) -> Tool:
        return self.result(self.begin(tool, **arguments))
