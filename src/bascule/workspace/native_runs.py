"""Calls of an agent's own tools as runs: a checkpoint before, one after, a place in `runs.list`, an undo.

Nothing of ours executes them. The client says that a call begins and that it is over, or never says the second: a run
that nobody ends is ended with its session. Such runs take no turns; each is one beside the others, as a command in the
background is.

Every call waits for the tree before it: where changes are watched, that is the last tree and what the kernel has
reported by now. A call that goes on without it is a run all the same, whose note says why there is no undo.
"""

import asyncio
import contextlib
import os.path
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import takewhile
from typing import Any

import msgspec

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.errors import BasculeError, Conflict, StorageFull
from bascule.foundation.ids import new_id
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import LOCAL, Call
from bascule.kernel.journal import Journal, Transaction
from bascule.kernel.ports import Began, NativeWork
from bascule.workspace.checkpointing import WHOLE, Checkpointing
from bascule.workspace.elsewhere import GIT_UNKNOWN, Elsewhere
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run, is_over
from bascule.workspace.ports import DISK_FULL, CheckpointFault, FileFault
from bascule.workspace.protocol import SpaceOpenParams
from bascule.workspace.records import COMPLETED, ERROR, NO_UNDO, RUNNING, NativeCall, RunRecord, SpaceRecord
from bascule.workspace.runs import Runs
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads

# Calls in a directory that cannot be a space (the home, one of the system's) are listed as if in this one.
NO_SPACE = "spc_none"
# An undo right after a call: a hook that is a program has to start before it can report the end on a busy machine, and
# the largest project is looked at in half a minute.
END_SECONDS = 5.0
AFTER_SECONDS = 45.0
_PATTERN = re.compile(r"[*?\[{]")
SILENCED = "its client could not report its end any more: an undo ended it"


async def _never_silenced(_client: str, _session: str, _run_id: str) -> bool:
    """Where no bridge watches clients: then each is believed to be there."""
    return False


