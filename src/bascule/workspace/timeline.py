"""What happened in a project, in one order: what an undo takes back, and what a blame reads.

An operation (a run, or an undo) worked between two states. Where several worked at the same time, what changed between
two neighbouring states counts for the one that began last, unless the paths that a call named say otherwise. So the
history is a list of pieces, each between two states. For one path it is a stack of edits: who took it from one value to
another. What changed between two pieces, or since the last one, is an edit of nobody that Bascule saw: a person's.

An undo of some operations takes their edits from the top of each stack, and stops at the first edit of somebody else:
what is below that cannot be taken back without losing it.

Three parts of a project have such a history: its tree, git's record, and what calls named outside of it. A path is a
key of the part, and a value is anything that can be compared; None is that nothing is there.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Generic, NamedTuple, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
# Of each path that differs between the two states of a piece, its value in both.
Changed: TypeAlias = Mapping[K, tuple[V | None, V | None]]

CHANGED_SINCE = "was changed since"
CHANGED_LATER = "was changed later by"


class Work(NamedTuple):
    """What an operation did, in one piece; times are only compared, and no two are the same."""

    operation: str
    began: int
    ended: int
    before: str
    after: str
    # Of an undo: the operations that it took back.
    undoes: frozenset[str] = frozenset()
    # The only paths that it may have written; None: any.
    names: frozenset[Hashable] | None = None


class Piece(NamedTuple):
    """Two states, and who worked between them, the one that began last first."""

    before: str
    after: str
    at_work: tuple[Work, ...]

    def worker(self, key: Hashable) -> Work | None:
        """Whose work it is that this path changed; None: of none that was at work."""
        able = [work for work in self.at_work if work.names is None or key in work.names]
        named = (work for work in able if work.names is not None)
        return next(named, able[0] if able else None)


class Edit(NamedTuple, Generic[V]):
    # None: nobody that Bascule saw.
    operation: str | None
    old: V | None
    new: V | None
    # The state that has `old`.
    before: str


class WayBack(NamedTuple, Generic[V]):
    """What is to become of one path."""

    # As the last of the chosen operations left it, and as it was before all of them that can be taken back.
    expected: V | None
    wanted: V | None
    # The state that has `wanted`; empty when nothing can be taken back.
    source: str
    # What stays, newest first: the edit of somebody else, and below it what the chosen operations did before that.
    stays: tuple[Edit[V], ...]

    @property
    def why(self) -> str | None:
        """Why something of the chosen operations stays."""
        if not self.stays:
            return None
        who = self.stays[0].operation
        since = f"{CHANGED_LATER} {who}" if who is not None else CHANGED_SINCE
        return (
            since if not self.source else f"{since}, after a part of what is taken back; only what came after that is"
        )


class Selection(NamedTuple):
    """Which operations are to be taken back, out of all that worked since the first of them began."""

    pieces: Sequence[Piece]
    chosen: frozenset[str]


def pieces_of(works: Iterable[Work]) -> list[Piece]:
    """The oldest first. Between two that did not overlap there is no piece: whatever changed there is nobody's."""
    points: list[tuple[int, str, Work]] = []
    for work in works:
        points += [(work.began, work.before, work), (work.ended, work.after, work)]
    points.sort(key=lambda point: point[0])
    found: list[Piece] = []
    at_work: list[Work] = []
    for (_, state, work), (_, following, _) in pairwise(points):
        if work in at_work:
            at_work.remove(work)
        else:
            at_work.append(work)
        if at_work and state != following:
            found.append(Piece(state, following, tuple(sorted(at_work, key=lambda each: -each.began))))
    return found


def edits(
    selection: Selection, changed: Callable[[Piece], Changed[K, V]], wanted: Callable[[K], bool] = lambda _key: True
) -> dict[K, list[Edit[V]]]:
    """The history of each path, the oldest edit first, without those that were taken back and are so still.

    Chosen undos count as any other operation: what they did is what is to be taken back.
    """
    found: dict[K, list[Edit[V]]] = {}
    swaps: dict[tuple[str, K], tuple[list[Edit[V]], list[Edit[V]]]] = {}
    for piece in selection.pieces:
        for key, (old, new) in changed(piece).items():
            if not wanted(key):
                continue
            stack = found.setdefault(key, [])
            _changed_by_nobody(stack, old)
            work = piece.worker(key)
            if work is not None and work.undoes and work.operation not in selection.chosen:
                swap = _taken_back(stack, work.undoes, new, (swaps.get((each, key)) for each in work.undoes))
                if swap is not None:
                    gone, come = swap
                    stack[len(stack) - len(gone) :] = come
                    swaps[work.operation, key] = swap
                    continue
            stack.append(Edit(work.operation if work is not None else None, old, new, piece.before))
    return found


def ways_back(
    histories: Mapping[K, Sequence[Edit[V]]], chosen: AbstractSet[str], now: Callable[[K], V | None]
) -> Iterator[tuple[K, WayBack[V]]]:
    """Of each path that the chosen operations changed, and that is not again as it was before them."""
    for key, history in histories.items():
        if not any(edit.operation in chosen for edit in history):
            continue
        stack = list(history)
        value = now(key)
        if value != stack[-1].new:
            _cut_back(stack, value)
        top = len(stack)
        while top and stack[top - 1].operation in chosen:
            top -= 1
        below = tuple(reversed(stack[:top])) if any(edit.operation in chosen for edit in stack[:top]) else ()
        if top < len(stack):
            yield key, WayBack(stack[-1].new, stack[top].old, stack[top].before, below)
        elif below:
            yield key, WayBack(stack[-1].new, stack[-1].new, "", below)


def _changed_by_nobody(stack: list[Edit[V]], value: V | None) -> None:
    """Between two pieces: to a value that the path had before, which ends all since, or to another."""
    if stack and stack[-1].new != value and not _cut_back(stack, value):
        stack.append(Edit(None, stack[-1].new, value, ""))


def _cut_back(stack: list[Edit[V]], value: V | None) -> bool:
    for number in range(len(stack) - 1, -1, -1):
        if stack[number].old == value:
            del stack[number:]
            return True
    return False


def _taken_back(
    stack: Sequence[Edit[V]],
    undoes: AbstractSet[str],
    new: V | None,
    swaps: Iterable[tuple[list[Edit[V]], list[Edit[V]]] | None],
) -> tuple[list[Edit[V]], list[Edit[V]]] | None:
    """The edits that an undo took from the stack, and those that it put there again: it took back an undo of them."""
    for gone, come in filter(None, swaps):
        below = stack[: len(stack) - len(come)]
        again = gone[-1].new if gone else below[-1].new if below else come[0].old
        if list(stack[len(below) :]) == come and again == new:
            return come, gone
    first = len(stack)
    while first and stack[first - 1].operation in undoes:
        first -= 1
        if stack[first].old == new:
            return list(stack[first:]), []
    return None
