"""Nothing is told before what it rests on is durable, whoever wrote it."""

import asyncio
from collections.abc import Callable
from typing import Any

from bascule.audit.journal import Journal
from bascule.errors import BasculeError
from bascule.later import Later, from_future

# Makes of an unforeseen error what its caller may hear (invariant I4).
Fault = Callable[[BaseException], BasculeError]


class Telling:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def when_settled(self, fault: Fault, seq: int, answer: Any, again: Callable[[], Any] | None = None) -> Any:
        """The answer once `seq` is durable. A read looks `again` if that was undone."""
        durable = self._journal.settled(seq)
        if durable is None:
            return answer
        told: Later[Any] = Later()

        def tell(settled: "Later[None]") -> None:
            if told.done():
                return
            error = settled.exception()
            if error is None:
                told.set_result(answer)
            elif again is None:
                told.set_exception(error)
            else:
                self._tell_again(fault, told, again)

        durable.add_done_callback(tell)
        return told

    def and_then(self, fault: Fault, seq: int, waiting: Any) -> Any:
        """What was done has something to wait for; like every answer, that is told only once it is durable."""
        durable = self._journal.settled(seq)
        if durable is None:
            return waiting
        if not isinstance(waiting, Later):
            return self.when_settled(fault, seq, waiting)
        told: Later[Any] = Later()

        def look(_: object) -> None:
            if told.done() or not durable.done():
                return
            if (error := durable.exception()) is not None:
                told.set_exception(error)
            elif waiting.done():
                told.take_over(waiting)

        durable.add_done_callback(look)
        waiting.add_done_callback(look)
        told.add_done_callback(lambda _: waiting.cancel())
        return told

    def _tell_again(self, fault: Fault, told: Later[Any], again: Callable[[], Any]) -> None:
        """What a read saw was undone: it looks once more, at what is durable now; a wait goes on waiting."""
        try:
            answer = again()
        except BasculeError as refusal:
            told.set_exception(refusal)
            return
        except Exception as error:  # noqa: BLE001 - I4: whoever waits hears an id, not silence
            told.set_exception(fault(error))
            return
        if isinstance(answer, asyncio.Future):
            answer = from_elsewhere(fault, answer)
        elif not isinstance(answer, Later):
            # Newer writes may be under way by now.
            answer = self.when_settled(fault, self._journal.newest(), answer, again)
        if not isinstance(answer, Later):
            told.set_result(answer)
            return
        waiting = answer

        waiting.add_done_callback(told.take_over)
        told.add_done_callback(lambda _: waiting.cancel())


def from_elsewhere(fault: Fault, future: "asyncio.Future[Any]") -> Later[Any]:
    """Work of another thread or task, as the caller may have it: faults become ids."""
    answer = from_future(future)
    told: Later[Any] = Later()

    def tell(_: "Later[Any]") -> None:
        if told.done():
            return
        if answer.cancelled():
            told.cancel()
        elif (error := answer.exception()) is None:
            told.set_result(answer.result())
        else:
            told.set_exception(error if isinstance(error, BasculeError) else fault(error))

    answer.add_done_callback(tell)
    told.add_done_callback(lambda _: answer.cancel())
    return told


def refused_after(durable: Later[None], refusal: BasculeError) -> Later[Any]:
    """A refusal tells what is ("ticket cancelled"), so it too waits until that is durable; if it never is, 507."""
    told: Later[Any] = Later()

    def tell(settled: Later[None]) -> None:
        if not told.done():
            told.set_exception(settled.exception() or refusal)

    durable.add_done_callback(tell)
    return told
