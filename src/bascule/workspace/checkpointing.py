"""The checkpoints around what a run does: one before its first change, one when it gives its turn back or ends.

The one before is in the run's record before anything happens, so it is known whatever becomes of the run. A command in
the background works beside other runs: each checkpoint has its moment, so that what changed between two of them is told
apart by who was at work (`timeline`).
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from bascule.foundation.clock import Clock
from bascule.kernel.effects import Changes
from bascule.kernel.journal import Journal, Transaction
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run
from bascule.workspace.ports import CheckpointFault, Checkpoints, FileFault
from bascule.workspace.protocol import PathReason
from bascule.workspace.records import Move, RemovedProject, Segment
from bascule.workspace.runbook import RunBook
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.steering import steering_left
from bascule.workspace.threads import Threads

# A run that is under way says so in its record: after a crash, what changed later than that is not taken for its work.
# At first often, later rarely: a server in the background must not write to the disk all day.
FIRST_SIGN_SECONDS = 2.0
MAX_SIGN_SECONDS = 60.0
# Times of files may have whole seconds only, every other one.
COARSE_MS = 2_000
# Paths named in an event and in a note; `runs.diff` names all.
MAX_NAMED = 20
WHOLE = "."


class _Found(NamedTuple):
    after: str
    moment: int
    unknown: list[PathReason]
    # What it left that other programs of the user obey.
    steering: list[str]
    # Whether it goes on where the segment before it ended.
    joins: bool
    # Every `.git` that is gone.
    lost: list[str]


class Checkpointing:
    def __init__(
        self,
        *,
        spaces: Spaces,
        threads: Threads,
        book: RunBook,
        journal: Journal,
        clock: Clock,
        limits: WorkspaceLimits,
    ) -> None:
        self._spaces = spaces
        self._threads = threads
        self._book = book
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._moment = max((each.ended or each.began for run in book.all() for each in run.segments), default=0)

    def take(
        self, checkpoints: Checkpoints, space: Space, since: int | None = None, *, watched: bool = False
    ) -> tuple[str, int]:
        """The tree, and its moment: of two trees of a space the later one has the later moment. Blocks."""
        with space.taking:
            return checkpoints.take(since=since, watched=watched), self.moment()

    def moment(self) -> int:
        """Now, later than any moment before, whatever the wall clock does."""
        with self._lock:
            self._moment = max(self._clock.wall_ms(), self._moment + 1)
            return self._moment

    def note_moment(self, moment: int) -> None:
        """One of an earlier life."""
        self._moment = max(self._moment, moment)

    async def open(self, run: Run, space: Space) -> None:
        """Before the first change since the run has its turn; without one the run goes on and cannot be undone."""
        if run.open_segment is not None or run.without_checkpoint:
            return
        try:
            if run.copy is not None:
                self._put(run, run.copy.tree, self.moment())
                return
            checkpoints = await self._spaces.checkpoints_of(space)
            if run.record.native is not None:
                root = await self._spaces.root_of(space)
                run.root, run.root_mode = root.duplicate(), root.mode
            watched = run.record.native is not None
            before, moment = await self._threads.do(self.take, checkpoints, space, watched=watched)
            run.repositories = checkpoints.repositories
        except CheckpointFault as error:
            run.without_checkpoint = True
            run.note = f"not undoable: {error}"
            run.not_undoable[WHOLE] = str(error)
            return
        self._put(run, before, moment)
        self._schedule_heartbeat(run, FIRST_SIGN_SECONDS)

    def changes(self, run: Run) -> Changes | None:
        """Puts the checkpoint into the transaction that records the first change."""
        if self._book.find(run.run_id).segments == run.record.segments:
            return None
        return lambda tx: self._book.put(tx, run.record)

    async def close(self, run: Run, space: Space) -> None:
        """The checkpoint after; on a copy only the run itself ever works."""
        run.without_checkpoint = False
        segment = run.open_segment
        if segment is None:
            return
        there, run.repositories = run.repositories, None
        try:
            checkpoints = run.copy.checkpoints if run.copy else await self._checkpoints_after(run, space)
            last = run.segments[-2] if len(run.segments) > 1 else None
            since = (run.opened_ms - COARSE_MS) * 1_000_000
            watched = run.record.native is not None
            gone = run.record.removed is not None and checkpoints.root.place() is None
            take = partial(self.take, checkpoints, space, since, watched=watched) if not gone else None
            found = await self._threads.do(self._look, checkpoints, segment, last, there, take)
        except (CheckpointFault, FileFault) as error:
            self.forget(run)
            run.segments[-1] = msgspec.structs.replace(segment, until=self._clock.wall_ms())
            run.note = run.note or f"what it changed is not known: {error}"
            run.not_undoable[WHOLE] = f"there is no checkpoint after it: {error}"
            return
        self.forget(run)
        run.segments.pop()
        if last is not None and found.joins:
            run.segments[-1] = msgspec.structs.replace(last, after=found.after, ended=found.moment)
        elif segment.before != found.after:
            run.segments.append(msgspec.structs.replace(segment, after=found.after, until=None, ended=found.moment))
        run.record = msgspec.structs.replace(run.record, lost=tuple(dict.fromkeys((*run.record.lost, *found.lost))))
        run.steering = list(dict.fromkeys((*run.steering, *found.steering)))
        self._name(run, found.unknown)

    async def _checkpoints_after(self, run: Run, space: Space) -> Checkpoints:
        """A native call may have removed the project's own directory, or moved it: that is noted in its record."""
        root = run.root
        if root is None:
            return await self._spaces.checkpoints_of(space)
        if await self._threads.do(root.is_in_place):
            if root.mode != run.root_mode:
                run.record = msgspec.structs.replace(run.record, mode=(run.root_mode, root.mode))
            return await self._spaces.checkpoints_of(space)
        target = await self._threads.do(root.place)
        if target is not None:
            move = Move(source=space.record.path, target=target, identity=root.identity)
            run.record = msgspec.structs.replace(run.record, move=move)
        else:
            removed = RemovedProject(mode=run.root_mode, owner=root.owned_by[0], group=root.owned_by[1])
            run.record = msgspec.structs.replace(run.record, removed=removed)
            with contextlib.suppress(FileFault):
                # Something else may be at its path.
                return await self._spaces.checkpoints_of(space)
        return await self._spaces.checkpoints_in(space, root.duplicate())

    def forget(self, run: Run) -> None:
        """It no longer works here."""
        run.is_open = False
        if run.root is not None:
            run.root.close()
            run.root = None
        if run.heartbeat_timer is not None:
            run.heartbeat_timer.cancel()
            run.heartbeat_timer = None

    def _put(self, run: Run, before: str, moment: int) -> None:
        run.opened_ms = self._clock.wall_ms()
        until = run.opened_ms + round(2 * FIRST_SIGN_SECONDS * 1000)
        run.segments.append(Segment(before=before, until=until, began=moment))
        run.is_open = True
        run.record = msgspec.structs.replace(run.record, segments=tuple(run.segments))

    def _schedule_heartbeat(self, run: Run, seconds: float) -> None:
        run.heartbeat_timer = asyncio.get_running_loop().call_later(seconds, self._write_heartbeat, run, seconds)

    def _write_heartbeat(self, run: Run, seconds: float) -> None:
        segment = run.open_segment
        if segment is None:
            return
        following = min(2 * seconds, MAX_SIGN_SECONDS)
        until = self._clock.wall_ms() + round((following + FIRST_SIGN_SECONDS) * 1000)
        run.segments[-1] = msgspec.structs.replace(segment, until=until)
        run.record = msgspec.structs.replace(run.record, segments=tuple(run.segments))
        tx = Transaction()
        self._book.put(tx, run.record)
        self._journal.commit_quietly(tx)
        self._schedule_heartbeat(run, following)

    def _look(
        self,
        checkpoints: Checkpoints,
        segment: Segment,
        last: Segment | None,
        there: Mapping[str, int] | None,
        take: Callable[[], tuple[str, int]] | None,
    ) -> _Found:
        """On a thread. `there`: every `.git` that was there before. Without `take` no directory is left to look at."""
        after, moment = take() if take is not None else (checkpoints.empty(), self.moment())
        repositories = checkpoints.repositories if take is not None else {}
        lost = [place for place, inode in (there or {}).items() if repositories.get(place) != inode]
        steering: list[str] = []
        if segment.before != after or there != checkpoints.repositories:
            steering = steering_left(checkpoints, segment.before, after, there)
        unknown = checkpoints.unknown(segment.before, after)
        # Nothing happened while it waited: one piece.
        joins = last is not None and last.after is not None and not checkpoints.changes(last.after, segment.before)
        return _Found(after, moment, unknown, steering, joins, lost)

    def _name(self, run: Run, unknown: list[PathReason]) -> None:
        if not unknown:
            return
        run.not_undoable.update((each.path, each.reason) for each in unknown)
        first = unknown[0]
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        run.note = run.note or f"undo leaves alone: `{first.path}` {first.reason}{more}"


def report_not_undoable(run: Run) -> None:
    """In the run's last event, which nobody has seen yet: what undo cannot put back."""
    if not run.not_undoable or run.saved >= len(run.events):
        return
    named = [PathReason(path=path, reason=why) for path, why in list(run.not_undoable.items())[:MAX_NAMED]]
    more = len(run.not_undoable) - MAX_NAMED
    if more > 0:
        named.append(PathReason(path=WHOLE, reason=f"{more} more: runs.diff names them"))
    run.events[-1] = msgspec.structs.replace(run.events[-1], not_undoable=named)
