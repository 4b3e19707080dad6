"""One connection to a mod: its session, the clock its frames run against, and what is asked for the bridge itself."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Overloaded, TooLarge
from bascule.game.ports import Wire
from gabp.bridge_session import Answered, BridgeSession, Came, Refused, Welcomed
from gabp.errors import ErrorCode, GameError, RequestTooLarge, TooManyRequests
from gabp.messages import HelloParams, Welcome
from gabp.session import FRAME_SECONDS, Broken, Noted
from gabp.states import IllegalMove, State

_OPEN: Final = State.OPEN
# Places that agents' calls leave to what the bridge asks itself: a listing, attention, subscriptions.
OWN_REQUESTS = 8


class Link:
    """`over` is settled with the reason when the connection is gone."""

    def __init__(
        self,
        session: BridgeSession,
        *,
        on_answer: Callable[[str, Any, GameError | None], None],
        on_event: Callable[[Came], None],
        on_note: Callable[[str], None],
        frame_seconds: float = FRAME_SECONDS,
    ) -> None:
        self.session = session
        self.welcome: Deferred[Welcome] = Deferred()
        self.over: Deferred[str] = Deferred()
        self._on_answer = on_answer
        self._on_event = on_event
        self._on_note = on_note
        self._frame_seconds = frame_seconds
        self._wire: Wire | None = None
        self._frame_timer: asyncio.TimerHandle | None = None
        # Which frame it runs for, and until when.
        self._frame = 0
        self._frame_due = 0.0
        # What the bridge asks for itself: ids to who waits.
        self._own: dict[str, Deferred[Any]] = {}

    # -- going out --

    def greet(self, wire: Wire, params: HelloParams) -> None:
        self._wire = wire
        self.session.hello(params)
        self._flush()

    def peer_pid(self) -> int | None:
        return None if self._wire is None else self._wire.peer_pid()

    def ask(self, method: str, params: bytes) -> Deferred[Any]:
        """For the bridge itself, beside the queue of agents' calls."""
        return self._own_answer(partial(self.session.request, method, params))

    def subscribe(self, channels: list[str]) -> Deferred[Any]:
        return self._own_answer(partial(self.session.subscribe, channels))

    def unsubscribe(self, channels: list[str]) -> Deferred[Any]:
        return self._own_answer(partial(self.session.unsubscribe, channels))

    def _own_answer(self, send: Callable[[], str]) -> Deferred[Any]:
        """Never raises: much of it is asked while the mod's own messages are handled, whose reader would be cut off."""
        later: Deferred[Any] = Deferred()
        try:
            self._own[send()] = later
        except (TooManyRequests, IllegalMove) as error:
            later.set_exception(GameError(ErrorCode.TOOL_UNAVAILABLE, f"not sent: {error}"))
        self._flush()
        return later

    # Sender's part, for the queue.

    def send(self, method: str, params: bytes) -> str:
        try:
            id_ = self.session.request(method, params)
        except RequestTooLarge as error:
            raise TooLarge(str(error), hint="send less at once, or let the game read a file") from None
        except TooManyRequests as error:
            raise Overloaded(str(error), retry_after=1.0) from None
        self._flush()
        return id_

    def cancel(self, id_: str) -> None:
        self.session.cancel(id_)
        self.session.forget(id_)
        self._flush()

    @property
    def room(self) -> int:
        if self.session.state is not _OPEN:
            return 0
        session = self.session
        places = min(session.max_concurrent, max(1, session.limits.max_in_flight - OWN_REQUESTS))
        return places - session.open_requests

    def _flush(self) -> None:
        data = self.session.take()
        if data and self._wire is not None:
            self._wire.send(data)

    # -- coming in --

    def data(self, data: bytes) -> None:
        for happening in self.session.receive(data):
            self._handle(happening)
        self._watch_frame()
        if self.session.closed:
            self.close("the session ended")

    def lost(self, error: Exception | None) -> None:
        for happening in self.session.end_of_stream():
            self._handle(happening)
        self.close(str(error) if error is not None and str(error) else "the game closed the connection")

    def _handle(self, happening: object) -> None:
        match happening:
            case Answered():
                own = self._own.pop(happening.id, None)
                if own is None:
                    self._on_answer(happening.id, happening.value, happening.error)
                elif not own.done():
                    if happening.error is not None:
                        own.set_exception(happening.error)
                    else:
                        own.set_result(happening.value)
            case Came():
                self._on_event(happening)
            case Welcomed():
                self.welcome.set_result(happening.welcome)
            case Refused():
                self.welcome.set_exception(happening.error)
            case Noted():
                self._on_note(happening.text)
            case Broken():
                self._on_note(f"disconnected: {happening.message}")
                self.close(happening.message)

    def _watch_frame(self) -> None:
        session = self.session
        if session.mid_frame and not session.closed:
            loop = asyncio.get_running_loop()
            if self._frame_timer is None or self._frame != session.frames_read:
                # Another frame than at the last read: a busy stream may never stop between two.
                self._frame = session.frames_read
                self._frame_due = loop.time() + self._frame_seconds
            if self._frame_timer is None:
                self._frame_timer = loop.call_at(self._frame_due, self._frame_overdue)
        elif self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None

    def _frame_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._frame_due:
            self._frame_timer = loop.call_at(self._frame_due, self._frame_overdue)
            return
        for happening in self.session.frame_overdue():
            self._handle(happening)

    def close(self, why: str) -> None:
        self.session.end()
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
        own, self._own = self._own, {}
        gone = GameError(ErrorCode.SESSION_EXPIRED, f"the connection ended: {why}", executed="unknown")
        for later in own.values():
            if not later.done():
                later.set_exception(gone)
        if not self.welcome.done():
            self.welcome.set_exception(gone)
        if not self.over.done():
            self.over.set_result(why)
