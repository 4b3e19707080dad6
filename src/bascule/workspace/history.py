"""What a run changed: shown, taken back, or taken over from a copy."""

import asyncio
import contextlib
import os.path
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from bascule.foundation.deferred import within
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest
from bascule.kernel.call import Call
from bascule.kernel.consent import blocks
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.checkpointing import MAX_NAMED, WHOLE, Checkpointing
from bascule.workspace.elsewhere import NOTHING_BACK, Back, Elsewhere
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Copy, Run, is_over
from bascule.workspace.news import News
from bascule.workspace.ports import (
    Beside,
    CheckpointFault,
    Checkpoints,
    CheckpointStore,
    FileFault,
    Files,
    Scratch,
    Standing,
    Undone,
)
from bascule.workspace.protocol import DiffResult, FileChange, PathReason, RunIdParams, UndoParams, UndoResult
from bascule.workspace.records import NO_UNDO, RunRecord, Segment
from bascule.workspace.resolving import judge_changes
from bascule.workspace.runbook import RunBook
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undo_rights import restored_from_agents, why_asks

# How the note of a run begins that worked without a checkpoint.
_NO_CHECKPOINT = "not undoable"


class _ChangeSet(NamedTuple):
    changes: list[FileChange]
    diff: str
    truncated: bool
    # What no checkpoint holds, or what was left alone.
    unknown: list[PathReason]


class _Piece(NamedTuple):
    """A segment with both its checkpoints."""

    before: str
    after: str
    # What others did at the same time; None when nobody else worked here.
    beside: list[Beside] | None


