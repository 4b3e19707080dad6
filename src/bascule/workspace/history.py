"""What a run changed: shown, taken back, or taken over from a copy."""

import asyncio
import os.path
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from bascule.foundation.deferred import within
from bascule.foundation.errors import Conflict
from bascule.kernel.call import Call
from bascule.kernel.consent import blocks
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.checkpointing import WHOLE, Checkpointing
from bascule.workspace.choosing import without_checkpoint
from bascule.workspace.elsewhere import Elsewhere
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Copy, Run, is_over
from bascule.workspace.news import News
from bascule.workspace.operations import Operations
from bascule.workspace.ports import CheckpointFault, Checkpoints, CheckpointStore, FileFault, Files, Scratch
from bascule.workspace.protocol import DiffResult, FileChange, PathReason, RunIdParams
from bascule.workspace.records import RunRecord, Segment, UndoRecord
from bascule.workspace.resolving import judge_changes
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undos import Operation


class _ChangeSet(NamedTuple):
    changes: list[FileChange]
    diff: str
    truncated: bool
    # What no checkpoint holds, or what was left alone.
    unknown: list[PathReason]


class History:
    def __init__(
        self,
        *,
        checkpointing: Checkpointing,
        operations: Operations,
        spaces: Spaces,
        gate: Gate,
        limits: WorkspaceLimits,
        threads: Threads,
        files: Files,
        store: CheckpointStore,
        scratch: Scratch,
        news: News,
        elsewhere: Elsewhere,
    ) -> None:
        self._checkpointing = checkpointing
        self._elsewhere = elsewhere
        self._operations = operations
        self._spaces = spaces
        self._gate = gate
        self._limits = limits
        self._threads = threads
        self._files = files
        self._store = store
        self._scratch = scratch
        self._news = news

    # -- methods --

    async def diff(self, params: RunIdParams) -> DiffResult:
        record = self._operations.find(params.run_id, params.space_id)
        return self._result(record, await self.change_set(record))

    async def commit(self, call: Call, params: RunIdParams, effect: RecordedEffect) -> DiffResult:
        record = self.committable(params)
        space = self._spaces.find(record.space_id)
        change_set = await self.change_set(record)
        await within(None, await self._spaces.take_turn(space))
        left: list[PathReason] = []
        try:
            checkpoints = await self._opened(space)
            before, began = await self._threads.do(self._checkpointing.take, checkpoints, space)
            for segment in record.segments:
                if segment.after is None:
                    raise CheckpointFault("what it did on its copy is not known")  # noqa: TRY301 - as any other
                left += (await self._threads.do(checkpoints.apply, segment.before, segment.after)).left_alone
            after, ended = await self._threads.do(self._checkpointing.take, checkpoints, space)
        except (CheckpointFault, FileFault) as error:
            raise Conflict(
                f"{record.run_id} cannot be taken over: {error}", hint="run it again on a copy of what is there now"
            ) from None
        finally:
            space.turns.give_back()
        effect.details["files"] = len(change_set.changes)
        # What it did here is what is taken back; what it did on its copy is gone with that.
        here = (Segment(before=before, after=after, began=began, ended=ended),) if before != after else ()
        yes = self._gate.effects.approver(effect)
        committed = msgspec.structs.replace(record, committed=True, segments=here).with_yes(yes)

        def note(tx: Transaction) -> None:
            self._operations.book.put(tx, committed)
            tx.after.append(lambda: self._news.run("committed", committed))

        effect.changes.append(note)
        return self._result(record, change_set._replace(unknown=left))

    async def resolve_commit(self, call: Call, params: RunIdParams) -> Resolution:
        """What the person sees before the result of a run on a copy becomes real."""
        record = self.committable(params)
        change_set = await self.change_set(record)
        verdict = await judge_changes(self._gate, call, change_set.changes)
        asks = record.would_ask
        if asks is not None and (verdict is None or verdict.decision is Decision.ASK):
            verdict = Verdict(Decision.ASK, asks.rule, f"an operation of it asks: {asks.reason}")
        summary = f"take over {len(change_set.changes)} changed files of {record.run_id}"
        return _question(summary, record.segments, change_set, verdict, record.steering)

    def committable(self, params: RunIdParams) -> RunRecord:
        record = self._operations.book.find(params.run_id, params.space_id)
        if not record.on_copy:
            raise Conflict(f"{record.run_id} worked in the space itself: only a run with onCopy is committed")
        if not is_over(record):
            raise Conflict(f"{record.run_id} is not over yet", hint="wait for it: runs.wait")
        if record.committed:
            raise Conflict(f"{record.run_id} was taken over already")
        return record

    async def change_set(self, record: Operation) -> _ChangeSet:
        """What it changed, for people and models. What is not known is named: it is not nothing."""
        unknown = [each for each in (without_checkpoint(record),) if each is not None]
        try:
            outside = await self._threads.do(self._elsewhere.changes, record) if record.outside is not None else []
        except CheckpointFault as error:
            outside = []
            unknown.append(PathReason(path=WHOLE, reason=str(error)))
        segments = (record.segment,) if isinstance(record, UndoRecord) else record.segments
        if not segments:
            return _ChangeSet(outside, "", truncated=False, unknown=unknown)
        checkpoints = await self._opened(self._spaces.find(record.space_id))
        pieces: list[tuple[str, str]] = []
        for segment in segments:
            try:
                pieces.append((segment.before, await self._after(record, segment, checkpoints)))
            except (CheckpointFault, FileFault) as error:
                unknown.append(PathReason(path=WHOLE, reason=str(error)))
        try:
            change_set = await self._threads.do(self._collect_changes, checkpoints, pieces)
        except CheckpointFault as error:
            raise Conflict(f"the changes of {record.run_id} cannot be shown: {error}") from None
        return change_set._replace(changes=change_set.changes + outside, unknown=unknown + change_set.unknown)

    def _result(self, record: Operation, change_set: _ChangeSet) -> DiffResult:
        return DiffResult(
            run_id=record.run_id,
            space_id=record.space_id,
            changes=change_set.changes,
            diff=change_set.diff,
            truncated=change_set.truncated,
            unknown=change_set.unknown,
            note=self._operations.remark(record),
            steering=list(record.steering) if isinstance(record, RunRecord) else [],
        )

    # -- checkpoints that belong together --

    async def _after(self, record: Operation, segment: Segment, checkpoints: Checkpoints) -> str:
        if segment.after is not None:
            return segment.after
        if isinstance(record, RunRecord) and record.on_copy:
            raise CheckpointFault("the copy it worked on is gone, and there is no checkpoint after it")
        run = self._operations.live.get(record.run_id)
        until = None if run is not None and run.is_open else segment.until
        # What changed later is not its work, and unknown in such a tree.
        return await self._threads.do(checkpoints.take, None if until is None else until * 1_000_000)

    # -- on threads --

    def _collect_changes(self, checkpoints: Checkpoints, pieces: list[tuple[str, str]]) -> _ChangeSet:
        changes: list[FileChange] = []
        unknown: list[PathReason] = []
        parts: list[str] = []
        truncated = False
        left = self._limits.max_diff_chars
        for before, after in pieces:
            changes += checkpoints.changes(before, after)
            unknown += checkpoints.unknown(before, after)
            text, cut = checkpoints.diff(before, after, left)
            parts.append(text)
            left = max(0, left - len(text))
            truncated = truncated or cut
        return _ChangeSet(changes, "".join(parts), truncated, unknown)

    # -- copies --

    async def make_copy(self, run: Run, space: Space) -> None:
        """A workspace with the same content at the same path, as far as commands can see."""
        checkpoints = await self._opened(space)
        await within(None, await self._spaces.take_turn(space))
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
        for record in self._operations.book.all():
            kept = trees.setdefault(record.space_id, set())
            for segment in record.segments:
                kept.update(tree for tree in (segment.before, segment.after) if tree is not None)
        for undo in self._operations.undos.table.rows.values():
            segment = undo.segment
            trees.setdefault(undo.space_id, set()).update((segment.before, segment.after or undo.planned, undo.planned))
        return {space_id: frozenset(kept) for space_id, kept in trees.items()}

    def collect(self) -> "asyncio.Future[int]":
        operations: list[Operation] = [*self._operations.book.all(), *self._operations.undos.table.rows.values()]
        return self._threads.begin(self._collect, self.kept_trees(), operations, dict(self._operations.live))

    def _collect(
        self,
        trees: dict[str, frozenset[str]],
        operations: list[Operation],
        live: dict[str, Run],
    ) -> int:
        self._elsewhere.collect(trees, operations, live)
        return self._store.collect(trees)

    async def forget(self, space_id: str) -> None:
        """The space is gone, and so is what its runs could be taken back to."""
        await self._threads.do(self._collect, {space_id: frozenset()}, [], {})

    async def _opened(self, space: Space) -> Checkpoints:
        try:
            return await self._spaces.checkpoints_of(space)
        except (FileFault, CheckpointFault) as error:
            raise Conflict(str(error)) from None


def _question(
    summary: str,
    pieces: Iterable[Segment],
    change_set: _ChangeSet,
    verdict: Verdict | None,
    steering: Iterable[str] = (),
) -> Resolution:
    guides = tuple(steering)
    return Resolution(
        summary=summary,
        preview=(
            *((blocks.facts(*guides),) if guides else ()),
            blocks.diff(change_set.diff),
            *((blocks.text("[the diff goes on: runs.diff]"),) if change_set.truncated else ()),
        ),
        bound={"trees": [[each.before, each.after] for each in pieces]},
        verdict=verdict,
    )
