"""Where calls wait for the game's own thread, and how long each frame may spend on them.

Games are not thread-safe: what an agent calls must run between two frames, on the thread that draws them. The I/O
thread puts work in; `poll` on the game's thread takes it out, in turns between clients, until the budget is spent.
"""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Hashable
from enum import Enum
from typing import Any

# A call that found no frame to run in for so long is answered as not executed.
DEFAULT_STALL_SECONDS = 5.0
# Waiting for one game's thread. A frame runs several; thousands would wait for minutes.
MAX_WAITING = 1_024
# How fast the expected time of a tool follows what it really takes.
_LEARN = 0.2
# And how much longer than expected it may take and still end within the budget.
_MARGIN = 1.05
# What of a budget is planned with. The rest is for the last call's surprises: a budget is kept at the 99th percentile.
_PLANNED = 0.95


class Phase(Enum):
    WAITING = 0
    RUNNING = 1
    OVER = 2


# A member of an Enum class is slow to read, and this one is read for every call.
_OVER = Phase.OVER


class Work:
    """One call on its way through the game's thread. `done` is called once, on whichever thread ends it."""

    __slots__ = ("_done", "_run", "client", "deadline", "id", "label", "phase", "steps")

    def __init__(
        self,
        client: Hashable,
        id_: str,
        label: str,
        *,
        run: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        deadline: float,
    ) -> None:
        self.client = client
        self.id = id_
        # Whose times are alike: the tool's name.
        self.label = label
        self.deadline = deadline
        self.phase = Phase.WAITING
        self.steps: Generator[Any, Any, Any] | None = None
        self._run = run
        self._done = done

    def run(self) -> Any:
        return self._run()

    def done(self, result: Any, error: BaseException | None) -> None:
        self._done(result, error)


