"""`runs.undo` and `runs.redo`: take back what some operations did, and keep the rest.

Which operations is chosen first: one, those of a session or an agent, those since a time, the last one that changed a
file. Then each path has its history (`timeline`): what the chosen operations did last is taken back, and the first edit
of somebody else stops it. What stops is left alone and named, or merged by line. A project has three parts with such a
history: its files, git's record, and what calls named outside of it.

An undo is an operation itself, on disk before its first change. It is taken back as any other, and never uses up what
it took back.
"""

import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import within
from bascule.foundation.errors import BasculeError, Conflict, NotFound
from bascule.foundation.ids import new_id
from bascule.kernel.call import Call
from bascule.kernel.consent import blocks
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.resolution import Resolution
from bascule.workspace.checkpointing import Checkpointing
from bascule.workspace.choosing import Choosing, without_checkpoint
from bascule.workspace.elsewhere import Back, Elsewhere, Segments
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.news import News
from bascule.workspace.operations import Chosen, Operations, actor_of, last
from bascule.workspace.parts import Parts, since_of
from bascule.workspace.ports import (
    DIRECTORY,
    EMPTY,
    LEFTOVER,
    CheckpointFault,
    Checkpoints,
    CheckpointStore,
    FileFault,
    Files,
    LaterChanges,
    Scratch,
    Standing,
    Undone,
    Ways,
)
from bascule.workspace.protocol import FileChange, PathReason, RedoParams, UndoParams, UndoResult
from bascule.workspace.records import (
    GitSegment,
    Move,
    OutsideSegment,
    RemovedProject,
    Segment,
    UndoRecord,
)
from bascule.workspace.resolving import judge_changes
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads
from bascule.workspace.undo_rights import is_person, restored_from_agents, why_asks
from bascule.workspace.undos import PREFIX, is_undo_id

# What takes the last undo back.
REDO = "bascule redo"
# Of a caller without a process.
NOWHERE = Standing(frozenset(), is_below_client=False)

NOT_LEFT = "is not known to be as the call left it"
# Why what a call made outside of the project stays there after its undo.
KEPT = (
    "stays, because not all of what the call took away or moved there is known to be back, and this may be the only "
    "copy; remove it by hand once you have looked"
)
# How the note of a run begins that worked without a checkpoint.
NO_CHECKPOINT = "not undoable"
OTHER_REPOSITORY = "another repository is there now"
# So many operations are named in the ledger.
MAX_OPERATIONS_NAMED = 20
MAX_TITLE_CHARS = 60


class _Job(NamedTuple):
    """What will be done about it, as far as it can be said before it is tried."""

    chosen: Chosen
    # The project's files.
    ways: Ways
    git: GitSegment | None
    outside: OutsideSegment | None
    move: Move | None
    mode: tuple[int, int] | None
    # The project's directory was removed, with what no checkpoint holds.
    removed: RemovedProject | None
    lost: tuple[str, ...]
    # What stays, and why; and the operations that it is of.
    left: list[PathReason]
    left_of: frozenset[str]
    # Whether nothing that the operations took away is missing from what is put back.
    complete: bool
    # The last undo was cut short: a directory may be half made.
    resumes: bool

    @property
    def is_empty(self) -> bool:
        return not any((self.ways.paths, self.git, self.outside, self.move, self.mode, self.removed, self.lost))


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

    @property
    def did_something(self) -> bool:
        return bool(self.changes or self.refs or self.moved)


