"""What has arrived on a stream and was not read yet: bounded, without a socket, the same for both clients."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from bascule.admin.approvals import ApprovalView
from bascule.broker.protocol import Event, InboxItem
from bascule.client.answers import Note, read_note
from bascule.foundation.clock import Clock, rfc3339
from bascule.kernel.link_protocol import CREDIT_WINDOW
from bascule.wire import jsonrpc
from bascule.workspace.protocol import StreamedOutput

# About a second of a busy daemon's events. A reader further behind is told how many it missed.
MAX_EVENTS = 1_024
OVERFLOW_EVENT = "stream.overflow"
RESTART_EVENT = "stream.restarted"

T = TypeVar("T")


class Feed(Protocol[T]):
    @property
    def finished(self) -> bool:
        """Nothing can follow what has arrived: the stream need not be opened again."""

    def offer(self, item: T) -> None: ...

    def left_out(self, count: int) -> None:
        """The daemon did not send so many items: its own buffer for us was full."""

    def lost(self) -> None:
        """The stream broke off; it will be opened again."""

    def take(self) -> T | None: ...


class Opened(Generic[T]):
    """One opening of a stream: where a connection brings its notifications, until it is over."""

    def __init__(self, feed: Feed[T], news: Callable[[], None] = lambda: None) -> None:
        self._feed = feed
        self._news = news
        self.over = False

    def note(self, note: Note) -> None:
        if note.dropped:
            self._feed.left_out(note.dropped)
        elif note.item is not None:
            self._feed.offer(note.item)
        else:
            self.lost()
        self._news()

    def lost(self) -> None:
        if not self.over:
            self.over = True
            self._feed.lost()
            self._news()


class InboxFeed:
    """Messages under the daemon's lease, at most its credit window of them.

    A message whose lease is over is not handed out: the daemon has offered it again, to us or to another
    reader of the same inbox. One that is in a reader's hands comes again when the daemon says that its lease is
    over, but not because a new connection or a restarted daemon offers everything anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        # Ticket id -> end of lease, message.
        self._waiting: OrderedDict[str, tuple[float, InboxItem]] = OrderedDict()
        # Ticket id -> end of lease, opening of the stream that brought it.
        self._in_hand: dict[str, tuple[float, int]] = {}
        self._opening = 0

    @property
    def finished(self) -> bool:
        return False

    def offer(self, item: InboxItem) -> None:
        now = self._now()
        ends, opening = self._in_hand.get(item.ticket_id, (now, self._opening))
        if opening != self._opening and ends > now:
            return
        self._waiting[item.ticket_id] = (now + item.lease_ms / 1000, item)

    def left_out(self, count: int) -> None:
        """Cannot happen to an inbox: what is not sent keeps its place there."""

    def lost(self) -> None:
        # What we did not acknowledge is somebody's next message, perhaps another reader's.
        self._waiting.clear()
        self._opening += 1

    def take(self) -> InboxItem | None:
        now = self._now()
        while self._waiting:
            ticket_id, (ends, item) = self._waiting.popitem(last=False)
            if ends > now:
                self._forget_old(now)
                self._in_hand[ticket_id] = (ends, self._opening)
                return item
        return None

    def done(self, ticket_id: str) -> None:
        """Acknowledged, answered or given up: an offer of it from before is void, a later one counts."""
        self._in_hand.pop(ticket_id, None)
        self._waiting.pop(ticket_id, None)

    def _forget_old(self, now: float) -> None:
        """Readers that never acknowledge must not make us remember every message."""
        if len(self._in_hand) >= 2 * CREDIT_WINDOW:
            self._in_hand = {each: held for each, held in self._in_hand.items() if held[0] > now}


