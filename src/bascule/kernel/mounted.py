"""A row with its handler, as the gate keeps it: what is asked on every call is found out once."""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.call import Call
from bascule.kernel.identity.ownership import Ownership, Parties, Starter, ownership
from bascule.kernel.resolution import Resolve
from bascule.kernel.rows import Bound, Consent, Payload, Record, Row, Shape
from gabp import codec

Complete: TypeAlias = Callable[[Any], Any]


# Of a payload that stays as it came: numbers that a reader may take for infinity, or refuse.
_BEYOND_NUMBERS = re.compile(rb"[0-9]{300}|[eE]\+?[0-9]{3}")


# The largest payload by default, and what stands around it: it is looked through several times, 20 ms in all.
MAX_PASSED_ON_BYTES = (1024 + 128) * 1024


class _WithPayload(msgspec.Struct):
    payload: codec.Raw


_with_payload = codec.decoder(_WithPayload)


class ParamsReader:
    """Params from JSON, under a limit on values: a payload with more of them stays the JSON text that it is."""

    def __init__(self, params: type) -> None:
        self._plain: codec.Decoder[Any] = codec.decoder(params)
        self._has_payload = any(field.type is Payload for field in msgspec.structs.fields(params))

    def decode(self, data: bytes | codec.Raw) -> Any:
        return self.finish(*self.begin(bytes(data)))

    def begin(self, data: bytes) -> tuple[bytes, codec.Raw | None]:
        """What there is to decode, and the payload beside it if it stays as it is."""
        if not codec.has_too_many_values(data):
            return data, None
        if self._has_payload and len(data) <= MAX_PASSED_ON_BYTES:
            payload = _with_payload.decode(data).payload
            before, _, behind = data.partition(bytes(payload))
            rest = before + b"null" + behind
            if not codec.has_too_many_values(rest):
                return rest, payload
        raise codec.TooManyValues(codec.MAX_VALUES)

    def finish(self, data: bytes, payload: codec.Raw | None) -> Any:
        params = self._plain.decode(data)
        if payload is None:
            return params
        if _BEYOND_NUMBERS.search(bytes(payload)) is not None:
            raise codec.BadJson("`payload`: a number in it is too large for most readers: send it as text")
        return msgspec.structs.replace(params, payload=payload)


class Mounted(NamedTuple):
    row: Row
    handler: Any
    decoder: ParamsReader
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
        ParamsReader(row.params),
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