class Undoing:
    def __init__(
        self,
        *,
        operations: Operations,
        parts: Parts,
        choosing: Choosing,
        checkpointing: Checkpointing,
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
    ) -> None:
        self._operations = operations
        self._parts = parts
        self._choosing = choosing
        self._checkpointing = checkpointing
        self._spaces = spaces
        self._gate = gate
        self._limits = limits
        self._threads = threads
        self._files = files
        self._store = store
        self._scratch = scratch
        self._news = news
        self._elsewhere = elsewhere
        self._standing_of = standing_of
        self._journal = journal
        self._clock = clock

    # -- methods --

    async def undo(self, call: Call, params: UndoParams, effect: RecordedEffect) -> UndoResult:
        # Of a call in the home itself there is no space, but there is a reason.
        self._choosing.check_one(params)
        space = self._spaces.find(self._choosing.space_of(params))
        await within(None, await self._spaces.take_turn(space))
        try:
            job, place = await self._job(call, space, params)
            if effect.resolution.resolved != job.chosen.ids:
                # Whether it may was asked of other operations: `the last run` is another one by now.
                raise Conflict("what is meant has changed meanwhile; nothing was taken back", hint="do the same again")
            undo_id = None
            if params.dry_run:
                done = await self._rehearse(space, job, place)
            else:
                done, undo_id = await self._take_back(call, space, job, place, effect)
        finally:
            space.turns.give_back()
        chosen = job.chosen
        effect.details["of"] = [each.run_id for each in chosen.operations[:MAX_OPERATIONS_NAMED]]
        effect.details["whose"] = sorted({actor_of(each) for each in chosen.operations})[:MAX_OPERATIONS_NAMED]
        effect.details["files"] = len(done.changes)
        if done.left_alone:
            effect.details["left_alone"] = len(done.left_alone)
        if done.failed:
            effect.details["failed"] = len(done.failed)
        if params.dry_run:
            effect.details["dry_run"] = True
        # A redo takes an undo back, and no redo: that is one operation as any other.
        is_redo = all(isinstance(each, UndoRecord) for each in chosen.operations)
        taken_back_by = None if undo_id is None else f"bascule undo {undo_id}" if is_redo else REDO
        return UndoResult(
            run_id=chosen.operations[0].run_id,
            operations=[each.run_id for each in chosen.operations],
            what=chosen.what,
            dry_run=params.dry_run,
            changes=done.changes,
            diff=done.diff,
            truncated=done.truncated,
            left_alone=done.left_alone,
            failed=done.failed,
            note="; ".join(each for each in (self._remarks(chosen), done.note) if each) or None,
            taken_back_by=taken_back_by,
        )

    async def redo(self, call: Call, params: RedoParams, effect: RecordedEffect) -> UndoResult:
        return await self.undo(call, self._choosing.of_redo(params), effect)

    async def resolve_redo(self, call: Call, params: RedoParams) -> Resolution:
        try:
            return await self.resolve(call, self._choosing.of_redo(params))
        except BasculeError:
            # The redo itself refuses, and its refusal is recorded.
            return Resolution()

    async def resolve(self, call: Call, params: UndoParams) -> Resolution:
        """What the person sees before work is taken back that changed what they are asked about."""
        try:
            self._choosing.check_one(params)
            space = self._spaces.find(self._choosing.space_of(params))
            chosen = await self._choosing.chosen(space, params)
        except (BasculeError, CheckpointFault, FileFault):
            # The undo itself refuses, and its refusal is recorded.
            return Resolution()
        everything = self._operations.down_to_runs(chosen.operations)
        whys = [await self._threads.do(why_asks, call, each, self._standing_of) for each in everything]
        why = next((each for each in whys if each is not None), None)
        of_others = None if why is None else Verdict(Decision.ASK, "undo.others", why)
        if params.dry_run and why is None:
            return Resolution(resolved=chosen.ids)
        # Also where no file changes a yes is for exactly these.
        without_files = Resolution(
            summary=None if of_others is None else f"take back {chosen.what}",
            preview="" if of_others is None else "\n".join(each.run_id for each in chosen.operations),
            bound={"operations": sorted(chosen.ids)},
            resolved=chosen.ids,
            verdict=of_others,
        )
        try:
            job, place = await self._job(call, space, params)
            done = await self._rehearse(space, job, place)
            verdict = await self._judge_restored(call, space, job, place, done.inside)
        except (BasculeError, CheckpointFault, FileFault):
            return without_files
        if not job.ways.paths or job.chosen.ids != chosen.ids:
            return without_files
        if of_others is not None and (verdict is None or verdict.decision is Decision.ASK):
            verdict = of_others
        return Resolution(
            summary=f"put back {len(done.inside)} changed files of {chosen.what}",
            preview=(
                blocks.diff(done.diff),
                *((blocks.text("[the diff goes on: runs.diff]"),) if done.truncated else ()),
            ),
            bound={"work": _digest(job)},
            resolved=chosen.ids,
            verdict=verdict,
        )

    async def _judge_restored(
        self, call: Call, space: Space, job: _Job, place: _Place, changes: list[FileChange]
    ) -> Verdict | None:
        """What the person had is not written anew; only what an agent had written before asks again."""
        verdict = await judge_changes(self._gate, call, changes)
        operations = job.chosen.operations
        if verdict is None or verdict.decision is not Decision.ASK or isinstance(operations[0], UndoRecord):
            # To take an undo back is to do again what was done.
            return verdict
        earlier = [
            each for each in self._operations.book.of_space(space.space_id) if each.number < operations[0].number
        ]
        async with self._checkpoints(space, place) as checkpoints:
            restored = await self._threads.do(restored_from_agents, checkpoints, earlier, job.ways, changes)
        return await judge_changes(self._gate, call, restored)

    # -- who else --

    def _remarks(self, chosen: Chosen) -> str | None:
        """Of one run what there is to know; of many it would be about most of them."""
        if len(chosen.operations) != 1:
            return None
        return self._operations.remark(chosen.operations[0])

    # -- what is to be done --

    async def _job(self, call: Call, space: Space, params: UndoParams) -> tuple[_Job, _Place]:
        """`Conflict` when nothing of it can be taken back."""
        try:
            chosen = await self._choosing.chosen(space, params)
            by_person = await self._threads.do(is_person, call, self._standing_of)
            chosen = chosen._replace(by_person=by_person)
            place = await self._place(space, chosen)
            async with self._checkpoints(space, place) as checkpoints:
                job = await self._ways(space, chosen, place, checkpoints)
        except (CheckpointFault, FileFault) as error:
            raise _refused(params.run_id or "this", error) from None
        if job.is_empty and not job.left and all(each.undone for each in chosen.operations):
            raise Conflict(f"{chosen.what} was undone already", hint="`bascule log` says by which undo")
        return job, place

    async def _ways(self, space: Space, chosen: Chosen, place: _Place, checkpoints: Checkpoints) -> _Job:
        operations = self._operations.of_space(space.space_id)
        cut_short = self._cut_short(space)
        if cut_short is not None and cut_short.undo_id not in chosen.ids:
            so_far = await self._threads.do(self._parts.how_far, cut_short, checkpoints, place.path)
            operations = [so_far if each is cut_short else each for each in operations]
        since = since_of(operations, chosen)
        works = await self._parts.works(space, checkpoints, [each for each in operations if last(each) >= since])
        mine = [work for work in works if work.operation in chosen.ids]
        paths, left = await self._threads.do(self._parts.files, chosen, operations, works, checkpoints, cut_short)
        job = _Job(
            chosen=chosen,
            ways=Ways(min(mine, key=lambda work: work.began).before, paths) if mine else Ways("", {}),
            git=None,
            outside=None,
            move=None,
            mode=None,
            removed=None,
            lost=(),
            left=[*chosen.stays, *left.paths],
            left_of=frozenset(left.of),
            complete=False,
            resumes=cut_short is not None,
        )
        if chosen.paths:
            whole = await self._threads.do(self._parts.wholly_meant, chosen, mine, checkpoints)
            return job._replace(left_of=job.left_of | (chosen.ids - whole))
        runs = chosen.runs
        unknown = [each for each in map(without_checkpoint, runs) if each is not None]
        git, git_left, git_whole = await self._threads.do(
            self._parts.git, chosen, operations, space.space_id, place.path
        )
        without = self._without(space, chosen)
        outside, outside_left = await self._threads.do(
            self._parts.outside, chosen, operations, space.space_id, without, cut_short
        )
        not_held = [await self._threads.do(checkpoints.unknown, work.before, work.after) for work in mine]
        return job._replace(
            git=git,
            outside=outside,
            move=_move(chosen),
            mode=_mode(chosen),
            removed=next((each.removed for each in runs if each.removed is not None), None),
            lost=tuple(dict.fromkeys(name for each in runs for name in each.lost)),
            left=[*chosen.stays, *unknown, *left.paths, *git_left.paths, *outside_left.paths],
            left_of=frozenset(left.of | git_left.of | outside_left.of),
            complete=git_whole and all(path.reason == LEFTOVER for paths in not_held for path in paths),
        )

    def _cut_short(self, space: Space) -> UndoRecord | None:
        last = self._operations.undos.newest(space.space_id)
        return last if last is not None and not last.finished else None

    # -- doing it --

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

    async def _place(self, space: Space, chosen: Chosen) -> _Place:
        """Where the project is, and what has to be done before its files can be put back."""
        path = space.record.path
        move = _move(chosen) if not chosen.paths else None
        if move is not None and await self._threads.do(self._files.is_directory, move.target, move.identity):
            source = await self._threads.do(self._files.what_is_at, move.source)
            if source not in (None, EMPTY):
                raise Conflict(
                    f"{chosen.what} cannot be undone: the project's directory is at {move.target}, and at "
                    f"{move.source} is {source}; nothing was changed",
                    hint=f"move {move.source} out of the way, then undo again",
                )
            return _Place(move.target, "move")
        there = await self._threads.do(self._files.what_is_at, path)
        if move is not None and not await self._threads.do(self._files.is_directory, move.source, move.identity):
            raise Conflict(
                f"{chosen.what} cannot be undone: it moved the project's directory to {move.target}, where it no "
                f"longer is; at {path} is {there or 'nothing'}; nothing was changed",
                hint=f"find the directory and move it to {path}, then undo again",
            )
        if there is None:
            return _Place(path, "make")
        if there not in (DIRECTORY, EMPTY):
            raise Conflict(
                f"{chosen.what} cannot be undone: the project's directory was {path}, where {there} is now; "
                "nothing was changed",
                hint=f"move {path} out of the way, then undo again: it makes the directory anew",
            )
        return _Place(path, "here")

    def _without(self, space: Space, chosen: Chosen) -> str | None:
        """What lies here is not looked at: the project itself, where it was moved to."""
        move = _move(chosen)
        return move.target if move is not None and move.target != space.record.path else None

    def _segments(self, space: Space, job: _Job, root: str) -> Segments:
        without = self._without(space, job.chosen)
        return Segments(space.space_id, root, job.git, job.outside, without, job.resumes)

    async def _rehearse(self, space: Space, job: _Job, place: _Place) -> _Done:
        """All of it is tried before any of it is changed."""
        segments = self._segments(space, job, place.path)
        try:
            async with self._checkpoints(space, place) as checkpoints:
                undone = await self._threads.do(self._bring, checkpoints, job, segments, dry_run=True)
            back = await self._threads.do(self._elsewhere.rehearse, segments)
        except (CheckpointFault, FileFault) as error:
            raise _refused(job.chosen.what, error) from None
        lost = await self._threads.do(self._files.missing, place.path, job.lost)
        return _done(job, undone, back, lost, place, dry_run=True)

    async def _take_back(
        self, call: Call, space: Space, job: _Job, place: _Place, effect: RecordedEffect
    ) -> tuple[_Done, str | None]:
        """What came of it, and the id of the undo, if it was one."""
        rehearsed = await self._rehearse(space, job, place)
        may_be_none = job.mode is None and not job.resumes
        if may_be_none and not rehearsed.did_something:
            if not rehearsed.left_alone and not rehearsed.failed:
                # All of it was taken back by hand: the next undo is about the run before.
                effect.changes.append(lambda tx: self._mark_all(tx, job, job.left_of))
            # Nothing is put back: no undo took place.
            return await self._compared(job, place, rehearsed), None
        try:
            async with self._checkpoints(space, place) as checkpoints:
                record = await self._remember(call, space, job, place, checkpoints)
        except (CheckpointFault, FileFault, OSError) as error:
            raise _refused(job.chosen.what, error) from None
        # From here on there are changes, and what was there before them is kept.
        try:
            done, after, ended = await self._change(space, job, place)
        except (CheckpointFault, FileFault, OSError) as error:
            raise Conflict(
                f"the undo of {job.chosen.what} stopped: {error}",
                hint=f"do the same again, and it goes on where it stopped; `{REDO}` takes back what it has done",
            ) from None
        if may_be_none and not done.did_something:
            # What was to go stays after all.
            effect.changes.append(lambda tx: tx.put(self._operations.undos.table, record.undo_id, None))
            return done, None
        segment = msgspec.structs.replace(record.segment, after=after, ended=ended)
        finished = msgspec.structs.replace(record, segment=segment, git=_ended(record.git, ended), finished=True)

        def note(tx: Transaction) -> None:
            self._operations.undos.put(tx, finished)
            self._mark_all(tx, job, job.chosen.ids if done.failed else job.left_of)

        effect.changes.append(note)
        return done, record.undo_id

    async def _compared(self, job: _Job, place: _Place, rehearsed: _Done) -> _Done:
        """As after an undo: what is gone for good is called so."""
        lost = await self._threads.do(self._files.missing, place.path, job.lost)
        gone = [each for each in rehearsed.left_alone if each.path in lost]
        return rehearsed._replace(
            left_alone=[each for each in rehearsed.left_alone if each not in gone],
            failed=[*rehearsed.failed, *gone],
        )

    async def _remember(
        self, call: Call, space: Space, job: _Job, place: _Place, checkpoints: Checkpoints
    ) -> UndoRecord:
        """What is there now, and what the undo will leave, in our state directory before the first change."""
        if job.ways.paths:
            before, after = await self._threads.do(checkpoints.expect, job.ways, resumes=job.resumes)
        else:
            before = after = await self._threads.do(checkpoints.take, watched=True)
        git, outside = await self._threads.do(self._elsewhere.expect, self._segments(space, job, place.path))
        cut_short = self._cut_short(space)
        if cut_short is not None and _goes_on(job, cut_short, git, outside):
            assert cut_short.segment.after is not None
            if not await self._threads.do(checkpoints.changes, cut_short.segment.after, after):
                # What was there before its first try is what taking it back has to bring.
                return cut_short
        move = job.move if place.todo == "move" else None
        standing = await self._threads.do(self._standing_of, call.pid) if call.pid else NOWHERE
        began = self._checkpointing.moment()
        record = UndoRecord(
            undo_id=new_id(PREFIX),
            space_id=space.space_id,
            started_by=call.principal,
            below_client=standing.is_below_client,
            client=standing.client,
            at=self._clock.wall_ms(),
            what=job.chosen.what,
            undoes=tuple(each.run_id for each in job.chosen.operations),
            paths=tuple(sorted(job.chosen.paths)),
            redoes=all(isinstance(each, UndoRecord) for each in job.chosen.operations),
            segment=Segment(before=before, after=after, began=began),
            planned=after,
            git=git and msgspec.structs.replace(git, began=began),
            outside=outside,
            move=move and Move(source=move.target, target=move.source, identity=move.identity),
            mode=job.mode and (job.mode[1], job.mode[0]),
        )
        tx = Transaction()
        if cut_short is not None:
            # It goes on no more: as far as it came, it is over.
            so_far = await self._threads.do(self._parts.how_far, cut_short, checkpoints, place.path, half_too=True)
            self._operations.undos.put(tx, so_far)
        self._operations.undos.put(tx, record)
        await self._journal.commit_quietly(tx)
        return record

    async def _change(self, space: Space, job: _Job, place: _Place) -> tuple[_Done, str, int]:
        """What came of it, the tree that it left, and its moment."""
        path = space.record.path
        move = job.move if place.todo == "move" else None
        if place.todo == "make":
            was = job.removed
            owner = (was.owner, was.group) if was is not None else None
            await self._threads.do(self._files.make_directory, path, was.mode if was is not None else None, owner)
        elif move is not None and move.source == path:
            await self._threads.do(self._files.move_directory, move.target, move.source)
        checkpoints = await self._spaces.checkpoints_of(space)
        segments = self._segments(space, job, path)
        undone = await self._threads.do(self._bring, checkpoints, job, segments, dry_run=False)
        if job.mode is not None and checkpoints.root.mode == job.mode[1]:
            await self._threads.do(checkpoints.root.set_mode, job.mode[0])
        lost = await self._threads.do(self._files.missing, path, job.lost)
        complete = job.complete and job.removed is None and not lost and not undone.failed

        def keep(failed: Sequence[PathReason], older: Collection[bytes]) -> str | None:
            return None if complete and not failed and checkpoints.has(older) else KEPT

        back = await self._threads.do(self._elsewhere.put_back, segments, keep)
        # Of a worktree git's part has brought it back.
        lost = await self._threads.do(self._files.missing, path, lost)
        after, moment = await self._threads.do(self._checkpointing.take, checkpoints, space, watched=True)
        if move is not None and move.source != path:
            await self._threads.do(self._files.move_directory, move.target, move.source)
        return _done(job, undone, back, lost, place, dry_run=False), after, moment

    def _bring(self, checkpoints: Checkpoints, job: _Job, segments: Segments, *, dry_run: bool) -> Undone:
        if not job.ways.paths:
            return Undone([], [], "", truncated=False)
        return checkpoints.bring(
            job.ways,
            dry_run=dry_run,
            max_chars=self._limits.max_diff_chars,
            resumes=job.resumes,
            elsewhere=partial(self._elsewhere.contents, segments),
        )

    def _mark_all(self, tx: Transaction, job: _Job, left_of: AbstractSet[str]) -> None:
        # The newest first, as it was done: a redo that is taken back, then the undo that it had taken back.
        for each in (operation.run_id for operation in job.chosen.operations):
            if each not in left_of:
                self._mark(tx, each, undone=True)
                continue
            # Of an undo a part was taken back: there is work of its runs again.
            undo = self._operations.undos.table.rows.get(each)
            for run_id in undo.undoes if undo is not None else ():
                if not is_undo_id(run_id):
                    self._mark(tx, run_id, undone=False)

    def _mark(self, tx: Transaction, operation: str, *, undone: bool) -> None:
        """It counts as undone from now on, or no more; where it is an undo, what it took back does the reverse."""
        table = self._operations.undos.table
        # No recursion: undos of undos make a chain of any length.
        todo = [(operation, undone)]
        while todo:
            each, state = todo.pop()
            if not is_undo_id(each):
                self._mark_run(tx, each, undone=state)
            elif (undo := table.rows.get(each)) is not None:
                tx.put(table, each, msgspec.structs.replace(undo, undone=state))
                todo += [(target, not state) for target in undo.undoes]

    def _mark_run(self, tx: Transaction, operation: str, *, undone: bool) -> None:
        try:
            record = msgspec.structs.replace(self._operations.book.find(operation), undone=undone)
        except NotFound:
            # An undo can be taken back when its run is no longer kept.
            return
        self._operations.book.put(tx, record)
        if undone:
            tx.after.append(partial(self._news.run, "undone", record))


