"""A house with one space in it, and the few sentences that tests about it are made of."""

import time
from collections.abc import Callable
from typing import Any

from bascule.testing.house import House, Pending
from bascule.testing.machine import FakeCommand, Machine
from patience import PATIENCE

PATH = "/projects/project"
JERRY = "agent:Jerry"


class Scene:
    """`JERRY` works in a space of his own; the person and others come when the test calls them."""

    def __init__(self, house: House, files: dict[str, bytes] | None = None) -> None:
        self.house = house
        self.machine = house.machine
        self.files = self.machine.directory(PATH, files or {})
        self.space = house.call(JERRY, "spaces.open", {"path": PATH})["spaceId"]

    def begin(self, *operations: Any, who: str = JERRY, **more: Any) -> Pending:
        params = {"spaceId": self.space, "protocolVersion": "1.0", "operations": list(operations), **more}
        return self.house.begin(who, "runs.start", params)

    def run(self, *operations: Any, who: str = JERRY, **more: Any) -> dict[str, Any]:
        return self.answer(self.begin(*operations, who=who, **more))

    def answer(self, pending: Pending) -> dict[str, Any]:
        self.until(lambda: pending.done, "an answer")
        answer: dict[str, Any] = pending.result()
        return answer

    def event(self, operation: Any, **more: Any) -> dict[str, Any]:
        """The event of a run of this one operation."""
        (event,) = self.run(operation, **more)["events"]
        return event

    def call(self, method: str, run: dict[str, Any], *, who: str = JERRY, **more: Any) -> Any:
        params = {"spaceId": self.space, "runId": run["runId"], **more}
        return self.answer(self.house.begin(who, method, params))

    def show(self, run: dict[str, Any]) -> dict[str, Any]:
        shown: dict[str, Any] = self.call("runs.show", run)
        return shown

    def view(self, run: dict[str, Any]) -> dict[str, Any]:
        views: list[dict[str, Any]] = self.house.call(JERRY, "runs.list", {"spaceId": self.space})
        return next(view for view in views if view["runId"] == run["runId"])

    def resume(self, run: dict[str, Any], decision: str = "approved", **more: Any) -> dict[str, Any]:
        asked = run["events"][-1]["operationId"]
        approval = {"operationId": asked, "decision": decision, **more}
        resumed: dict[str, Any] = self.call("runs.resume", run, who="person", approval=approval)
        return resumed

    def decide(self, approval_id: str, decision: str = "approved", **more: Any) -> Any:
        return self.house.call("person", "approvals.decide", {"approvalId": approval_id, "decision": decision, **more})

    def running(self, command: str) -> FakeCommand:
        """The command, once it runs."""
        found = self.until(
            lambda: [each for each in self.machine.ran if each.command.command == command and each.running], command
        )
        return found[-1]

    def say(self, act: Callable[[], Any]) -> Any:
        return self.house.run(act)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """The first true value: threads and turns of the loop pass meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.0005)
            self.house.run(lambda: None)
        return found

    def records(self, method: str | None = None) -> list[dict[str, Any]]:
        return [row for row in self.house.ledger() if method is None or row["method"] == method]

    def faults(self) -> list[Any]:
        return [fields for event, fields in self.house.log if event == "fault"]


def make_machine() -> Machine:
    machine = Machine()
    machine.command("echo hi", stdout="hi\n")
    machine.command("make test", stdout="1 failed\n", stderr="see above\n", exit_code=2)
    machine.command("serve", stdout="listening\n", ends=False)
    machine.command("rm -rf data", does=lambda files: [files.pop(name) for name in list(files) if "data/" in name])
    machine.command("sh build.sh", stdout="built\n")
    return machine


def shell(command: str, **more: Any) -> dict[str, Any]:
    return {"type": "shell", "command": command, **more}


def create(path: str, content: str = "new\n", **more: Any) -> dict[str, Any]:
    return {"type": "createFile", "path": path, "content": content, **more}


def read(path: str, **more: Any) -> dict[str, Any]:
    return {"type": "readFile", "path": path, **more}


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"type": "editFile", "path": path, "edits": [{"oldContent": old, "newContent": new}], **more}


def delete(path: str, **more: Any) -> dict[str, Any]:
    return {"type": "deleteFile", "path": path, **more}


def say(content: str = "on it", **more: Any) -> dict[str, Any]:
    return {"type": "message", "content": content, **more}
