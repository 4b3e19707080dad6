"""What an agent's own tool changed and no checkpoint of the project holds: git's record, and what it named outside."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bascule.kernel.ports import NativeWork
from bascule.workspace.live import Run
from bascule.workspace.ports import CheckpointFault, GitStates, OutsideStore
from bascule.workspace.protocol import FileChange, PathReason
from bascule.workspace.records import GitSegment, OutsideSegment, RunRecord
from bascule.workspace.spaces import Space
from bascule.workspace.undos import Operation

# Refs named in a note.
MAX_REFS_NAMED = 20
GIT_UNKNOWN = "what it did to git's record is not known"


# What could not be put back, and contents that are older than the call: why what it made outside is not removed.
Keep = Callable[[Sequence[PathReason], Collection[bytes]], str | None]


class Back(NamedTuple):
    """What was put back."""

    changes: list[FileChange]
    left_alone: list[PathReason]
    # Files of git's record.
    refs: list[str]
    # What is not as it should be, now that it was looked at again.
    failed: list[PathReason]

    @property
    def note(self) -> str | None:
        return f"git's record: {', '.join(self.refs[:MAX_REFS_NAMED])}" if self.refs else None


class Segments(NamedTuple):
    """What is to be put back, and where."""

    space_id: str
    # The project's directory.
    root: str
    git: GitSegment | None
    outside: OutsideSegment | None
    # What lies here is not looked at: the project itself, where it was moved to.
    without: str | None
    # The last undo was this one, and was cut short.
    resumes: bool


class Elsewhere:
    """Blocks; called on threads."""

    def __init__(self, git: GitStates, outside: OutsideStore, moment: Callable[[], int]) -> None:
        self.git = git
        self.outside = outside
        self._moment = moment

    def keep_git(self, run: Run, space: Space) -> None:
        """Into its record, which is on disk before the call acts: a restart loses nothing."""
        before = self.git.take(space.space_id, space.record.path, further=run.repositories or ())
        run.record = msgspec.structs.replace(run.record, git_before=before, git_began=self._moment())

    def keep_outside(self, run: Run, space: Space, work: NativeWork) -> bool:
        """Whether anything inside of the project was named."""
        kept = self.outside.keep(space.space_id, space.record.path, work.writes, into=work.into)
        if kept.state is not None:
            run.record = msgspec.structs.replace(run.record, outside=OutsideSegment(before=kept.state))
        return kept.inside

    def look(self, run: Run, space: Space) -> None:
        """After the call: what differs stays in the run's record."""
        try:
            root = run.record.move.target if run.record.move is not None else space.record.path
            run.record = self.look_at_git(run.record, root)
        except CheckpointFault as error:
            run.record = msgspec.structs.replace(run.record, git_before=None)
            run.note = run.note or f"{GIT_UNKNOWN}: {error}"
        outside = run.record.outside
        if outside is None:
            return
        try:
            without = run.record.move.target if run.record.move is not None else None
            state = self.outside.look(space.space_id, outside.before, without=without)
            changed = self.outside.changes(space.space_id, outside.before, state)
        except CheckpointFault as error:
            run.note = run.note or f"what it did outside of the project is not known: {error}"
            return
        left = msgspec.structs.replace(outside, after=state) if changed else None
        run.record = msgspec.structs.replace(run.record, outside=left)

    def look_at_git(self, record: RunRecord, path: str, until_ms: int | None = None) -> RunRecord:
        """The record with what differs; without what changed later than `until_ms`, which is not its work."""
        before, after, git = record.git_before, None, None
        if before is not None:
            further = self.git.further(record.space_id, before)
            after = self.git.take(record.space_id, path, further=further, until_ms=until_ms)
        # Another repository by now: what became of the one that was there, `lost` says.
        if before and after and before != after and self.git.is_same(record.space_id, before, after):
            held = self.git.edits(record.space_id, before, after)
            # An index that git only refreshed is no change.
            if held or self.git.not_held(record.space_id, path, before, after):
                git = GitSegment(before=before, after=after, began=record.git_began, ended=self._moment())
        return msgspec.structs.replace(record, git=git, git_before=None)

    def changes(self, record: Operation) -> list[FileChange]:
        outside = record.outside
        if outside is None or outside.after is None:
            return []
        return self.outside.changes(record.space_id, outside.before, outside.after)

    def rehearse(self, segments: Segments) -> Back:
        """What `put_back` will do."""
        refs: list[str] = []
        further: list[PathReason] = []
        space_id, root, git, outside, without, resumes = segments
        if git is not None:
            refs, left = self.git.undo(space_id, root, git.before, git.after, dry_run=True)
            further = _named(left)
        further = _joined(self._further(segments), further)
        if outside is None:
            return Back([], further, refs, [])
        there = self.outside.undo(
            space_id, outside.before, outside.after, dry_run=True, without=without, resumes=resumes
        )
        return Back(there.changes, [*further, *there.left_alone], refs, [])

    def _further(self, segments: Segments) -> list[PathReason]:
        """Of repositories: their files come back, and this does not."""
        git = segments.git
        found = self.git.not_held(segments.space_id, segments.root, git.before, git.after) if git is not None else {}
        return [PathReason(path=each, reason=reason) for each, reason in found.items()]

    def contents(self, segments: Segments) -> Collection[bytes]:
        """What `put_back` holds of files outside, as ids of git's blobs."""
        outside = segments.outside
        return self.outside.contents(segments.space_id, outside.before) if outside is not None else ()

    def expect(self, segments: Segments) -> tuple[GitSegment | None, OutsideSegment | None]:
        """What is there now, and what `put_back` will leave. All of it is on disk."""
        space_id, root, git, outside, without, resumes = segments
        if git is not None:
            now, then = self.git.expect(space_id, root, git.before, git.after)
            git = GitSegment(before=now, after=then)
        if outside is not None:
            now, then = self.outside.expect(space_id, outside.before, outside.after, without=without, resumes=resumes)
            outside = OutsideSegment(before=now, after=then)
        return git, outside

    def put_back(self, segments: Segments, keep: Keep) -> Back:
        """`keep` is asked before what the call made outside is removed."""
        space_id, root, git, outside, without, resumes = segments
        refs: list[str] = []
        failed: list[PathReason] = []
        if git is not None:
            refs, left = self.git.undo(space_id, root, git.before, git.after, dry_run=False)
            failed = _named(left)
        further = self._further(segments)
        # What no state holds cannot be put back by trying again.
        failed = [each for each in failed if each not in further]
        if outside is None:
            return Back([], further, refs, failed)
        there = self.outside.undo(
            space_id,
            outside.before,
            outside.after,
            dry_run=False,
            without=without,
            resumes=resumes,
            # A mode is no content: what is outside may go all the same.
            keep=lambda here, older: keep([*failed, *(each for each in further if each.path != ".git"), *here], older),
        )
        return Back(there.changes, [*further, *there.left_alone], refs, [*failed, *there.failed])

    def collect(
        self,
        spaces: Iterable[str],
        operations: Iterable[Operation],
        live: Mapping[str, Run],
    ) -> None:
        """Drop what no kept run of these spaces needs."""
        git: dict[str, set[str]] = {space_id: set() for space_id in spaces}
        outside: dict[str, set[str]] = {space_id: set() for space_id in git}
        for operation in operations:
            run = live.get(operation.run_id)
            for each in (operation, run.record) if run is not None else (operation,):
                states: list[str | None] = [each.git_before] if isinstance(each, RunRecord) else []
                if each.git is not None:
                    states += [each.git.before, each.git.after]
                git.setdefault(each.space_id, set()).update(filter(None, states))
                if each.outside is not None:
                    named = (each.outside.before, each.outside.after)
                    outside.setdefault(each.space_id, set()).update(filter(None, named))
        self.git.collect(git)
        self.outside.collect(outside)


def _named(left: Mapping[str, str]) -> list[PathReason]:
    """Of git's record, as files are named."""
    return [PathReason(path=name if name == ".git" else f".git/{name}", reason=why) for name, why in left.items()]


def _joined(first: list[PathReason], second: list[PathReason]) -> list[PathReason]:
    return [*first, *(each for each in second if each not in first)]
