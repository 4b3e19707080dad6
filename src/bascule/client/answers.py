"""What the daemon's frames mean: results by their type, errors by their class, items of streams."""

from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bascule.admin.approvals import ApprovalView
from bascule.broker.protocol import Event, InboxItem
from bascule.client.faults import BadAnswer
from bascule.client.happened import Happened
from bascule.foundation.errors import BY_CODE, BasculeError, Internal
from bascule.wire import jsonrpc
from bascule.workspace.protocol import StreamedOutput
from gabp import codec


@cache
def decoder_of(type_: Any) -> codec.Decoder[Any]:
    """Payloads were accepted at full depth and come back wrapped: allow the wrapping too."""
    return codec.decoder(type_, max_depth=codec.MAX_ANSWER_DEPTH)


def read_result(decoder: codec.Decoder[Any], response: jsonrpc.Response) -> Any:
    """The typed result; raises the daemon's error, or `BadAnswer` for what does not fit the type."""
    if response.error is not None:
        raise house_error(response.error)
    assert response.result is not None
    try:
        return decoder.decode(response.result)
    except codec.BadJson as error:
        raise BadAnswer(
            f"the daemon's answer is not what this client expects: {error.message}",
            hint="restart the daemon with `bascule down && bascule up -d` so that both have one version",
        ) from error


def house_error(error: jsonrpc.RpcError) -> BasculeError:
    """The class of `bascule.foundation.errors` that the daemon raised, with everything it said."""
    data = error.data if isinstance(error.data, dict) else {}
    kind = BY_CODE.get(str(data.get("code")), Internal)
    details, hint, retry = data.get("details"), data.get("hint"), data.get("retryAfterMs")
    return kind(
        str(data.get("message") or error.message),
        hint=str(hint) if hint is not None else None,
        details=details if isinstance(details, dict) else None,
        retry_after=retry / 1000 if isinstance(retry, int | float) else None,
    )


# -- streams --


class Note(NamedTuple):
    """One notification of an open stream: an item, a count of items left out, or (neither) its end."""

    stream: int
    item: Any = None
    dropped: int = 0


Item = TypeVar("Item")


class _Item(msgspec.Struct, Generic[Item], frozen=True):
    stream: int
    item: Item


class _Other(msgspec.Struct, frozen=True):
    stream: int
    dropped: int = 0


_ITEMS: dict[str, Any] = {
    "inbox": InboxItem,
    "events": Event,
    "runs": StreamedOutput,
    "approvals": ApprovalView,
    "games": Happened,
}
_NOTES: dict[str, Any] = {
    f"{name}.item": _Item[type_]  # type: ignore[valid-type] # a type made at run time, for msgspec
    for name, type_ in _ITEMS.items()
} | {f"{name}.{what}": _Other for name in _ITEMS for what in ("overflow", "end")}


def read_note(message: jsonrpc.Notification) -> Note | None:
    """None for notifications of a newer daemon, which we need not understand."""
    type_ = _NOTES.get(message.method)
    if type_ is None:
        return None
    try:
        note = decoder_of(type_).decode(message.params)
    except codec.BadJson as error:
        raise BadAnswer(f"the daemon sent a {message.method} that this client cannot read: {error.message}") from error
    if isinstance(note, _Other):
        return Note(note.stream, dropped=note.dropped)
    return Note(note.stream, note.item)
