"""What a run changed: shown, taken back, or taken over from a copy."""

import asyncio
import contextlib
import os.path
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import within
from bascule.foundation.errors import BasculeError, Conflict, NotFound
from bascule.foundation.ids import new_id
from bascule.kernel.call import Call, Principal
from bascule.kernel.consent import blocks
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.checkpointing import MAX_NAMED, WHOLE, Checkpointing
from bascule.workspace.elsewhere import Back, Elsewhere, Segments
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Copy, Run, is_over
from bascule.workspace.news import News
from bascule.workspace.ports import (
    DIRECTORY,
    EMPTY,
    Beside,
    CheckpointFault,
    Checkpoints,
    CheckpointStore,
    FileFault,
    Files,
    LaterChanges,
    Scratch,
    Standing,
    Undone,
)
from bascule.workspace.protocol import DiffResult, FileChange, PathReason, RunIdParams, UndoParams, UndoResult
from bascule.workspace.records import (
    NO_UNDO,
    GitSegment,
    LastUndo,
    Move,
    OutsideSegment,
    RemovedProject,
    RunRecord,
    Segment,
)
from bascule.workspace.resolving import judge_changes
from bascule.workspace.runbook import RunBook
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undo_rights import restored_from_agents, why_asks

# In place of a run's id: the last undo of all; with `:` and a space's id behind it that of the space.
LAST_UNDO = "last-undo"
# What takes an undo back; it works as long as no other undo took place.
TAKE_BACK = "bascule undo --last-undo"
# Why what a call made outside of the project stays there after its undo.
KEPT = (
    "stays, because not all of what the call took away or moved there is known to be back, and this may be the only "
    "copy; remove it by hand once you have looked"
)
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


class _Job(NamedTuple):
    """What is to be taken back: what a run did, or what the last undo did."""

    run_id: str
    # When that began, by the wall clock.
    began: int
    # The last one first, as they are taken back.
    pieces: list[_Piece]
    git: GitSegment | None
    outside: OutsideSegment | None
    move: Move | None
    mode: tuple[int, int] | None
    # The project's directory was removed, with what no checkpoint holds.
    removed: RemovedProject | None
    lost: tuple[str, ...]
    unknown: list[PathReason]
    # Whether the run counts as undone afterwards.
    undone: bool
    # The last undo was this one, and was cut short.
    resumes: bool
    note: str | None


class _Place(NamedTuple):
    """Where the project's directory is."""

    path: str
    # Before its files can be put back it is moved, or made, or neither.
    todo: Literal["here", "move", "make"]


