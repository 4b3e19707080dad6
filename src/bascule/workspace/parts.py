"""What is taken back of each part of a project: its files, git's record, and what calls named outside of it."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from bascule.foundation.errors import NotFound
from bascule.workspace.checkpointing import Checkpointing
from bascule.workspace.elsewhere import Elsewhere
from bascule.workspace.live import is_over
from bascule.workspace.operations import Chosen, Operations, actor_of, began, last, started
from bascule.workspace.ports import Checkpoints, Value, Way
from bascule.workspace.protocol import PathReason
from bascule.workspace.records import GitSegment, OutsideSegment, RunRecord, UndoRecord
from bascule.workspace.spaces import Space
from bascule.workspace.threads import Threads
from bascule.workspace.timeline import (
    CHANGED_SINCE,
    Piece,
    Selection,
    WayBack,
    Work,
    beginning,
    changed_by,
    edits,
    pieces_of,
    ways_back,
)
from bascule.workspace.undos import Operation

NOT_LEFT = "is not known to be as the call left it"
OTHER_REPOSITORY = "another repository is there now"


class Left:
    """What stays, with its reason, and whose work it is."""

    def __init__(self, chosen: Chosen, name: Callable[[str], str]) -> None:
        self._chosen = chosen
        self._name = name
        self.paths: list[PathReason] = []
        # Of the chosen operations those of which something stays.
        self.of: set[str] = set()

    def add(self, path: str, reason: str) -> None:
        self.paths.append(PathReason(path=path, reason=reason))

    def stays(self, path: str, way: WayBack[Value], not_merged: str = "") -> None:
        """What of a way back stays, if anything."""
        if not way.stays:
            return
        for edit in way.stays:
            self.of |= self._chosen.ids & {edit.operation or "", *edit.rivals}
        self.add(path, f"{self._why(way)}{f'; not merged: {not_merged}' if not_merged else ''}")

    def _why(self, way: WayBack[Value]) -> str:
        first = way.stays[0]
        who = first.operation
        if who is None:
            since = CHANGED_SINCE
        elif who in self._chosen.ids or not first.of_others.isdisjoint(self._chosen.ids):
            both = " and ".join(sorted({who, *first.of_others}))
            since = f"was changed while {both} worked, and by which is not known: a person may name it to take it back"
        else:
            when = "later" if first.rivals.isdisjoint(self._chosen.ids) else "at the same time"
            since = f"was changed {when} by {self._name(who)}"
        return f"{since}, after a part of what is taken back: only what came after that is" if way.back else since


class Parts:
    def __init__(
        self, *, operations: Operations, checkpointing: Checkpointing, elsewhere: Elsewhere, threads: Threads
    ) -> None:
        self._operations = operations
        self._checkpointing = checkpointing
        self._elsewhere = elsewhere
        self._threads = threads

    async def works(
        self,
        space: Space,
        checkpoints: Checkpoints,
        operations: Iterable[Operation],
    ) -> list[Work]:
        """What they did to the project's files."""
        works: list[Work] = []
        for each in operations:
            run = self._operations.live.get(each.run_id)
            as_work = await self._threads.do(_as_work, checkpoints, each)
            segments = [each.segment] if isinstance(each, UndoRecord) else list(run.segments if run else each.segments)
            for segment in segments:
                after, ended = segment.after, float(segment.ended)
                if isinstance(each, UndoRecord):
                    ended = max(ended, segment.began + 0.5)
                elif after is None and run is not None and run.is_open and segment is segments[-1]:
                    after, ended = await self._threads.do(self._checkpointing.take, checkpoints, space)
                elif after is None:
                    # What changed later is not its work, and unknown in such a tree.
                    until = segment.until
                    after = await self._threads.do(checkpoints.take, None if until is None else until * 1_000_000)
                    ended = max(float(until or 0), segment.began + 0.5)
                if after is not None:
                    works.append(as_work._replace(began=segment.began, ended=ended, before=segment.before, after=after))
        return works

    async def last_that_changed(
        self,
        space: Space,
        checkpoints: Checkpoints,
        operations: Sequence[Operation],
        paths: Sequence[str],
        among: Sequence[Operation],
    ) -> Operation:
        """Among these the last run that changed any of the paths, and that is not taken back there."""
        meant = Chosen((), "", frozenset(paths), merge=False, stays=[])
        works = await self.works(space, checkpoints, operations)
        ended = [each for each in among if isinstance(each, RunRecord) and is_over(each)]
        runs = {each.run_id: each for each in ended if not each.outlived}

        def look() -> set[str]:
            histories = edits(Selection(pieces_of(works), frozenset()), partial(_changed, checkpoints), meant.is_meant)
            return {found for each in histories.values() if (found := changed_by(each, runs.__contains__)) is not None}

        found = await self._threads.do(look)
        newest = max((runs[each] for each in found), key=began, default=None)
        if newest is None:
            raise NotFound(
                f"no run that is kept has changed {', '.join(paths)}, or all of them are taken back there",
                hint="`bascule log` lists what was done here; a path is named from the project's directory",
            )
        return newest

    def how_far(self, undo: UndoRecord, checkpoints: Checkpoints, root: str, *, half_too: bool = False) -> UndoRecord:
        """One that was cut short, as far as it came; with `half_too` it made what is half made as it is. Blocks."""
        segment, git, outside = undo.segment, undo.git, undo.outside
        now = checkpoints.take(watched=True)
        done, _ = checkpoints.cut_short(segment.before, undo.planned, now, half_too=half_too)
        segment = msgspec.structs.replace(segment, after=done, ended=segment.began)
        if git is not None:
            git = msgspec.structs.replace(git, after=self._git_how_far(undo.space_id, root, git), ended=git.began)
        if outside is not None and outside.after is not None:
            states = self._elsewhere.outside
            there = states.look_at(undo.space_id, [outside.before])
            left = states.cut_short(undo.space_id, outside.before, outside.after, there, half_too=half_too)
            outside = msgspec.structs.replace(outside, after=left)
        return msgspec.structs.replace(undo, segment=segment, git=git, outside=outside, finished=True)

    def _git_how_far(self, space_id: str, root: str, segment: GitSegment) -> str:
        git = self._elsewhere.git
        now = git.take(space_id, root, further=git.further(space_id, segment.before))
        if now is None or not git.is_same(space_id, segment.before, now):
            return segment.before
        changed = git.edits(space_id, segment.before, segment.after)
        done = [key for key, (_, new) in changed.items() if git.same(key, new, git.value(space_id, now, key))]
        return git.compose(space_id, segment.before, dict.fromkeys(done, segment.after))

    def files(
        self,
        chosen: Chosen,
        operations: Sequence[Operation],
        works: Sequence[Work],
        checkpoints: Checkpoints,
        cut_short: UndoRecord | None,
    ) -> tuple[dict[bytes, Way], Left]:
        changed = partial(_changed, checkpoints)
        selection = Selection(pieces_of(works), chosen.ids, chosen.sure)
        histories = edits(selection, changed, chosen.is_meant)
        now = checkpoints.take(watched=True)
        half: set[bytes] = set()
        if cut_short is not None:
            _, half = checkpoints.cut_short(cut_short.segment.before, cut_short.planned, now)
        values = checkpoints.values(now, histories)

        def same(path: bytes, known: Value, found: Value) -> bool:
            return path in half or checkpoints.same(known, found)

        began = {each.run_id: started(each) for each in operations}
        ways: dict[bytes, Way] = {}
        left = Left(chosen, self._operations.name)
        for path, way in ways_back(selection, histories, values, same):
            wanted, expected, back = way.wanted, way.expected, way.back
            reason = ""
            if way.stays and chosen.merge:
                merged, reason = _merged(checkpoints, way, wanted if back else values[path], selection)
                if not reason:
                    wanted, expected = merged, expected if back else values[path]
            if reason or not chosen.merge:
                left.stays(_shown(path), way, reason)
            if wanted != expected:
                brought = [edit for edit in back if checkpoints.is_rewrite(edit.old, edit.new)]
                since = max((began.get(edit.operation or "", 0) for edit in brought[-1:]), default=0)
                ways[path] = Way(expected, wanted, since)
        return ways, left

    def wholly_meant(self, chosen: Chosen, works: Iterable[Work], checkpoints: Checkpoints) -> frozenset[str]:
        """Of the chosen operations those that changed nothing but the paths that are meant."""
        beyond = {
            work.operation
            for work in works
            if not all(map(chosen.is_meant, checkpoints.edits(work.before, work.after)))
        }
        more = {
            each.run_id
            for each in chosen.operations
            if each.git or each.outside or each.move or each.mode or (isinstance(each, RunRecord) and each.removed)
        }
        return chosen.ids - beyond - more

    def git(
        self, chosen: Chosen, operations: Sequence[Operation], space_id: str, root: str
    ) -> tuple[GitSegment | None, Left, bool]:
        """And whether all of git's record that it changed is held."""
        git = self._elsewhere.git
        mine = [each.git for each in chosen.operations if each.git is not None]
        left = Left(chosen, self._operations.name)
        if not mine:
            return None, left, True
        since = since_of(operations, chosen)
        segments = [(each, each.git) for each in operations if each.git is not None and last(each) >= since]
        now = git.take(space_id, root, further=git.further(space_id, mine[-1].before))
        further = {
            place: why for each in mine for place, why in git.not_held(space_id, root, each.before, each.after).items()
        }
        for place, why in further.items():
            left.add(place, why)
        # A mode is no content: what is outside may go all the same.
        whole = all(place == ".git" for place in further)
        if now is None or not git.is_same(space_id, mine[-1].before, now):
            left.add(".git", OTHER_REPOSITORY)
            return None, left, False
        works: list[Work] = []
        for each, segment in segments:
            if git.is_same(space_id, segment.before, now):
                ended = max(segment.ended, segment.began + 0.5)
                works.append(_work(each, segment.began, ended, segment.before, segment.after))
        selection = Selection(pieces_of(works), chosen.ids)
        histories = edits(selection, lambda piece: git.edits(space_id, piece.before, piece.after))
        values = {key: git.value(space_id, now, key) for key in histories}
        wanted: dict[str, str] = {}
        for key, way in ways_back(selection, histories, values, git.same):
            left.stays(f".git/{key}", way)
            if way.back and way.wanted != values[key]:
                wanted[key] = way.back[0].before
        if not wanted:
            return None, left, whole
        return GitSegment(before=git.compose(space_id, now, wanted), after=now), left, whole

    def outside(
        self,
        chosen: Chosen,
        operations: Sequence[Operation],
        space_id: str,
        without: str | None,
        cut_short: UndoRecord | None,
    ) -> tuple[OutsideSegment | None, Left]:
        outside = self._elsewhere.outside
        mine = [each.outside for each in chosen.operations if each.outside is not None]
        left = Left(chosen, self._operations.name)
        if not mine:
            return None, left
        if len(mine) == 1 and mine[0].after is None:
            # Without a state after the call only what is gone comes back.
            return mine[0], left
        now = outside.look_at(space_id, [each.before for each in mine], without=without)
        # Whose end is not known, and what it left.
        unknown = {each.run_id for each in operations if each.outside is not None and each.outside.after is None}
        pieces = self._pieces_outside(chosen, operations, now)
        selection = Selection(pieces, chosen.ids)
        histories = edits(selection, lambda piece: outside.edits(space_id, piece.before, piece.after))
        values = outside.values(space_id, now, histories)

        half = self._half_made(cut_short) if cut_short is not None else ()

        def same(path: bytes, known: Value, found: Value) -> bool:
            return path in half or outside.same(known, found, resumes=cut_short is not None)

        wanted: dict[bytes, str] = {}
        for path, way in ways_back(selection, histories, values, same):
            left.stays(_shown(path), way)
            if values[path] is not None and any(edit.operation in unknown for edit in way.back):
                left.add(_shown(path), NOT_LEFT)
                continue
            if way.back:
                wanted[path] = way.back[0].before
        if not wanted:
            return None, left
        if len(mine) == 1 and not left.paths:
            return mine[0], left
        return OutsideSegment(before=outside.compose(space_id, now, wanted), after=now), left

    def _half_made(self, undo: UndoRecord) -> Collection[bytes]:
        """What an undo that was cut short has left half made outside."""
        outside, segment = self._elsewhere.outside, undo.outside
        if segment is None or segment.after is None:
            return ()
        there = outside.look_at(undo.space_id, [segment.before])
        return outside.half_made(undo.space_id, segment.before, segment.after, there)

    def _pieces_outside(self, chosen: Chosen, operations: Sequence[Operation], now: str) -> list[Piece]:
        since = since_of(operations, chosen)
        pieces: list[Piece] = []
        for each in operations:
            segment = each.outside
            if segment is None or last(each) < since:
                continue
            after = segment.after or now
            work = _work(each, began(each), last(each), segment.before, after)
            # Each has places of its own: two states are compared that are of the same ones.
            pieces.append(Piece(segment.before, after, (work,)))
        return pieces


