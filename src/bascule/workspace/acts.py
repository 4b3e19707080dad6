"""Carrying out file operations: blocking, on a thread, each with its one event."""

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import UNSET

from bascule.workspace.edits import EXACT, EditFault, edit_bytes
from bascule.workspace.ports import FileFault, ResolvedPath, Root, StorageFault
from bascule.workspace.protocol import (
    CreateFileEvent,
    CreateFileOperation,
    DeleteFileEvent,
    DeleteFileOperation,
    EditFileEvent,
    EditFileOperation,
    ErrorEvent,
    Event,
    ReadFileEvent,
    ReadFileOperation,
)
from bascule.workspace.validation import content_of

FileOperation = CreateFileOperation | ReadFileOperation | EditFileOperation | DeleteFileOperation

OK = "ok"
FAILED = "failed"


class Acted(NamedTuple):
    """What came of an operation: its event, and what the ledger says about it."""

    event: Event
    outcome: str
    details: dict[str, Any] | None = None


class FileActs:
    """File operations beneath one root."""

    def __init__(self, root: Root, now: Callable[[], str], max_read_bytes: int) -> None:
        self._root = root
        self._now = now
        self._max_read_bytes = max_read_bytes

    def execute(self, operation: FileOperation, place: ResolvedPath | FileFault, operation_id: str) -> Acted:
        """`place` may be why its path cannot be resolved: then that is what came of it."""
        try:
            if isinstance(place, FileFault):
                raise place
            match operation:
                case CreateFileOperation():
                    return self._create(operation, place, operation_id)
                case ReadFileOperation():
                    return self._read(operation, place, operation_id)
                case EditFileOperation():
                    return self._edit(operation, place, operation_id)
                case DeleteFileOperation():
                    return self._delete(operation, place, operation_id)
        except StorageFault as error:
            # Not this operation's fault, and the next one's either: the spec's category `system`.
            event = ErrorEvent(
                timestamp=self._now(),
                operation_id=operation_id,
                category="system",
                message=str(error),
                details={"operationType": operation.__struct_config__.tag, "path": operation.path},
            )
            return Acted(event, FAILED, {"error": str(error)})
        except (FileFault, EditFault) as error:
            return self._failed(operation, operation_id, error)

    def _create(self, operation: CreateFileOperation, place: ResolvedPath, id_: str) -> Acted:
        data = content_of(operation)
        self._root.create(place, data, overwrite=operation.overwrite)
        return Acted(
            CreateFileEvent(
                timestamp=self._now(), operation_id=id_, path=operation.path, success=True, bytes_written=len(data)
            ),
            OK,
            {"bytes": len(data)},
        )

    def _read(self, operation: ReadFileOperation, place: ResolvedPath, id_: str) -> Acted:
        data = self._root.read(place, self._max_read_bytes)
        try:
            content = data.decode() if operation.encoding == "utf-8" else base64.b64encode(data).decode()
        except UnicodeDecodeError as error:
            raise FileFault(
                f'the file is not UTF-8 text (byte {error.start}); read it with encoding "base64"'
            ) from None
        event = ReadFileEvent(
            timestamp=self._now(),
            operation_id=id_,
            path=operation.path,
            success=True,
            content=content,
            encoding=operation.encoding,
            size=len(data),
        )
        return Acted(event, OK, {"bytes": len(data)})

    def _edit(self, operation: EditFileOperation, place: ResolvedPath, id_: str) -> Acted:
        before = self._root.read(place, self._max_read_bytes)
        after, rungs = edit_bytes(before, operation.edits)
        if after != before:
            self._root.replace(place, after, expected=before)
        event = EditFileEvent(
            timestamp=self._now(),
            operation_id=id_,
            path=operation.path,
            success=True,
            edits_applied=len(operation.edits),
            # Only said when it says something.
            rungs=UNSET if all(rung == EXACT for rung in rungs) else list(rungs),
        )
        return Acted(event, OK, {"edits": len(operation.edits), "bytes": len(after)})

    def _delete(self, operation: DeleteFileOperation, place: ResolvedPath, id_: str) -> Acted:
        self._root.delete(place)
        return Acted(
            DeleteFileEvent(timestamp=self._now(), operation_id=id_, path=operation.path, success=True), OK, None
        )

    def _failed(self, operation: FileOperation, id_: str, error: Exception) -> Acted:
        kind: Any = _EVENTS[type(operation)]
        event = kind(timestamp=self._now(), operation_id=id_, path=operation.path, success=False, error=str(error))
        # The reason may quote the file (an edit's closest lines): the ledger knows that it failed, not what was in it.
        return Acted(event, FAILED)


_EVENTS = {
    CreateFileOperation: CreateFileEvent,
    ReadFileOperation: ReadFileEvent,
    EditFileOperation: EditFileEvent,
    DeleteFileOperation: DeleteFileEvent,
}