class _Done(NamedTuple):
    # Of the project, and all of it.
    inside: list[FileChange]
    changes: list[FileChange]
    diff: str
    truncated: bool
    left_alone: list[PathReason]
    failed: list[PathReason]
    refs: list[str]
    moved: bool
    note: str | None
    # The same undo may put back more later.
    again: bool


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
        journal: Journal,
        clock: Clock,
        rows: JournalStore,
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
        self._journal = journal
        self._clock = clock
        # By space.
        self._undos: Table[LastUndo] = Table("undos", LastUndo)
        self._undos.rows.update(rows.load("undos", LastUndo))

    # -- methods --

    async def diff(self, params: RunIdParams) -> DiffResult:
        record = self._book.find(params.run_id, params.space_id)
        return self._result(record, await self.change_set(record))

    async def undo(self, call: Call, params: UndoParams, effect: RecordedEffect) -> UndoResult:
        if not _is_last(params):
            # Of a call in the home itself there is no space, but there is a reason.
            self._undoable(params)
        space = self._spaces.find(self.space_of(params))
        await within(None, await self._spaces.take_turn(space))
        try:
            job = await self._job(space, params)
            if params.dry_run:
                done = await self._rehearse(space, job, await self._place(space, job))
            else:
                done = await self._take_back(call, space, job)
                finished = msgspec.structs.replace(self._undos.rows[space.space_id], finished=True)
                effect.changes.append(lambda tx: tx.put(self._undos, space.space_id, finished))
        finally:
            space.turns.give_back()
        effect.details["files"] = len(done.changes)
        if done.left_alone:
            effect.details["left_alone"] = len(done.left_alone)
        if done.failed:
            effect.details["failed"] = len(done.failed)
        if params.dry_run:
            effect.details["dry_run"] = True
        elif not done.again and not done.failed and (done.changes or done.refs or done.moved or not done.left_alone):
            # Else the same undo may be tried again.
            effect.changes.append(lambda tx: self._note(tx, job.run_id, undone=job.undone))
        return UndoResult(
            run_id=job.run_id,
            dry_run=params.dry_run,
            changes=done.changes,
            diff=done.diff,
            truncated=done.truncated,
            left_alone=done.left_alone,
            failed=done.failed,
            note=_joined(job.note, done.note),
            taken_back_by=None if params.dry_run else TAKE_BACK,
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
            space = self._spaces.find(self.space_of(params))
            work = self._undoable(params) if not _is_last(params) else self._undos.rows[space.space_id]
        except BasculeError:
            # The undo itself refuses, and its refusal is recorded.
            return nothing
        why = await self._threads.do(why_asks, call, work, self._standing_of)
        of_others = None if why is None else Verdict(Decision.ASK, "undo.others", why)
        if params.dry_run and why is None:
            return nothing
        try:
            job = await self._job(space, params)
            done = await self._rehearse(space, job, await self._place(space, job))
            verdict = await self._judge_restored(call, space, job, work, done.inside)
        except (BasculeError, CheckpointFault, FileFault):
            return Resolution(verdict=of_others)
        if not job.pieces:
            return Resolution(verdict=of_others)
        if of_others is not None and (verdict is None or verdict.decision is Decision.ASK):
            verdict = of_others
        change_set = _ChangeSet(done.inside, done.diff, done.truncated, [])
        return _question(f"put back {len(done.inside)} changed files of {job.run_id}", job.pieces, change_set, verdict)

    async def _judge_restored(
        self, call: Call, space: Space, job: _Job, work: RunRecord | LastUndo, changes: list[FileChange]
    ) -> Verdict | None:
        """What the person had is not written anew; only what an agent had written before asks again."""
        verdict = await judge_changes(self._gate, call, changes)
        if verdict is None or verdict.decision is not Decision.ASK or isinstance(work, LastUndo):
            return verdict
        earlier = [each for each in self._book.of_space(space.space_id) if each.number < work.number]
        async with self._checkpoints(space) as checkpoints:
            restored = await self._threads.do(restored_from_agents, checkpoints, earlier, job.pieces, changes)
        return await judge_changes(self._gate, call, restored)

    def committable(self, params: RunIdParams) -> RunRecord:
        record = self._book.find(params.run_id, params.space_id)
        if not record.on_copy:
            raise Conflict(f"{record.run_id} worked in the space itself: only a run with onCopy is committed")
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
        # Of a client's own call it is said in docs/native.md: under each of them nobody reads it.
        if record.background and record.native is None:
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
        yield from (run_id for run_id in segment.during if not self._is_unended(run_id, record))
        yield from (each.who for each in segment.beside)
        yield from (other.run_id for other, _ in self._began_later(record))

    def _is_unended(self, run_id: str, record: RunRecord) -> bool:
        """A call of the same session whose end no client reported: it refused the call, or was interrupted."""
        run = self._live.get(run_id)
        if run is None or run.left_running is not None or record.native is None or run.record.native is None:
            return False
        return run.record.native.session == record.native.session

    @contextlib.asynccontextmanager
    async def _beside_others(self, space: Space, checkpoints: Checkpoints, who: str) -> AsyncIterator[None]:
        """What is changed here is not the work of the commands that run in the background meanwhile."""
        if not space.working:
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

    # -- taking back --

    def space_of(self, params: UndoParams) -> str:
        if not _is_last(params):
            return self._book.find(params.run_id, params.space_id).space_id
        space_id = self._space_of_undo(params.run_id)
        if params.space_id not in (None, space_id):
            raise NotFound(
                f"the last undo was in {space_id}", hint=f"{LAST_UNDO}:{params.space_id} is the last one of that space"
            )
        return space_id

    def _space_of_undo(self, run_id: str) -> str:
        undos = self._undos.rows
        named = run_id.removeprefix(LAST_UNDO).removeprefix(":")
        space_id = named or max(undos, key=lambda each: undos[each].at, default=None)
        if space_id is None or space_id not in undos:
            raise NotFound("nothing was undone yet", hint="`bascule undo` lists what can be taken back")
        return space_id

    async def _job(self, space: Space, params: UndoParams) -> _Job:
        """What is to be taken back; `Conflict` when that cannot be."""
        if _is_last(params):
            return self._job_of_undo(self._undos.rows[space.space_id])
        record = self._undoable(params)
        last = self._undos.rows.get(space.space_id)
        try:
            async with self._checkpoints(space) as checkpoints:
                pieces = [await self._piece(record, segment, checkpoints) for segment in record.segments]
                await self._threads.do(_check_apart, checkpoints, pieces)
            if any(len(segment.beside) > self._limits.max_kept_runs for segment in record.segments):
                message = f"more than {self._limits.max_kept_runs} runs worked here at the same time"
                raise CheckpointFault(message)  # noqa: TRY301 - as any other
        except (CheckpointFault, FileFault) as error:
            raise _refused(record.run_id, error) from None
        return _Job(
            record.run_id,
            record.started_at,
            list(reversed(pieces)),
            record.git,
            record.outside,
            record.move,
            record.mode,
            removed=record.removed,
            lost=record.lost,
            unknown=_without_checkpoint(record),
            undone=True,
            resumes=last is not None and not last.finished and last.run_id == record.run_id,
            note=self._remark(record),
        )

    def _job_of_undo(self, last: LastUndo) -> _Job:
        assert last.segment.after is not None
        return _Job(
            last.run_id,
            last.at,
            [_Piece(last.segment.before, last.segment.after, None)],
            last.git,
            last.outside,
            last.move,
            last.mode,
            removed=None,
            lost=(),
            unknown=[],
            undone=not last.undone,
            resumes=not last.finished,
            note=f"this takes back the last undo here, that of {last.run_id}",
        )

    @contextlib.asynccontextmanager
    async def _checkpoints(self, space: Space, place: _Place | None = None) -> AsyncIterator[Checkpoints]:
        """Of the project where it is now; of an empty directory where it is not there at all."""
        directory = None
        try:
            if place is not None and place.todo == "move":
                root = await self._threads.do(self._files.open_root, place.path)
                checkpoints = await self._spaces.checkpoints_in(space, root)
            else:
                checkpoints = await self._spaces.checkpoints_of(space)
        except FileFault:
            if place is not None and place.todo != "make":
                raise
            directory = await self._threads.do(self._scratch.make, new_id("gone"))
            root = await self._threads.do(self._files.open_copy, directory)
            checkpoints = await self._threads.do(self._store.open, space.space_id, root)
        try:
            yield checkpoints
        finally:
            if checkpoints is not space.checkpoints:
                await self._threads.do(checkpoints.close)
            if directory is not None:
                await self._threads.do(self._scratch.remove, directory)

    async def _place(self, space: Space, job: _Job) -> _Place:
        """Where the project is, and what has to be done before its files can be put back."""
        path = space.record.path
        move = job.move
        if move is not None and await self._threads.do(self._files.is_directory, move.target, move.identity):
            source = await self._threads.do(self._files.what_is_at, move.source)
            if source not in (None, EMPTY):
                raise Conflict(
                    f"{job.run_id} cannot be undone: the project's directory is at {move.target}, and at {move.source} "
                    f"is {source}; nothing was changed",
                    hint=f"move {move.source} out of the way, then undo again",
                )
            return _Place(move.target, "move")
        there = await self._threads.do(self._files.what_is_at, path)
        if move is not None and not await self._threads.do(self._files.is_directory, move.source, move.identity):
            raise Conflict(
                f"{job.run_id} cannot be undone: it moved the project's directory to {move.target}, where it no longer "
                f"is; at {path} is {there or 'nothing'}; nothing was changed",
                hint=f"find the directory and move it to {path}, then undo again",
            )
        if there is None:
            return _Place(path, "make")
        if there not in (DIRECTORY, EMPTY):
            raise Conflict(
                f"{job.run_id} cannot be undone: the project's directory was {path}, where {there} is now; "
                "nothing was changed",
                hint=f"move {path} out of the way, then undo again: it makes the directory anew",
            )
        return _Place(path, "here")

    def _segments(self, space: Space, job: _Job, root: str) -> Segments:
        without = job.move.target if job.move is not None and job.move.target != space.record.path else None
        return Segments(space.space_id, root, job.git, job.outside, without, job.resumes)

    async def _rehearse(self, space: Space, job: _Job, place: _Place) -> _Done:
        """All of it is tried before any of it is changed."""
        segments = self._segments(space, job, place.path)
        try:
            async with self._checkpoints(space, place) as checkpoints:
                undone = [
                    await self._threads.do(self._undo, checkpoints, piece, job, segments, dry_run=True)
                    for piece in job.pieces
                ]
            back = await self._threads.do(self._elsewhere.rehearse, segments)
        except (CheckpointFault, FileFault) as error:
            raise _refused(job.run_id, error) from None
        lost = await self._threads.do(self._files.missing, place.path, job.lost)
        return _done(job, undone, back, lost, place, dry_run=True)

    async def _take_back(self, call: Call, space: Space, job: _Job) -> _Done:
        place = await self._place(space, job)
        await self._rehearse(space, job, place)
        try:
            async with self._checkpoints(space, place) as checkpoints:
                await self._remember(call.principal, space, job, place, checkpoints)
        except (CheckpointFault, FileFault, OSError) as error:
            raise _refused(job.run_id, error) from None
        # From here on there are changes, and what was there before them is kept.
        try:
            return await self._change(space, job, place)
        except (CheckpointFault, FileFault, OSError) as error:
            raise Conflict(
                f"the undo of {job.run_id} stopped: {error}",
                hint=f"do the same again, and it goes on where it stopped; `{TAKE_BACK}` takes back what it has done",
            ) from None

    async def _remember(self, who: Principal, space: Space, job: _Job, place: _Place, checkpoints: Checkpoints) -> None:
        """What is there now, and what the undo will leave, in our state directory before the first change."""
        before, after = await self._threads.do(checkpoints.expect, list(job.pieces), resumes=job.resumes)
        git, outside = await self._threads.do(self._elsewhere.expect, self._segments(space, job, place.path))
        move = job.move if place.todo == "move" else None
        cut_short = self._undos.rows.get(space.space_id)
        if cut_short is not None and _goes_on(job, cut_short, git, outside):
            assert cut_short.segment.after is not None
            if not await self._threads.do(checkpoints.changes, cut_short.segment.after, after):
                # What was there before its first try is what taking it back has to bring.
                return
        last = LastUndo(
            run_id=job.run_id,
            started_by=who,
            at=self._clock.wall_ms(),
            undone=job.undone,
            segment=Segment(before=before, after=after),
            git=git,
            outside=outside,
            move=move and Move(source=move.target, target=move.source, identity=move.identity),
            mode=job.mode and (job.mode[1], job.mode[0]),
        )
        tx = Transaction()
        tx.put(self._undos, space.space_id, last)
        await self._journal.commit_quietly(tx)

    async def _change(self, space: Space, job: _Job, place: _Place) -> _Done:
        path = space.record.path
        if place.todo == "make":
            was = job.removed
            owner = (was.owner, was.group) if was is not None else None
            await self._threads.do(self._files.make_directory, path, was.mode if was is not None else None, owner)
        elif job.move is not None and place.todo == "move" and job.move.source == path:
            await self._threads.do(self._files.move_directory, job.move.target, job.move.source)
        checkpoints = await self._spaces.checkpoints_of(space)
        segments = self._segments(space, job, path)
        async with self._beside_others(space, checkpoints, f"the undo of {job.run_id}"):
            undone = [
                await self._threads.do(self._undo, checkpoints, piece, job, segments, dry_run=False)
                for piece in job.pieces
            ]
            if job.mode is not None and checkpoints.root.mode == job.mode[1]:
                await self._threads.do(checkpoints.root.set_mode, job.mode[0])
            lost = await self._threads.do(self._files.missing, path, job.lost)
            unknown = [await self._threads.do(checkpoints.unknown, each.before, each.after) for each in job.pieces]
            complete = job.removed is None and not lost and not any(unknown) and not any(each.failed for each in undone)

            def keep(failed: Sequence[PathReason], older: Collection[bytes]) -> str | None:
                return None if complete and not failed and checkpoints.has(older) else KEPT

            back = await self._threads.do(self._elsewhere.put_back, segments, keep)
        if job.move is not None and place.todo == "move" and job.move.source != path:
            await self._threads.do(self._files.move_directory, job.move.target, job.move.source)
        return _done(job, undone, back, lost, place, dry_run=False)

    def _undo(self, checkpoints: Checkpoints, piece: _Piece, job: _Job, segments: Segments, *, dry_run: bool) -> Undone:
        return checkpoints.undo(
            piece.before,
            piece.after,
            dry_run=dry_run,
            max_chars=self._limits.max_diff_chars,
            beside=piece.beside,
            resumes=job.resumes,
            began_ms=job.began,
            elsewhere=partial(self._elsewhere.contents, segments),
        )

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
        for space_id, last in self._undos.rows.items():
            trees.setdefault(space_id, set()).update((last.segment.before, last.segment.after or last.segment.before))
        return {space_id: frozenset(kept) for space_id, kept in trees.items()}

    def collect(self) -> "asyncio.Future[int]":
        undos = dict(self._undos.rows)
        return self._threads.begin(self._collect, self.kept_trees(), list(self._book.all()), dict(self._live), undos)

    def _collect(
        self,
        trees: dict[str, frozenset[str]],
        records: list[RunRecord],
        live: dict[str, Run],
        undos: dict[str, LastUndo],
    ) -> int:
        self._elsewhere.collect(trees, records, live, undos)
        return self._store.collect(trees)

    def drop(self, tx: Transaction, space_id: str) -> None:
        """With the space its last undo goes."""
        if space_id in self._undos.rows:
            tx.put(self._undos, space_id, None)

    async def forget(self, space_id: str) -> None:
        """The space is gone, and so is what its runs could be taken back to."""
        await self._threads.do(self._collect, {space_id: frozenset()}, [], {}, {})

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
        try:
            record = msgspec.structs.replace(self._book.find(run_id), **what)
        except NotFound:
            # An undo can be taken back when its run is no longer kept.
            return
        self._book.put(tx, record)
        tx.after += [partial(self._news.run, event, record) for event, happened in what.items() if happened]


def _is_last(params: UndoParams) -> bool:
    return params.run_id.partition(":")[0] == LAST_UNDO


def _goes_on(job: _Job, last: LastUndo, git: GitSegment | None, outside: OutsideSegment | None) -> bool:
    """Whether an undo is the last one once more, which was cut short: it leaves the same of git and outside."""
    left = (last.git and last.git.after, last.outside and last.outside.after)
    same = left == (git and git.after, outside and outside.after)
    return same and (last.run_id, last.undone) == (job.run_id, job.undone)


def _refused(run_id: str, error: Exception) -> Conflict:
    """Before the first change."""
    later = isinstance(error, LaterChanges)
    hint = "undo later runs first, or by hand" if later else "`bascule runs diff` shows what it changed"
    return Conflict(f"{run_id} cannot be undone: {error}", hint=hint)


def _done(job: _Job, undone: Sequence[Undone], back: Back, lost: list[str], place: _Place, *, dry_run: bool) -> _Done:
    """What came of all parts of it."""
    left = {each.path: each for part in undone for each in part.left_alone}
    inside = [change for part in undone for change in part.changes]
    gone = [PathReason(path=path, reason="is a repository's own record, which no checkpoint holds") for path in lost]
    word = None
    if place.todo == "make":
        word = f"{place.path} is made again"
    elif place.todo == "move" and job.move is not None:
        word = f"{job.move.target} is {job.move.source} again"
    mode = f"the project's own directory has mode {job.mode[0]:04o} again" if job.mode is not None else None
    return _Done(
        inside,
        inside + back.changes,
        "".join(part.diff for part in undone),
        any(part.truncated for part in undone),
        [*job.unknown, *left.values(), *back.left_alone, *(gone if dry_run else ())],
        [*(each for part in undone for each in part.failed), *back.failed, *(() if dry_run else gone)],
        back.refs,
        place.todo != "here",
        _joined(word, mode, back.note),
        any(part.again for part in undone),
    )


def _check_apart(checkpoints: Checkpoints, pieces: Sequence[_Piece]) -> None:
    touched: set[str] = set()
    for piece in pieces:
        paths = {change.path for change in checkpoints.changes(piece.before, piece.after)}
        if both := sorted(touched & paths):
            raise CheckpointFault(
                f"others worked here while it waited for the person, and it changed {both[0]} before and after that"
            )
        touched |= paths


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
