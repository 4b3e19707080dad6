"""What a client can do in a space, as programs: see `verbs` for how they are carried out.

Effects here are never repeated by themselves: a connection lost under one is `OutcomeUnknown`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from bascule.client.durations import Duration, milliseconds
from bascule.client.faults import OperationFailed
from bascule.client.steps import Program, Request
from bascule.client.verbs import Verbs
from bascule.workspace.protocol import (
    SPACES_PROTOCOL_VERSION,
    CancelRunParams,
    DiffResult,
    Edit,
    Event,
    EventsMessage,
    FileParams,
    ProcessesListParams,
    ProcessLogs,
    ProcessLogsParams,
    ProcessParams,
    ProcessStartParams,
    ProcessView,
    ReadFileEvent,
    RedoParams,
    RunIdParams,
    RunParams,
    RunStreamParams,
    RunWaitParams,
    ShellEvent,
    SpaceOpenParams,
    SpaceView,
    UndoParams,
    UndoResult,
)
from bascule.workspace.run_list import LogParams, OperationView, RunsListParams, RunView

# The daemon clamps a wait to a minute; longer waits are several.
WAIT_SLICE_MS = 50_000

Operations = Iterable[Mapping[str, Any]]


class Work:
    """Programs for one space; `space_id` is known once it was opened."""

    def __init__(self, verbs: Verbs, space_id: str) -> None:
        self._verbs = verbs
        self._space_id = space_id

    def start(self, operations: Operations, *, on_copy: bool, wait_ms: int | None) -> Program[EventsMessage]:
        params = RunParams(
            space_id=self._space_id,
            protocol_version=SPACES_PROTOCOL_VERSION,
            operations=[dict(operation) for operation in operations],
            wait_ms=wait_ms,
            on_copy=on_copy,
        )
        return self._verbs.call("runs.start", params, EventsMessage)

    def run(self, operations: Operations, *, on_copy: bool = False) -> Program[EventsMessage]:
        """Until it is over or asks; the daemon cancels it when this program goes away."""
        return self.start(operations, on_copy=on_copy, wait_ms=None)

    def wait(self, run_id: str) -> Program[EventsMessage]:
        """Until it is over or asks, in slices, across restarts of the daemon."""
        while True:
            params = RunWaitParams(space_id=self._space_id, run_id=run_id, wait_ms=WAIT_SLICE_MS)
            run: EventsMessage = yield from self._verbs.call("runs.wait", params, EventsMessage)
            if run.status != "running":
                return run

    def one(self, operation: Mapping[str, Any]) -> Program[Event]:
        """The event of a run of one operation; `OperationFailed` when it is not a success."""
        run = yield from self.run([operation])
        event = run.events[-1]
        if not getattr(event, "success", False):
            raise OperationFailed(run.run_id, event)
        return event

    def exec(
        self, command: str, cwd: str | None, timeout: Duration | None, env: Mapping[str, str] | None
    ) -> Program[ShellEvent]:
        """A command's event, whatever its exit code; `OperationFailed` when it was not run to its end."""
        operation: dict[str, Any] = {"type": "shell", "command": command}
        if cwd is not None:
            operation["cwd"] = cwd
        if timeout is not None:
            operation["timeout"] = milliseconds(timeout)
        if env:
            operation["env"] = dict(env)
        run = yield from self.run([operation])
        event = run.events[-1]
        if not isinstance(event, ShellEvent):
            raise OperationFailed(run.run_id, event)
        return event

    def read(self, path: str) -> Program[ReadFileEvent]:
        """As base64, which every file can be."""
        params = FileParams(space_id=self._space_id, path=path, encoding="base64")
        event: ReadFileEvent = yield from self._verbs.call("files.read", params, ReadFileEvent)
        if not event.success:
            raise OperationFailed(None, event)
        return event

    def edit(self, path: str, edits: Iterable[Edit | tuple[str, str]]) -> Program[Event]:
        pairs = [(edit.old_content, edit.new_content) if isinstance(edit, Edit) else edit for edit in edits]
        listed = [{"oldContent": old, "newContent": new} for old, new in pairs]
        return self.one({"type": "editFile", "path": path, "edits": listed})

    def runs(self, limit: int) -> Program[list[RunView]]:
        params = RunsListParams(space_id=self._space_id, limit=limit)
        return self._verbs.call("runs.list", params, list[RunView])

    def show(self, run_id: str) -> Program[EventsMessage]:
        return self._verbs.call("runs.show", self._of(run_id), EventsMessage)

    def cancel(self, run_id: str, reason: str | None) -> Program[EventsMessage]:
        params = CancelRunParams(space_id=self._space_id, run_id=run_id, reason=reason)
        return self._verbs.call("runs.cancel", params, EventsMessage)

    def diff(self, run_id: str) -> Program[DiffResult]:
        return self._verbs.call("runs.diff", self._of(run_id), DiffResult)

    def undo(self, run_id: str | None, which: Mapping[str, Any]) -> Program[UndoResult]:
        params = UndoParams(space_id=self._space_id, run_id=run_id, **which)
        return self._verbs.call("runs.undo", params, UndoResult)

    def redo(self, undo_id: str | None, *, dry_run: bool) -> Program[UndoResult]:
        params = RedoParams(space_id=self._space_id, undo_id=undo_id, dry_run=dry_run)
        return self._verbs.call("runs.redo", params, UndoResult)

    def log(self, which: Mapping[str, Any]) -> Program[list[OperationView]]:
        return self._verbs.call("spaces.log", LogParams(space_id=self._space_id, **which), list[OperationView])

    def commit(self, run_id: str) -> Program[DiffResult]:
        return self._verbs.call("runs.commit", self._of(run_id), DiffResult)

    def spawn(self, command: str, cwd: str | None, env: Mapping[str, str] | None) -> Program[ProcessView]:
        params = ProcessStartParams(space_id=self._space_id, command=command, cwd=cwd, env=dict(env or {}))
        return self._verbs.call("processes.start", params, ProcessView)

    def processes(self) -> Program[list[ProcessView]]:
        return self._verbs.call("processes.list", ProcessesListParams(space_id=self._space_id), list[ProcessView])

    def logs(self, params: ProcessLogsParams) -> Program[ProcessLogs]:
        return self._verbs.call("processes.logs", params, ProcessLogs)

    def stop(self, process_id: str) -> Program[ProcessView]:
        return self._verbs.call("processes.stop", ProcessParams(process_id=process_id), ProcessView)

    def following(self, run_id: str, since: int) -> Request:
        return Request("runs.stream", RunStreamParams(space_id=self._space_id, run_id=run_id, since=since), Any)

    def _of(self, run_id: str) -> RunIdParams:
        return RunIdParams(space_id=self._space_id, run_id=run_id)


def open_space(verbs: Verbs, path: str, name: str | None) -> Program[SpaceView]:
    return verbs.call("spaces.open", SpaceOpenParams(path=path, name=name), SpaceView)
