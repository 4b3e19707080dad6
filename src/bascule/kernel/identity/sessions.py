"""Sessions of the console: in memory, compared as hashes, gone with the daemon.

The same user can read a browser's profile, so a session is worth no more than the local token; what only the person
may do needs a proof of its own (`kernel.at_console`). That sessions die with the daemon is a guard too: a program that
takes the port after us is sent tokens that open nothing.
"""

from collections.abc import Callable

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Overloaded
from bascule.foundation.ids import new_id, new_token
from bascule.kernel.call import LOCAL, PERSON, Grade, Principal
from bascule.kernel.identity.tokens import MAX_TOKEN_CHARS, hash_token

# A working day: who comes back in the morning shows once more that it is them.
SESSION_SECONDS = 12 * 3_600
# Who left their desk has left it; a session that looks as the person must not wait for the next passer-by.
IDLE_SECONDS = 30 * 60
# Browsers and tabs of one person. More are a page that pairs in a circle.
MAX_SESSIONS = 32


class Session:
    """One tab of one browser, and what it has shown."""

    __slots__ = (
        "_idle_seconds", "_seen", "_since", "grade", "passkey_id", "seconds", "seen_at", "session_id", "since_at",
    )  # fmt: skip

    def __init__(
        self,
        session_id: str,
        grade: Grade,
        clock: Clock,
        *,
        seconds: float,
        idle_seconds: float | None,
        passkey_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.grade = grade
        # That it was signed in with.
        self.passkey_id = passkey_id
        self.seconds = seconds
        self._idle_seconds = idle_seconds
        self._since = self._seen = clock.monotonic()
        # Wall time, for people, and because the monotonic clock stands still while a machine sleeps.
        self.since_at = self.seen_at = clock.wall_ms()

    @property
    def principal(self) -> Principal:
        return LOCAL if self.grade is Grade.PAIRED else PERSON

    @property
    def until_at(self) -> int:
        """Wall time at which it ends, however much it is used."""
        return self.since_at + round(self.seconds * 1000)

    def touch(self, clock: Clock) -> None:
        self._seen = clock.monotonic()
        self.seen_at = clock.wall_ms()

    def is_over(self, clock: Clock) -> bool:
        """By whichever clock says so first: a jump of the wall clock may end it early, never late."""
        now, wall = clock.monotonic(), clock.wall_ms()
        lived = max(now - self._since, (wall - self.since_at) / 1000)
        idle = max(now - self._seen, (wall - self.seen_at) / 1000)
        return lived >= self.seconds or (self._idle_seconds is not None and idle >= self._idle_seconds)


class Sessions:
    def __init__(
        self,
        clock: Clock,
        *,
        seconds: float = SESSION_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        most: int = MAX_SESSIONS,
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._most = most
        self._by_hash: dict[str, Session] = {}
        # Where the console is served: its own origin, then those that the user named. Empty while it is not.
        self.origins: tuple[str, ...] = ()
        # Called with the id of every session that ends: what it holds open ends with it.
        self.on_end: list[Callable[[str], None]] = []

    def open(self, grade: Grade, *, passkey_id: str | None = None) -> tuple[str, Session]:
        """A new session and its token, which is kept nowhere."""
        self.expire()
        if len(self._by_hash) >= self._most and grade is not Grade.PAIRED:
            self._make_room()
        if len(self._by_hash) >= self._most:
            raise Overloaded(
                f"{self._most} sessions of the console are open",
                hint="end some: `bascule console --list`, then `bascule console --revoke ID`",
                retry_after=60.0,
            )
        token = new_token()
        # Only who looks as the person is sent away for being idle: a paired session is what the local token is.
        idle_seconds = self._idle_seconds if grade is not Grade.PAIRED else None
        session = Session(
            new_id("ses"),
            grade,
            self._clock,
            seconds=self._seconds,
            idle_seconds=idle_seconds,
            passkey_id=passkey_id,
        )
        self._by_hash[hash_token(token)] = session
        return token, session

    def find(self, token: str) -> Session | None:
        """The session that this token proves. To be asked for is to be used."""
        if not 0 < len(token) <= MAX_TOKEN_CHARS:
            return None
        token_hash = hash_token(token)
        session = self._by_hash.get(token_hash)
        if session is None:
            return None
        if session.is_over(self._clock):
            self._drop(token_hash)
            return None
        session.touch(self._clock)
        return session

    def get(self, session_id: str) -> Session | None:
        """Without using it."""
        return next((each for each in self.all() if each.session_id == session_id), None)

    def all(self) -> list[Session]:
        self.expire()
        return list(self._by_hash.values())

    def end(self, session_id: str | None = None) -> int:
        """End one session, or every one; how many there were."""
        found = [key for key, each in self._by_hash.items() if session_id in (None, each.session_id)]
        for key in found:
            self._drop(key)
        return len(found)

    def end_of_passkey(self, passkey_id: str) -> None:
        """The key counts no longer, and so does nobody who signed in with it."""
        for key in [key for key, each in self._by_hash.items() if each.passkey_id == passkey_id]:
            self._drop(key)

    def expire(self) -> None:
        """End those whose time is over. A stream that nobody asks about is ended by this alone."""
        for key in [key for key, each in self._by_hash.items() if each.is_over(self._clock)]:
            self._drop(key)

    def _make_room(self) -> None:
        """A program of the same user can pair as often as it likes: that must not keep the person out."""
        paired = [key for key, each in self._by_hash.items() if each.grade is Grade.PAIRED]
        if paired:
            self._drop(min(paired, key=lambda key: self._by_hash[key].seen_at))

    def _drop(self, key: str) -> None:
        session = self._by_hash.pop(key)
        for callback in self.on_end:
            callback(session.session_id)
