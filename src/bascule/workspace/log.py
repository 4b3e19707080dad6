"""`spaces.log`: what was done in a project, as one list: runs, undos and redos, each with the one before it."""

import contextlib
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import InvalidRequest, NotFound
from bascule.kernel.call import Call, agent_of
from bascule.workspace.elsewhere import Elsewhere
from bascule.workspace.listing import native_view
from bascule.workspace.live import is_over
from bascule.workspace.operations import Operations, is_of, session_id, session_of, started
from bascule.workspace.paths import BadPath, parse_path
from bascule.workspace.ports import CheckpointFault, Checkpoints, FileFault
from bascule.workspace.records import Segment, UndoRecord
from bascule.workspace.run_list import LogParams, OperationView
from bascule.workspace.spaces import Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undos import Operation


class ProjectLog:
    def __init__(self, *, operations: Operations, elsewhere: Elsewhere, spaces: Spaces, threads: Threads) -> None:
        self._operations = operations
        self._elsewhere = elsewhere
        self._spaces = spaces
        self._threads = threads

    async def log(self, call: Call, params: LogParams) -> list[OperationView]:
        """The newest first."""
        space = self._spaces.find(params.space_id)
        everything = self._operations.of_space(space.space_id)
        parents = {each.run_id: before.run_id for before, each in pairwise(everything)}
        undone_by = {
            target: each.run_id
            for each in everything
            if isinstance(each, UndoRecord) and not each.undone
            for target in each.undoes
        }
        found = list(reversed(everything))
        if params.before is not None:
            found = _behind(found, params.before)
        if params.operation_id is not None:
            found = [each for each in found if each.run_id == params.operation_id]
        if params.session is not None:
            session = session_of(params.session, everything)
            found = [each for each in found if session_id(each) == session]
        if params.agent is not None:
            found = [each for each in found if is_of(each, params.agent)]
        try:
            checkpoints = await self._spaces.checkpoints_of(space)
        except (FileFault, CheckpointFault):
            # The project is gone: its history is not.
            checkpoints = None
        path = _path(params.path) if params.path is not None else None
        if path is not None and checkpoints is None:
            raise NotFound("the project's directory is gone, and what changed one path cannot be looked up")
        shown = await self._threads.do(self._shown, found, checkpoints, path, params.limit)
        views = [self._view(each, files, parents.get(each.run_id), undone_by.get(each.run_id)) for each, files in shown]
        if agent_of(call.principal) is None:
            return views
        # What another agent runs through Bascule is not for agents to read.
        return [
            each if each.started_by == call.principal else msgspec.structs.replace(each, title=None) for each in views
        ]

    def _shown(
        self, operations: Sequence[Operation], checkpoints: Checkpoints | None, path: str | None, limit: int
    ) -> list[tuple[Operation, list[str] | None]]:
        """With the files that each has changed."""
        shown: list[tuple[Operation, list[str] | None]] = []
        for each in operations:
            if len(shown) == limit:
                break
            files = self._files(each, checkpoints) if checkpoints is not None else None
            if path is None or any(file == path or file.startswith(f"{path}/") for file in files or ()):
                shown.append((each, files))
        return shown

    def _files(self, each: Operation, checkpoints: Checkpoints) -> list[str] | None:
        segments: Sequence[Segment] = (each.segment,) if isinstance(each, UndoRecord) else each.segments
        found: set[str] = set()
        for segment in segments:
            if segment.after is None:
                return None
            try:
                found.update(change.path for change in checkpoints.changes(segment.before, segment.after))
            except CheckpointFault:
                return None
        with contextlib.suppress(CheckpointFault):
            found.update(change.path for change in self._elsewhere.changes(each))
        return sorted(found)

    def _view(
        self, each: Operation, files: list[str] | None, parent: str | None, undone_by: str | None
    ) -> OperationView:
        view = OperationView(
            operation_id=each.run_id,
            kind="run",
            parent=parent,
            started_by=each.started_by,
            started_at=rfc3339(started(each)),
            files=len(files) if files is not None else None,
            undone=each.undone,
            undone_by=undone_by,
        )
        if isinstance(each, UndoRecord):
            return msgspec.structs.replace(
                view,
                kind="redo" if each.redoes else "undo",
                ended_at=rfc3339(each.segment.ended) if each.finished else None,
                what=each.what,
                undoes=list(each.undoes),
                undoable=not each.undone,
                note=None if each.finished else "it was cut short",
            )
        return msgspec.structs.replace(
            view,
            ended_at=rfc3339(each.ended_at) if each.ended_at is not None else None,
            native=native_view(each),
            title=self._operations.title(each),
            undoable=each.left_changes and is_over(each) and not each.undone,
            note=each.note,
        )


def _behind(found: Sequence[Operation], before: str) -> list[Operation]:
    at = next((number for number, each in enumerate(found) if each.run_id == before), None)
    if at is None:
        raise NotFound(f"unknown operation {before}", hint="spaces.log lists those that are kept")
    return list(found[at + 1 :])


def _path(text: str) -> str:
    try:
        return parse_path(text)
    except BadPath as error:
        raise InvalidRequest(f"path: {error}") from None
