"""What happened in a project, in one order: what an undo takes back, and what a blame reads.

An operation (a run, or an undo) worked between two states. So the history is a list of pieces, each between two
neighbouring states. For one path it is a stack of edits: who took it from one value to another. What changed between
two pieces, or since the last one, is an edit of nobody that Bascule saw: a person's.

Where several worked at the same time, a path counts for the one that is known to write it, else for the one whose
command names it, else for the one that began last; what a server does in the background comes last. Where this leaves
several actors, all others that may have done it are its rivals.

An undo of some operations takes their edits from the top of each stack, and stops at the first edit of somebody else:
what is below that cannot be taken back without losing it. An edit with a rival that is not to be taken back is somebody
else's, unless the path was named on purpose.

Three parts of a project have such a history: its tree, git's record, and what calls named outside of it. A path is a
key of the part, and a value is anything that can be compared; None is that nothing is there.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, pairwise, takewhile
from typing import Generic, NamedTuple, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
# Of each path that differs between the two states of a piece, its value in both.
Changed: TypeAlias = Mapping[K, tuple[V | None, V | None]]


# Why what somebody else changed stays.
CHANGED_SINCE = "was changed since"


class Work(NamedTuple):
    """What an operation did, in one piece; times are only compared, and no two are the same."""

    operation: str
    began: float
    ended: float
    before: str
    after: str
    # Of an undo: the operations that it took back.
    undoes: frozenset[str] = frozenset()
    # Whose work it is: a session's, an agent's.
    actor: str = ""
    # The only paths that it may have written; None: any.
    names: frozenset[Hashable] | None = None
    # What its command names: a path may be one of these, or lie in it; an empty one holds all.
    mentions: tuple[bytes, ...] = ()
    # It went on by itself, beside whatever was done meanwhile.
    background: bool = False

    def mentioned(self, key: Hashable) -> bool:
        above = [each + b"/" for each in self.mentions if each]
        return isinstance(key, bytes) and (b"" in self.mentions or any((key + b"/").startswith(each) for each in above))


class Piece(NamedTuple):
    """Two states, and who worked between them, the one that began last first."""

    before: str
    after: str
    at_work: tuple[Work, ...]

    def able(self, key: Hashable) -> tuple[list[Work], list[Work]]:
        """Whose work it can be that this path changed, and whose it most likely is; the one that began last first."""
        able = [work for work in self.at_work if work.names is None or key in work.names]
        able = [work for work in able if work.names is not None] or able
        likely = [work for work in able if work.mentioned(key)] or able
        return able, [work for work in likely if not work.background] or likely


class Edit(NamedTuple, Generic[V]):
    # None: nobody that Bascule saw.
    operation: str | None
    old: V | None
    new: V | None
    # The state that has `old`; empty of an edit of nobody.
    before: str
    # Operations that may have done it instead, and those of them that are another actor's.
    rivals: frozenset[str] = frozenset()
    of_others: frozenset[str] = frozenset()

    def is_of(self, chosen: AbstractSet[str], *, sure: bool) -> bool:
        return self.operation in chosen and (sure or self.of_others <= chosen)

    def may_be_of(self, chosen: AbstractSet[str]) -> bool:
        return self.operation in chosen or not self.rivals.isdisjoint(chosen)


class WayBack(NamedTuple, Generic[V]):
    """What is to become of one path."""

    # As the last of the chosen operations left it, and as it was before all of them that can be taken back.
    expected: V | None
    wanted: V | None
    # What is taken back, the oldest first. None: nothing of this path can be.
    back: tuple[Edit[V], ...]
    # What stays, newest first: the edit of somebody else, and below it what the chosen operations did before that.
    stays: tuple[Edit[V], ...]

    def merged(self, chosen: AbstractSet[str], *, sure: bool) -> Iterator[tuple[V | None, V | None]]:
        """Of what stays each stretch of the chosen operations, newest first: as it left the path, and as it was."""
        for is_chosen, stretch in groupby(self.stays, key=lambda edit: edit.is_of(chosen, sure=sure)):
            if is_chosen:
                edits_of_it = list(stretch)
                yield edits_of_it[0].new, edits_of_it[-1].old


class Selection(NamedTuple):
    """Which operations are to be taken back, out of all that worked since the first of them began."""

    pieces: Sequence[Piece]
    chosen: frozenset[str]
    # The paths were named: what may be the work of others is meant as well.
    sure: bool = False


def pieces_of(works: Iterable[Work]) -> list[Piece]:
    """The oldest first. Between two that did not overlap there is no piece: whatever changed there is nobody's."""
    points: list[tuple[float, str, Work]] = []
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


