"""Spaces: directories with a sandbox and a history. The same real directory is the same space."""

import asyncio
import contextlib
import os.path
import threading
from collections.abc import Callable

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, NotFound, Overloaded
from bascule.foundation.ids import new_id
from bascule.kernel.call import Call, Principal, proof_of
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.journal_ports import JournalStore, Log
from bascule.workspace.exclusive import Exclusive, Turns
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.ports import (
    Checkpoints,
    CheckpointStore,
    Extent,
    FileFault,
    Files,
    Root,
    Sandbox,
    Sandboxes,
    SandboxKind,
)
from bascule.workspace.protocol import SpaceOpenParams
from bascule.workspace.records import SpaceRecord
from bascule.workspace.threads import Threads


class Space:
    """A space of this life: what is open of it is opened when it is first needed."""

    def __init__(self, record: SpaceRecord, limits: WorkspaceLimits, turns: Turns) -> None:
        self.record = record
        self.turns = Exclusive(turns, self._extent, limits.max_queued_runs)
        self.opening = asyncio.Lock()
        self.root: Root | None = None
        self.sandbox: Sandbox | None = None
        self.checkpoints: Checkpoints | None = None
        # Held while a checkpoint is taken and has its moment.
        self.taking = threading.Lock()
        # No more runs, it is being forgotten.
        self.closing = False

    @property
    def space_id(self) -> str:
        return self.record.space_id

    def _extent(self) -> Extent:
        return frozenset({("", self.record.path)}) if self.root is None else self.root.extent()


