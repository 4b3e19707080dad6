"""A space as a program uses it: run operations, read and write files, follow what a run does.

    async with Client.connect() as client:
        space = await client.space(".")
        await space.create_file("hello.py", "print('hi')")
        print((await space.exec("python3 hello.py")).stdout)

`SyncSpace` is the same, blocking.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol, TypeVar

from bascule.client.durations import Duration
from bascule.client.feeds import Feed, RunFeed
from bascule.client.steps import Program, Request
from bascule.client.work import Operations, Work
from bascule.foundation import paths
from bascule.workspace.protocol import (
    DiffResult,
    Edit,
    EventsMessage,
    ProcessLogs,
    ProcessLogsParams,
    ProcessView,
    ShellEvent,
    SpaceView,
    StreamedOutput,
    UndoResult,
)
from bascule.workspace.run_list import OperationView, RunView

T_co = TypeVar("T_co", covariant=True)


class Reader(Protocol[T_co]):
    async def next(self) -> T_co | None: ...

    def close(self) -> None: ...


def _creation(path: str, content: str | bytes, *, overwrite: bool) -> dict[str, Any]:
    operation: dict[str, Any] = {"type": "createFile", "path": path, "overwrite": overwrite}
    if isinstance(content, bytes):
        return {**operation, "content": b64encode(content).decode(), "encoding": "base64"}
    return {**operation, "content": content}


class _View:
    """What both kinds of space are about."""

    def __init__(self, view: SpaceView, work: Work) -> None:
        self.space_id = view.space_id
        self.name = view.name
        self.path = view.path
        self._work = work


class Space(_View):
    """One space, for asyncio. Made by `Client.space`."""

    def __init__(
        self,
        view: SpaceView,
        work: Work,
        do: Callable[[Program[Any]], Coroutine[Any, Any, Any]],
        stream: Callable[[Callable[[], Request], Feed[Any]], Reader[Any]],
    ) -> None:
        super().__init__(view, work)
        self._do = do
        self._stream = stream

    async def run(self, operations: Operations, *, on_copy: bool = False) -> EventsMessage:
        """Carry out operations in order; answers when they are done or one asks. Leaving cancels them."""
        result: EventsMessage = await self._do(self._work.run(operations, on_copy=on_copy))
        return result

    async def start(self, operations: Operations, *, on_copy: bool = False) -> str:
        """Begin a run that lives by itself; its id, for `follow`, `wait` and `cancel`."""
        run: EventsMessage = await self._do(self._work.start(operations, on_copy=on_copy, wait_ms=0))
        return run.run_id

    async def wait(self, run_id: str) -> EventsMessage:
        result: EventsMessage = await self._do(self._work.wait(run_id))
        return result

    async def follow(self, run_id: str) -> AsyncIterator[StreamedOutput]:
        """Events and output as they come, until the run is over."""
        feed = RunFeed()
        with closing(self._stream(lambda: self._work.following(run_id, feed.last), feed)) as reader:
            while (item := await reader.next()) is not None:
                yield item

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - of the command
        env: Mapping[str, str] | None = None,
    ) -> ShellEvent:
        """Run a command in the sandbox; `OperationFailed` when it was denied, asks, or could not run."""
        event: ShellEvent = await self._do(self._work.exec(command, cwd, timeout, env))
        return event

    async def read_file(self, path: str) -> bytes:
        return b64decode((await self._do(self._work.read(path))).content)

    async def create_file(self, path: str, content: str | bytes, *, overwrite: bool = False) -> None:
        await self._do(self._work.one(_creation(path, content, overwrite=overwrite)))

    async def edit_file(self, path: str, edits: Iterable[Edit | tuple[str, str]]) -> None:
        """Replace texts, each of which must occur exactly once: all of them or none."""
        await self._do(self._work.edit(path, edits))

    async def delete_file(self, path: str) -> None:
        await self._do(self._work.one({"type": "deleteFile", "path": path}))

    async def runs(self, limit: int = 50) -> list[RunView]:
        listed: list[RunView] = await self._do(self._work.runs(limit))
        return listed

    async def show(self, run_id: str) -> EventsMessage:
        run: EventsMessage = await self._do(self._work.show(run_id))
        return run

    async def cancel(self, run_id: str, reason: str | None = None) -> EventsMessage:
        run: EventsMessage = await self._do(self._work.cancel(run_id, reason))
        return run

    async def diff(self, run_id: str) -> DiffResult:
        result: DiffResult = await self._do(self._work.diff(run_id))
        return result

    async def undo(self, run_id: str | None = None, **which: Any) -> UndoResult:
        """Take back one run, or what `which` says: the fields of `UndoParams`; nothing said, the last run here."""
        result: UndoResult = await self._do(self._work.undo(run_id, which))
        return result

    async def redo(self, undo_id: str | None = None, *, dry_run: bool = False) -> UndoResult:
        """Take back an undo, or the last one here."""
        result: UndoResult = await self._do(self._work.redo(undo_id, dry_run=dry_run))
        return result

    async def log(self, **which: Any) -> list[OperationView]:
        """What was done here, newest first; `which`: the fields of `LogParams`."""
        listed: list[OperationView] = await self._do(self._work.log(which))
        return listed

    async def commit(self, run_id: str) -> DiffResult:
        """Take over what a run did on a copy."""
        result: DiffResult = await self._do(self._work.commit(run_id))
        return result

    async def spawn(self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> ProcessView:
        """Start a command in the background."""
        process: ProcessView = await self._do(self._work.spawn(command, cwd, env))
        return process

    async def processes(self) -> list[ProcessView]:
        listed: list[ProcessView] = await self._do(self._work.processes())
        return listed

    async def logs(self, process_id: str, **options: Any) -> ProcessLogs:
        """A page of output; options are those of `processes.logs`: stream, offset, limit, wait_ms."""
        page: ProcessLogs = await self._do(self._work.logs(ProcessLogsParams(process_id=process_id, **options)))
        return page

    async def stop(self, process_id: str) -> ProcessView:
        process: ProcessView = await self._do(self._work.stop(process_id))
        return process


class SyncSpace(_View):
    """One space, blocking. Made by `SyncClient.space`."""

    def __init__(
        self,
        view: SpaceView,
        work: Work,
        do: Callable[[Program[Any]], Any],
        stream: Callable[[Callable[[], Request], Feed[Any]], Iterator[Any]],
    ) -> None:
        super().__init__(view, work)
        self._do = do
        self._stream = stream

    def run(self, operations: Operations, *, on_copy: bool = False) -> EventsMessage:
        result: EventsMessage = self._do(self._work.run(operations, on_copy=on_copy))
        return result

    def start(self, operations: Operations, *, on_copy: bool = False) -> str:
        run: EventsMessage = self._do(self._work.start(operations, on_copy=on_copy, wait_ms=0))
        return run.run_id

    def wait(self, run_id: str) -> EventsMessage:
        result: EventsMessage = self._do(self._work.wait(run_id))
        return result

    def follow(self, run_id: str) -> Iterator[StreamedOutput]:
        feed = RunFeed()
        return self._stream(lambda: self._work.following(run_id, feed.last), feed)

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        timeout: Duration | None = None,
        env: Mapping[str, str] | None = None,
    ) -> ShellEvent:
        event: ShellEvent = self._do(self._work.exec(command, cwd, timeout, env))
        return event

    def read_file(self, path: str) -> bytes:
        return b64decode(self._do(self._work.read(path)).content)

    def create_file(self, path: str, content: str | bytes, *, overwrite: bool = False) -> None:
        self._do(self._work.one(_creation(path, content, overwrite=overwrite)))

    def edit_file(self, path: str, edits: Iterable[Edit | tuple[str, str]]) -> None:
        self._do(self._work.edit(path, edits))

    def delete_file(self, path: str) -> None:
        self._do(self._work.one({"type": "deleteFile", "path": path}))

    def runs(self, limit: int = 50) -> list[RunView]:
        listed: list[RunView] = self._do(self._work.runs(limit))
        return listed

    def show(self, run_id: str) -> EventsMessage:
        run: EventsMessage = self._do(self._work.show(run_id))
        return run

    def cancel(self, run_id: str, reason: str | None = None) -> EventsMessage:
        run: EventsMessage = self._do(self._work.cancel(run_id, reason))
        return run

    def diff(self, run_id: str) -> DiffResult:
        result: DiffResult = self._do(self._work.diff(run_id))
        return result

    def undo(self, run_id: str | None = None, **which: Any) -> UndoResult:
        result: UndoResult = self._do(self._work.undo(run_id, which))
        return result

    def redo(self, undo_id: str | None = None, *, dry_run: bool = False) -> UndoResult:
        result: UndoResult = self._do(self._work.redo(undo_id, dry_run=dry_run))
        return result

    def log(self, **which: Any) -> list[OperationView]:
        listed: list[OperationView] = self._do(self._work.log(which))
        return listed

    def commit(self, run_id: str) -> DiffResult:
        result: DiffResult = self._do(self._work.commit(run_id))
        return result

    def spawn(self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> ProcessView:
        process: ProcessView = self._do(self._work.spawn(command, cwd, env))
        return process

    def processes(self) -> list[ProcessView]:
        listed: list[ProcessView] = self._do(self._work.processes())
        return listed

    def logs(self, process_id: str, **options: Any) -> ProcessLogs:
        page: ProcessLogs = self._do(self._work.logs(ProcessLogsParams(process_id=process_id, **options)))
        return page

    def stop(self, process_id: str) -> ProcessView:
        process: ProcessView = self._do(self._work.stop(process_id))
        return process


def absolute(path: str) -> str:
    """Paths become absolute: the daemon has another working directory than the caller."""
    return os.path.abspath(paths.expand(path))