def since_of(operations: Iterable[Operation], chosen: Chosen) -> float:
    known = {each.run_id: each for each in (*operations, *chosen.operations)}
    undoes = {each.run_id: frozenset(each.undoes) for each in known.values() if isinstance(each, UndoRecord)}
    return beginning({name: began(each) for name, each in known.items()}, undoes, chosen.ids)


def _work(each: Operation, began: float = 0, ended: float = 0, before: str = "", after: str = "") -> Work:
    undoes = frozenset(each.undoes) if isinstance(each, UndoRecord) else frozenset[str]()
    background = isinstance(each, RunRecord) and each.background and each.native is None
    return Work(each.run_id, began, ended, before, after, undoes, actor_of(each), background=background)


def _as_work(checkpoints: Checkpoints, each: Operation) -> Work:
    """With what is known of the paths that it changed in the project."""
    work = _work(each)
    if isinstance(each, UndoRecord):
        # It brought exactly what it was about to bring; anything else that is there was saved by somebody meanwhile.
        planned = checkpoints.edits(each.segment.before, each.planned)
        there = checkpoints.values(each.segment.after or each.planned, planned)
        return work._replace(
            names=frozenset(
                path
                for path, (_, wanted) in planned.items()
                if there[path] is None or not checkpoints.is_rewrite(wanted, there[path])
            )
        )
    native = each.native
    if native is None:
        return work
    mentions = tuple(os.fsencode(path) for path in native.mentions)
    if not native.only_these:
        return work._replace(mentions=mentions)
    # These, and the directories that hold them.
    steps = [path.split(b"/") for path in mentions]
    return work._replace(
        names=frozenset(b"/".join(each[:count]) for each in steps for count in range(1, len(each) + 1))
    )


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _changed(checkpoints: Checkpoints, piece: Piece) -> Mapping[bytes, tuple[Value, Value]]:
    return checkpoints.edits(piece.before, piece.after)


def _merged(checkpoints: Checkpoints, way: WayBack[Value], current: Value, selection: Selection) -> tuple[Value, str]:
    for left, before in way.merged(selection.chosen, sure=selection.sure):
        current, why = checkpoints.merged(left, current, before)
        if why:
            return current, why
    return current, ""
