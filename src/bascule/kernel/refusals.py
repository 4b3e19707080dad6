"""Refused calls in the ledger: every one is a decision, and a loop of them must not fill the disk.

The first refusals of a kind (who, which method, which refusal) are recorded one by one, at once. After that they are
counted, and one record says how many there were when the window closes. A kind that goes on stays counted, one record
per window; after a window without any it begins anew. `kill -9` loses the count of the open window, never the fact:
that was recorded when it began.
"""

from typing import Any

from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.timers import Timers
from bascule.kernel.call import Principal
from bascule.kernel.journal import Journal, Transaction

# Of one kind, recorded in full: an agent that was refused tries again a few times, and each subject is of interest.
RECORDED_ONE_BY_ONE = 20
# Long enough that a loop of days is some thousand records, short enough that a crash loses little.
WINDOW_MS = 60_000
# Kinds counted at once. Methods, refusals and rules are few, principals are not: beyond this the oldest window closes.
MAX_KINDS = 1_000


class _Window:
    __slots__ = ("count", "reason", "recorded", "since", "subject")

    def __init__(self, since: int, recorded: int) -> None:
        self.since = since
        self.recorded = recorded
        self.count = 0
        self.subject: str | None = None
        self.reason = ""


_Kind = tuple[Principal, str, str, str | None]


class Refusals:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        timers: Timers,
        *,
        one_by_one: int = RECORDED_ONE_BY_ONE,
        window_ms: int = WINDOW_MS,
        max_kinds: int = MAX_KINDS,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._timers = timers
        self._one_by_one = one_by_one
        self._window_ms = window_ms
        self._max_kinds = max_kinds
        # In the order they were opened.
        self._windows: dict[_Kind, _Window] = {}

    def record(
        self, principal: Principal, method: str, code: str, *, rule: str | None, subject: str | None, reason: str
    ) -> None:
        kind = (principal, method, code, rule)
        window = self._windows.get(kind)
        if window is None:
            window = self._open(kind, recorded=0)
        if window.recorded < self._one_by_one:
            window.recorded += 1
            self._commit(kind, subject, {"reason": reason})
            return
        window.count += 1
        window.subject, window.reason = subject, reason

    def flush(self) -> None:
        """Record what was only counted: the daemon stops."""
        for kind in list(self._windows):
            self._close(kind)

    def _open(self, kind: _Kind, recorded: int) -> _Window:
        if len(self._windows) >= self._max_kinds:
            self._close(next(iter(self._windows)))
        window = self._windows[kind] = _Window(self._clock.wall_ms(), recorded)
        self._timers.after_ms(self._window_ms, lambda _now: self._over(kind, window))
        return window

    def _over(self, kind: _Kind, window: _Window) -> None:
        if self._windows.get(kind) is window and self._close(kind):
            self._open(kind, recorded=self._one_by_one)

    def _close(self, kind: _Kind) -> bool:
        """True when there was something to say."""
        window = self._windows.pop(kind)
        if window.count:
            details = {"reason": window.reason, "repeats": window.count, "since": rfc3339(window.since)}
            self._commit(kind, window.subject, details)
        return window.count > 0

    def _commit(self, kind: _Kind, subject: str | None, details: dict[str, Any]) -> None:
        principal, method, code, rule = kind
        tx = Transaction()
        tx.subject = subject
        tx.details = details
        self._journal.commit(tx, principal, method, code, rule)
