"""The shim's connection to the daemon: one socket for all calls, made again when the daemon restarts.

While it is open the agent counts as online, so no heartbeat is sent.

Never blocks. The loop asks when to come back (`next_time`) and calls `on_time`, `on_readable`, `on_writable`.
"""

from __future__ import annotations

from bascule.doors.exits import STATUS_OF_CODE, ConnectionLost, DoorError, NotRunning, Refusal
from bascule.doors.retry import Pauses
from bascule.places import UnsafePlace
from bascule.shim.calls import Ask, Become, resolved

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol

    from bascule.shim.identity import Identity
    from bascule.shim.starter import Starter

    Done = Callable[[Any, DoorError | None], None]

    class Socket(Protocol):
        """What carries link messages: `doors.link.LinkSocket`, or `over_http.HttpSocket`."""

        unsent: bytearray

        def fileno(self) -> int: ...
        def close(self) -> None: ...
        def send(self, message: dict[str, Any]) -> None: ...
        def flush(self) -> None: ...
        def receive(self) -> list[dict[str, Any]]: ...


# How long a call waits for a daemon that is being started, restarted or overloaded.
CONTACT_SECONDS = 10.0
# What an answer may take beyond the time it was asked to wait.
ANSWER_SECONDS = 15.0
# Nobody waits: look for the daemon now and then, so that the agent is online again when it is back.
IDLE_SECONDS = 5.0
_BUSY = ("overloaded", "unavailable")
# A wait that ends with nothing sooner than this before its time was ended, not answered.
_EARLY = 0.5


class Question:
    """An Ask under way, and who wants its answer."""

    __slots__ = ("ask", "asked_at", "done", "give_up", "not_before", "number", "until", "was_sent")

    def __init__(self, ask: Ask | Become, done: Done, now: float) -> None:
        self.ask = ask
        self.done = done
        self.number: int | None = None
        self.was_sent = False
        self.asked_at = now
        # A daemon that is overloaded says when to come back.
        self.not_before = now
        wait_ms = ask.wait_ms if isinstance(ask, Ask) else None
        self.until = None if wait_ms is None else now + wait_ms / 1000
        # Unsent: when the caller has waited long enough. Sent: when the daemon has.
        self.give_up = now + CONTACT_SECONDS

    @property
    def may_repeat(self) -> bool:
        return isinstance(self.ask, Ask) and self.ask.repeat