class Spaces:
    def __init__(
        self,
        *,
        store: JournalStore,
        journal: Journal,
        clock: Clock,
        limits: WorkspaceLimits,
        files: Files,
        sandboxes: Sandboxes,
        checkpoints: CheckpointStore,
        threads: Threads,
        log: Log,
        network: bool,
        sandbox: SandboxKind,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._files = files
        self._sandboxes = sandboxes
        self._checkpoints = checkpoints
        self._threads = threads
        self._log = log
        self._network = network
        self.kind: SandboxKind = sandbox
        # Why commands cannot run here, as far as is known: finding out starts a program.
        self.problem: str | None = None
        self.table: Table[SpaceRecord] = Table("spaces", SpaceRecord)
        self.live: dict[str, Space] = {}
        self._turns = Turns()
        for key, record in store.load("spaces", SpaceRecord):
            self.table.rows[key] = record

    def starter(self, space_id: str) -> Principal:
        return Principal(self.record(space_id).opened_by)

    def record(self, space_id: str) -> SpaceRecord:
        record = self.table.rows.get(space_id)
        if record is None:
            raise NotFound(
                f"unknown space {space_id}", hint="spaces.open makes one of a directory, spaces.list shows them"
            )
        return record

    def find(self, space_id: str) -> Space:
        """For somebody who wants to do something there."""
        space = self.of(space_id)
        if space.closing:
            raise NotFound(f"space {space_id} is being closed", hint="open it again with spaces.open")
        return space

    def of(self, space_id: str) -> Space:
        """For what is there already, also while it is being closed."""
        record = self.record(space_id)
        space = self.live.get(space_id)
        if space is None:
            space = self.live[space_id] = Space(record, self._limits, self._turns)
        return space

    async def open(self, call: Call, params: SpaceOpenParams, check_real: Callable[[str], None]) -> SpaceRecord:
        """`check_real` is called with the real path when it differs, and may refuse."""
        if not os.path.isabs(params.path):
            raise InvalidRequest("`path` must be absolute", hint="a space is a directory of this machine")
        try:
            root = await self._threads.do(self._files.open_root, params.path)
        except FileFault as error:
            raise Conflict(str(error), hint="choose a project's own directory") from None
        try:
            if root.path != os.path.normpath(params.path):  # noqa: ASYNC240 - text only, no disk is asked
                check_real(root.path)
        except BasculeError:
            await self._threads.do(root.close)
            raise
        await self.look_for_problems()
        known = next((record for record in self.table.rows.values() if record.path == root.path), None)
        if known is not None:
            await self._refresh(self.find(known.space_id), root)
            return known
        if len(self.table.rows) >= self._limits.max_spaces:
            await self._threads.do(root.close)
            raise Overloaded(
                f"there are {self._limits.max_spaces} spaces already",
                hint="close those that are no longer used: `bascule spaces`, spaces.close",
            )
        record = SpaceRecord(
            space_id=new_id("spc"),
            name=params.name or os.path.basename(root.path) or root.path,
            path=root.path,
            opened_by=call.principal,
            opened_at=self._clock.wall_ms(),
        )
        tx = Transaction()
        tx.subject = record.space_id
        tx.details = {"path": record.path, **proof_of(call)}
        tx.put(self.table, record.space_id, record)
        space = self.live[record.space_id] = Space(record, self._limits, self._turns)
        space.root = root
        await self._journal.commit(tx, call.principal, call.method)
        return record

    async def root_of(self, space: Space) -> Root:
        """`FileFault` when the directory is no longer there."""
        async with space.opening:
            if space.root is None:
                space.root = await self._threads.do(self._files.open_root, space.record.path)
                if space.root.path != space.record.path:
                    moved = space.root.path
                    await self._threads.do(space.root.close)
                    space.root = None
                    raise FileFault(f"{space.record.path} leads to {moved} now; open that as a space of its own")
            return space.root

    async def take_turn(self, space: Space) -> Deferred[None]:
        """Settled when nobody else changes any of its files; `space.turns.give_back` ends it."""
        with contextlib.suppress(FileFault):
            # What is excluded is known by the directory itself. One that is gone has no files.
            await self.root_of(space)
        return space.turns.take()

    async def sandbox_of(self, space: Space) -> Sandbox:
        if space.sandbox is not None:
            return space.sandbox
        root = await self.root_of(space)
        await self.look_for_problems()
        async with space.opening:
            if space.sandbox is None:
                space.sandbox = self.open_sandbox(space.space_id, root, door=True)
            return space.sandbox

    def open_sandbox(self, name: str, root: Root, *, door: bool = False) -> Sandbox:
        """Without a door for copies: nothing of them lasts until it is taken over, and a message lasts."""
        return self._sandboxes.open(name, root, network=self._network, kind=self.kind, door=door)

    async def look_for_problems(self) -> None:
        if self.kind == "bubblewrap":
            self.problem = await self._threads.do(self._sandboxes.problem)

    async def checkpoints_of(self, space: Space) -> Checkpoints:
        """Of the directory that is at its path now; `FileFault` when none is."""
        root = await self._present_root(space)
        async with space.opening:
            if space.checkpoints is None:
                space.checkpoints = await self._threads.do(self._checkpoints.open, space.space_id, root)
            return space.checkpoints

    async def checkpoints_in(self, space: Space, root: Root) -> Checkpoints:
        """Of another directory with the space's checkpoints, or of its own, wherever that is; `root` is given away."""
        async with space.opening:
            known = space.checkpoints
            if known is not None and space.root is not None and space.root.identity == root.identity:
                await self._threads.do(root.close)
                return known
        return await self._threads.do(self._checkpoints.open, space.space_id, root)

    async def _present_root(self, space: Space) -> Root:
        """A directory that was removed or moved stays open: while nothing else is at its path, it is kept."""
        root = await self.root_of(space)
        if await self._threads.do(root.is_in_place):
            return root
        fresh = await self._threads.do(self._files.open_root, space.record.path)
        if fresh.path != space.record.path:
            leads = fresh.path
            await self._threads.do(fresh.close)
            raise FileFault(f"{space.record.path} leads to {leads} now; open that as a space of its own")
        await self._refresh(space, fresh)
        return await self.root_of(space)

    async def _refresh(self, space: Space, root: Root) -> None:
        """The directory was opened again: if it is another one by the same path, work goes on in that."""
        async with space.opening:
            old = space.root
            if old is not None and old.identity == root.identity:
                await self._threads.do(root.close)
                return
            space.root = root
            sandbox, checkpoints = space.sandbox, space.checkpoints
            space.sandbox = space.checkpoints = None
        if sandbox is not None:
            await sandbox.close()
        if checkpoints is not None:
            # A thread may be taking a checkpoint beneath the old one.
            await self._threads.do(checkpoints.close)
        elif old is not None:
            await self._threads.do(old.close)

    async def shut(self, space: Space) -> None:
        """Every process is gone and nothing of it is open when this returns."""
        if space.sandbox is not None:
            await space.sandbox.close()
            space.sandbox = None
        async with space.opening:
            if space.root is not None:
                await self._threads.do(space.root.close)
                space.root = None
            space.checkpoints = None

    async def close(self) -> None:
        for space in list(self.live.values()):
            await self.shut(space)
