"""`spaces.blame`: the versions of a file that checkpoints hold, of every space that it lies in."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound
from bascule.workspace.blame import (
    MAX_LINES,
    NOT_HELD,
    BlamedRun,
    BlameParams,
    BlameResult,
    Owner,
    Version,
    Work,
    blame,
    spans,
)
from bascule.workspace.listing import native_view
from bascule.workspace.live import Run
from bascule.workspace.paths import BadPath, parse_path
from bascule.workspace.ports import CheckpointFault, Checkpoints, FileFault
from bascule.workspace.protocol import ShellEvent
from bascule.workspace.records import RunRecord, Segment
from bascule.workspace.runbook import RunBook
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads

MAX_TITLE_CHARS = 200


class Blamer:
    def __init__(
        self, *, book: RunBook, live: Mapping[str, Run], spaces: Spaces, threads: Threads, clock: Clock
    ) -> None:
        self._book = book
        self._live = live
        self._spaces = spaces
        self._threads = threads
        self._clock = clock
        # A look at a large project takes a thread for seconds: those of runs are left to runs.
        self._one = asyncio.Lock()

    async def blame(self, params: BlameParams) -> BlameResult:
        space = self._spaces.find(params.space_id)
        try:
            path = parse_path(params.path)
        except BadPath as error:
            raise InvalidRequest(f"path: {error}") from None
        try:
            async with self._one:
                owners = await self._owners(space, path)
        except (CheckpointFault, FileFault) as error:
            raise Conflict(f"who wrote {path} cannot be told: {error}") from None
        named = {owner.run_id: None for owner in owners if owner.run_id is not None}
        records = sorted(map(self._record, named), key=lambda record: -record.number)
        return BlameResult(path=path, lines=spans(owners), runs=[self._view(record) for record in records])

    async def _owners(self, space: Space, path: str) -> list[Owner]:
        checkpoints = await self._spaces.checkpoints_of(space)
        tree = await self._threads.do(checkpoints.take, watched=True)
        now = (await self._threads.do(checkpoints.versions, [tree], path))[0]
        if now is None:
            raise NotFound(f"there is no file {path} in this space", hint="files.list shows what is there")
        if now == NOT_HELD:
            raise CheckpointFault("checkpoints do not hold it: it is too large, or shut")
        held: dict[str, Checkpoints] = {now: checkpoints}
        works: list[Work] = []
        for each, below in self._around(space, path):
            pieces = [
                (record, segment)
                for record in map(self._record, self._run_ids(each.space_id))
                if not record.on_copy or record.committed
                for segment in record.segments
            ]
            their = checkpoints if each is space else await self._spaces.checkpoints_of(each)
            trees = [tree for _, segment in pieces for tree in (segment.before, segment.after or segment.before)]
            found = await self._threads.do(their.versions, trees, below)
            held = {version: their for version in found if version not in (None, NOT_HELD)} | held
            for number, (record, segment) in enumerate(pieces):
                works.append(self._work(record, segment, found[2 * number : 2 * number + 2], now))
        works.sort(key=lambda work: work.began)
        return await self._threads.do(blame, works, now, _reader(held))

    def _work(self, record: RunRecord, segment: Segment, versions: Sequence[Version], now: Version) -> Work:
        before, after = versions
        if segment.after is None and record.run_id in self._live:
            return Work(record.run_id, segment.began, self._clock.wall_ms(), before, now)
        return Work(record.run_id, segment.began, segment.ended, before, after, undone=record.undone)

    def _around(self, space: Space, path: str) -> list[tuple[Space, str]]:
        """It, and every other space with the same file: one in the other."""
        place = os.path.join(space.record.path, path)
        others = [
            (self._spaces.find(record.space_id), os.path.relpath(place, record.path))
            for record in self._spaces.table.rows.values()
            if record.space_id != space.space_id and place.startswith(f"{record.path}/") and os.path.isdir(record.path)
        ]
        return [(space, path), *others]

    def _run_ids(self, space_id: str) -> list[str]:
        return [record.run_id for record in self._book.index.newest_first(space_id=space_id)]

    def _record(self, run_id: str) -> RunRecord:
        run = self._live.get(run_id)
        return run.record if run is not None else self._book.find(run_id)

    def _view(self, record: RunRecord) -> BlamedRun:
        run = self._live.get(record.run_id)
        events = run.events if run is not None else self._book.events(record.run_id)
        command = next((event.command for event in events if isinstance(event, ShellEvent)), None)
        return BlamedRun(
            run_id=record.run_id,
            started_by=record.started_by,
            started_at=rfc3339(record.started_at),
            title=command[:MAX_TITLE_CHARS] if command is not None else None,
            native=native_view(record),
        )


def _reader(held: Mapping[str, Checkpoints]) -> Callable[[str], list[str]]:
    @cache
    def read(version: str) -> list[str]:
        # Only equality counts: every byte is a character.
        lines = held[version].blob(version).decode("latin-1").split("\n")
        if lines[-1] == "":
            lines.pop()
        if len(lines) > MAX_LINES:
            raise CheckpointFault(f"it had more than {MAX_LINES} lines")
        return lines

    return read