def beginning(began: Mapping[str, float], undoes: Mapping[str, AbstractSet[str]], chosen: AbstractSet[str]) -> float:
    """From when on a history has to be known: an undo later than that may have taken back something earlier, too."""
    since = min(began[each] for each in chosen)
    while True:
        later = (targets for undo, targets in undoes.items() if began[undo] >= since)
        earlier = min((began[each] for targets in later for each in targets if each in began), default=since)
        if earlier >= since:
            return since
        since = earlier


def edits(
    selection: Selection, changed: Callable[[Piece], Changed[K, V]], wanted: Callable[[K], bool] = lambda _key: True
) -> dict[K, list[Edit[V]]]:
    """The history of each path, the oldest edit first, without those that were taken back and are so still.

    Chosen undos count as any other operation: what they did is what is to be taken back.
    """
    found: dict[K, list[Edit[V]]] = {}
    swaps: dict[tuple[str, K], tuple[list[Edit[V]], list[Edit[V]]]] = {}
    began = {work.operation: work.began for piece in selection.pieces for work in piece.at_work}
    for piece in selection.pieces:
        for key, (old, new) in changed(piece).items():
            if not wanted(key):
                continue
            stack = found.setdefault(key, [])
            _changed_by_nobody(stack, old)
            able, likely = piece.able(key)
            work = likely[0] if likely else None
            if work is not None and work.undoes and work.operation not in selection.chosen:
                targets = sorted(work.undoes, key=lambda each: -began.get(each, 0))
                swap = _taken_back(stack, [(each, swaps.get((each, key))) for each in targets], old, new)
                if swap is not None:
                    gone, come = swap
                    stack[len(stack) - len(gone) :] = come
                    swaps[work.operation, key] = swap
                    continue
            stack.append(_edit(able, likely, old, new, piece.before))
    return found


def ways_back(
    selection: Selection,
    histories: Mapping[K, Sequence[Edit[V]]],
    now: Mapping[K, V | None],
    same: Callable[[K, V | None, V | None], bool],
) -> Iterator[tuple[K, WayBack[V]]]:
    """Of each path that the chosen operations changed, or may have, and that is not again as it was before them."""
    chosen, sure = selection.chosen, selection.sure
    for key, history in histories.items():
        if not any(edit.may_be_of(chosen) for edit in history):
            continue
        stack = list(history)
        if not same(key, stack[-1].new, now[key]):
            _changed_by_nobody(stack, now[key])
        top = len(stack)
        while top and stack[top - 1].is_of(chosen, sure=sure):
            top -= 1
        below = tuple(reversed(stack[:top])) if any(edit.may_be_of(chosen) for edit in stack[:top]) else ()
        if top < len(stack):
            yield key, WayBack(stack[-1].new, stack[top].old, tuple(stack[top:]), below)
        elif below:
            yield key, WayBack(stack[-1].new, stack[-1].new, (), below)


def changed_by(history: Sequence[Edit[V]], is_run: Callable[[str], bool]) -> str | None:
    """The last run that changed a path, and that is not taken back."""
    return next((edit.operation for edit in reversed(history) if edit.operation and is_run(edit.operation)), None)


def _edit(able: Sequence[Work], likely: Sequence[Work], old: V | None, new: V | None, before: str) -> Edit[V]:
    if not likely:
        return Edit(None, old, new, before)
    rivals = frozenset(work.operation for work in able if work != likely[0])
    others = frozenset(work.operation for work in likely if work.actor != likely[0].actor)
    return Edit(likely[0].operation, old, new, before, rivals, others)


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
    targets: Sequence[tuple[str, tuple[list[Edit[V]], list[Edit[V]]] | None]],
    old: V | None,
    new: V | None,
) -> tuple[list[Edit[V]], list[Edit[V]]] | None:
    """The edits that an undo took from the stack, and those that it put there again: it took back an undo of them.

    `targets`: what it took back, the newest first, each undo with what that did to the stack.
    """
    left = list(stack)
    start = stack[0].old if stack else old

    def value(edits: Sequence[Edit[V]]) -> V | None:
        return edits[-1].new if edits else start

    for target, swap in targets:
        gone, come = swap or ([], [])
        below = left[: len(left) - len(come)]
        if left[len(below) :] == come and (not gone or gone[0].old == value(below)):
            left = below + gone
        while left and left[-1].operation == target:
            left.pop()
    if left != list(stack) and value(left) == new:
        kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(stack, left, strict=False)))
        return list(stack[kept:]), left[kept:]
    # A part of them: something else was in the way.
    undoes = {target for target, _ in targets}
    first = len(stack)
    while first and stack[first - 1].operation in undoes:
        first -= 1
        if stack[first].old == new:
            return list(stack[first:]), []
    return None
