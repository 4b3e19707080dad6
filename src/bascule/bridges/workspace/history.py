"""What a run changed: shown, taken back, or taken over from a copy."""

import asyncio
import os.path
from typing import NamedTuple

import msgspec

from bascule.approval.ahead import Doing
from bascule.approval.holding import Drawn
from bascule.audit.journal import Transaction
from bascule.bridges.workspace.limits import WorkspaceLimits
from bascule.bridges.workspace.live import Copy, Run, is_over
from bascule.bridges.workspace.ports import (
    CheckpointFault,
    Checkpoints,
    CheckpointStore,
    FileFault,
    Files,
    Scratch,
)
from bascule.bridges.workspace.records import RunRecord, Segment
from bascule.bridges.workspace.runbook import RunBook
from bascule.bridges.workspace.spaces import Space, Spaces
from bascule.bridges.workspace.threads import Threads
from bascule.errors import Conflict, InvalidRequest
from bascule.later import within
from bascule.policy.decision import Decision, Verdict
from bascule.protocols.workspace import DiffResult, FileChange, RunIdParams, UndoParams, UndoResult


class _Drawn(NamedTuple):
    changes: list[FileChange]
    diff: str
    truncated: bool


class History:
    def __init__(
        self,
        *,
        book: RunBook,
        spaces: Spaces,
        limits: WorkspaceLimits,
        threads: Threads,
        files: Files,
        store: CheckpointStore,
        scratch: Scratch,
    ) -> None:
        self._book = book
        self._spaces = spaces
        self._limits = limits
        self._threads = threads
        self._files = files
        self._store = store
        self._scratch = scratch

    # -- methods --

    async def diff(self, params: RunIdParams) -> DiffResult:
        record = self._book.find(params.run_id, params.space_id)
        drawn = await self.drawn(record)
        return _result(record, drawn)

    async def undo(self, params: UndoParams, doing: Doing) -> UndoResult:
        record = self._undoable(params)
        space = self._spaces.find(record.space_id)
        turn = space.turns.take()
        await within(None, turn)
        try:
            checkpoints = await self._opened(space)
            drawn = await self._threads.do(self._undone, checkpoints, record.segments, dry_run=params.dry_run)
        except (CheckpointFault, FileFault) as error:
            raise Conflict(
                f"{record.run_id} cannot be undone: {error}", hint="undo later runs first, or by hand"
            ) from None
        finally:
            space.turns.give_back()
        doing.details["files"] = len(drawn.changes)
        if params.dry_run:
            doing.details["dry_run"] = True
        else:
            doing.changes.append(lambda tx: self._note(tx, record.run_id, undone=True))
        return UndoResult(
            run_id=record.run_id,
            dry_run=params.dry_run,
            changes=drawn.changes,
            diff=drawn.diff,
            truncated=drawn.truncated,
        )

    async def commit(self, params: RunIdParams, doing: Doing) -> DiffResult:
        record = self.committable(params)
        space = self._spaces.find(record.space_id)
        drawn = await self.drawn(record)
        turn = space.turns.take()
        await within(None, turn)
        try:
            checkpoints = await self._opened(space)
            for segment in record.segments:
                await self._threads.do(checkpoints.apply, segment.before, segment.after)
        except (CheckpointFault, FileFault) as error:
            raise Conflict(
                f"{record.run_id} cannot be taken over: {error}", hint="run it again on a copy of what is there now"
            ) from None
        finally:
            space.turns.give_back()
        doing.details["files"] = len(drawn.changes)
        doing.changes.append(lambda tx: self._note(tx, record.run_id, committed=True))
        return _result(record, drawn)

    async def draw_commit(self, params: RunIdParams) -> Drawn:
        """What the person sees before the result of a run on a copy becomes real."""
        record = self.committable(params)
        drawn = await self.drawn(record)
        asks = record.would_ask
        return Drawn(
            summary=f"take over {len(drawn.changes)} changed files of {record.run_id}",
            preview="".join(f"{each}\n" for each in record.steering)
            + drawn.diff
            + ("\n[the diff goes on: runs.diff]\n" if drawn.truncated else ""),
            bound={"trees": [[each.before, each.after] for each in record.segments]},
            verdict=None
            if asks is None
            else Verdict(Decision.ASK, asks.rule, f"an operation of it asks: {asks.reason}"),
        )

    def committable(self, params: RunIdParams) -> RunRecord:
        record = self._book.find(params.run_id, params.space_id)
        if not record.on_copy:
            raise InvalidRequest(f"{record.run_id} worked in the space itself: only a run with onCopy is committed")
        if not is_over(record):
            raise Conflict(f"{record.run_id} is not over yet", hint="wait for it: runs.wait")
        if record.committed:
            raise Conflict(f"{record.run_id} was taken over already")
        return record

    async def drawn(self, record: RunRecord) -> _Drawn:
        """What it changed, for people and models."""
        if not record.segments:
            if record.note is not None and not is_over(record):
                raise Conflict(f"{record.run_id} is not over yet", hint="wait for it: runs.wait")
            return _Drawn([], "", truncated=False)
        checkpoints = await self._opened(self._spaces.find(record.space_id))
        try:
            return await self._threads.do(self._draw, checkpoints, record.segments)
        except CheckpointFault as error:
            raise Conflict(f"the changes of {record.run_id} cannot be shown: {error}") from None

    # -- on threads --

    def _draw(self, checkpoints: Checkpoints, segments: tuple[Segment, ...]) -> _Drawn:
        changes: list[FileChange] = []
        parts: list[str] = []
        truncated = False
        left = self._limits.max_diff_chars
        for segment in segments:
            changes += checkpoints.changes(segment.before, segment.after)
            text, cut = checkpoints.diff(segment.before, segment.after, left)
            parts.append(text)
            left = max(0, left - len(text))
            truncated = truncated or cut
        return _Drawn(changes, "".join(parts), truncated)

    def _undone(self, checkpoints: Checkpoints, segments: tuple[Segment, ...], *, dry_run: bool) -> _Drawn:
        """Backwards, the last piece first; all are tried before any is changed."""
        touched: set[str] = set()
        for segment in segments:
            paths = {change.path for change in checkpoints.changes(segment.before, segment.after)}
            if both := sorted(touched & paths):
                raise CheckpointFault(
                    f"others worked here while it waited for the person, and it changed {both[0]} before and after that"
                )
            touched |= paths
        drawn = self._draw(
            checkpoints, tuple(Segment(before=each.after, after=each.before) for each in reversed(segments))
        )
        for segment in reversed(segments):
            checkpoints.undo(segment.before, segment.after, dry_run=True)
        if not dry_run:
            for segment in reversed(segments):
                checkpoints.undo(segment.before, segment.after, dry_run=False)
        return drawn

    # -- copies --

    async def make_copy(self, run: Run, space: Space) -> None:
        """A workspace with the same content at the same path, as far as commands can see."""
        checkpoints = await self._opened(space)
        turn = space.turns.take()
        await within(None, turn)
        try:
            tree = await self._threads.do(checkpoints.take)
        finally:
            space.turns.give_back()
        directory = await self._threads.do(self._scratch.make, run.run_id)
        place = os.path.join(directory, "workspace")
        try:
            await self._threads.do(checkpoints.copy_out, tree, place)
            root = await self._threads.do(self._files.open_copy, place)
            # Commands see it where the workspace itself is: paths in files and caches stay right.
            root.path = space.record.path
            await self._spaces.look_for_problems()
            sandbox = self._spaces.open_sandbox(run.run_id, root)
            copied = await self._threads.do(self._store.open, space.space_id, root)
        except BaseException:
            await self._threads.do(self._scratch.remove, directory)
            raise
        run.copy = Copy(directory, tree, root, sandbox, copied)

    async def drop_copy(self, run: Run) -> None:
        copy, run.copy = run.copy, None
        if copy is None:
            return
        await copy.sandbox.close()
        await self._threads.do(copy.root.close)
        await self._threads.do(self._scratch.remove, copy.directory)

    # -- keeping --

    def kept_trees(self) -> dict[str, frozenset[str]]:
        """What checkpoints must stay for the runs that are kept."""
        trees: dict[str, set[str]] = {space_id: set() for space_id in self._spaces.table.rows}
        for record in self._book.all():
            for segment in record.segments:
                trees.setdefault(record.space_id, set()).update((segment.before, segment.after))
        return {space_id: frozenset(kept) for space_id, kept in trees.items()}

    def collect(self) -> "asyncio.Future[int]":
        return self._threads.begin(self._store.collect, self.kept_trees())

    async def forget(self, space_id: str) -> None:
        """The space is gone, and so is what its runs could be taken back to."""
        await self._threads.do(self._store.collect, {space_id: frozenset()})

    def _undoable(self, params: UndoParams) -> RunRecord:
        record = self._book.find(params.run_id, params.space_id)
        if not is_over(record):
            raise Conflict(f"{record.run_id} is not over yet", hint="wait for it, or cancel it first: runs.cancel")
        if record.undone:
            raise Conflict(f"{record.run_id} was undone already")
        if record.on_copy and not record.committed:
            raise Conflict(f"{record.run_id} worked on a copy, which is gone: there is nothing to undo")
        if not record.segments and record.note is not None and record.note.startswith("not undoable"):
            raise Conflict(f"{record.run_id} is {record.note}")
        return record

    async def _opened(self, space: Space) -> Checkpoints:
        try:
            return await self._spaces.checkpoints_of(space)
        except (FileFault, CheckpointFault) as error:
            raise Conflict(str(error)) from None

    def _note(self, tx: Transaction, run_id: str, **what: bool) -> None:
        """In the transaction of the record that says so."""
        self._book.put(tx, msgspec.structs.replace(self._book.find(run_id), **what))


def _result(record: RunRecord, drawn: _Drawn) -> DiffResult:
    return DiffResult(
        run_id=record.run_id,
        changes=drawn.changes,
        diff=drawn.diff,
        truncated=drawn.truncated,
        steering=list(record.steering),
    )
