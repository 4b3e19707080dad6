"""What an agent's own tool changed and no checkpoint of the project holds: git's record, and what it named outside."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from bascule.kernel.ports import NativeWork
from bascule.workspace.live import Run
from bascule.workspace.ports import CheckpointFault, GitStates, OutsideStore
from bascule.workspace.protocol import FileChange, PathReason
from bascule.workspace.records import GitSegment, OutsideSegment, RunRecord
from bascule.workspace.spaces import Space

# Refs named in a note.
MAX_REFS_NAMED = 20
GIT_UNKNOWN = "what it did to git's record is not known"


class Back(NamedTuple):
    """What was put back."""

    changes: list[FileChange]
    left_alone: list[PathReason]
    # Files of git's record.
    refs: list[str]

    @property
    def note(self) -> str | None:
        return f"git's record: {', '.join(self.refs[:MAX_REFS_NAMED])}" if self.refs else None


NOTHING_BACK = Back([], [], [])


class Elsewhere:
    """Blocks; called on threads."""

    def __init__(self, git: GitStates, outside: OutsideStore) -> None:
        self._git = git
        self._outside = outside

    def keep_git(self, run: Run, space: Space) -> None:
        """Into its record, which is on disk before the call acts: a restart loses nothing."""
        before = self._git.take(space.space_id, space.record.path)
        run.record = msgspec.structs.replace(run.record, git_before=before)

    def keep_outside(self, run: Run, space: Space, work: NativeWork) -> bool:
        """Whether anything inside of the project was named."""
        kept = self._outside.keep(space.space_id, space.record.path, work.writes, into=work.into)
        if kept.state is not None:
            run.record = msgspec.structs.replace(run.record, outside=OutsideSegment(before=kept.state))
        return kept.inside

    def look(self, run: Run, space: Space) -> None:
        """After the call: what differs stays in the run's record."""
        try:
            run.record = self.look_at_git(run.record, space.record.path)
        except CheckpointFault as error:
            run.record = msgspec.structs.replace(run.record, git_before=None)
            run.note = run.note or f"{GIT_UNKNOWN}: {error}"
        outside = run.record.outside
        if outside is None:
            return
        try:
            state = self._outside.look(space.space_id, outside.before)
            changed = self._outside.changes(space.space_id, outside.before, state)
        except CheckpointFault as error:
            run.note = run.note or f"what it did outside of the project is not known: {error}"
            return
        left = msgspec.structs.replace(outside, after=state) if changed else None
        run.record = msgspec.structs.replace(run.record, outside=left)

    def look_at_git(self, record: RunRecord, path: str, until_ms: int | None = None) -> RunRecord:
        """The record with what differs; without what changed later than `until_ms`, which is not its work."""
        before = record.git_before
        after = self._git.take(record.space_id, path, until_ms=until_ms) if before is not None else None
        git = None
        if before is not None and after is not None and after != before:
            git = GitSegment(before=before, after=after)
        return msgspec.structs.replace(record, git=git, git_before=None)

    def changes(self, record: RunRecord) -> list[FileChange]:
        outside = record.outside
        if outside is None or outside.after is None:
            return []
        return self._outside.changes(record.space_id, outside.before, outside.after)

    def undo(self, space: Space, record: RunRecord, *, dry_run: bool) -> Back:
        """`CheckpointFault` names what changed since, and nothing was put back."""
        refs: list[str] = []
        git, outside = record.git, record.outside
        changes: list[FileChange] = []
        left_alone: list[PathReason] = []
        # Both are tried before either is changed.
        for really in (False,) if dry_run else (False, True):
            if git is not None:
                refs, later = self._git.undo(
                    space.space_id, space.record.path, git.before, git.after, dry_run=not really
                )
                if later:
                    raise CheckpointFault(f"git's record changed since then: {', '.join(later[:MAX_REFS_NAMED])}")
            if outside is not None:
                changes, left_alone = self._outside.undo(
                    space.space_id, outside.before, outside.after, dry_run=not really
                )
        return Back(changes, left_alone, refs)

    def collect(self, spaces: Iterable[str], records: Iterable[RunRecord], live: Mapping[str, Run]) -> None:
        """Drop what no kept run of these spaces needs."""
        git: dict[str, set[str]] = {space_id: set() for space_id in spaces}
        outside: dict[str, set[str]] = {space_id: set() for space_id in git}
        for record in records:
            run = live.get(record.run_id)
            for each in (record, run.record) if run is not None else (record,):
                if each.git_before is not None:
                    git.setdefault(each.space_id, set()).add(each.git_before)
                if each.git is not None:
                    git.setdefault(each.space_id, set()).update((each.git.before, each.git.after))
                if each.outside is not None:
                    states = (each.outside.before, each.outside.after)
                    outside.setdefault(each.space_id, set()).update(state for state in states if state is not None)
        self._git.collect(git)
        self._outside.collect(outside)
