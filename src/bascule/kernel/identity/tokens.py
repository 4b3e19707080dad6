"""agentTokens: held and compared as hashes only."""

import hashlib

# Ours have 43 characters. Hashing what a peer sends must cost the same few microseconds however much it
# sends, and a link frame may hold megabytes.
MAX_TOKEN_CHARS = 256

# Enough for every helper of a misconfigured shell to fail once and say so with a clear 401.
WRONG_TOKEN_BURST = 10
# After that one answer per second says why; a guess among 2**256 gains nothing by being slower, but log
# and CPU stay free for the others.
WRONG_TOKENS_PER_SECOND = 1.0


def hash_token(token: str) -> str:
    # surrogatepass: a peer may send half a surrogate pair; that is a wrong token, not a fault of ours.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenBook:
    """Which agent a token belongs to, in memory; the store has the same hashes.

    Looking a secret up in a dict usually tells its beginning by timing. Here the key is the SHA-256 of
    what was sent: to learn from the time how far a digest agreed, a guesser would have to choose the
    digest, and the digest of a guess is as good as random. So no constant-time walk over all tokens is
    needed, and neither this process's memory nor the store holds anything that could be presented.
    """

    def __init__(self) -> None:
        self._handles: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, handle: str, token_hash: str) -> None:
        """From now on this is the handle's one token: an earlier one is wrong at once."""
        owner = self._handles.get(token_hash)
        if owner is not None and owner != handle:
            raise ValueError(f"the token of {handle} is already the token of {owner}")
        self.remove(handle)
        self._handles[token_hash] = handle
        self._hashes[handle] = token_hash

    def remove(self, handle: str) -> None:
        """Forget the handle's token, if it has one."""
        token_hash = self._hashes.pop(handle, None)
        if token_hash is not None:
            del self._handles[token_hash]

    def find(self, token: str) -> str | None:
        """The handle this token proves."""
        if not 0 < len(token) <= MAX_TOKEN_CHARS:
            return None
        return self._handles.get(hash_token(token))

    def find_hash(self, token_hash: str) -> str | None:
        """The same, for a caller that has hashed the token already."""
        return self._handles.get(token_hash)


class WrongTokenThrottle:
    """How often a door explains that a token is wrong; one per door, monotonic seconds passed in.

    Asked only after a token was found wrong, so that a flood of wrong tokens cannot keep a right one out.
    """

    def __init__(self, *, burst: int = WRONG_TOKEN_BURST, per_second: float = WRONG_TOKENS_PER_SECOND) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._left = self._burst
        self._at: float | None = None

    def failed(self, now: float) -> float | None:
        """Count a wrong token. None: answer 401. A number: answer 429, come back after that many seconds."""
        if self._at is not None:
            self._left = min(self._burst, self._left + max(0.0, now - self._at) * self._per_second)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return None
        return (1.0 - self._left) / self._per_second