class Overdue(Exception):
    """A call was given up; `executed` says whether it had begun."""

    def __init__(self, message: str, *, executed: bool, unavailable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.executed = executed
        # The game does not poll at all, rather than this call being late.
        self.unavailable = unavailable


class PumpFull(Exception):
    """More waits than the game will get to."""


class Pump:
    def __init__(
        self,
        *,
        stall_seconds: float = DEFAULT_STALL_SECONDS,
        max_waiting: int = MAX_WAITING,
        now: Callable[[], float] = time.perf_counter,
        on_stall: Callable[[str], None] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._now = now
        self._stall_seconds = stall_seconds
        self._max_waiting = max_waiting
        self._on_stall = on_stall
        self._waiting: dict[Hashable, deque[Work]] = {}
        # Whose turn comes next.
        self._turns: deque[Hashable] = deque()
        self._count = 0
        # Tools that yield, between two of their steps.
        self._stepping: deque[Work] = deque()
        self._expected: dict[str, float] = {}
        # A whole poll went to tools between their steps, while calls waited that had not begun.
        self._passed_over = False
        self._thread: int | None = None
        self._polled = now()
        self._running: tuple[Work, float] | None = None
        self._reported: Work | None = None

    # -- any thread --

    def put(self, work: Work) -> None:
        with self._lock:
            if self._count >= self._max_waiting:
                raise PumpFull
            if self._count == 0 and not self._stepping:
                # The time without a poll counts from when one was needed.
                self._polled = max(self._polled, self._now())
            line = self._waiting.get(work.client)
            if line is None:
                line = self._waiting[work.client] = deque()
                self._turns.append(work.client)
            line.append(work)
            self._count += 1

    def withdraw(self, client: Hashable, id_: str | None = None) -> list[Work]:
        """Take out what the client waits for, or one call of it. What already runs is returned too, not stopped."""
        with self._lock:
            line = self._waiting.get(client, ())
            gone = [each for each in line if id_ is None or each.id == id_]
            self._take_out(gone)
            going_on = [each for each in self._stepping if each.client == client and (id_ is None or each.id == id_)]
            if self._running is not None and self._running[0].client == client and self._running[0] not in going_on:
                running = self._running[0]
                going_on += [running] if id_ is None or running.id == id_ else []
        return gone + going_on

    def _take_out(self, gone: list[Work]) -> None:
        """Under the lock. A client that waits for nothing leaves nothing behind: bridges come and go."""
        for each in gone:
            line = self._waiting[each.client]
            line.remove(each)
            each.phase = Phase.OVER
            if not line:
                del self._waiting[each.client]
                self._turns.remove(each.client)
        self._count -= len(gone)

    @property
    def idle(self) -> bool:
        return self._count == 0 and not self._stepping and self._running is None

    # -- the game's thread --

    def poll(self, budget_ms: float = 2.0) -> int:
        """Run what waits, for about `budget_ms`; how many steps were made.

        A call is begun only if it is expected to end within the budget, by what it took before. The first of a poll
        is begun anyway: a tool that takes longer than any budget must run some time.
        """
        began = self._now()
        self._thread = threading.get_ident()
        self._polled = began
        if (self._count == 0 and not self._stepping) or self._running is not None:
            # Nothing to do; or called by a tool, which must end before the next begins.
            return 0
        return self._work_off(began, _PLANNED * budget_ms / 1000)

    def _work_off(self, began: float, budget: float) -> int:
        made = begun = 0
        now = began
        if self._passed_over and (work := self._next(budget, now, first=True)) is not None:
            now = self._begin(work, now)
            made = begun = 1
        for _ in range(len(self._stepping)):
            if made and now - began + self._expect(self._stepping[0]) > budget:
                break
            now = self._step(self._next_step(now), now)
            made += 1
        while self._count and (work := self._next(budget - (now - began), now, first=made == 0)) is not None:
            now = self._begin(work, now)
            made += 1
            begun += 1
        self._passed_over = begun == 0 and self._count > 0
        self._polled = now
        return made

    def _expect(self, work: Work) -> float:
        return _MARGIN * self._expected.get(work.label, 0.0)

    def _next(self, left: float, now: float, *, first: bool) -> Work | None:
        with self._lock:
            if not self._turns:
                return None
            client = self._turns[0]
            line = self._waiting[client]
            if not first and (left <= 0 or self._expect(line[0]) > left):
                return None
            work = line.popleft()
            if line:
                self._turns.rotate(-1)
            else:
                del self._waiting[client]
                self._turns.popleft()
            self._count -= 1
            work.phase = Phase.RUNNING
            self._running = (work, now)
            return work

    def _next_step(self, now: float) -> Work:
        """Under the lock from one place to the other: a cancellation must find the call in one of them."""
        with self._lock:
            work = self._stepping.popleft()
            self._running = (work, now)
            return work

    # Each gives the time when it was over, which is when the next begins.

    def _begin(self, work: Work, began: float) -> float:
        try:
            result = work.run()
        except Exception as error:  # noqa: BLE001 - a tool's fault is its caller's answer, never the game's end
            return self._over(work, began, None, error)
        if isinstance(result, Generator):
            work.steps = result
            return self._step(work, began)
        return self._over(work, began, result, None)

    def _step(self, work: Work, began: float) -> float:
        assert work.steps is not None
        if work.phase is _OVER:
            # Cancelled or overdue meanwhile: the generator's own `finally` runs on the game's thread.
            return self._close(work, began)
        try:
            next(work.steps)
        except StopIteration as end:
            return self._over(work, began, end.value, None)
        except Exception as error:  # noqa: BLE001 - as above
            return self._over(work, began, None, error)
        with self._lock:
            self._running = None
            self._stepping.append(work)
        return self._learn(work, began)

    def _close(self, work: Work, began: float) -> float:
        try:
            if work.steps is not None:
                work.steps.close()
        except Exception as error:  # noqa: BLE001 - its clean-up failed; its caller was answered long ago
            if self._on_stall is not None:
                self._on_stall(f"{work.label} failed while it was being ended: {error!r}")
        finally:
            with self._lock:
                self._running = None
        return self._learn(work, began)

    def _over(self, work: Work, began: float, result: Any, error: BaseException | None) -> float:
        with self._lock:
            self._running = None
            late = work.phase is _OVER
            work.phase = _OVER
        if not late:
            work.done(result, error)
        # With what it took to make the answer: a large result is encoded on the game's time too.
        return self._learn(work, began)

    def _learn(self, work: Work, began: float) -> float:
        now = self._now()
        took = now - began
        known = self._expected.get(work.label)
        # Up at once, down slowly: one long call is a warning.
        self._expected[work.label] = took if known is None or took > known else known + _LEARN * (took - known)
        return now

    # -- the I/O thread --

    def check(self) -> None:
        """Give up what is overdue; say when the game's thread is stuck."""
        now = self._now()
        for work, error in self._overdue(now):
            work.done(None, error)
        running = self._running
        if running is not None and now - running[1] > self._stall_seconds and self._reported is not running[0]:
            self._reported = running[0]
            if self._on_stall is not None:
                self._on_stall(
                    f"{running[0].label} has been running for {now - running[1]:.1f} s on the game's thread; "
                    f"it is at {self.where()}"
                )

    def _overdue(self, now: float) -> list[tuple[Work, Overdue]]:
        found: list[tuple[Work, Overdue]] = []
        with self._lock:
            silent = now - self._polled
            stuck = self._count > 0 and silent > self._stall_seconds
            late = [each for line in self._waiting.values() for each in line if stuck or now > each.deadline]
            self._take_out(late)
            found += [(work, self._waited_in_vain(silent, stuck=stuck)) for work in late]
            begun = [*self._stepping, *([self._running[0]] if self._running is not None else [])]
            for work in begun:
                if now > work.deadline and work.phase is Phase.RUNNING:
                    work.phase = Phase.OVER
                    found.append((work, Overdue("did not end in time; it had begun", executed=True)))
        return found

    def _waited_in_vain(self, silent: float, *, stuck: bool) -> Overdue:
        if not stuck:
            return Overdue("did not get its turn in time, and was not begun", executed=False)
        return Overdue(
            f"the game has not called mod.poll() for {silent:.1f} s, so nothing was executed; it is at {self.where()}",
            executed=False,
            unavailable=True,
        )

    def where(self) -> str:
        """The line the game's thread is at."""
        frame = sys._current_frames().get(self._thread or 0)  # noqa: SLF001 - the standard library's own name for it
        if frame is None:
            return "an unknown place (it has never called mod.poll())"
        last = traceback.extract_stack(frame, limit=1)[-1]
        return f"{last.filename}:{last.lineno} in {last.name}"
