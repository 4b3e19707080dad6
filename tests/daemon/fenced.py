"""Commands in a real sandbox of a real daemon, that talk to `space.sock` with nothing but the standard library."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from living import Living

from bascule.client import SyncClient
from bascule.client.spaces import SyncSpace
from bascule.workspace.machine.sandbox import probe
from faults.lacking import missing_here
from patience import PATIENCE

# Each ask is [verb, path, body or null, headers]; says a list of [status, text].
_PROGRAM = """
import http.client, json, os, socket

class Door(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(os.environ["BASCULE_SPACE_SOCK"])

said = []
for verb, path, body, headers in json.load(open("asks.json")):
    door = Door("space")
    if body is not None:
        body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
    door.request(verb, path, body, headers)
    answer = door.getresponse()
    said.append([answer.status, answer.read().decode()])
print(json.dumps(said))
"""


class Answered(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        message: str = self.json["error"]["message"]
        return message


class Fenced:
    """A space of the daemon's user, and the commands in it."""

    def __init__(self, client: SyncClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.space: SyncSpace = client.space(str(folder))
        self.handle = self.space.space_id

    def asks(
        self, *asks: tuple[str, str] | tuple[str, str, Any] | tuple[str, str, Any, dict[str, str]]
    ) -> list[Answered]:
        """One command that sends these one after the other."""
        listed = [[*ask, *(None, {})[len(ask) - 2 :]] for ask in asks]
        (self.folder / "asks.json").write_text(json.dumps(listed))
        return [Answered(*fields) for fields in json.loads(self.run(_PROGRAM))]

    def run(self, program: str) -> str:
        """What a Python program says inside; one that fails fails here."""
        (self.folder / "program.py").write_text(program)
        ran = self.space.exec("python3 program.py", timeout=PATIENCE)
        assert ran.exit_code == 0, ran
        return ran.stdout

    def start(self, command: str) -> str:
        """Goes on by itself; the run's id."""
        return self.space.start([{"type": "shell", "command": command}])

    def end(self, run_id: str) -> Any:
        """The event of that command."""
        return self.space.wait(run_id).events[-1]

    def close(self) -> None:
        self.client.call("spaces.close", {"spaceId": self.handle})


@contextmanager
def fenced(daemon: Living, folder: Path) -> Iterator[Fenced]:
    if (problem := probe.bubblewrap_problem(probe.find_tools())) is not None:
        missing_here(problem)
    folder.mkdir(parents=True, exist_ok=True)
    with SyncClient.connect(state_dir=daemon.state) as client:
        yield Fenced(client, folder)


def curl(path: str, body: Any = None) -> str:
    """The words of docs/workspace.md."""
    command = f'curl -sS --unix-socket "$BASCULE_SPACE_SOCK" "http://space{path}"'
    if body is not None:
        command += f" -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(body))}"
    return command
