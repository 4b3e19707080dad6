"""A row with its handler, as the gate keeps it: what is asked on every call is found out once."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.call import Call
from bascule.kernel.identity.ownership import Ownership, Parties, Starter, ownership
from bascule.kernel.resolution import Resolve
from bascule.kernel.rows import Bound, Consent, Record, Row, Shape
from gabp import codec

Complete: TypeAlias = Callable[[Any], Any]


class Mounted(NamedTuple):
    row: Row
    handler: Any
    decoder: codec.Decoder[Any]
    name: str
    params: type
    ownership: Ownership | None
    # Executed at once, within the store; else in a coroutine (`Gate._outside`).
    inside: bool
    # Its change and its record are one transaction.
    changes: bool
    streams: bool
    # A call inside a run: rules name it, and no door leads to it.
    is_operation: bool
    # A person can be asked about it.
    asks: bool
    # Whether such a call is taken while everything is stopped; see `halt`.
    while_stopped: Callable[[Any], bool]
    # Taken however often its caller calls.
    urgent: bool
    resolve: Resolve | None
    # The params as rules see them, where that is more than the call says; see `Bridge.complete`.
    complete: Complete | None
    # Gives back what a wait took when its client was gone before the answer could be written.
    abandon: Callable[[Any, Any], None] | None

    def decoded(self, call: Call) -> Call:
        """The call with its params as the row has them."""
        if type(call.params) is self.params:
            return call
        try:
            return msgspec.structs.replace(call, params=self.decoder.decode(call.params))
        except codec.BadJson as error:
            raise InvalidRequest(error.message, details={"method": self.name}) from error


def mounted(
    bound: Bound, parties: Parties, starters: Mapping[str, Starter], complete: Complete | None = None
) -> Mounted:
    row, handler, abandon, resolve = bound
    asks = row.consent is not Consent.NEVER
    if (row.shape is Shape.OPERATION) != (handler is None) or (handler and row.consent is Consent.PAUSE):
        raise ValueError(f"{row.name}: a call inside a run has no handler, every other method has one")
    if row.consent is Consent.HOLD and row.record is Record.NONE:
        raise ValueError(f"{row.name} would spend a grant without a record")
    return Mounted(
        row,
        handler,
        codec.decoder(row.params),
        name=row.name,
        params=row.params,
        ownership=ownership(row, parties, starters),
        inside=row.record in (Record.NONE, Record.JOINED) and not asks and resolve is None,
        changes=row.record is Record.JOINED,
        streams=row.shape is Shape.STREAM,
        is_operation=row.shape is Shape.OPERATION,
        asks=asks,
        while_stopped=row.while_stopped,
        urgent=row.urgent,
        resolve=resolve,
        complete=complete,
        abandon=abandon,
    )