class History:
    def __init__(
        self,
        *,
        checkpointing: Checkpointing,
        live: Mapping[str, Run],
        book: RunBook,
        spaces: Spaces,
        gate: Gate,
        limits: WorkspaceLimits,
        threads: Threads,
        files: Files,
        store: CheckpointStore,
        scratch: Scratch,
        news: News,
        elsewhere: Elsewhere,
        standing_of: Callable[[int], Standing],
    ) -> None:
        self._checkpointing = checkpointing
        self._elsewhere = elsewhere
        self._standing_of = standing_of
        self._live = live
        self._book = book
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
        record = self._book.find(params.run_id, params.space_id)
        return self._result(record, await self.change_set(record))

    async def undo(self, call: Call, params: UndoParams, effect: RecordedEffect) -> UndoResult:
        record = self._undoable(params)
        space = self._spaces.find(record.space_id)
        await within(None, await self._spaces.take_turn(space))
        try:
            checkpoints = await self._opened(space)
            pieces = [await self._piece(record, segment, checkpoints) for segment in record.segments]
            if any(len(segment.beside) > self._limits.max_kept_runs for segment in record.segments):
                message = f"more than {self._limits.max_kept_runs} runs worked here at the same time"
                raise CheckpointFault(message)  # noqa: TRY301 - as any other
            async with self._beside_others(
                space, checkpoints, f"the undo of {record.run_id}", really=not params.dry_run
            ):
                # Before any file is touched: what changed in git or outside since then stops it all.
                back = await self._undo_elsewhere(space, record, dry_run=True)
                change_set, again = await self._threads.do(self._undone, checkpoints, pieces, dry_run=params.dry_run)
                if not params.dry_run:
                    back = await self._undo_elsewhere(space, record, dry_run=False)
        except (CheckpointFault, FileFault) as error:
            raise Conflict(
                f"{record.run_id} cannot be undone: {error}", hint="undo later runs first, or by hand"
            ) from None
        finally:
            space.turns.give_back()
        change_set = change_set._replace(
            changes=change_set.changes + back.changes,
            unknown=_without_checkpoint(record) + change_set.unknown + back.left_alone,
        )
        effect.details["files"] = len(change_set.changes)
        if change_set.unknown:
            effect.details["left_alone"] = len(change_set.unknown)
        if params.dry_run:
            effect.details["dry_run"] = True
        elif not again:
            # Else the same undo may be tried again.
            effect.changes.append(lambda tx: self._note(tx, record.run_id, undone=True))
        return UndoResult(
            run_id=record.run_id,
            dry_run=params.dry_run,
            changes=change_set.changes,
            diff=change_set.diff,
            truncated=change_set.truncated,
            left_alone=change_set.unknown,
            note=_joined(self._remark(record), back.note),
        )

    async def commit(self, call: Call, params: RunIdParams, effect: RecordedEffect) -> DiffResult:
        record = self.committable(params)
        space = self._spaces.find(record.space_id)
        change_set = await self.change_set(record)
        await within(None, await self._spaces.take_turn(space))
        left: list[PathReason] = []
        try:
            checkpoints = await self._opened(space)
            async with self._beside_others(space, checkpoints, f"the commit of {record.run_id}"):
                for segment in record.segments:
                    if segment.after is None:
                        raise CheckpointFault("what it did on its copy is not known")  # noqa: TRY301 - as any other
                    left += (await self._threads.do(checkpoints.apply, segment.before, segment.after)).left_alone
        except (CheckpointFault, FileFault) as error:
            raise Conflict(
                f"{record.run_id} cannot be taken over: {error}", hint="run it again on a copy of what is there now"
            ) from None
        finally:
            space.turns.give_back()
        effect.details["files"] = len(change_set.changes)
        effect.changes.append(lambda tx: self._note(tx, record.run_id, committed=True))
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

    async def resolve_undo(self, call: Call, params: UndoParams) -> Resolution:
        """What the person sees before a run is undone that changed what they are asked about."""
        nothing = Resolution()
        try:
            record = self._undoable(params)
        except BasculeError:
            # The undo itself refuses, and its refusal is recorded.
            return nothing
        why = await self._threads.do(why_asks, call, record, self._standing_of)
        of_others = None if why is None else Verdict(Decision.ASK, "undo.others", why)
        if not record.segments or (params.dry_run and why is None):
            return Resolution(verdict=of_others)
        checkpoints = await self._opened(self._spaces.find(record.space_id))
        try:
            pieces = [await self._piece(record, segment, checkpoints) for segment in record.segments]
            change_set, _ = await self._threads.do(self._undone, checkpoints, pieces, dry_run=True)
        except (CheckpointFault, FileFault):
            return Resolution(verdict=of_others)
        verdict = await self._judge_restored(call, record, checkpoints, pieces, change_set.changes)
        if of_others is not None and (verdict is None or verdict.decision is Decision.ASK):
            verdict = of_others
        return _question(
            f"put back {len(change_set.changes)} changed files of {record.run_id}", pieces, change_set, verdict
        )

    async def _judge_restored(
        self, call: Call, record: RunRecord, checkpoints: Checkpoints, pieces: list[_Piece], changes: list[FileChange]
    ) -> Verdict | None:
        """What the person had is not written anew; only what an agent had written before asks again."""
        verdict = await judge_changes(self._gate, call, changes)
        if verdict is None or verdict.decision is not Decision.ASK:
            return verdict
        earlier = [each for each in self._book.of_space(record.space_id) if each.number < record.number]
        restored = await self._threads.do(restored_from_agents, checkpoints, earlier, pieces, changes)
        return await judge_changes(self._gate, call, restored)

    def committable(self, params: RunIdParams) -> RunRecord:
        record = self._book.find(params.run_id, params.space_id)
        if not record.on_copy:
            raise InvalidRequest(f"{record.run_id} worked in the space itself: only a run with onCopy is committed")
        if not is_over(record):
            raise Conflict(f"{record.run_id} is not over yet", hint="wait for it: runs.wait")
        if record.committed:
            raise Conflict(f"{record.run_id} was taken over already")
        return record

    async def change_set(self, record: RunRecord) -> _ChangeSet:
        """What it changed, for people and models. What is not known is named: it is not nothing."""
        unknown = _without_checkpoint(record)
        try:
            outside = await self._threads.do(self._elsewhere.changes, record) if record.outside is not None else []
        except CheckpointFault as error:
            outside = []
            unknown.append(PathReason(path=WHOLE, reason=str(error)))
        if not record.segments:
            return _ChangeSet(outside, "", truncated=False, unknown=unknown)
        checkpoints = await self._opened(self._spaces.find(record.space_id))
        pieces: list[_Piece] = []
        for segment in record.segments:
            try:
                pieces.append(await self._piece(record, segment, checkpoints))
            except (CheckpointFault, FileFault) as error:
                unknown.append(PathReason(path=WHOLE, reason=str(error)))
        try:
            change_set = await self._threads.do(self._collect_changes, checkpoints, pieces)
        except CheckpointFault as error:
            raise Conflict(f"the changes of {record.run_id} cannot be shown: {error}") from None
        return change_set._replace(changes=change_set.changes + outside, unknown=unknown + change_set.unknown)

    def _result(self, record: RunRecord, change_set: _ChangeSet) -> DiffResult:
        return DiffResult(
            run_id=record.run_id,
            changes=change_set.changes,
            diff=change_set.diff,
            truncated=change_set.truncated,
            unknown=change_set.unknown,
            note=self._remark(record),
            steering=list(record.steering),
        )

    def _remark(self, record: RunRecord) -> str | None:
        notes: list[str] = []
        if not is_over(record):
            notes.append("it is not over yet: this is what changed so far")
        elif any(segment.after is None for segment in record.segments):
            notes.append(
                "there is no checkpoint after it: what it changed is read from the workspace as it is now, "
                "without what changed later"
            )
        others = sorted({who for segment in record.segments for who in self._others(record, segment)})
        if others:
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            named = ", ".join(others[:MAX_NAMED]) + more
            notes.append(f"others worked here at the same time, and what they changed may be in this too: {named}")
        if record.native is not None and record.note is not None:
            notes.append(record.note)
        if record.native is not None:
            notes.append("what anybody changed here while it ran is in this too")
        elif record.background:
            notes.append("it ran in the background: what anybody changed here meanwhile is in this too")
        return "; ".join(notes) or None

    # -- checkpoints that belong together --

    async def _piece(self, record: RunRecord, segment: Segment, checkpoints: Checkpoints) -> _Piece:
        after = segment.after
        if after is None:
            if record.on_copy:
                raise CheckpointFault("the copy it worked on is gone, and there is no checkpoint after it")
            run = self._live.get(record.run_id)
            until = None if run is not None and run.is_open else segment.until
            # What changed later is not its work, and unknown in such a tree.
            after = await self._threads.do(checkpoints.take, None if until is None else until * 1_000_000)
        beside = list(segment.beside)
        for other, theirs in self._began_later(record):
            if all((each.who, each.before) != (other.run_id, theirs.before) for each in beside):
                theirs_after = theirs.after
                if theirs_after is None:
                    theirs_after = await self._threads.do(checkpoints.take)
                beside.append(Beside(other.run_id, theirs.before, theirs_after))
        return _Piece(segment.before, after, beside if beside or segment.during else None)

    def _began_later(self, record: RunRecord) -> Iterator[tuple[RunRecord, Segment]]:
        """What began while it worked."""
        for other in self._book.of_space(record.space_id):
            for theirs in other.segments:
                if record.run_id in theirs.during:
                    yield other, theirs

    def _others(self, record: RunRecord, segment: Segment) -> Iterator[str]:
        yield from segment.during
        yield from (each.who for each in segment.beside)
        yield from (other.run_id for other, _ in self._began_later(record))

    @contextlib.asynccontextmanager
    async def _beside_others(
        self, space: Space, checkpoints: Checkpoints, who: str, *, really: bool = True
    ) -> AsyncIterator[None]:
        """What is changed here is not the work of the commands that run in the background meanwhile."""
        if not space.working or not really:
            yield
            return
        before = await self._threads.do(checkpoints.take)
        try:
            yield
        finally:
            after = await self._threads.do(checkpoints.take)
            self._checkpointing.note_concurrent(space, Beside(who, before, after))

    # -- on threads --

    def _collect_changes(self, checkpoints: Checkpoints, pieces: list[_Piece]) -> _ChangeSet:
        changes: list[FileChange] = []
        unknown: list[PathReason] = []
        parts: list[str] = []
        truncated = False
        left = self._limits.max_diff_chars
        for piece in pieces:
            changes += checkpoints.changes(piece.before, piece.after)
            unknown += checkpoints.unknown(piece.before, piece.after)
            text, cut = checkpoints.diff(piece.before, piece.after, left)
            parts.append(text)
            left = max(0, left - len(text))
            truncated = truncated or cut
        return _ChangeSet(changes, "".join(parts), truncated, unknown)

    def _undone(self, checkpoints: Checkpoints, pieces: list[_Piece], *, dry_run: bool) -> tuple[_ChangeSet, bool]:
        """Backwards, the last piece first, all tried before any is changed; and whether the same may be tried again."""
        touched: set[str] = set()
        for piece in pieces:
            paths = {change.path for change in checkpoints.changes(piece.before, piece.after)}
            if both := sorted(touched & paths):
                raise CheckpointFault(
                    f"others worked here while it waited for the person, and it changed {both[0]} before and after that"
                )
            touched |= paths
        done = [self._undo(checkpoints, piece, dry_run=True) for piece in reversed(pieces)]
        if not dry_run:
            done = [self._undo(checkpoints, piece, dry_run=False) for piece in reversed(pieces)]
        left = {each.path: each for undone in done for each in undone.left_alone}
        change_set = _ChangeSet(
            [change for undone in done for change in undone.changes],
            "".join(undone.diff for undone in done),
            any(undone.truncated for undone in done),
            list(left.values()),
        )
        return change_set, any(undone.again for undone in done)

    def _undo(self, checkpoints: Checkpoints, piece: _Piece, *, dry_run: bool) -> Undone:
        return checkpoints.undo(
            piece.before, piece.after, dry_run=dry_run, max_chars=self._limits.max_diff_chars, beside=piece.beside
        )

    async def _undo_elsewhere(self, space: Space, record: RunRecord, *, dry_run: bool) -> Back:
        if record.git is None and record.outside is None:
            return NOTHING_BACK
        return await self._threads.do(self._elsewhere.undo, space, record, dry_run=dry_run)

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
        for record in self._book.all():
            kept = trees.setdefault(record.space_id, set())
            run = self._live.get(record.run_id)
            concurrent = list(run.beside) if run is not None else []
            for segment in record.segments:
                kept.add(segment.before)
                kept.update(() if segment.after is None else (segment.after,))
                concurrent += segment.beside
            kept.update(tree for each in concurrent for tree in (each.before, each.after))
        return {space_id: frozenset(kept) for space_id, kept in trees.items()}

    def collect(self) -> "asyncio.Future[int]":
        return self._threads.begin(self._collect, self.kept_trees(), list(self._book.all()), dict(self._live))

    def _collect(self, trees: dict[str, frozenset[str]], records: list[RunRecord], live: dict[str, Run]) -> int:
        self._elsewhere.collect(trees, records, live)
        return self._store.collect(trees)

    async def forget(self, space_id: str) -> None:
        """The space is gone, and so is what its runs could be taken back to."""
        await self._threads.do(self._collect, {space_id: frozenset()}, [], {})

    def _undoable(self, params: UndoParams) -> RunRecord:
        record = self._book.find(params.run_id, params.space_id)
        if not is_over(record):
            hint = f"wait for it, or cancel it first: bascule runs cancel {record.run_id} (runs.cancel)"
            if record.background:
                hint = f"it runs in the background; stop it first: bascule runs cancel {record.run_id} (runs.cancel)"
            raise Conflict(f"{record.run_id} is not over yet", hint=hint)
        if record.git_before is not None:
            raise Conflict(
                f"{record.run_id}: what it did to git's record is being looked at", hint="try again in a moment"
            )
        if record.undone:
            raise Conflict(f"{record.run_id} was undone already")
        if record.on_copy and not record.committed:
            raise Conflict(f"{record.run_id} worked on a copy, which is gone: there is nothing to undo")
        if not record.segments and record.note is not None and record.note.startswith((_NO_CHECKPOINT, NO_UNDO)):
            raise Conflict(f"{record.run_id} cannot be taken back: {record.note}", hint="`bascule undo` lists what can")
        return record

    async def _opened(self, space: Space) -> Checkpoints:
        try:
            return await self._spaces.checkpoints_of(space)
        except (FileFault, CheckpointFault) as error:
            raise Conflict(str(error)) from None

    def _note(self, tx: Transaction, run_id: str, **what: bool) -> None:
        """In the transaction of the record that says so."""
        record = msgspec.structs.replace(self._book.find(run_id), **what)
        self._book.put(tx, record)
        tx.after += [partial(self._news.run, event, record) for event in what]


def _question(
    summary: str,
    pieces: Iterable[Segment | _Piece],
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


def _without_checkpoint(record: RunRecord) -> list[PathReason]:
    """Of a run that worked without one, at least for a time, anything may have changed."""
    if record.note is None or not record.note.startswith(_NO_CHECKPOINT):
        return []
    return [PathReason(path=WHOLE, reason=record.note)]


def _joined(*notes: str | None) -> str | None:
    return "; ".join(note for note in notes if note) or None
