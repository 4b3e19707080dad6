"""The methods `files.*`: looking at a space's files without a run, and changing one by a run of one operation."""

import asyncio
from typing import NamedTuple

import msgspec

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import InvalidRequest, NotFound, PolicyDenied, Unavailable
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.workspace.acts import FileActs
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.paths import BadPath, WorkspacePath, parse_path
from bascule.workspace.ports import FileFault, ResolvedPath, Root
from bascule.workspace.protocol import (
    FileParams,
    FilePathParams,
    FilesList,
    FilesListParams,
    FileWriteParams,
    ReadFileEvent,
    ReadFileOperation,
)
from bascule.workspace.resolving import leads, resolve
from bascule.workspace.runs import Runs
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.validation import BadOperation, parse_directory


class _Judged(NamedTuple):
    """A call as one of the methods that rules may name for it, and what they say of its path as written."""

    method: str
    params: msgspec.Struct
    verdict: Verdict


class FileMethods:
    def __init__(
        self,
        *,
        spaces: Spaces,
        runs: Runs,
        gate: Gate,
        clock: Clock,
        limits: WorkspaceLimits,
        threads: Threads,
        tasks: Tasks,
    ) -> None:
        self._spaces = spaces
        self._runs = runs
        self._gate = gate
        self._clock = clock
        self._limits = limits
        self._threads = threads
        self._tasks = tasks

    def list(self, call: Call, params: FilesListParams) -> "asyncio.Future[FilesList]":
        space = self._spaces.find(params.space_id)
        path = _directory(params.path)
        judged = self._judge(call, "files.list", params)
        return self._tasks.start(self._list(call, space, params, path, judged), "files.list")

    async def _list(
        self, call: Call, space: Space, params: FilesListParams, path: WorkspacePath | None, judged: _Judged
    ) -> FilesList:
        root = await self._open_root(space)
        place = None
        try:
            if path is not None:
                place = await resolve(self._threads, root, path, follow=True)
                self._check_resolved(call, place, judged)
            entries, more = await self._threads.do(root.entries, place, params.limit)
        except FileFault as error:
            raise NotFound(str(error)) from None
        finally:
            if place is not None:
                place.close()
        return FilesList(path=path or "", entries=entries, more=more)

    def read(self, call: Call, params: FileParams) -> "asyncio.Future[ReadFileEvent]":
        space = self._spaces.find(params.space_id)
        operation = ReadFileOperation(path=params.path, encoding=params.encoding)
        path = _path(params.path)
        judged = (self._judge(call, "files.read", params), self._judge(call, "workspace.readFile", operation))
        return self._tasks.start(self._read(call, space, operation, path, judged), "files.read")

    async def _read(
        self,
        call: Call,
        space: Space,
        operation: ReadFileOperation,
        path: WorkspacePath,
        judged: tuple[_Judged, ...],
    ) -> ReadFileEvent:
        root = await self._open_root(space)
        acts = FileActs(root, lambda: rfc3339(self._clock.wall_ms()), self._limits.max_read_bytes)
        place: ResolvedPath | FileFault
        try:
            place = await resolve(self._threads, root, path, follow=True)
        except FileFault as error:
            place = error
        try:
            self._check_resolved(call, place, *judged)
            acted = await self._threads.do(acts.execute, operation, place, "op-1")
        finally:
            if isinstance(place, ResolvedPath):
                place.close()
        if not isinstance(acted.event, ReadFileEvent):
            raise Unavailable(acted.event.message if hasattr(acted.event, "message") else "the disk failed")
        return acted.event

    def write(self, call: Call, params: FileWriteParams, tx: Transaction) -> None:
        operation = {
            "type": "createFile",
            "path": params.path,
            "content": params.content,
            "encoding": params.encoding,
            "overwrite": params.overwrite,
        }
        self._runs.begin(call, tx, self._spaces.find(params.space_id), [operation])

    def delete(self, call: Call, params: FilePathParams, tx: Transaction) -> None:
        operation = {"type": "deleteFile", "path": params.path}
        self._runs.begin(call, tx, self._spaces.find(params.space_id), [operation])

    def _judge(self, call: Call, method: str, params: msgspec.Struct) -> _Judged:
        verdict = self._gate.verdict(call.principal, method, params)
        _check_allowed(call, verdict)
        return _Judged(method, params, verdict)

    def _check_resolved(self, call: Call, place: ResolvedPath | FileFault, *judged: _Judged) -> None:
        """The path that was asked for was judged; where a link leads is judged as well."""
        if not isinstance(place, ResolvedPath) or not place.elsewhere:
            return
        for each in judged:
            moved = msgspec.structs.replace(each.params, path=place.path)
            verdict = self._gate.verdict(call.principal, each.method, moved)
            if verdict.decision > each.verdict.decision:
                _check_allowed(call, msgspec.structs.replace(verdict, reason=f"{verdict.reason} ({leads(place)})"))

    async def _open_root(self, space: Space) -> Root:
        try:
            return await self._spaces.root_of(space)
        except FileFault as error:
            raise NotFound(str(error), hint="open the space again: spaces.open") from None


def _check_allowed(call: Call, verdict: Verdict) -> None:
    if verdict.decision is Decision.ALLOW:
        return
    hint = verdict.suggestion
    if verdict.decision is Decision.ASK:
        hint = "read it in a run (a readFile operation): a run can wait for the person"
    raise PolicyDenied(verdict.reason, hint=hint, details={"rule": verdict.rule, "method": call.method})


def _directory(text: str) -> WorkspacePath | None:
    """None for the workspace itself."""
    try:
        return parse_directory(text) if text else None
    except BadOperation as error:
        raise InvalidRequest(f"path: {error.reason}") from None


def _path(text: str) -> WorkspacePath:
    try:
        return parse_path(text)
    except BadPath as error:
        raise InvalidRequest(f"path: {error}") from None
