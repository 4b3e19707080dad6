"""One effect outside the store, from its record `begun` to its answer.

begun on disk -> the handler -> finished on disk -> told. Whoever asked may leave meanwhile: before it begins nothing
happens, after that it goes on and its end is recorded; unless the handler says that it can be withdrawn (`Leavable`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from bascule.approval.effects import Begun, Changes, Effects
from bascule.audit.begun import UNKNOWN
from bascule.audit.journal import Transaction
from bascule.errors import BasculeError, StorageFull
from bascule.later import Later, Leavable, from_future

Fault = Callable[[BaseException], BasculeError]


class Doing:
    """What a handler that acts outside the store adds to the record of its end."""

    __slots__ = ("approval_id", "begun_id", "changes", "details", "unknown")

    def __init__(self, begun: Begun) -> None:
        self.begun_id = begun.begun_id
        # The grant it rests on, if it needed one.
        self.approval_id = begun.approval_id
        self.details: dict[str, Any] = {}
        # Changes of the bridge's own tables, in the transaction of that record.
        self.changes: list[Changes] = []
        # Set by a handler that fails without knowing how far it came: recorded as `unknown`, whatever is answered.
        self.unknown = False

    def change(self, tx: Transaction) -> None:
        for change in self.changes:
            change(tx)


class Ahead:
    __slots__ = ("_act", "_begun", "_doing", "_effects", "_fault", "_first", "_waits", "told")

    def __init__(
        self,
        effects: Effects,
        begun: Begun,
        act: Callable[[Doing], Any],
        fault: Fault,
        *,
        first: bool = True,
        waits: bool = False,
    ) -> None:
        """`first`: on disk before the effect, and its end before the answer. Else both records are on their way.

        `waits`: it only waits for something, so it ends when nobody waits for it any more.
        """
        self._effects = effects
        self._begun = begun
        self._act = act
        self._fault = fault
        self._doing = Doing(begun)
        self._first = first
        self._waits = waits
        self.told: Later[Any] = Later()
        if begun.durable is None or not first:
            self._start()
        else:
            begun.durable.add_done_callback(self._recorded)

    def _recorded(self, durable: Later[None]) -> None:
        error = durable.exception()
        if error is None:
            self._start()
        else:
            # Undone together with the spending of its grant: nothing happened.
            self._tell(error)

    def _start(self) -> None:
        if self.told.cancelled():
            self._finish("cancelled", None)
            return
        try:
            answer = self._act(self._doing)
        except Exception as error:  # noqa: BLE001 - whatever happened is recorded, and what we did not foresee is an id
            self._refuse(error)
            return
        if isinstance(answer, asyncio.Future):
            answer = from_future(answer)
        if isinstance(answer, Leavable):
            self.told.add_done_callback(lambda told: answer.cancel() if told.cancelled() else None)
        if isinstance(answer, Later):
            answer.add_done_callback(self._ended)
            if self._waits:
                self.told.add_done_callback(lambda told: answer.cancel() if told.cancelled() else None)
        else:
            self._finish("ok", answer)

    def _ended(self, answer: Later[Any]) -> None:
        if answer.cancelled():
            self._finish(UNKNOWN if self._doing.unknown else "cancelled", None)
        elif (error := answer.exception()) is not None:
            self._refuse(error)
        else:
            self._finish("ok", answer.result())

    def _refuse(self, error: BaseException) -> None:
        refusal = error if isinstance(error, BasculeError) else self._fault(error)
        self._doing.details.setdefault("reason", refusal.message)
        self._finish(UNKNOWN if self._doing.unknown else refusal.code, refusal)

    def _finish(self, outcome: str, answer: Any) -> None:
        try:
            durable = self._effects.finish(self._begun, outcome, self._doing.details, self._doing.change)
        except Exception as error:  # noqa: BLE001 - the bridge's own changes failed: it stays begun, and will be unknown
            self._tell(self._fault(error))
            return
        if durable is None or not self._first:
            self._tell(answer)
        else:
            durable.add_done_callback(lambda _: self._tell(_unrecorded(durable.exception()) or answer))

    def _tell(self, answer: Any) -> None:
        if self.told.done():
            return
        if isinstance(answer, BaseException):
            self.told.set_exception(answer)
        else:
            self.told.set_result(answer)


def _unrecorded(error: BaseException | None) -> BaseException | None:
    """It happened, and the disk could not take that it did: nobody may think that it did not."""
    if not isinstance(error, StorageFull):
        return error
    return StorageFull(
        "it was carried out, but its end could not be recorded; the ledger will say `unknown`",
        hint="do not repeat it before you have looked; free space on the disk that holds the state directory",
    )
