"""Confirm tokens (contract 5.10): one permission for one exact act of one process, in memory only."""

import uuid
from typing import Final

import msgspec

from bascule.foundation.clock import Clock
from bascule.programs.desktop_host.peers import Client, PeerId

# Tokens one process may hold unspent; it acts one at a time.
MAX_PER_PEER: Final = 256


class TooManyTokens(Exception):
    """Spend some, or let them expire."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a token is bound to. The whole digest is compared, not the sixteen digits that are shown."""

    client: Client
    method: str
    digest: str
    workspace: str


class _Entry(msgspec.Struct, frozen=True):
    grant: Grant
    # On the monotonic clock: a jump of the wall clock changes nothing within this life.
    ends_at: float


class Tokens:
    """Single-threaded: of a thousand concurrent uses of a token the first to come wins."""

    def __init__(self, clock: Clock, *, max_per_peer: int = MAX_PER_PEER) -> None:
        self._clock = clock
        self._max_per_peer = max_per_peer
        self._entries: dict[str, _Entry] = {}

    def issue(self, grant: Grant, seconds: float) -> str:
        self._expire()
        if sum(each.grant.client.peer == grant.client.peer for each in self._entries.values()) >= self._max_per_peer:
            raise TooManyTokens(f"this process holds {self._max_per_peer} unused tokens")
        token = str(uuid.uuid4())
        self._entries[token] = _Entry(grant, self._clock.monotonic() + seconds)
        return token

    def spend(self, token: str, grant: Grant) -> str | None:
        """None: it was good for exactly this, and is used up. Else why not, in words."""
        entry = self._entries.get(token)
        if entry is None or entry.grant.client != grant.client:
            # Another process, or another of its clients, learns nothing, not even that there is such a token.
            return "the token is unknown here: used already, never issued, or issued to another process or client"
        if self._clock.monotonic() >= entry.ends_at:
            del self._entries[token]
            return "the token has expired"
        bound = entry.grant
        if bound.method != grant.method:
            return f"the token is for {bound.method}"
        if bound.workspace != grant.workspace:
            return "the token is for another workspace"
        if bound.digest != grant.digest:
            return "the token is for other parameters (route and options count)"
        del self._entries[token]
        return None

    def forget(self, peer: PeerId) -> None:
        """The process is gone, and with it what it was allowed."""
        self._entries = {token: each for token, each in self._entries.items() if each.grant.client.peer != peer}

    def forget_all(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _expire(self) -> None:
        now = self._clock.monotonic()
        self._entries = {token: each for token, each in self._entries.items() if each.ends_at > now}
