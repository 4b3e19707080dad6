"""Results too large for one answer: kept by the bridge, or by a mod that announces that it keeps them."""

from typing import Final

import msgspec

from gabp import messages
from gabp.codec import BadJson, Raw, decoder
from gabp.envelopes import utf8_text
from gabp.kept import MAX_KEPT, Kept, KeptResult

# As `bascule_mod` announces it: {"large-results": {"field": "resource"}}.
LARGE_RESULTS: Final = "large-results"
# Such an answer is short; a longer one is not looked into.
MAX_STANDIN_BYTES: Final = 4_096


class _StandIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    resource: KeptResult


_stand_in = decoder(_StandIn)


class LargeResults:
    def __init__(self, game_id: str) -> None:
        self._ours = Kept(f"gabp://bridge/{game_id}/results/")
        # Where the mod keeps some, the newest last, and how large they are: what is read there comes in pieces.
        self._theirs: dict[str, int] = {}

    def seen(self, result: Raw, inline_bytes: int, welcome: messages.Welcome | None) -> Raw | KeptResult:
        """The result, or where it is kept."""
        size = memoryview(result).nbytes
        if size > inline_bytes:
            # By its UTF-8, whether or not the mod writes escapes.
            text = utf8_text(bytes(result))
            return self._ours.keep(text) if len(text) > inline_bytes else Raw(text)
        # Nearly every result ends here, so a look at its bytes comes before any parsing.
        if size > MAX_STANDIN_BYTES or b'"resource"' not in bytes(result):
            return result
        if welcome is None or welcome.extension(LARGE_RESULTS) is None:
            return result
        try:
            kept = _stand_in.decode(result).resource
        except BadJson:
            return result
        self._theirs[kept.uri] = kept.size
        if len(self._theirs) > MAX_KEPT:
            del self._theirs[next(iter(self._theirs))]
        return kept

    def size_of(self, uri: str) -> int | None:
        """Of one that comes in pieces: it understands `?offset=` and `?length=`, in bytes. None of all others."""
        return self._ours.size_of(uri) if self._ours.owns(uri) else self._theirs.get(uri)

    def owns(self, uri: str) -> bool:
        return self._ours.owns(uri)

    def read(self, uri: str) -> messages.ResourcesReadResult:
        return self._ours.read(uri)