class NativeRuns:
    def __init__(
        self,
        *,
        runs: Runs,
        spaces: Spaces,
        checkpointing: Checkpointing,
        elsewhere: Elsewhere,
        journal: Journal,
        clock: Clock,
        limits: WorkspaceLimits,
        threads: Threads,
        tasks: Tasks,
    ) -> None:
        self._runs = runs
        self._spaces = spaces
        self._checkpointing = checkpointing
        self._elsewhere = elsewhere
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._threads = threads
        self._tasks = tasks
        self.patience = timedelta(milliseconds=limits.native_checkpoint_ms)
        # Ends under way, by space: the checkpoint before a call is taken after the one that ends another.
        self._endings: dict[str, set[asyncio.Future[Any]]] = {}
        # Looks at what calls did that the last life did not see ending.
        self._recovering: dict[str, asyncio.Future[Any]] = {}
        runs.end_native = self._end_early
        self.silenced: Callable[[str, str, str], Awaitable[bool]] = _never_silenced

    async def begin(self, work: NativeWork, gone: Deferred[Any]) -> Began:
        opening = self._tasks.start(self._open(work), f"checkpoint of {work.root}")
        # Cancelled when the client is gone.
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.add_done_callback(lambda _: waits.cancel())
        either: set[asyncio.Future[Any]] = {opening, waits}
        await asyncio.wait(either, timeout=self.patience.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        if waits.done() or not opening.done():
            # Taken while the call works, it would hold a part of what the call did.
            opening.add_done_callback(self._discard)
            why = "its client went on before" if waits.done() else f"it takes more than {self._patience}"
            return await self._list(work, f"the tree before it was not taken: {why}{self._scans_because(work.root)}")
        try:
            run = opening.result()
        except BasculeError as error:
            return await self._list(work, f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        except (CheckpointFault, FileFault) as error:
            return await self._list(work, str(error))
        try:
            await self._record(run)
        except StorageFull as error:
            del self._runs.live[run.run_id]
            self._checkpointing.forget(run)
            return await self._list(work, f"{DISK_FULL}: {error.message}")
        self._runs.announce("started", run)
        return Began(run.run_id, run.note, undoable=True)

    async def _list(self, work: NativeWork, why: str) -> Began:
        """As a run without an undo; where nothing can be stored, in memory until the disk has room again."""
        known = self._known(work.root)
        run = self._run(known.space_id if known is not None else NO_SPACE, work)
        run.note = f"{NO_UNDO}{why}"
        run.record = msgspec.structs.replace(run.record, note=run.note)
        with contextlib.suppress(StorageFull):
            await self._record(run)
        self._runs.announce("started", run)
        return Began(run.run_id, run.note, undoable=False)

    def _discard(self, opening: "asyncio.Task[Run]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            run = opening.result()
            self._checkpointing.forget(run)

    def approved(self, run_id: str, yes: str) -> None:
        """The record of its end keeps it."""
        run = self._runs.live.get(run_id)
        if run is not None:
            run.record = msgspec.structs.replace(run.record, approved_by=(yes,))

    def left_running(self, run_id: str, why: str) -> bool:
        run = self._runs.live.get(run_id)
        if run is None or run.ending:
            return False
        run.left_running = why
        self._settle(run)
        return True

    def reported(self, run_id: str) -> None:
        run = self._runs.live.get(run_id)
        if run is not None and not run.ending and run.settling is None:
            run.settling = asyncio.get_running_loop().create_future()
            self._endings.setdefault(run.record.space_id, set()).add(run.settling)

    def _settle(self, run: Run) -> None:
        """The next call waits for it no longer."""
        settling, run.settling = run.settling, None
        if settling is not None:
            settling.set_result(None)
            self._endings[run.record.space_id].discard(settling)

    async def end(self, run_id: str, *, ok: bool, note: str | None = None) -> tuple[str, ...]:
        """Paths that it changed. Nothing happens where the run is over already."""
        run = self._runs.live.get(run_id)
        if run is None or run.record.native is None or run.ending:
            return ()
        run.ending = True
        run.note = "; ".join(each for each in (run.note, note) if each) or None
        task = self._tasks.start(self._end(run, ok=ok), f"checkpoint after {run_id}")
        endings = self._endings.setdefault(run.record.space_id, set())
        endings.add(task)
        task.add_done_callback(endings.discard)
        self._settle(run)
        return await asyncio.shield(task)

    async def _end(self, run: Run, *, ok: bool) -> tuple[str, ...]:
        touched: tuple[str, ...] = ()
        if run.is_open or run.record.outside is not None:
            space = self._spaces.of(run.record.space_id)
            await self._checkpointing.close(run, space)
            await self._threads.do(self._elsewhere.look, run, space)
            touched = await self._touched(run, space)
        run.count_work(asyncio.get_running_loop().time())
        await self._runs.finish(run, COMPLETED if ok else ERROR)
        return touched

    async def _touched(self, run: Run, space: Space) -> tuple[str, ...]:
        if not run.segments or run.segments[-1].after is None:
            return ()
        try:
            checkpoints = await self._spaces.checkpoints_of(space)
        except FileFault:
            # What is left of a project that was moved or removed is no path of it.
            return ()
        segment = run.segments[-1]
        changes = await self._threads.do(checkpoints.changes, segment.before, segment.after or segment.before)
        return tuple(change.path for change in changes)

    def recover(self) -> None:
        """Once, at start: what calls that the last life did not see ending did to git's record."""
        for record in self._runs.book.all():
            if record.git_before is not None:
                looking = self._tasks.start(self._recovered(record), f"git's record of {record.run_id}")
                self._recovering[record.run_id] = looking

    async def _recovered(self, record: RunRecord) -> None:
        until = record.segments[-1].until if record.segments else None
        try:
            path = self._spaces.record(record.space_id).path
            left = await self._threads.do(self._elsewhere.look_at_git, record, path, until or record.started_at)
        except (BasculeError, CheckpointFault) as error:
            left = msgspec.structs.replace(record, git_before=None, note=f"{GIT_UNKNOWN}: {error}")
        tx = Transaction()
        # Nothing else of a run that is over changes before this is known.
        self._runs.book.put(
            tx,
            msgspec.structs.replace(self._runs.book.find(record.run_id), git=left.git, git_before=None, note=left.note),
        )
        await self._journal.commit_quietly(tx)

    async def over(self, run_id: str) -> None:
        """An undo right after a call waits for its end; `Conflict` says why that does not come."""
        if (looking := self._recovering.get(run_id)) is not None:
            await asyncio.wait({looking}, timeout=AFTER_SECONDS)
        run = self._runs.live.get(run_id)
        if run is None or run.record.native is None or is_over(run.record):
            return
        ended = self._runs.when_over(run)
        native = run.record.native
        if run.left_running is None and not run.ending:
            await within(END_SECONDS, ended)
        if run.left_running is None and not run.ending and await self.silenced(native.client, native.session, run_id):
            self._tasks.start(self.end(run_id, ok=False, note=SILENCED), f"end {run_id}")
            # The task begins, and says that it ends.
            await asyncio.sleep(0)
        if run.ending:
            await within(AFTER_SECONDS, ended)
        if ended.done():
            return
        ended.cancel()
        if run.ending:
            raise Conflict(f"{run_id} is not over: what it changed is still looked at", hint="do the same again")
        if run.left_running is not None and not run.ending:
            raise Conflict(
                f"{run_id} is not over: {run.left_running}",
                hint="end that process, or wait until it ends; to have back what it changed until now, end the run: "
                f"bascule runs cancel {run_id} (runs.cancel)",
            )
        raise Conflict(
            f"{run_id} is not over: {native.client} has not reported the end of the call",
            hint="wait for it; if the call was interrupted, or its client is gone, end the run: "
            f"bascule runs cancel {run_id} (runs.cancel)",
        )

    async def warm(self, root: str) -> None:
        """The first checkpoint of a project takes long: it is taken before the first call needs one."""
        try:
            checkpoints = await self._spaces.checkpoints_of(await self._space(root))
            await self._threads.do(checkpoints.take, watched=True)
        except (BasculeError, CheckpointFault, FileFault):
            # The first call says it.
            return

    # -- inside --

    @property
    def _patience(self) -> str:
        return f"{self.patience.total_seconds():g} s"

    def _scans_because(self, root: str) -> str:
        known = self._known(root)
        checkpoints = self._spaces.of(known.space_id).checkpoints if known is not None else None
        why = checkpoints.scans_because if checkpoints is not None else None
        return f", because all of it has to be looked at: {why}" if why is not None else ""

    def _known(self, root: str) -> SpaceRecord | None:
        return next((each for each in self._spaces.table.rows.values() if each.path == root), None)

    async def _space(self, root: str) -> Space:
        known = self._known(root)
        if known is not None:
            return self._spaces.find(known.space_id)
        params = SpaceOpenParams(path=root)
        record = await self._spaces.open(Call(LOCAL, "spaces.open", params, door="daemon"), params, lambda _real: None)
        return self._spaces.find(record.space_id)

    def _run(self, space_id: str, work: NativeWork) -> Run:
        record = RunRecord(
            run_id=new_id("run"),
            space_id=space_id,
            number=self._runs.book.number + 1,
            # What hooks report is `local` and a claim.
            started_by=LOCAL,
            started_at=self._clock.wall_ms(),
            status=RUNNING,
            operations=1,
            background=True,
            approved_by=work.approved_by,
            native=NativeCall(
                client=work.client,
                session=work.session,
                pid=work.pid,
                agent=work.agent,
                prompt=work.prompt,
                asked=work.asked,
                tool=work.tool,
                title=work.title,
                mentions=_mentions(work),
                only_these=work.only_these,
            ),
        )
        run = Run(record, [], [], max_event_bytes=self._limits.max_event_bytes)
        run.working_since = asyncio.get_running_loop().time()
        return run

    async def _open(self, work: NativeWork) -> Run:
        space = await self._space(work.root)
        run = self._run(space.space_id, work)
        # A call that was reported begins to end while it is waited for: its tree comes first as well.
        while endings := self._endings.get(space.space_id):
            await asyncio.wait(set(endings))
        if not await self._keep_outside(run, space, work):
            # A tool that writes the files it names, all of them elsewhere: the project is not touched.
            return run
        try:
            await self._checkpointing.open(run, space)
            if run.without_checkpoint:
                raise CheckpointFault(run.not_undoable[WHOLE])  # noqa: TRY301 - as any other
            await self._threads.do(self._elsewhere.keep_git, run, space)
        except (CheckpointFault, FileFault):
            self._checkpointing.forget(run)
            raise
        return run

    async def _keep_outside(self, run: Run, space: Space, work: NativeWork) -> bool:
        """Whether the project may change too."""
        if not work.writes:
            return True
        try:
            inside = await self._threads.do(self._elsewhere.keep_outside, run, space, work)
        except CheckpointFault as error:
            if work.only_these:
                raise
            run.note = f"no undo outside of the project: {error}"
            return True
        return inside or not work.only_these

    async def _record(self, run: Run) -> None:
        """It and its checkpoint are on disk before the client goes on."""
        tx = Transaction()
        run.record = msgspec.structs.replace(run.record, number=self._runs.book.number + 1)
        self._runs.book.put(tx, run.record)
        recorded = self._journal.commit_quietly(tx)
        self._runs.live[run.run_id] = run
        await recorded

    def _end_early(self, run: Run) -> None:
        """Cancelled, or everything was stopped: the client's call goes on, and what it changed until now is kept."""
        self._tasks.start(self.end(run.run_id, ok=False), f"end {run.run_id}")


def _mentions(work: NativeWork) -> tuple[str, ...]:
    """What it names in the project to write it, without patterns; an empty path is all of it."""
    found: dict[str, None] = {}
    for each in work.writes:
        plain = "/".join(takewhile(lambda step: not _PATTERN.search(step), each.split("/")))
        folder, name = os.path.split(plain)
        real = os.path.join(os.path.realpath(folder), name).rstrip("/")
        if f"{work.root}/".startswith(f"{real}/"):
            found[""] = None
        elif real.startswith(f"{work.root}/"):
            found[os.path.relpath(real, work.root)] = None
    return tuple(found)
