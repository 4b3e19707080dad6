"""Which operations an undo means: one, those of a session or an agent, since a time, the last that changed a file."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound
from bascule.workspace.checkpointing import WHOLE
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import is_over
from bascule.workspace.operations import Chosen, Operations, began, is_of, named, session_id, session_of, started
from bascule.workspace.parts import Parts
from bascule.workspace.paths import BadPath, parse_path
from bascule.workspace.protocol import PathReason, RedoParams, UndoParams
from bascule.workspace.records import NO_UNDO, RunRecord, UndoRecord
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.undos import Operation

# How the note of a run begins that worked without a checkpoint.
NO_CHECKPOINT = "not undoable"
# Of those that an undo was about.
MAX_PATHS_NAMED = 3


class Choosing:
    def __init__(self, *, operations: Operations, parts: Parts, spaces: Spaces, limits: WorkspaceLimits) -> None:
        self._operations = operations
        self._parts = parts
        self._spaces = spaces
        self._limits = limits

    def space_of(self, params: UndoParams) -> str:
        if params.run_id is None:
            if params.space_id is None:
                raise InvalidRequest("no space is named", hint="give spaceId, or the run")
            return self._spaces.record(params.space_id).space_id
        return self._operations.find(params.run_id, params.space_id).space_id

    def of_redo(self, params: RedoParams) -> UndoParams:
        """Taking back the undo that is named, or the last one here that was not taken back."""
        if params.undo_id is not None:
            undo = self._operations.undos.find(params.undo_id, params.space_id)
        else:
            known = [each for each in self._operations.undos.of_space(params.space_id) if not each.redoes]
            meant = (each for each in reversed(known) if params.agent is None or is_of(each, params.agent))
            found = next((each for each in meant if not each.undone), None)
            if found is None:
                raise NotFound("there is no undo here to take back", hint="`bascule log` lists what was done here")
            undo = found
        return UndoParams(run_id=undo.undo_id, space_id=undo.space_id, dry_run=params.dry_run)

    def check_one(self, params: UndoParams) -> None:
        """`Conflict` when the run that is named cannot be taken back at all."""
        if params.run_id is not None:
            self.check(self._operations.find(params.run_id, params.space_id))

    def waited_for(self, params: UndoParams) -> list[str]:
        """Calls of agents' own tools that are meant, and not over: their end may be under way."""
        if params.run_id is not None:
            return [params.run_id]
        if params.space_id is None:
            return []
        meant = self._matching(params, self._operations.of_space(params.space_id))
        return [each.run_id for each in meant if isinstance(each, RunRecord) and each.native and not is_over(each)]

    def check(self, record: Operation) -> None:
        if isinstance(record, UndoRecord):
            return
        if not is_over(record):
            hint = f"wait for it, or cancel it first: bascule runs cancel {record.run_id} (runs.cancel)"
            if record.background:
                hint = f"it runs in the background; stop it first: bascule runs cancel {record.run_id} (runs.cancel)"
            raise Conflict(f"{record.run_id} is not over yet", hint=hint)
        if record.git_before is not None:
            raise Conflict(
                f"{record.run_id}: what it did to git's record is being looked at", hint="try again in a moment"
            )
        if record.outlived:
            raise Conflict(
                f"{record.run_id} cannot be undone: more than {self._limits.max_kept_runs} runs worked here at the "
                "same time, and what they changed can no longer be told from what it did",
                hint="take it back by hand; `bascule show` has its diff",
            )
        if record.on_copy and not record.committed:
            raise Conflict(f"{record.run_id} worked on a copy, which is gone: there is nothing to undo")
        if not record.segments and record.note is not None and record.note.startswith((NO_CHECKPOINT, NO_UNDO)):
            raise Conflict(f"{record.run_id} cannot be taken back: {record.note}", hint="`bascule log` lists what can")

    async def chosen(self, space: Space, params: UndoParams) -> Chosen:
        operations = self._operations.of_space(space.space_id)
        paths = _paths(params.paths)
        if params.run_id is not None:
            # Also one on a copy, or that was undone already: the refusal says so.
            one = self._operations.find(params.run_id, params.space_id)
            return Chosen((one,), named(one), paths, params.merge, [])
        if paths and (params.newest or not _selects(params)):
            checkpoints = await self._spaces.checkpoints_of(space)
            among = self._matching(params, operations) if _selects(params) else operations
            found = await self._parts.last_that_changed(space, checkpoints, operations, sorted(paths), among)
            what = f"{named(found)} in {_few(params.paths)}"
            return Chosen((found,), what, paths, params.merge, [])
        meant: list[Operation] = []
        stays: list[PathReason] = []
        for each in reversed(self._matching(params, operations)):
            try:
                self.check(each)
            except Conflict as error:
                stays.append(PathReason(path=WHOLE, reason=error.message))
                if not _selects(params):
                    raise
            else:
                meant.append(each)
        if not meant:
            if stays:
                raise Conflict(f"nothing of this can be taken back: {stays[0].reason}", hint="`bascule log` lists all")
            raise NotFound("there is nothing to take back", hint="`bascule log` lists what was done here")
        if params.newest or not _selects(params):
            return Chosen((meant[0],), named(meant[0]), paths, params.merge, [])
        stays += self._no_longer_kept(params, operations)
        words = [
            f"session {params.session}" if params.session is not None else None,
            f"agent {params.agent}" if params.agent is not None else None,
            f"since {params.since}" if params.since is not None else None,
            f"after {params.to}" if params.to is not None else None,
        ]
        what = f"{', '.join(filter(None, words))}: {len(meant)} operation{'s' if len(meant) > 1 else ''}"
        return Chosen(tuple(meant), what, paths, params.merge, stays)

    def _no_longer_kept(self, params: UndoParams, operations: Sequence[Operation]) -> list[PathReason]:
        """Of a session, or an agent, there may be runs that have made room for newer ones."""
        runs = [each for each in operations if isinstance(each, RunRecord)]
        if params.to is not None or len(runs) < self._limits.max_kept_runs:
            return []
        if params.since is not None and _milliseconds(params.since) >= runs[0].started_at:
            return []
        when = rfc3339(runs[0].started_at)
        return [PathReason(path=WHOLE, reason=f"runs before {when} are no longer kept: what they changed stays")]

    def _matching(self, params: UndoParams, operations: Sequence[Operation]) -> list[Operation]:
        """In the order of beginning."""
        if params.to is not None:
            after = self._operations.find(params.to, params.space_id)
            # With the undos among them: what came of both is taken back.
            found: list[Operation] = [each for each in operations if began(each) > began(after)]
        else:
            found = [each for each in operations if isinstance(each, RunRecord) and not each.undone]
        if not _selects(params):
            # A server goes on working; a call right before the undo is meant, whether or not all is known of it.
            # What an undo has left of a run stays when it is done once more.
            undos = [each for each in operations if isinstance(each, UndoRecord) and not each.undone and not each.paths]
            taken_back = {target for undo in undos for target in undo.undoes}
            rest = (each for each in reversed(found) if isinstance(each, RunRecord) and each.run_id not in taken_back)
            return list(islice(filter(_counts, (each for each in rest if is_over(each) or each.native)), 1))
        if params.since is not None:
            since = _milliseconds(params.since)
            found = [each for each in found if started(each) >= since]
        if params.session is not None:
            session = session_of(params.session, operations)
            found = [each for each in found if session_id(each) == session]
        if params.agent is not None:
            found = [each for each in found if is_of(each, params.agent)]
        return [each for each in found if _counts(each)]


