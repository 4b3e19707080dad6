"""Which run wrote each line of a file: from the file as it is, back through every version that a checkpoint holds.

Each piece of a run's work lies between two checkpoints. In the order of time they are a row of versions; where two
neighbours differ, the run that was at work between them wrote the difference, the one that began last if there were
several, and nobody that Bascule knows if there was none: a person, or a program that it does not see.

Where the file comes out of nothing it may have come from another one that was taken away between the same two states:
then that is the file before, and it is followed from there.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
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
    # The beginning of what the agent was asked, where that is kept (`native_keep_prompts`).
    prompt: str | None = None
    # As `runs.list` has it.
    approved_by: list[str] = []


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


class State(NamedTuple):
    """A tree of a space."""

    space_id: str
    tree: str


class Work(NamedTuple):
    """What a run did, in one piece: wall clock in ms, and the file before and after."""

    run_id: str
    began: int
    ended: int
    before: Version
    after: Version
    # Taken back: no work of it is left, if the file became again what it was before.
    undone: bool = False
    # Where `before` and `after` are from.
    states: tuple[State, State] | None = None


class Owner(NamedTuple):
    by: By
    run_id: str | None = None


class Point(NamedTuple):
    """A version at one end of a work; the first four make the order, which is the same for every file."""

    when: int
    began: int
    run_id: str
    ended: bool
    version: Version
    # None: as it is now.
    state: State | None = None

    @property
    def order(self) -> tuple[int, int, str, bool]:
        return self[:4]


class Came(NamedTuple):
    """The file was not there at `since`, and was at `until`."""

    since: Point
    until: Point


class Origin(NamedTuple):
    """The file that it was before: its version then, and the works as they are for that file."""

    version: str
    works: Sequence[Work]


class _Step(NamedTuple):
    since: Point
    until: Point
    owner: Owner


# Asks where a file came from, and is answered; ends with the owner of each line of the file as it is now.
Tracing: TypeAlias = Generator[Came, Origin | None, list[Owner]]


def blame(works: Sequence[Work], now: Version, read: Callable[[str], list[str]]) -> Tracing:
    newest = _lines(now, read)
    owners = [Owner("before")] * len(newest)
    # For each line of the version at hand its number in the newest, if it is there.
    numbers: list[int | None] = list(range(len(newest)))
    budget = Budget()
    new = newest
    steps = _steps(works, Point(NOW, NOW, "", ended=True, version=now))
    while steps and any(number is not None for number in numbers):
        step = steps.pop()
        older = step.since.version
        if older == NOT_HELD:
            for number in numbers:
                if number is not None:
                    owners[number] = Owner("not known")
            break
        if older is None:
            origin = yield Came(step.since, step.until)
            if origin is not None:
                older = origin.version
                steps = _steps(origin.works, step.since._replace(version=older))
        old = _lines(older, read)
        numbers_in_old: list[int | None] = []
        at = 0
        for change in changes(old, new, budget):
            for number in numbers[change.new_start : change.new_end]:
                if number is not None:
                    owners[number] = step.owner
            numbers_in_old += numbers[at : change.new_start]
            numbers_in_old += [None] * (change.old_end - change.old_start)
            at = change.new_end
        numbers = numbers_in_old + numbers[at:]
        new = old
    return owners


def resume(tracing: Tracing, origin: Origin | None) -> Came | list[Owner]:
    """Its next question, or the answer."""
    try:
        return tracing.send(origin)
    except StopIteration as end:
        owners: list[Owner] = end.value
        return owners


def shared(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines two files share; 0 unless those are at least half of each: then one may have been the other."""
    both = sum((Counter(old) & Counter(new)).values())
    return both if 2 * both >= max(len(old), len(new)) else 0


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


def _steps(works: Sequence[Work], last: Point) -> list[_Step]:
    """What changed the file until it was as at `last`, the oldest first."""
    works = [work for work in works if (work.began, work.began, work.run_id, False) <= last.order]
    kept = [work for work in works if not _is_taken_back(work, works, last.version)]
    points = [point for work in kept for point in _points(work) if point.order < last.order]
    points.sort(key=lambda point: point.order)
    found = []
    for since, until in pairwise([*points, last]):
        if since.version == until.version:
            continue
        at_work = [work for work in kept if work.began <= since.when and work.ended >= until.when]
        owner = Owner("run", max(at_work, key=lambda work: work.began).run_id) if at_work else Owner("nobody known")
        found.append(_Step(since, until, owner))
    return found


def _points(work: Work) -> tuple[Point, Point]:
    before, after = work.states or (None, None)
    return (
        Point(work.began, work.began, work.run_id, ended=False, version=work.before, state=before),
        Point(work.ended, work.began, work.run_id, ended=True, version=work.after, state=after),
    )


def _is_taken_back(work: Work, works: Sequence[Work], now: Version) -> bool:
    later = (each.before for each in works if each.began >= work.ended and each is not work)
    return work.undone and work.before in (now, *later)
