"""The person: a passphrase typed on a terminal, set once, that makes one connection theirs for a while."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from bascule.admin.ports import Unlockable
from bascule.admin.protocol import PassphraseParams, PersonResult
from bascule.admin.records import PERSON_KEY, DaemonFact
from bascule.foundation.clock import Clock
from bascule.foundation.errors import Conflict, Forbidden, Overloaded
from bascule.kernel.call import Call
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.kernel.identity.passphrase import UNLOCK_SECONDS, PassphraseThrottle, make_hash, verify
from bascule.kernel.journal import Journal, Table, Transaction
from bascule.kernel.rows import Nothing

T = TypeVar("T")


class Person:
    def __init__(self, facts: Table[DaemonFact], journal: Journal, clock: Clock, events: EventRing) -> None:
        self._facts = facts
        self._journal = journal
        self._clock = clock
        self._events = events
        self._throttle = PassphraseThrottle()
        # Hashing is slow on purpose: one at a time, or anybody could queue hours of it.
        self._setting = False

    @property
    def is_set(self) -> bool:
        return PERSON_KEY in self._facts.rows

    def status(self, call: Call, params: Nothing) -> PersonResult:
        connection = _unlockable(call)
        return PersonResult(set=self.is_set, unlocked_s=connection.unlocked_for() if connection else None)

    def set(self, call: Call, params: PassphraseParams, tx: Transaction) -> "asyncio.Future[PersonResult]":
        self._must_be_unset()
        if self._setting:
            raise Overloaded("a passphrase is being set", hint="wait a moment", retry_after=1.0)
        self._setting = True

        def store(hashed: str) -> PersonResult:
            # Two may have asked at once: the first one set it.
            self._must_be_unset()
            tx.put(self._facts, PERSON_KEY, DaemonFact(hashed, self._clock.wall_ms()))
            tx.after.append(lambda: self._events.publish(Fact(kind=Kind.PERSON, event="set")))
            # Trust rests on knowing later who did this: the ledger names the process.
            tx.details = {"process": getattr(call.connection, "peer", None)}
            return PersonResult(set=True)

        return self._off_loop(lambda: make_hash(params.passphrase), store, call, tx)

    def unlock(self, call: Call, params: PassphraseParams, tx: Transaction) -> "asyncio.Future[PersonResult]":
        connection = _unlockable(call)
        if connection is None:
            raise Forbidden(
                "only a link connection can be unlocked",
                hint="use the bascule command; HTTP carries no person",
            )
        fact = self._facts.rows.get(PERSON_KEY)
        if fact is None:
            raise Conflict("no passphrase is set", hint="set one with `bascule person set`")
        pause = self._throttle.attempt(self._clock.monotonic())
        if pause is not None:
            raise Overloaded(
                "too many wrong passphrases", hint=f"wait {pause:.0f} s, then try again", retry_after=pause
            )

        def judge(right: bool) -> PersonResult:
            if not right:
                raise Forbidden("wrong passphrase", hint="try again; `bascule person reset` starts over")
            self._throttle.succeeded()
            tx.after.append(lambda: connection.unlock(UNLOCK_SECONDS))
            tx.after.append(lambda: self._events.publish(Fact(kind=Kind.PERSON, event="unlocked")))
            tx.details = {"seconds": UNLOCK_SECONDS, "process": getattr(call.connection, "peer", None)}
            return PersonResult(set=True, unlocked_s=float(UNLOCK_SECONDS))

        return self._off_loop(lambda: verify(params.passphrase, fact.text), judge, call, tx)

    def _must_be_unset(self) -> None:
        if self.is_set:
            raise Conflict(
                "a passphrase is set already",
                hint="stop the daemon and run `bascule person reset` to start over",
            )

    def _off_loop(
        self, work: Callable[[], T], then: Callable[[T], PersonResult], call: Call, tx: Transaction
    ) -> "asyncio.Future[PersonResult]":
        """Run scrypt on a thread, then decide and commit on the loop; a refusal is recorded too."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PersonResult] = loop.create_future()

        def finish(done: "asyncio.Future[T]") -> None:
            self._setting = False
            tx.subject = "person"
            try:
                result = then(done.result())
            except Exception as error:  # noqa: BLE001 - whatever happened is the caller's answer
                if isinstance(error, Forbidden):
                    tx.details = {"reason": error.message}
                    self._journal.commit(tx, call.principal, call.method, error.code)
                _settle(answer, error)
                return
            self._journal.commit(tx, call.principal, call.method).add_done_callback(
                lambda _: _settle(answer, tx.exception() or result)
            )

        loop.run_in_executor(None, work).add_done_callback(finish)
        return answer


def _settle(answer: "asyncio.Future[PersonResult]", outcome: "PersonResult | BaseException") -> None:
    if answer.done():
        return
    if isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def _unlockable(call: Call) -> Unlockable | None:
    return call.connection if hasattr(call.connection, "unlock") else None  # type: ignore[return-value] # asked just before