def _selects(params: UndoParams) -> bool:
    """Whether it says which operations are meant; else it is the last one, or the last one that changed a path."""
    return any(each is not None for each in (params.run_id, params.session, params.agent, params.since, params.to))


def _counts(each: Operation) -> bool:
    """Whether there is something to take back, or to say about that."""
    if isinstance(each, UndoRecord):
        return True
    return each.left_changes or not is_over(each) or str(each.note).startswith(NO_UNDO)


def _paths(named: Iterable[str]) -> frozenset[str]:
    try:
        return frozenset(parse_path(each) for each in named)
    except BadPath as error:
        raise InvalidRequest(f"paths: {error}", hint="a path is named from the project's directory") from None


def _few(paths: Sequence[str]) -> str:
    more = len(paths) - MAX_PATHS_NAMED
    return ", ".join(paths[:MAX_PATHS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _milliseconds(since: str) -> int:
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidRequest(f"since: {since!r} is not a time", hint="as in 2026-03-01T14:00:00Z, with its time zone")
    return round(moment.timestamp() * 1000)


def without_checkpoint(record: Operation) -> PathReason | None:
    """Of a run that worked without one, at least for a time, anything may have changed."""
    if isinstance(record, UndoRecord) or record.note is None or not record.note.startswith(NO_CHECKPOINT):
        return None
    return PathReason(path=WHOLE, reason=record.note)
