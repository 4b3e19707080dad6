"""Runs: started, followed, answered, ended. The `runner` executes them."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES, MAX_WAIT_MS
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Conflict, Overloaded, StorageFull
from bascule.foundation.ids import new_id
from bascule.foundation.stream import Stream
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Call, Principal, shown_by
from bascule.kernel.effects import BegunRow
from bascule.kernel.gate import Gate
from bascule.kernel.journal import Journal, Transaction
from bascule.workspace.events import EventFactory
from bascule.workspace.feeds import Feed
from bascule.workspace.limits import WorkspaceLimits
from bascule.workspace.live import Run, Stop, events_message, is_over
from bascule.workspace.news import News
from bascule.workspace.pausing import Pausing
from bascule.workspace.protocol import (
    CancelRunParams,
    EventsMessage,
    ResumeParams,
    RunIdParams,
    RunParams,
    RunStreamParams,
    RunWaitParams,
    StreamedOutput,
)
from bascule.workspace.records import (
    AWAITING,
    CANCELLED,
    ERROR,
    RUNNING,
    RunPlan,
    RunRecord,
)
from bascule.workspace.recovery import Recovery
from bascule.workspace.runbook import RunBook
from bascule.workspace.runner import Runner
from bascule.workspace.spaces import Space, Spaces
from bascule.workspace.steps import declared_type, steps_of
from bascule.workspace.threads import Threads
from bascule.workspace.validation import BadOperation, check_message, operation_ids

# Operations that are looked at in the turn of the loop that takes the message; more of them are read on a thread.
MAX_READ_AT_ONCE = 32
# Of a frame beside the events in it.
_ENVELOPE_BYTES = 64 * 1024
# Streams of runs that ended lately, for readers whose connection broke.
KEPT_FEEDS = 32


class Runs:
    def __init__(
        self,
        *,
        book: RunBook,
        spaces: Spaces,
        gate: Gate,
        journal: Journal,
        clock: Clock,
        limits: WorkspaceLimits,
        tasks: Tasks,
        threads: Threads,
        event_factory: EventFactory,
        news: News,
    ) -> None:
        self.book = book
        self._spaces = spaces
        self._gate = gate
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._tasks = tasks
        self._threads = threads
        self._event_factory = event_factory
        self._news = news
        # Put in by the service: the two need each other.
        self.runner: Runner | None = None
        # Prepares and takes down the copy of a run that works on one.
        self.make_copy: Callable[[Run, Space], Any] | None = None
        self.drop_copy: Callable[[Run], Any] | None = None
        # Ends the run of an agent's own tool, which no task of ours works on.
        self.end_native: Callable[[Run], None] | None = None
        self.live: dict[str, Run] = {}
        book.live = self.live
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._waits: Counter[Principal] = Counter()
        # Ended, but the store could not be written: kept here and tried again by `sweep`.
        self._unsaved: dict[str, Run] = {}
        self._stopping = False
        self._recovery = Recovery(book, gate, journal, clock)
        self._pausing = Pausing(
            book=book,
            gate=gate,
            journal=journal,
            limits=limits,
            event_factory=event_factory,
            live=self.live,
            go_on=self._go_on,
            news=news,
        )
        self.pause = self._pausing.pause

    # -- starting --

    def start(self, call: Call, params: RunParams, tx: Transaction) -> EventsMessage | None:
        space = self._spaces.find(params.space_id)
        try:
            items = check_message(params.protocol_version, params.operations)
        except BadOperation as error:
            # In the protocol's own form; nothing was done, so nothing is recorded.
            return self.invalid(str(error))
        self.begin(call, tx, space, list(items), wait_ms=params.wait_ms, on_copy=params.on_copy)
        return None

    def begin(
        self,
        call: Call,
        tx: Transaction,
        space: Space,
        items: list[Any],
        *,
        wait_ms: int | None = None,
        on_copy: bool = False,
    ) -> None:
        """The run is in the store when `tx` is; then it works, and the caller waits for the answer."""
        self._check_room(call.principal, space)
        self._check_waits(call.principal)
        plan = RunPlan(ids=operation_ids(items), types=[declared_type(item) for item in items])
        record = RunRecord(
            run_id=new_id("run"),
            space_id=space.space_id,
            number=self.book.number + 1,
            started_by=call.principal,
            started_at=self._clock.wall_ms(),
            status=RUNNING,
            operations=len(items),
            on_copy=on_copy,
        )
        self.book.put(tx, record)
        self.book.put_plan(tx, record.run_id, plan)
        tx.subject = record.run_id
        tx.details = {"space": space.space_id, "operations": dict(Counter(type_ or "invalid" for type_ in plan.types))}
        if on_copy:
            tx.details["copy"] = True
        tx.after.append(partial(self._news.run, "started", record))
        few = len(items) <= MAX_READ_AT_ONCE
        run = Run(record, steps_of(items, plan.ids) if few else [], [], max_event_bytes=self._event_budget(call.door))
        if not few:
            run.unparsed = (items, plan.ids)

        def go(_: object) -> Deferred[EventsMessage]:
            self.live[run.run_id] = run
            waiter = self._wait(call.principal, run, wait_ms, attached=wait_ms is None)
            self._work(run, space)
            return waiter

        tx.then = go

    def invalid(self, sentence: str) -> EventsMessage:
        return events_message(new_id("run"), ERROR, [self._event_factory.invalid(sentence)])

    def _check_room(self, principal: Principal, space: Space) -> None:
        mine = [run for run in self.live.values() if run.principal == principal and not run.record.background]
        for limit, kind, status in (
            (self._limits.max_runs, "runs under way", RUNNING),
            (self._limits.max_paused_runs, "runs that wait for the person", AWAITING),
        ):
            if sum(run.record.status == status for run in mine) >= limit:
                raise Overloaded(
                    f"{principal} has {limit} {kind}",
                    hint="wait for them (runs.wait), or cancel some (runs.cancel)",
                    retry_after=1.0,
                )
        space.turns.check()

    def _work(self, run: Run, space: Space) -> None:
        assert self.runner is not None
        if self._stopping:
            run.end_early(_STOPPING)
        self._tasks.start(self._worked(run, space), run.run_id)

    def _go_on(self, run: Run) -> None:
        self._work(run, self._spaces.of(run.record.space_id))

    async def _worked(self, run: Run, space: Space) -> None:
        assert self.runner is not None
        if run.unparsed is not None:
            items, ids = run.unparsed
            run.steps, run.unparsed = await self._threads.do(steps_of, items, ids), None
        if run.record.on_copy and run.copy is None and run.stop is None:
            assert self.make_copy is not None
            try:
                await self.make_copy(run, space)
            except Exception as error:  # noqa: BLE001 - whatever it was, the run ends with a sentence
                run.end_early(Stop("execution", f"no copy could be made: {error}", ERROR))
        await self.runner.work(run, space)

    def _event_budget(self, door: str) -> int:
        """What is answered over the link must fit into one frame of it."""
        budget = self._limits.max_event_bytes
        return min(budget, MAX_LINK_FRAME_BYTES - _ENVELOPE_BYTES) if door == "link" else budget

    # -- looking --

    def show(self, call: Call, params: RunIdParams) -> EventsMessage:
        return self._message(self.book.find(params.run_id, params.space_id))

    def wait(self, call: Call, params: RunWaitParams) -> EventsMessage | Deferred[EventsMessage]:
        record = self.book.find(params.run_id, params.space_id)
        run = self.live.get(record.run_id)
        if run is None or run.record.status != RUNNING:
            return self._message(record)
        return self._wait(call.principal, run, params.wait_ms, attached=False)

    def stream(self, call: Call, params: RunStreamParams) -> Stream:
        record = self.book.find(params.run_id, params.space_id)
        run = self.live.get(record.run_id)
        feed = run.feed if run is not None else self._feeds.get(record.run_id)
        if feed is None:
            return self._replay(record, params.since)
        self._hold(call.principal)
        return feed.follow(params.since, lambda: self._release_wait(call.principal))

    def _replay(self, record: RunRecord, since: int) -> Stream:
        """A run of an earlier life or of long ago: its events, and how it ended."""
        events = self.book.events(record.run_id) if since == 0 else []
        stream = Stream(limit=len(events) + 1)
        for seq, event in enumerate(events, 1):
            id_ = event.operation_id
            stream.push(
                StreamedOutput(seq=seq, kind="event", operation_id=id_ if isinstance(id_, str) else None, event=event)
            )
        seq = max(since, record.seq, len(events)) + 1
        steering = list(record.steering)
        stream.push(StreamedOutput(seq=seq, kind="status", status=record.status, steering=steering))
        stream.end()
        return stream

    def _message(self, record: RunRecord) -> EventsMessage:
        run = self.live.get(record.run_id)
        if run is not None:
            return run.message()
        return events_message(record.run_id, record.status, self.book.events(record.run_id), record.steering)

    # -- waiting --

    def _wait(self, principal: Principal, run: Run, wait_ms: int | None, *, attached: bool) -> Deferred[EventsMessage]:
        """Settled when the run is over or asks. Who is attached takes the run along when it leaves."""
        self._hold(principal)
        waiter = self.when_over(run)
        timer: asyncio.TimerHandle | None = None
        if wait_ms is not None:

            def nothing_yet() -> None:
                if not waiter.done():
                    waiter.set_result(run.message())

            timer = asyncio.get_running_loop().call_later(min(wait_ms, MAX_WAIT_MS) / 1000, nothing_yet)

        def over(_: Deferred[EventsMessage]) -> None:
            self._release_wait(principal)
            if timer is not None:
                timer.cancel()
            if waiter.cancelled() and attached:
                run.end_early(Stop("execution", "cancelled: the caller that started it left", CANCELLED))

        waiter.add_done_callback(over)
        return waiter

    def when_over(self, run: Run) -> Deferred[EventsMessage]:
        """Settled when the run is over or asks; for those whose call must not fail for want of a place to wait."""
        waiter: Deferred[EventsMessage] = Deferred()
        run.waiters[waiter] = None
        waiter.add_done_callback(lambda _: run.waiters.pop(waiter, None))
        return waiter

    def _hold(self, principal: Principal) -> None:
        self._check_waits(principal)
        self._waits[principal] += 1

    def _check_waits(self, principal: Principal) -> None:
        if self._waits[principal] >= self._limits.max_followers:
            raise Overloaded(
                f"{principal} waits for {self._limits.max_followers} runs already", hint="close some", retry_after=1.0
            )

    def _release_wait(self, principal: Principal) -> None:
        self._waits[principal] -= 1
        if not self._waits[principal]:
            del self._waits[principal]

    # -- answering and ending --

    def resume(self, call: Call, params: ResumeParams, tx: Transaction) -> None:
        record = self.book.find(params.run_id, params.space_id)
        run = self.live.get(record.run_id)
        question = run.record.question if run is not None and run.record.status == AWAITING else None
        if run is None or question is None:
            raise Conflict(f"{record.run_id} does not ask anything: it is {record.status}", hint="runs.show tells more")
        asked = question.event.operation_id
        if params.approval.operation_id != asked:
            raise Conflict(
                f"{record.run_id} asks about operation {asked!r}, not {params.approval.operation_id!r}",
                hint="answer the operation of its approvalRequired event",
            )
        self._gate.desk.decide(
            tx,
            question.approval_id,
            approve=params.approval.decision == "approved",
            reason=params.approval.reason,
            by=shown_by(call),
        )
        tx.subject = record.run_id
        tx.details = {"approval": question.approval_id, "decision": params.approval.decision}
        tx.then = lambda _: self.when_over(run)

    def cancel(self, call: Call, params: CancelRunParams, tx: Transaction) -> EventsMessage | None:
        record = self.book.find(params.run_id, params.space_id)
        run = self.live.get(record.run_id)
        if run is None or is_over(run.record):
            return self._message(record)
        tx.subject = record.run_id
        tx.details = {"reason": params.reason} if params.reason else {}

        def end(_: object) -> Deferred[EventsMessage]:
            waiter = self.when_over(run)
            why = f"cancelled: {params.reason}" if params.reason else "cancelled"
            self._end(run, Stop("execution", why, CANCELLED))
            return waiter

        tx.then = end
        return None

    def _end(self, run: Run, stop: Stop) -> None:
        run.end_early(stop)
        if run.record.native is not None and self.end_native is not None:
            self.end_native(run)
        if run.record.status == AWAITING:
            # Nobody works on it: its events have to be written by somebody.
            run.record = msgspec.structs.replace(run.record, status=RUNNING, question=None)
            self._go_on(run)

    def end_space(self, space_id: str, sentence: str) -> list[Deferred[EventsMessage]]:
        """Its runs end; what to wait for."""
        return self._end_all([run for run in self.live.values() if run.record.space_id == space_id], sentence)

    def end_working(self, sentence: str) -> list[Deferred[EventsMessage]]:
        """Every run ends but those that wait for the person; what to wait for."""
        return self._end_all([run for run in self.live.values() if run.record.status != AWAITING], sentence)

    def _end_all(self, runs: list[Run], sentence: str) -> list[Deferred[EventsMessage]]:
        waiters = []
        for run in runs:
            if not is_over(run.record):
                waiters.append(self.when_over(run))
                self._end(run, Stop("execution", sentence, CANCELLED))
        return waiters

    def stop(self) -> None:
        """The daemon ends: stop runs under way; paused ones stay for its next life."""
        self._stopping = True
        for run in list(self.live.values()):
            if run.record.status == AWAITING:
                run.feed.close()
            else:
                run.end_early(_STOPPING)

    # -- what the runner asks for --

    def announce(self, event: str, run: Run) -> None:
        self._news.run(event, run.record)

    def save(self, run: Run, tx: Transaction) -> None:
        self.book.save(run, tx)

    async def finish(self, run: Run, status: str) -> None:
        run.record = msgspec.structs.replace(
            run.record,
            status=status,
            ended_at=self._clock.wall_ms(),
            question=None,
            segments=tuple(run.segments),
            note=run.stop.sentence if run.stop is not None and run.note is None else run.note,
            steering=tuple(run.steering),
            would_ask=run.would_ask,
            seq=run.feed.seq + len(run.events) - run.saved + 1,
        )
        assert self.runner is not None
        tx = Transaction()
        with self._journal.together():
            self.runner.settle(run)
            if run.lost:
                self.book.drop_events(tx, run.run_id)
                run.saved = 0
            self.save(run, tx)
            self.book.coalesce(run, tx)
            self.book.put(tx, run.record)
            self.book.put_plan(tx, run.run_id, None)
            self.book.put_rest(tx, run.run_id, None)
            self._gate.desk.end_run(tx, run.run_id)
            self.book.make_room(tx, run.record.space_id)
            tx.subject = run.run_id
            tx.details = {"events": len(run.events), "ms": run.record.worked_ms}
            self._journal.commit(tx, run.principal, "runs.end", status)
        try:
            await tx
        except StorageFull:
            self._unsaved[run.run_id] = run
        if run.copy is not None:
            assert self.drop_copy is not None
            await self.drop_copy(run)
        if run.run_id not in self._unsaved:
            self.live.pop(run.run_id, None)
        self._news.run("ended", run.record)
        run.feed.status(run.record.status, run.steering)
        run.feed.end()
        self._feeds[run.run_id] = run.feed
        while len(self._feeds) > KEPT_FEEDS:
            self._feeds.popitem(last=False)
        run.answer_waiters()

    # -- a new life --

    def recover(self, begun: dict[str, list[BegunRow]]) -> None:
        """Runs that were under way when the last life ended get their missing events; paused ones wait on."""
        for record in self.book.all():
            if record.status == RUNNING:
                self._recovery.interrupted(record, begun.get(record.run_id, []))
            elif record.status == AWAITING:
                self._wait_on(record)

    def _wait_on(self, record: RunRecord) -> None:
        rest = self.book.rest(record.run_id)
        question = record.question
        if rest is None or question is None:
            self._recovery.interrupted(record, [])
            return
        run = Run(
            record,
            rest.steps,
            self.book.events(record.run_id),
            self.book.events_size(record.run_id),
            max_event_bytes=self._event_budget("link"),
        )
        self.live[record.run_id] = run
        if question.approval_id in self._gate.desk.approvals.rows:
            self._pausing.watch(record.run_id, question.approval_id)
        else:
            self._end(run, Stop("execution", "what it asked is no longer known", ERROR))

    def sweep(self, tx: Transaction) -> None:
        """Ends that could not be stored are stored once the disk takes them."""
        for run_id, run in list(self._unsaved.items()):
            self.book.drop(tx, run_id)
            run.saved = 0
            self.book.put(tx, run.record)
            self.book.save(run, tx)
            tx.after.append(partial(self._saved, run_id))

    def _saved(self, run_id: str) -> None:
        self._unsaved.pop(run_id, None)
        self.live.pop(run_id, None)


_STOPPING = Stop("execution", "the daemon was stopped", ERROR)
