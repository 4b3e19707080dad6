"""An answer that is not there yet.

Like a future, but without the event loop: callbacks run synchronously inside `set_result()`, not on the next
loop turn. A waiting request costs no turn of the loop when it is answered, and a cancelled one is gone from
every list before `cancel` returns.
"""

import asyncio
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any, Generic, Self, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class _State(Enum):
    PENDING = 0
    DONE = 1
    CANCELLED = 2


# Members of an Enum class are slow to read, and these are read for every answer.
_PENDING, _DONE, _CANCELLED = _State.PENDING, _State.DONE, _State.CANCELLED


class Deferred(Generic[T]):
    """Settled once: with a result, an exception, or by being cancelled."""

    # Written when they change: most answers are made, settled at once and dropped.
    _state = _PENDING
    _result: T | None = None
    _error: BaseException | None = None
    _callbacks: list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        return self._state is not _PENDING

    def cancelled(self) -> bool:
        return self._state is _CANCELLED

    def exception(self) -> BaseException | None:
        if self._state is not _DONE:
            raise self._not_done()
        return self._error

    def result(self) -> T:
        if self._state is not _DONE:
            raise self._not_done()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def set_result(self, result: T) -> None:
        if self._state is not _PENDING:
            raise asyncio.InvalidStateError("settled already")
        self._state = _DONE
        self._result = result
        if self._callbacks is not None:
            self._run_callbacks(self._callbacks)

    def set_exception(self, error: BaseException) -> None:
        if self._state is not _PENDING:
            raise asyncio.InvalidStateError("settled already")
        self._state = _DONE
        self._error = error
        if self._callbacks is not None:
            self._run_callbacks(self._callbacks)

    def cancel(self) -> bool:
        """False when it was settled before."""
        if self._state is not _PENDING:
            return False
        self._state = _CANCELLED
        if self._callbacks is not None:
            self._run_callbacks(self._callbacks)
        return True

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Called with this object when it is settled; now, if it is."""
        if self._state is not _PENDING:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def take_over(self, other: "Deferred[T]") -> None:
        """Settle as `other`, which is settled, did; unless this one is settled already."""
        if self._state is not _PENDING:
            return
        if other.cancelled():
            self.cancel()
        elif (error := other.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(other.result())

    def copy(self) -> "Deferred[T]":
        """An answer of its own: cancelling it leaves this one alone."""
        out: Deferred[T] = Deferred()
        self.add_done_callback(out.take_over)
        return out

    def mapped(self, change: Callable[[T], U]) -> "Deferred[U]":
        """A `Deferred` of the changed result; what `change` raises is its exception. Cancelling it cancels this one."""
        out: Deferred[U] = Deferred()

        def copy(_: "Deferred[T]") -> None:
            if out.done():
                return
            if self.cancelled():
                out.cancel()
            elif self._error is not None:
                out.set_exception(self._error)
            else:
                try:
                    changed = change(cast("T", self._result))
                except Exception as error:  # noqa: BLE001 - whoever waits for the answer handles it
                    out.set_exception(error)
                else:
                    out.set_result(changed)

        self.add_done_callback(copy)
        out.add_done_callback(lambda _: self.cancel())
        return out

    def __await__(self) -> Generator[Any, None, T]:
        if self._state is _PENDING:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def wake(_: "Deferred[T]") -> None:
                if not turn.done():
                    turn.set_result(None)

            self.add_done_callback(wake)
            try:
                yield from turn
            except asyncio.CancelledError:
                # As with a future: cancelling the waiting task cancels this.
                self.cancel()
                raise
        return self.result()

    def _run_callbacks(self, callbacks: list[Callable[[Any], object]]) -> None:
        self._callbacks = None
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:  # noqa: BLE001 - one listener's fault must not keep the rest waiting
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a listener of a settled answer failed", "exception": error}
                )

    def _not_done(self) -> BaseException:
        if self._state is _CANCELLED:
            return asyncio.CancelledError()
        return asyncio.InvalidStateError("not settled yet")


class Leavable(Deferred[T]):
    """Work that is cancelled when nobody waits for it any more."""


def from_future(
    future: "asyncio.Future[T]", translate: Callable[[BaseException], BaseException] = lambda error: error
) -> "Deferred[T]":
    """The same answer: what settles or withdraws one settles or withdraws the other."""
    later: Deferred[T] = Deferred()

    def copy(_: "asyncio.Future[T]") -> None:
        if later.done():
            return
        if future.cancelled():
            later.cancel()
        elif (error := future.exception()) is not None:
            later.set_exception(translate(error))
        else:
            later.set_result(future.result())

    future.add_done_callback(copy)
    later.add_done_callback(lambda each: future.cancel() if each.cancelled() else None)
    return later


async def within(seconds: float | None, later: "Deferred[Any]") -> bool:
    """Whether it was settled in that time. It is not withdrawn if not."""
    if later.done():
        return True
    turn = asyncio.Event()
    later.add_done_callback(lambda _: turn.set())
    try:
        async with asyncio.timeout(seconds):
            await turn.wait()
    except TimeoutError:
        return later.done()
    return True