def _digest(job: _Job) -> str:
    """Of what is taken back: an answer is for exactly this."""
    digest = hashlib.sha256(repr([each.run_id for each in job.chosen.operations]).encode())
    for each in sorted(job.ways.paths.items()):
        digest.update(repr(each).encode("utf-8", "backslashreplace"))
    digest.update(repr((job.git and job.git.before, job.outside and job.outside.before)).encode())
    return digest.hexdigest()


def _move(chosen: Chosen) -> Move | None:
    """The newest one: it says where the project is."""
    return next((each.move for each in chosen.operations if each.move is not None), None)


def _mode(chosen: Chosen) -> tuple[int, int] | None:
    """Of the project's own directory: as it was before all of them, and as the last one left it."""
    modes = [each.mode for each in chosen.operations if each.mode is not None]
    return (modes[-1][0], modes[0][1]) if modes else None


def _ended(git: GitSegment | None, moment: int) -> GitSegment | None:
    return git and msgspec.structs.replace(git, ended=moment)


def _goes_on(job: _Job, last: UndoRecord, git: GitSegment | None, outside: OutsideSegment | None) -> bool:
    """Whether an undo is the last one once more, which was cut short: it leaves the same of git and outside.

    Where nothing of a part is left to do, that was done before.
    """
    same_git = git is None or (last.git is not None and last.git.after == git.after)
    same_outside = outside is None or (last.outside is not None and last.outside.after == outside.after)
    return same_git and same_outside and set(last.undoes) == job.chosen.ids and set(last.paths) == job.chosen.paths


