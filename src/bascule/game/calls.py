"""Calls on their way to one game: in turns between clients, no more at once than the mod takes, each answered once.

A call that is sent and not answered when the connection ends may or may not have run: it fails as `unknown`, and
nobody sends it again by itself. One that was not sent yet was not executed, and says so.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded
from gabp.errors import ErrorCode, GameError

# Of one client, for one game. A model calls a handful of tools at once; a script that needs more should wait.
MAX_WAITING_PER_CLIENT = 64


class Sender(Protocol):
    """The open session."""

    def send(self, method: str, params: bytes) -> str: ...

    def cancel(self, id_: str) -> None: ...

    @property
    def room(self) -> int:
        """How many more requests the mod takes now."""


class _Call(msgspec.Struct, eq=False):
    client: Hashable
    method: str
    params: bytes
    later: Any
    # What becomes of the answer, for the caller.
    change: Callable[[Any], Any] | None = None
    id: str | None = None
    seconds: float = 0.0
    due: float = 0.0


class _Deadlines:
    """One timer for all: making and cancelling one per call was a tenth of its cost."""

    def __init__(self, overdue: Callable[[_Call], None]) -> None:
        self._overdue = overdue
        # By how long they may take; in each the first is due first.
        self._lines: dict[float, dict[_Call, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: _Call) -> None:
        loop = asyncio.get_running_loop()
        call.due = loop.time() + call.seconds
        self._lines.setdefault(call.seconds, {})[call] = None
        if self._timer is None or self._timer.when() > call.due:
            self._arm(loop, call.due)

    def remove(self, call: _Call) -> None:
        line = self._lines.get(call.seconds)
        if line is not None and line.pop(call, True) is None and not line:
            # The timer stays: it fires once for nothing, and is there for the next call.
            del self._lines[call.seconds]

    def _arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(due, self._ring)

    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        now = loop.time()
        for line in list(self._lines.values()):
            for call in list(line):
                if call.due > now:
                    break
                self._overdue(call)
        if self._lines:
            self._arm(loop, min(next(iter(line)).due for line in self._lines.values()))


class Calls:
    def __init__(self, *, max_waiting: int = MAX_WAITING_PER_CLIENT) -> None:
        self._max_waiting = max_waiting
        self._sender: Sender | None = None
        self._waiting: dict[Hashable, deque[_Call]] = {}
        self._turns: deque[Hashable] = deque()
        self._sent: dict[str, _Call] = {}
        self._deadlines = _Deadlines(self._overdue)

    @property
    def counts(self) -> tuple[int, int]:
        """Waiting, and sent."""
        return sum(map(len, self._waiting.values())), len(self._sent)

    def open(self, sender: Sender) -> None:
        self._sender = sender
        self._go_on()

    def close(self, why: str) -> None:
        """The connection is gone."""
        self._sender = None
        sent, self._sent = self._sent, {}
        for call in sent.values():
            self._fail(
                call,
                GameError(
                    ErrorCode.SESSION_EXPIRED,
                    f"unknown: may have run ({why}); look at the game before calling it again",
                    {"executed": "unknown"},
                    executed="unknown",
                ),
            )
        waiting, self._waiting = self._waiting, {}
        self._turns.clear()
        for line in waiting.values():
            for call in line:
                self._fail(
                    call,
                    GameError(
                        ErrorCode.SESSION_EXPIRED,
                        f"not executed ({why}); it may be called again when the game is back",
                        {"executed": False},
                    ),
                )

    def call(
        self,
        client: Hashable,
        method: str,
        params: bytes,
        seconds: float,
        change: Callable[[Any], Any] | None = None,
    ) -> Deferred[Any]:
        """Settled with what the session makes of the answer, and `change` of that; or a GameError."""
        line = self._waiting.get(client)
        if line is not None and len(line) >= self._max_waiting:
            raise Overloaded(
                f"{len(line)} calls of yours wait for this game already", hint="wait for answers first", retry_after=1.0
            )
        later: Deferred[Any] = Deferred()
        call = _Call(client, method, params, later, change, seconds=seconds)
        sender = self._sender
        if line is None and sender is not None and sender.room > 0 and not self._turns:
            self._send(sender, call)
        else:
            if line is None:
                line = self._waiting[client] = deque()
                self._turns.append(client)
            line.append(call)
        if not later.done():
            self._deadlines.add(call)
            later.add_done_callback(lambda _: self._withdrawn(call))
        return later

    def answered(self, id_: str, value: Any, error: GameError | None) -> None:
        call = self._sent.pop(id_, None)
        if call is None:
            return
        if not call.later.done():
            if error is None and call.change is not None:
                try:
                    value = call.change(value)
                except GameError as fault:
                    error = fault
            if error is not None:
                call.later.set_exception(error)
            else:
                call.later.set_result(value)
        if self._turns:
            self._go_on()

    def _go_on(self) -> None:
        """In turns: a client with a hundred calls does not keep another's one waiting."""
        while self._turns and self._sender is not None and self._sender.room > 0:
            client = self._turns.popleft()
            line = self._waiting[client]
            call = line.popleft()
            if line:
                self._turns.append(client)
            else:
                del self._waiting[client]
            self._send(self._sender, call)

    def _send(self, sender: Sender, call: _Call) -> None:
        try:
            call.id = sender.send(call.method, call.params)
        except Exception as error:  # noqa: BLE001 - too large, or the session just ended: this caller's answer
            self._fail(call, error)
            return
        self._sent[call.id] = call

    def _fail(self, call: _Call, error: Exception) -> None:
        if not call.later.done():
            call.later.set_exception(error)

    def _overdue(self, call: _Call) -> None:
        if call.later.done():
            return
        if call.id is None:
            error = GameError(
                ErrorCode.TOOL_TIMEOUT,
                f"not executed: did not get its turn within {call.seconds:g} s",
                {"executed": False},
            )
        else:
            error = GameError(
                ErrorCode.TOOL_TIMEOUT,
                f"unknown: may have run; no answer within {call.seconds:g} s",
                {"executed": "unknown"},
                executed="unknown",
            )
        call.later.set_exception(error)

    def _withdrawn(self, call: _Call) -> None:
        """Settled by whatever: if the mod still works on it, it need not."""
        self._deadlines.remove(call)
        if call.id is not None:
            if self._sent.pop(call.id, None) is not None and self._sender is not None:
                self._sender.cancel(call.id)
                self._go_on()
            return
        line = self._waiting.get(call.client)
        if line is not None and call in line:
            line.remove(call)
            if not line:
                del self._waiting[call.client]
                self._turns.remove(call.client)