class Link:
    def __init__(self, connect: Callable[[], Socket], where: str, starter: Starter, clock: Callable[[], float]) -> None:
        self._open_socket = connect
        self._where = where
        self._starter = starter
        self._clock = clock
        self.identity: Identity | None = None
        self.ready = False
        # Why there is no connection, once one was tried.
        self.fault: DoorError | None = None
        self._socket: Socket | None = None
        self._waiting: list[Question] = []
        self._asked: dict[int, Question] = {}
        self._numbers = 0
        self._introduction: Generator[Ask, Any, None] | None = None
        self._becoming: Question | None = None
        self._retry_at = 0.0
        self._start_wanted = False
        self._pauses = Pauses()
        self._watcher: Callable[[], None] | None = None
        # The stream of events, once it is asked for, and the newest event seen: the next one starts after it.
        self._stream: Question | None = None
        self._followed_handle: str | None = None
        self._last_event: int | None = None

    # -- what the tools use -----------------------------------------------------------------------

    def open(self, identity: Identity) -> None:
        """From now on be this agent, and start the daemon if none runs."""
        if self.identity is None:
            self.identity = identity
            self._start_wanted = True
            self._connect()

    def ask(self, ask: Ask | Become, done: Done) -> Question:
        question = Question(ask, done, self._clock())
        self._waiting.append(question)
        if self._socket is None:
            self._start_wanted = True
            self._retry_at = min(self._retry_at, self._clock())
        self._pump()
        return question

    def withdraw(self, question: Question) -> None:
        """The client does not want the answer any more."""
        if question in self._waiting:
            self._waiting.remove(question)
        elif question.number in self._asked:
            del self._asked[question.number]
            self._send(_cancel(question.number))

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Call `watcher` whenever something happens to this agent or its tickets; None ends it."""
        self._watcher = watcher
        if watcher is None and self._stream is not None and self._stream.number is not None:
            self._send(_cancel(self._stream.number))
            self._asked.pop(self._stream.number, None)
            self._stream = None
        self._follow()

    @property
    def busy(self) -> bool:
        """Something is under way that is neither a wait nor our own business."""
        open_ = (*self._waiting, *self._asked.values())
        return any(each.until is None and each.done not in (self._step, self._followed) for each in open_)

    # -- what the loop uses -----------------------------------------------------------------------

    @property
    def socket(self) -> Socket | None:
        return self._socket

    def next_time(self) -> float | None:
        times = [question.give_up for question in (*self._waiting, *self._asked.values())]
        times += [question.not_before for question in self._waiting if self.ready]
        if self.identity and self._socket is None:
            times.append(self._retry_at)
        return min(times, default=None)

    def on_time(self) -> None:
        now = self._clock()
        if self.identity and self._socket is None and now >= self._retry_at:
            self._connect()
        for question in [q for q in (*self._waiting, *self._asked.values()) if q.give_up <= now]:
            self._expire(question)
        self._pump()

    def on_readable(self) -> None:
        if self._socket is None:
            return
        try:
            for message in self._socket.receive():
                self._on_message(message)
        except DoorError as fault:
            self._lost(fault)

    def on_writable(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.flush()
        except DoorError as fault:
            self._lost(fault)

    def close(self) -> None:
        self._starter.finish()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- connecting -------------------------------------------------------------------------------

    def _connect(self) -> None:
        assert self.identity is not None
        try:
            self._socket = self._open_socket()
        except DoorError as fault:
            self._not_connected(fault)
            return
        self.fault = None
        self._start_wanted = False
        self._introduce(self.identity.introduce())

    def _not_connected(self, fault: DoorError) -> None:
        tried_before = isinstance(self.fault, NotRunning)
        self.fault = fault
        hurry = self._waiting or (self._start_wanted and self._starter.enabled)
        pause = self._pauses.next() if hurry else IDLE_SECONDS
        self._retry_at = self._clock() + pause
        if not isinstance(fault, NotRunning | ConnectionLost):
            self._fail_waiting(fault)
        elif failure := self._starter.failure():
            self._start_wanted = False
            self.fault = failure
            self._fail_waiting(failure)
        elif self._start_wanted and tried_before and isinstance(fault, NotRunning):
            # Not at the first try: the answer to `initialize` goes out before we pay for a new process.
            try:
                self._starter.begin()
            except (OSError, UnsafePlace) as cause:
                self._start_wanted = False
                self.fault = DoorError(f"Bascule could not be started: {cause}", "start it with `bascule up -d`")
                self._fail_waiting(self.fault)

    def _introduce(self, introduction: Generator[Ask, Any, None]) -> None:
        self.ready = False
        self._introduction = introduction
        self._step(None, None)

    def _step(self, value: Any, fault: DoorError | None) -> None:
        introduction = self._introduction
        assert introduction is not None
        try:
            ask = introduction.throw(fault) if fault else introduction.send(value)
        except StopIteration:
            self._introduced(None)
        except DoorError as refused:
            self._introduced(refused)
        else:
            self._put(Question(ask, self._step, self._clock()))

    def _introduced(self, fault: DoorError | None) -> None:
        becoming, self._becoming, self._introduction = self._becoming, None, None
        if fault and becoming is None:
            # A version that does not match, a policy that says no: it will not change by trying at once.
            self._drop_socket()
            self.fault = fault
            self._retry_at = self._clock() + IDLE_SECONDS
            self._fail_waiting(fault)
            return
        self.ready = True
        self._pauses.reset()
        self._starter.finish()
        if becoming:
            becoming.done(None, fault)
        self._follow()
        self._pump()

    def _follow(self) -> None:
        """Open the stream of events for who we are now; a change of name and a new connection end the old one."""
        if self._watcher is None or not self.ready or self.identity is None:
            return
        handle = self.identity.handle
        if self._stream is not None and self._followed_handle != handle:
            self._send(_cancel(self._stream.number))
            self._stream = None
        if self._stream is None:
            self._followed_handle = handle
            params: dict[str, Any] = {"agentId": handle}
            if self._last_event is not None:
                params["after"] = self._last_event
            self._stream = Question(Ask("events.stream", params), self._followed, self._clock())
            self._put(self._stream)

    def _followed(self, _value: Any, fault: DoorError | None) -> None:
        if fault is not None:
            # Refused: without it the client reads the resource when it wants to know.
            self._watcher = None
            self._stream = None

    def _on_event(self, message: dict[str, Any]) -> None:
        params = message.get("params")
        if self._watcher is None or self._stream is None or not isinstance(params, dict):
            return
        if params.get("stream") != self._stream.number:
            return
        item = params.get("item")
        number = item.get("id") if isinstance(item, dict) else None
        if isinstance(number, int):
            self._last_event = number
        self._watcher()

    def _lost(self, fault: DoorError) -> None:
        self._drop_socket()
        self.fault = fault
        now = self._clock()
        self._retry_at = now + self._pauses.next()
        asked, self._asked = self._asked, {}
        becoming, self._becoming = self._becoming, None
        unknown = ConnectionLost(
            "the connection to the daemon broke; whether it acted is unknown", "look first, then call again"
        )
        again = []
        for question in asked.values():
            if question.may_repeat:
                question.number = None
                question.give_up = now + CONTACT_SECONDS if question.until is None else max(question.until, now)
                again.append(question)
            elif question.done not in (self._step, self._followed):
                question.done(None, unknown)
        self._waiting = again + self._waiting
        if becoming:
            becoming.done(None, unknown)

    def _drop_socket(self) -> None:
        self.ready = False
        self._introduction = None
        self._stream = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- questions and answers --------------------------------------------------------------------

    def _pump(self) -> None:
        now = self._clock()
        while self.ready and self._waiting:
            due = next((question for question in self._waiting if question.not_before <= now), None)
            if due is None:
                return
            self._waiting.remove(due)
            if isinstance(due.ask, Become):
                assert self.identity is not None
                wanted = due.ask
                # Everything behind it waits until it is clear who we are.
                self._becoming = due
                self._introduce(self.identity.become(wanted))
            else:
                self._put(due)

    def _put(self, question: Question) -> None:
        assert isinstance(question.ask, Ask)
        now = self._clock()
        self._numbers += 1
        question.number = self._numbers
        question.was_sent = True
        question.give_up = max(now, question.until or now) + question.ask.held_ms / 1000 + ANSWER_SECONDS
        params = resolved(question.ask.params)
        if question.until is not None:
            params = {**params, "waitMs": max(0, round((question.until - now) * 1000))}
        self._asked[question.number] = question
        self._send({"jsonrpc": "2.0", "id": question.number, "method": question.ask.method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(message)
        except DoorError as fault:
            self._lost(fault)

    def _on_message(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self._on_event(message)
            return
        number = message.get("id")
        if number is None and isinstance(message.get("error"), dict):
            # The daemon could not even read whose frame it was: nobody who asked would ever hear of it.
            asked, self._asked = self._asked, {}
            for each in asked.values():
                each.done(None, _refusal(message["error"]))
            return
        question = self._asked.pop(number, None) if isinstance(number, int) else None
        if question is None:
            return
        error = message.get("error")
        now = self._clock()
        if not isinstance(error, dict):
            result = message.get("result")
            if result is None and question.may_repeat and question.until is not None and now < question.until - _EARLY:
                # A daemon that stops ends every wait; ours goes on with the next one.
                question.number, question.not_before, question.give_up = None, now + self._pauses.next(), question.until
                self._waiting.append(question)
            else:
                question.done(result, None)
            return
        refusal = _refusal(error)
        pause = max(refusal.retry_after or 0.0, self._pauses.next()) if refusal.code in _BUSY else None
        end = question.asked_at + CONTACT_SECONDS
        if pause is not None and question.may_repeat and now + pause < end:
            question.number, question.not_before, question.give_up = None, now + pause, end
            self._waiting.append(question)
        else:
            question.done(None, refusal)

    def _expire(self, question: Question) -> None:
        if question in self._waiting:
            self._waiting.remove(question)
            if question.was_sent and question.until is not None:
                question.done(None, None)
            else:
                question.done(None, self.fault or NotRunning(self._where))
            return
        if question.number is None or self._asked.get(question.number) is not question:
            return
        # A daemon that does not answer is as good as none; a new connection may find it better.
        self._lost(ConnectionLost("the daemon does not answer", "see `bridgectl tail logs`"))

    def _fail_waiting(self, fault: DoorError) -> None:
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            question.done(None, fault)


def _cancel(number: int | None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "$/cancel", "params": {"id": number}}


def _refusal(error: dict[str, Any]) -> Refusal:
    data = error.get("data")
    body = data if isinstance(data, dict) else {"message": error.get("message")}
    after = body.get("retryAfterMs")
    return Refusal(
        STATUS_OF_CODE.get(str(body.get("code")), 500),
        body,
        after / 1000 if isinstance(after, int | float) else None,
    )