def _refused(what: str, error: Exception) -> Conflict:
    """Before the first change."""
    later = isinstance(error, LaterChanges)
    hint = "do the same again" if later else "`bascule runs diff` shows what it changed"
    return Conflict(f"{what} cannot be undone: {error}", hint=hint)


def _done(job: _Job, undone: Undone, back: Back, lost: list[str], place: _Place, *, dry_run: bool) -> _Done:
    """What came of all parts of it."""
    gone = [PathReason(path=path, reason="is a repository's own record, which no checkpoint holds") for path in lost]
    word = None
    if place.todo == "make":
        word = f"{place.path} is made again"
    elif place.todo == "move" and job.move is not None:
        word = f"{job.move.target} is {job.move.source} again"
    mode = f"the project's own directory has mode {job.mode[0]:04o} again" if job.mode is not None else None
    inside = [each for each in undone.left_alone if job.chosen.is_meant(os.fsencode(each.path))]
    left = {(each.path, each.reason): each for each in (*job.left, *inside, *back.left_alone)}
    return _Done(
        undone.changes,
        undone.changes + back.changes,
        undone.diff,
        undone.truncated,
        [*left.values(), *(gone if dry_run else ())],
        [*undone.failed, *back.failed, *(() if dry_run else gone)],
        back.refs,
        place.todo != "here",
        "; ".join(each for each in (word, mode, back.note) if each) or None,
    )
