"""Results too large for one message, kept as resources to be read piece by piece. Bounded; the oldest go first."""

from collections import OrderedDict
from urllib.parse import parse_qs, urlsplit

import msgspec

from gabp import messages
from gabp.errors import ErrorCode, GameError
from gabp.session import new_id

# Of UTF-8 in one answer. We write ASCII: a character of two bytes becomes an escape of six, so that an answer has three
# times as many bytes at most, and fits into one message of 1 MiB.
PIECE_BYTES = 320 * 1024
# Of all results that are kept for one game; the oldest go first.
MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_KEPT = 64


class KeptResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What stands in for the result: read `uri`, then `uri?offset=<n>` until `size` is reached; both are bytes."""

    uri: str
    size: int
    mime_type: str = "application/json"
    piece: int = PIECE_BYTES


class Kept:
    def __init__(
        self, base: str, *, max_bytes: int = MAX_KEPT_BYTES, max_kept: int = MAX_KEPT, piece: int = PIECE_BYTES
    ) -> None:
        """`base`: where the uris begin, e.g. `gabp://mod/results/`."""
        self._base = base
        self._max_bytes = max_bytes
        self._max_kept = max_kept
        self._piece = piece
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def keep(self, text: bytes) -> KeptResult:
        """`text` is JSON in UTF-8. GameError when it is larger than all that may be kept."""
        if len(text) > self._max_bytes:
            raise GameError(
                ErrorCode.TOOL_FAILED,
                f"the result has {len(text)} bytes, over the limit of {self._max_bytes}; it is not kept",
                {"executed": True, "size": len(text)},
                executed="yes",
            )
        uri = self._base + new_id()
        self._texts[uri] = text
        self._bytes += len(text)
        while self._bytes > self._max_bytes or len(self._texts) > self._max_kept:
            _, dropped = self._texts.popitem(last=False)
            self._bytes -= len(dropped)
        return KeptResult(uri=uri, size=len(text), piece=self._piece)

    def owns(self, uri: str) -> bool:
        return uri.startswith(self._base)

    def read(self, uri: str) -> messages.ResourcesReadResult:
        """A piece of it: from `?offset=`, of `?length=` bytes and what is missing of the last character."""
        plain, query = split_query(uri)
        text = self._texts.get(plain)
        if text is None:
            raise GameError(
                ErrorCode.RESOURCE_NOT_FOUND, "this result is no longer kept; call the tool again if it may run twice"
            )
        offset = _number(query, "offset", 0)
        length = min(_number(query, "length", self._piece), self._piece)
        end = _character_end(text, offset + length)
        content = text[offset:end].decode(errors="replace")
        return messages.ResourcesReadResult(content=content, mime_type="application/json", encoding="utf-8")

    def size_of(self, uri: str) -> int | None:
        text = self._texts.get(uri)
        return None if text is None else len(text)

    def list(self) -> list[messages.Resource]:
        return [
            messages.Resource(uri=uri, name="a large result", mime_type="application/json", size=len(text))
            for uri, text in self._texts.items()
        ]


def _character_end(text: bytes, at: int) -> int:
    # The bytes of a character after its first are 10xxxxxx.
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def split_query(uri: str) -> tuple[str, dict[str, list[str]]]:
    try:
        parts = urlsplit(uri)
        return uri.partition("?")[0], parse_qs(parts.query, max_num_fields=16)
    except ValueError:
        return uri, {}


def _number(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [""])[0]
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise GameError(ErrorCode.INVALID_PARAMS, f"`{name}` in the uri must be a number, not {text[:20]!r}")
    return int(text)
