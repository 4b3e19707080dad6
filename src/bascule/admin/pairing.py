"""How a browser becomes a session without a secret in an address, an argument, a history or a file.

The page makes a secret and sends its hash; page and terminal show six digits; a person says on the terminal that they
are the same; the page claims its session with the secret. Two pages within a minute are both refused: of two a person
could confirm the wrong one.
"""

import hmac
import secrets
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, Conflict, Forbidden, NotFound
from bascule.foundation.ids import new_id
from bascule.foundation.timers import Timers
from bascule.kernel.identity.tokens import hash_token

T = TypeVar("T")

# Time to find the terminal and read six digits.
PAIRING_SECONDS = 180.0
# Two pages that ask within this time are both refused.
ALONE_SECONDS = 60.0
DIGITS = 6


class PairingState(Enum):
    ASKED = "asked"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    CLAIMED = "claimed"


class Pairing:
    def __init__(self, secret_hash: str, clock: Clock) -> None:
        self.pairing_id = new_id("par")
        self.secret_hash = secret_hash
        self.digits = f"{secrets.randbelow(10**DIGITS):0{DIGITS}d}"
        self.state = PairingState.ASKED
        self.asked = clock.monotonic()
        self.asked_at = clock.wall_ms()
        self.expires_at = self.asked_at + round(PAIRING_SECONDS * 1000)
        # Why it was refused.
        self.reason = ""


class Pairings:
    """At most one page at a time, so one pairing is kept."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._current: Pairing | None = None
        self._last_asked = float("-inf")
        # Calls that wait for a change of it.
        self._waiters: set[Deferred[None]] = set()
        self._stopping = False

    # -- the page --

    def ask(self, secret_hash: str) -> Pairing:
        now = self._clock.monotonic()
        current = self._open()
        waits = current is not None and current.state is not PairingState.REFUSED
        if current is not None and waits and hmac.compare_digest(current.secret_hash, secret_hash):
            # The same page, loaded again.
            return current
        alone = now - self._last_asked >= ALONE_SECONDS
        self._last_asked = now
        if not alone:
            if current is not None:
                self._refuse(current, "another page asked within a minute")
            raise Conflict(
                "two pages asked to pair within a minute: neither may",
                hint="close the pages that are not yours, wait a minute, then run `bascule console` again",
            )
        if current is not None:
            self._refuse(current, "another page asked")
        pairing = self._current = Pairing(secret_hash, self._clock)
        self._changed()
        return pairing

    def claim(self, pairing_id: str, secret: str) -> Pairing | None:
        """The pairing, once it is confirmed: this takes it. None while nobody has said anything."""
        pairing = self._find(pairing_id)
        if not hmac.compare_digest(pairing.secret_hash, hash_token(secret)):
            # Who knows the id and not the secret is another page: neither is to be believed.
            self._refuse(pairing, "it was claimed with a wrong secret")
        if pairing.state is PairingState.REFUSED:
            raise Forbidden(f"this page was not paired: {pairing.reason}", hint="run `bascule console` again")
        if pairing.state is PairingState.ASKED:
            return None
        pairing.state = PairingState.CLAIMED
        self._current = None
        return pairing

    # -- the terminal --

    def asked(self) -> list[Pairing]:
        current = self._open()
        return [current] if current is not None and current.state is PairingState.ASKED else []

    def answer(self, pairing_id: str, *, accept: bool) -> Pairing:
        """The pairing that a person looks at, refused unless they accept it; `confirm` makes that so."""
        pairing = self._find(pairing_id)
        if pairing.state is not PairingState.ASKED:
            raise Conflict(
                f"{pairing_id} was {pairing.state.value} already" + (f": {pairing.reason}" if pairing.reason else ""),
                hint="run `bascule console` again",
            )
        if not accept:
            self._refuse(pairing, "the digits were not the same")
        return pairing

    def confirm(self, pairing: Pairing) -> None:
        if pairing.state is PairingState.ASKED:
            pairing.state = PairingState.CONFIRMED
            self._changed()

    # -- waiting --

    def wait(self, ms: int, answer: Callable[[], T]) -> Deferred[T]:
        """What `answer` gives, or raises, when something has changed or the time is over."""
        later: Deferred[T] = Deferred()
        waiter: Deferred[None] = Deferred()
        deadline = self._timers.after_ms(ms, lambda _: waiter.done() or waiter.set_result(None))
        self._waiters.add(waiter)

        def woken(_: Deferred[None]) -> None:
            self._waiters.discard(waiter)
            self._timers.call_off(deadline)
            if later.done():
                # Its caller left.
                return
            try:
                later.set_result(answer())
            except BasculeError as error:
                later.set_exception(error)

        waiter.add_done_callback(woken)
        later.add_done_callback(lambda _: waiter.cancel())
        return later

    @property
    def stopping(self) -> bool:
        return self._stopping

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def end(self) -> None:
        self._stopping = True
        self._changed()

    def _changed(self) -> None:
        """Every waiter looks again; one that finds nothing asks again by itself."""
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    # -- inside --

    def _open(self) -> Pairing | None:
        current = self._current
        if current is not None and self._clock.monotonic() - current.asked >= PAIRING_SECONDS:
            current = self._current = None
        return current

    def _find(self, pairing_id: str) -> Pairing:
        current = self._open()
        if current is None or current.pairing_id != pairing_id:
            raise NotFound("no such pairing: its time is over, or it was claimed", hint="run `bascule console` again")
        return current

    def _refuse(self, pairing: Pairing, reason: str) -> None:
        if pairing.state in (PairingState.ASKED, PairingState.CONFIRMED):
            pairing.state = PairingState.REFUSED
            pairing.reason = reason
            self._changed()
