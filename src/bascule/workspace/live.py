"""A run that is not over: what it has before it, what it has said, and who waits for it."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.kernel.call import Call, Principal
from bascule.kernel.consent.records import Approval
from bascule.kernel.effects import RecordedEffect
from bascule.workspace.feeds import Feed
from bascule.workspace.ports import Checkpoints, Root, Sandbox
from bascule.workspace.processes import Process
from bascule.workspace.protocol import (
    SPACES_PROTOCOL_VERSION,
    Category,
    Event,
    EventsMessage,
    LiveRunStatus,
    MessageOperation,
    ReadFileOperation,
)
from bascule.workspace.records import AWAITING, ENDED, RUNNING, RunQuestion, RunRecord, Segment, Step


class Stop(NamedTuple):
    """Why a run ends before its last operation, as its events and its record say it."""

    category: Category
    sentence: str
    status: str


class Unfinished(NamedTuple):
    """An executed operation; its record is written with that of the next one's beginning."""

    effect: RecordedEffect
    outcome: str


class Copy(NamedTuple):
    """A workspace of its own, made from a checkpoint."""

    directory: str
    tree: str
    root: Root
    sandbox: Sandbox
    checkpoints: Checkpoints


class Run:
    def __init__(
        self,
        record: RunRecord,
        steps: list[Step],
        events: list[Event],
        event_bytes: int = 0,
        *,
        max_event_bytes: int,
    ) -> None:
        self.record = record
        # Those that have no event yet; `at` is the next one's place.
        self.steps = steps
        self.at = 0
        # What was sent and not looked at yet: operations, and their ids.
        self.unparsed: tuple[list[Any], list[str]] | None = None
        self.events = events
        self.event_bytes = event_bytes
        # Its answer is read in one piece.
        self.max_event_bytes = max_event_bytes
        self.saved = len(events)
        self.feed = Feed(record.seq)
        self.waiters: dict[Deferred[EventsMessage], None] = {}
        self.stop: Stop | None = None
        # Some of its events were undone with a write that failed.
        self.lost = False
        self.turn: Deferred[None] | None = None
        self.process: Process | None = None
        self.unfinished: Unfinished | None = None
        self.answer: Approval | None = None
        # Files that the next command runs, by the digest that was approved.
        self.sealed: dict[str, str] = {}
        # What it left that other programs of the user obey.
        self.steering: list[str] = list(record.steering)
        # Its last segment is open: there is a checkpoint from before its first change since it has its turn.
        self.is_open = False
        # Every `.git` when that was taken; None where that is not known.
        self.repositories: Mapping[str, int] | None = None
        # Of a native call: the project's directory as it was then, wherever it is by now, and its mode.
        self.root: Root | None = None
        self.root_mode = 0
        # When it was opened.
        self.opened_ms = 0
        # No checkpoint could be taken since it has its turn.
        self.without_checkpoint = False
        # The next note that it is still there.
        self.heartbeat_timer: asyncio.TimerHandle | None = None
        # Paths that undo cannot put back, and why.
        self.not_undoable: dict[str, str] = {}
        self.segments: list[Segment] = list(record.segments)
        self.note: str | None = record.note
        self.would_ask = record.would_ask
        # Of a native call: its end is under way; or its client has reported the end, and a process of it still runs.
        self.ending = False
        self.left_running: str | None = None
        # Until either is known.
        self.settling: asyncio.Future[None] | None = None
        # What it was asked before `answer` came.
        self.asked: RunQuestion | None = None
        # The workspace it works in, when that is a copy.
        self.copy: Copy | None = None
        # Since when it works, on the loop's clock; what is before that is in its record.
        self.working_since: float | None = None

    @property
    def run_id(self) -> str:
        return self.record.run_id

    @property
    def principal(self) -> Principal:
        return Principal(self.record.started_by)

    @property
    def open_segment(self) -> Segment | None:
        return self.segments[-1] if self.is_open else None

    @property
    def changes(self) -> bool:
        """Whether any operation left may change the workspace: then it needs a turn."""
        return any(
            step.operation is not None and not isinstance(step.operation, MessageOperation | ReadFileOperation)
            for step in self.steps[self.at :]
        )

    def call(self, method: str, params: Any) -> Call:
        """An operation as a call of the principal that started the run."""
        return Call(self.principal, method, params, door="run")

    def count_work(self, now: float) -> None:
        """Into the record, before the record is kept: when it pauses, and when it ends."""
        if self.working_since is not None:
            worked = round((now - self.working_since) * 1000)
            self.record = msgspec.structs.replace(self.record, worked_ms=self.record.worked_ms + worked)
            self.working_since = now

    def end_early(self, stop: Stop) -> None:
        """What runs is ended, what waits its turn does not wait any longer; the first reason counts."""
        if self.stop is not None:
            return
        self.stop = stop
        if self.turn is not None:
            self.turn.cancel()
        if self.process is not None and self.process.running is not None:
            self.process.running.stop()

    def message(self) -> EventsMessage:
        question = self.record.question
        waiting = [question.event] if question is not None and self.record.status == AWAITING else []
        return events_message(self.run_id, self.record.status, [*self.events, *waiting], self.record.steering)

    def answer_waiters(self) -> None:
        """The run is over, or asks: answer its waiters."""
        waiters, self.waiters = self.waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(self.message())


def events_message(run_id: str, status: str, events: list[Event], steering: tuple[str, ...] = ()) -> EventsMessage:
    shown: LiveRunStatus
    match status:
        case "running" | "completed" | "awaiting_approval":
            shown = status
        case _:
            shown = "error"
    return EventsMessage(
        protocol_version=SPACES_PROTOCOL_VERSION,
        run_id=run_id,
        status=shown,
        events=events,
        steering=list(steering),
    )


def is_over(record: RunRecord) -> bool:
    return record.status in ENDED


def now_running(record: RunRecord) -> RunRecord:
    return msgspec.structs.replace(record, status=RUNNING, question=None)