class EventFeed:
    """Lifecycle events. A slow reader loses the newest and gets an event in their place that says how many."""

    def __init__(self, clock: Clock, *, limit: int = MAX_EVENTS) -> None:
        self._clock = clock
        self._limit = limit
        self._events: deque[Event] = deque()
        self._missed = 0
        # The newest event id that came.
        self._last = 0
        # The life of the daemon that the ids belong to.
        self._life: tuple[int, str] | None = None

    @property
    def finished(self) -> bool:
        return False

    def offer(self, item: Event) -> None:
        self._last = item.id
        if len(self._events) >= self._limit:
            self._missed += 1
            return
        if self._missed:
            self._events.append(self._overflow())
        self._events.append(item)

    def left_out(self, count: int) -> None:
        self._missed += count

    def lost(self) -> None:
        """What has arrived stays true."""

    def opens(self, life: tuple[int, str], after: int | None) -> int | None:
        """Behind which event id to open the stream, at first `after` and later where it broke off.

        A daemon counts its events from 1: in another life (pid, start) the old numbers mean nothing.
        """
        before, self._life = self._life, life
        if before is None:
            return after
        if before != life:
            self._last = 0
            self._events.append(
                Event(
                    id=0,
                    event=RESTART_EVENT,
                    at=rfc3339(self._clock.wall_ms()),
                    detail="the daemon was restarted; the ledger has what happened before",
                )
            )
        return self._last

    def take(self) -> Event | None:
        if self._events:
            return self._events.popleft()
        return self._overflow() if self._missed else None

    def _overflow(self) -> Event:
        missed, self._missed = self._missed, 0
        return Event(
            id=self._last,
            event=OVERFLOW_EVENT,
            at=rfc3339(self._clock.wall_ms()),
            detail=f"{missed} events were left out because they were not read fast enough; the ledger has them",
        )


# Questions that wait at once, and the answers to them.
MAX_APPROVAL_NEWS = 4_096


class ApprovalFeed:
    """Questions to the person and what became of them; after a gap the daemon tells all that wait again."""

    finished = False

    def __init__(self, *, limit: int = MAX_APPROVAL_NEWS) -> None:
        self._news: deque[ApprovalView] = deque(maxlen=limit)

    def offer(self, item: ApprovalView) -> None:
        self._news.append(item)

    def left_out(self, count: int) -> None:
        """`bascule approvals` lists what waits, whatever was missed here."""

    def lost(self) -> None:
        """What has arrived stays true."""

    def take(self) -> ApprovalView | None:
        return self._news.popleft() if self._news else None


# How a run may end; `awaiting_approval` is not an end.
RUN_ENDS = frozenset({"completed", "error", "cancelled", "unknown"})
# Megabytes of output at most: a piece of it is a pipe's read.
MAX_RUN_ITEMS = 4_096


class RunFeed:
    """Events and output of one run. Output that is not read fast enough is left out and said so; events are not."""

    def __init__(self, *, limit: int = MAX_RUN_ITEMS) -> None:
        self._limit = limit
        self._items: deque[StreamedOutput] = deque()
        self._missed = 0
        # The newest item that came: where a stream that broke off goes on.
        self.last = 0
        self.finished = False

    def offer(self, item: StreamedOutput) -> None:
        if item.seq <= self.last:
            return
        self.last = item.seq
        if item.status in RUN_ENDS:
            self.finished = True
        if item.kind in ("stdout", "stderr") and len(self._items) >= self._limit:
            self._missed += 1
            return
        self._items.append(item)

    def left_out(self, count: int) -> None:
        self._missed += count

    def lost(self) -> None:
        """What has arrived stays true."""

    def take(self) -> StreamedOutput | None:
        if self._missed:
            missed, self._missed = self._missed, 0
            text = f"[{missed} pieces of output were left out because they were not read fast enough]"
            return StreamedOutput(seq=self.last, kind=OVERFLOW_EVENT, text=text)
        return self._items.popleft() if self._items else None


def pass_note(message: jsonrpc.Notification, streams: dict[int, Opened[Any]]) -> None:
    """To the stream it is for, which is forgotten with its last note; what is for none is for one we have left."""
    note = read_note(message)
    stream = streams.get(note.stream) if note is not None else None
    if stream is not None and note is not None:
        stream.note(note)
        if stream.over:
            del streams[note.stream]
