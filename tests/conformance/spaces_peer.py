"""A space as a stranger uses it who has read the specification and knows the HTTP address."""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from real_house import House, until
from spec_peers import Answer, Events, Link, LinkRefused

from patience import PATIENCE

PASSPHRASE = {"passphrase": "correct horse battery staple"}
# A command that would fail for want of time on a busy machine hangs.
PATIENT_MS = 60_000


def need_bubblewrap() -> None:
    """A laptop goes on without; in CI nothing may be skipped."""
    if shutil.which("bwrap") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("bubblewrap is not installed")


class Space:
    def __init__(self, house: House) -> None:
        self.house = house
        # Not below a home directory, and nobody else's.
        self.folder = Path(tempfile.mkdtemp(prefix="bascule-space-"))
        opened = house.post("/v1/spaces", {"path": str(self.folder)})
        assert opened.status == 200, opened.body
        self.view: dict[str, Any] = opened.json
        self.at = f"/v1/spaces/{opened.json['spaceId']}"

    def close(self) -> None:
        self.house.http("DELETE", self.at)
        shutil.rmtree(self.folder, ignore_errors=True)

    def post(self, *operations: Any, **more: Any) -> Answer:
        message = {"protocolVersion": "1.0", "operations": list(operations), **more}
        return self.house.post(f"{self.at}/runs", message)

    def run(self, *operations: Any, **more: Any) -> dict[str, Any]:
        answer = self.post(*operations, **more)
        assert answer.status == 200, answer.body
        run: dict[str, Any] = answer.json
        return run

    def event(self, **operation: Any) -> dict[str, Any]:
        """The one event of a run of this one operation."""
        (event,) = self.run(operation)["events"]
        return event

    def shell(self, command: str, **more: Any) -> dict[str, Any]:
        return self.event(type="shell", command=command, **{"timeout": PATIENT_MS, **more})

    def of(self, run: dict[str, Any], what: str = "") -> str:
        return f"{self.at}/runs/{run['runId']}{what}"

    def show(self, run: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = self.house.get(self.of(run)).json
        return shown

    def ended(self, run: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while (now := self.house.get(self.of(run, "/wait?waitMs=5000")).json)["status"] == "running":
            assert time.monotonic() < deadline, now
        ended: dict[str, Any] = now
        return ended

    def stream(self, run: dict[str, Any], since: int = 0) -> Events:
        return self.house.events(self.of(run, f"/stream?since={since}"))

    def resume(self, run: dict[str, Any], decision: str = "approved", **more: Any) -> dict[str, Any]:
        """As the person, who is one only on a connection that was unlocked."""
        approval = {"operationId": run["events"][-1]["operationId"], "decision": decision, **more}
        with person(self.house) as link:
            params = {"spaceId": self.view["spaceId"], "runId": run["runId"], "approval": approval}
            resumed: dict[str, Any] = link.call("runs.resume", params)
        return resumed

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def processes(self, marker: str) -> list[int]:
        """Processes of this machine whose command line has this in it, seen from outside of every sandbox."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in b" ".join(words) and int(name) != os.getpid():
                found.append(int(name))
        return found

    def gone(self, marker: str) -> None:
        until(lambda: not self.processes(marker), f"the end of {marker}")


def person(house: House) -> Link:
    link = house.link()
    # Unless another test has set it.
    with contextlib.suppress(LinkRefused):
        link.call("person.set", PASSPHRASE)
    link.call("person.unlock", PASSPHRASE)
    return link
