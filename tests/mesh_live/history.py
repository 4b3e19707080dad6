"""What agents on two machines saw of their tickets, and whether one order of home's steps explains it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bascule.broker.protocol import TRANSITIONS

_NEXT: dict[str, set[str]] = {}
for (_from, _event), _to in TRANSITIONS.items():
    _NEXT.setdefault(_from.value, set()).add(_to.value)


def _orders(begin: str = "pending") -> Iterator[tuple[str, ...]]:
    yield (begin,)
    for following in _NEXT.get(begin, ()):
        for rest in _orders(following):
            yield (begin, *rest)


ORDERS = tuple(_orders())


def fits_one_order(*views: Sequence[str]) -> bool:
    """Whether there is a way through home's table that each of them saw parts of, in its order."""
    return any(all(_is_part(view, order) for view in views) for order in ORDERS)


def _is_part(view: Iterable[str], order: Sequence[str]) -> bool:
    at = 0
    for status in view:
        while at < len(order) and order[at] != status:
            at += 1
        if at == len(order):
            return False
    return True


@dataclass
class Ask:
    """One question, as far as agents know: its key travels in the payload."""

    key: str
    home: str
    there: str
    # Its sender got a 200: it must not be lost.
    accepted: bool = False
    cancelled: bool = False
    # The reply that its sender was shown while it waited: that may be before it is on the sender's disk.
    shown: list[str] = field(default_factory=list)
    # What the sender was shown, in order; and the receiver, of the ticket that it got.
    home_saw: list[str] = field(default_factory=list)
    copy_saw: list[str] = field(default_factory=list)
    # How often it was handed to the agent, by the id that the ticket has there.
    got: Counter[str] = field(default_factory=Counter)
    # Handed over again although its reply had been taken.
    got_after_reply: int = 0
    # Replies that were tried, and those of them that the daemon there took (204).
    tried: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    # When all is quiet: how it stands at home and at the receiver, and the replies at home.
    end: str = ""
    copy_end: str = ""
    replies: list[str] = field(default_factory=list)


def faults_of(ask: Ask) -> list[str]:
    """What is wrong with one question when all is quiet; empty if nothing is."""
    return [*_lost(ask), *_twice(ask), *_disordered(ask)]


def _lost(ask: Ask) -> Iterator[str]:
    if ask.accepted and not ask.end:
        yield "lost: its home does not know it any more"
    if ask.accepted and ask.end != "cancelled" and not ask.got:
        yield f"lost: nobody got it; at home it is {ask.end}"
    missing = [reply for reply in ask.taken if reply not in ask.replies]
    if missing and ask.end != "cancelled":
        yield f"lost: the replies {missing} were taken and are not at home, where it is {ask.end}"
    if ask.end != "cancelled" and ask.shown != ask.replies[: len(ask.shown)]:
        yield f"lost: its sender was shown {ask.shown}, and at home are {ask.replies}"


def _twice(ask: Ask) -> Iterator[str]:
    if len(ask.got) > 1:
        yield f"twice: it came as {len(ask.got)} tickets"
    if ask.got_after_reply:
        yield "twice: it came again after its reply was taken"
    for reply, count in Counter(ask.replies).items():
        if count > 1:
            yield f"twice: the reply {reply} is at home {count} times"


def _disordered(ask: Ask) -> Iterator[str]:
    if not set(ask.replies) <= set(ask.tried):
        yield f"replies that nobody made: {ask.replies}, tried {ask.tried}"
    if [each for each in ask.tried if each in ask.replies] != ask.replies:
        yield f"replies in another order: {ask.replies}, tried {ask.tried}"
    if ask.copy_end and ask.copy_end != ask.end:
        yield f"no one order: it is {ask.end} at home and {ask.copy_end} at its copy"
    if not fits_one_order([*ask.home_saw, *_known(ask.end)], [*_confirmed(ask), *_known(ask.copy_end)]):
        yield f"no one order: home saw {ask.home_saw} and ends as {ask.end}, the copy saw {ask.copy_saw}"


def _known(end: str) -> list[str]:
    return [end] if end else []


def _confirmed(ask: Ask) -> list[str]:
    """What the copy saw, without its own reply when that crossed a cancel: until home's word comes it shows that one,
    and its agent is told that it was refused."""
    crossed = ask.end == "cancelled" and not ask.replies
    return [status for status in ask.copy_saw if not (crossed and status == "responded")]
