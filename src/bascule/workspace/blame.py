"""Which run wrote each line of a file: from the file as it is, back through every version that a checkpoint holds.

Each piece of a run's work lies between two checkpoints. In the order of time they are a row of versions; where two
neighbours differ, the run that was at work between them wrote the difference, the one that began last if there were
several, and nobody that Bascule knows if there was none: a person, or a program that it does not see.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from bascule.kernel.rows import Params, Result
from bascule.workspace.lines import Budget, changes
from bascule.workspace.protocol import Path, SpaceRef
from bascule.workspace.run_list import NativeView

# A file with more is none that people wrote.
MAX_LINES = 50_000
# Later than any time.
NOW = sys.maxsize
# In place of a content's id: no checkpoint holds the file, because it is too large, or shut.
NOT_HELD = "not held"
# A version of the file: the id of its content, None where there is no such file, or NOT_HELD.
Version: TypeAlias = str | None
By: TypeAlias = Literal["run", "before", "nobody known", "not known"]


class BlameParams(Params, frozen=True, kw_only=True):
    space_id: SpaceRef
    path: Path


class BlamedRun(Result, frozen=True, kw_only=True):
    run_id: str
    started_by: str
    started_at: str
    # Its first command, where it had one, cut.
    title: str | None = None
    # What an agent's own tool did: which client's, in which session, and the command or the paths.
    native: NativeView | None = None


class BlamedLines(Result, frozen=True, kw_only=True):
    first: Annotated[int, Meta(ge=1)]
    last: int
    # `before`: every checkpoint that is kept has them. `nobody known`: they came while no run was at work.
    # `not known`: older than a checkpoint that does not hold the file.
    by: By
    run_id: str | None = None


class BlameResult(Result, frozen=True, kw_only=True):
    path: str
    lines: list[BlamedLines]
    # Those that `lines` names, the newest first.
    runs: list[BlamedRun]


class Work(NamedTuple):
    """What a run did, in one piece: wall clock in ms, and the file before and after."""

    run_id: str
    began: int
    ended: int
    before: Version
    after: Version
    # Taken back: no work of it is left, if the file became again what it was before.
    undone: bool = False


class Owner(NamedTuple):
    by: By
    run_id: str | None = None


class _Step(NamedTuple):
    old: Version
    new: Version
    owner: Owner


def blame(works: Sequence[Work], now: Version, read: Callable[[str], list[str]]) -> list[Owner]:
    """The owner of each line of the file as it is now."""
    newest = _lines(now, read)
    owners = [Owner("before")] * len(newest)
    # For each line of the version at hand its number in the newest, if it is there.
    numbers: list[int | None] = list(range(len(newest)))
    budget = Budget()
    new = newest
    for step in reversed(_steps(works, now)):
        if step.old == NOT_HELD:
            for number in numbers:
                if number is not None:
                    owners[number] = Owner("not known")
            break
        old = _lines(step.old, read)
        older: list[int | None] = []
        at = 0
        for change in changes(old, new, budget):
            for number in numbers[change.new_start : change.new_end]:
                if number is not None:
                    owners[number] = step.owner
            older += numbers[at : change.new_start]
            older += [None] * (change.old_end - change.old_start)
            at = change.new_end
        numbers = older + numbers[at:]
        new = old
        if not any(number is not None for number in numbers):
            break
    return owners


def spans(owners: Iterable[Owner]) -> list[BlamedLines]:
    found: list[BlamedLines] = []
    first = 1
    owners = list(owners)
    for number, owner in enumerate(owners, 1):
        if number == len(owners) or owners[number] != owner:
            found.append(BlamedLines(first=first, last=number, by=owner.by, run_id=owner.run_id))
            first = number + 1
    return found


def _lines(version: Version, read: Callable[[str], list[str]]) -> list[str]:
    return read(version) if version is not None and version != NOT_HELD else []


def _steps(works: Sequence[Work], now: Version) -> list[_Step]:
    """What changed the file, the oldest first."""
    kept = [work for work in works if not _is_taken_back(work, works, now)]
    points = sorted(
        (when, number, ended, version)
        for number, work in enumerate(kept)
        for when, ended, version in ((work.began, False, work.before), (work.ended, True, work.after))
    )
    found = []
    for (since, _, _, old), (until, _, _, new) in pairwise([*points, (NOW, 0, True, now)]):
        if old == new:
            continue
        at_work = [work for work in kept if work.began <= since and work.ended >= until]
        owner = Owner("run", max(at_work, key=lambda work: work.began).run_id) if at_work else Owner("nobody known")
        found.append(_Step(old, new, owner))
    return found


def _is_taken_back(work: Work, works: Sequence[Work], now: Version) -> bool:
    later = (each.before for each in works if each.began >= work.ended and each is not work)
    return work.undone and work.before in (now, *later)
