"""`spaces.blame`: the versions of a file that checkpoints hold, of every space that it lies in."""

import asyncio
import os
from functools import cache

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound
from bascule.workspace.blame import (
    MAX_LINES,
    NOT_HELD,
    BlamedRun,
    BlameParams,
    BlameResult,
    Came,
    Origin,
    Owner,
    State,
    Version,
    Work,
    blame,
    resume,
    shared,
    spans,
)
from bascule.workspace.listing import native_view
from bascule.workspace.operations import Operations
from bascule.workspace.paths import BadPath, parse_path
from bascule.workspace.ports import CheckpointFault, Checkpoints, FileFault
from bascule.workspace.records import RunRecord
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.threads import Threads

# A file that was given another name so often is a program's work; each costs a look at every earlier tree.
MAX_RENAMES = 50
# Of the files that went in the piece in which a file came, so many with its name are compared, and so many others.
MAX_COMPARED = 100


class Blamer:
    def __init__(self, *, operations: Operations, spaces: Spaces, threads: Threads, clock: Clock) -> None:
        self._operations = operations
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
        now = State(space.space_id, await self._threads.do(checkpoints.take, watched=True))
        look = Look(now, self._clock.wall_ms(), os.path.join(space.record.path, path))
        version = (await self._versions(look, space.space_id, [now.tree], look.place))[0]
        if version is None:
            raise NotFound(f"there is no file {path} in this space", hint="files.list shows what is there")
        if version == NOT_HELD:
            raise CheckpointFault("checkpoints do not hold it: it is too large, or shut")
        tracing = blame(await self._works(look), version, look.lines)
        origin = None
        while isinstance(found := await self._threads.do(resume, tracing, origin), Came):
            origin = await self._origin(look, found)
        return found

    async def _works(self, look: "Look") -> list[Work]:
        """All that worked where this file is, in every space that it lies in."""
        place = look.place
        works: list[Work] = []
        now = (await self._versions(look, look.now.space_id, [look.now.tree], place))[0]
        for space_id in self._around(place):
            pieces = [
                (record, segment)
                for record in map(self._record, self._run_ids(space_id))
                if not record.on_copy or record.committed
                for segment in record.segments
            ]
            trees = [tree for _, segment in pieces for tree in (segment.before, segment.after or segment.before)]
            found = await self._versions(look, space_id, trees, place)
            for number, (record, segment) in enumerate(pieces):
                before, after = found[2 * number : 2 * number + 2]
                states = [State(space_id, tree) for tree in trees[2 * number : 2 * number + 2]]
                ended = max(segment.began, segment.ended)
                if segment.after is None and record.run_id in self._operations.live:
                    ended, after, states[1] = look.at, now, look.now
                done = record.undone
                works.append(
                    Work(record.run_id, segment.began, ended, before, after, undone=done, states=(states[0], states[1]))
                )
        return works

    def _around(self, place: str) -> list[str]:
        """Every space that a file lies in: one may be in another."""
        spaces = self._spaces.table.rows.values()
        return [each.space_id for each in spaces if place.startswith(f"{each.path}/") and os.path.isdir(each.path)]

    async def _versions(self, look: "Look", space_id: str, trees: list[str], place: str) -> list[Version]:
        """Of the file at this place, in trees of a space."""
        space = self._spaces.find(space_id)
        if not place.startswith(f"{space.record.path}/"):
            return [None] * len(trees)
        checkpoints = await self._spaces.checkpoints_of(space)
        found = await self._threads.do(checkpoints.versions, trees, place.removeprefix(f"{space.record.path}/"))
        for version in found:
            if version is not None and version != NOT_HELD:
                look.held.setdefault(version, checkpoints)
        return found

    async def _origin(self, look: "Look", came: Came) -> Origin | None:
        """The file that went in the same piece in which this one came, if it has mostly the same lines."""
        since, until = came.since.state, came.until.state or look.now
        version = came.until.version
        if since is None or since.space_id != until.space_id or version is None or look.renames >= MAX_RENAMES:
            return None
        space = self._spaces.find(since.space_id)
        checkpoints = await self._spaces.checkpoints_of(space)
        found = await self._threads.do(taken_away, look, checkpoints, since.tree, until.tree, (look.place, version))
        if found is None:
            return None
        look.renames += 1
        path, old = found
        look.place = os.path.join(space.record.path, path)
        return Origin(old, await self._works(look))

    def _run_ids(self, space_id: str) -> list[str]:
        return [record.run_id for record in self._operations.book.index.newest_first(space_id=space_id)]

    def _record(self, run_id: str) -> RunRecord:
        run = self._operations.live.get(run_id)
        return run.record if run is not None else self._operations.book.find(run_id)

    def _view(self, record: RunRecord) -> BlamedRun:
        return BlamedRun(
            run_id=record.run_id,
            started_by=record.started_by,
            started_at=rfc3339(record.started_at),
            title=self._operations.title(record),
            native=native_view(record),
            prompt=record.native.asked if record.native is not None else None,
            approved_by=list(record.approved_by),
        )


class Look:
    """What one answer rests on."""

    def __init__(self, now: State, at: int, place: str) -> None:
        # The tree as it is now, and the wall clock.
        self.now = now
        self.at = at
        # Where the file is, and was as far back as it is followed by now.
        self.place = place
        # Which checkpoints have a version.
        self.held: dict[str, Checkpoints] = {}
        self.renames = 0
        self.lines = cache(self._read)

    def common(self, old: str, new: str) -> int:
        try:
            return shared(self.lines(old), self.lines(new))
        except CheckpointFault:
            # Too long to have been written by anybody.
            return 0

    def _read(self, version: str) -> list[str]:
        # Only equality counts: every byte is a character.
        lines = self.held[version].blob(version).decode("latin-1").split("\n")
        if lines[-1] == "":
            lines.pop()
        if len(lines) > MAX_LINES:
            raise CheckpointFault(f"it had more than {MAX_LINES} lines")
        return lines


def taken_away(
    look: Look, checkpoints: Checkpoints, before: str, after: str, came: tuple[str, str]
) -> tuple[str, str] | None:
    """Of the files that only the tree before has, the one with most of the lines of the one that came: path, version.

    Those with the same name first: of a directory that was moved no other file has to be looked at.
    """
    place, version = came
    name, ending = os.path.basename(place), os.path.splitext(place)[1]
    gone = set(checkpoints.touched(after, before)).difference(checkpoints.touched(before, after))
    same = sorted(path for path in gone if os.path.basename(path) == name)
    others = sorted(gone.difference(same), key=lambda path: (not path.endswith(ending), path))
    for group in (same[:MAX_COMPARED], others[:MAX_COMPARED]):
        best, most = None, 0
        for path in group:
            old = checkpoints.versions([before], path)[0]
            if old is None or old == NOT_HELD:
                continue
            look.held.setdefault(old, checkpoints)
            if old == version:
                return path, old
            common = look.common(old, version)
            if common > most:
                best, most = (path, old), common
        if best is not None:
            return best
    return None
