"""One connection to NATS, from login to loss: publishing, requests with answers, and why something was not done."""

import asyncio
import itertools
import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.mesh.machine import layout
from bascule.mesh.machine.connection import NatsConnection, ServerError, Take
from bascule.mesh.machine.login import BusFault, Login, connect
from bascule.mesh.machine.nats_wire import Message
from bascule.mesh.ports import Fault
from gabp import codec

# An election in a cluster takes longer; who asked tries again.
REQUEST_SECONDS = 5.0
# A server that is alive answers a ping at once; over a bad line within this.
PING_BACK_SECONDS = 3
_FORBIDDEN = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)
_DOCS = "see docs/mesh.md, permissions"

# Of the server's errors those that mean: no room. Store failed (its limit), storage exceeded, resources, account.
_FULL = frozenset({10077, 10047, 10023, 10028, 10002})
# No such stream; JetStream off for the account, or for the server.
NO_STREAM = 10059
NO_CONSUMER = 10014
_NOT_SET_UP = frozenset({NO_STREAM, 10039, 10076})


class _Error(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _StreamState(msgspec.Struct, frozen=True):
    last_seq: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What JetStream answers: the fields that we read."""

    error: _Error | None = None
    # RFC 3339: when the stream was made, and when the server wrote this.
    created: str = ""
    ts: str = ""
    state: _StreamState = _StreamState()


_ANSWER: codec.Decoder[Answer] = codec.Decoder(Answer)


class ApiFault(BusFault):
    def __init__(self, fault: Fault, detail: str, code: int) -> None:
        super().__init__(fault, detail)
        self.code = code


class Bus:
    def __init__(self, user: str, server: str) -> None:
        self.server = server
        self.lost: Deferred[str] = Deferred()
        # Of subjects that we may not use; set by whoever shows it.
        self.on_forbidden: Callable[[str, BusFault], object] = lambda _subject, _fault: None
        # By the last token of the reply subject: who waits, and for an answer to what.
        self._waiting: dict[str, tuple[Deferred[bytes], str]] = {}
        self._numbers = itertools.count(1)
        # Why no answer can reach us.
        self._no_answers: BusFault | None = None
        self._connection: NatsConnection
        # Random: a node can make the server answer to a subject that it names, so nobody may guess ours.
        self.inbox = f"{layout.inbox(user)}.{os.urandom(9).hex()}"

    @classmethod
    async def connect(cls, login: Login, server: str, report: Callable[[str, BaseException], object]) -> "Bus":
        bus = cls(login.user, server)
        bus._connection = await connect(login, server, on_error=bus._on_error, on_lost=bus.lose, report=report)
        bus.subscribe(f"{bus.inbox}.r.*", bus._on_answer)
        return bus

    @property
    def version(self) -> str:
        return self._connection.info.version

    @property
    def max_bytes(self) -> int:
        """The largest letter that the server takes."""
        return self._connection.info.max_payload

    # -- out

    def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> bool:
        """Into the buffer of the connection; False: lost, stuck, or too large."""
        return self._connection.publish(subject, data, reply, headers)

    def request(self, subject: str, data: bytes, seconds: float = REQUEST_SECONDS) -> Deferred[bytes]:
        """The answer of whoever listens there. Fails with `BusFault`."""
        later: Deferred[bytes] = Deferred()
        if self._no_answers is not None:
            later.set_exception(self._no_answers)
            return later
        token = str(next(self._numbers))
        if not self.publish(subject, data, f"{self.inbox}.r.{token}"):
            limit = self.max_bytes
            why = "takes nothing now" if len(data) <= limit else f"takes at most {limit} bytes, not {len(data)}"
            later.set_exception(BusFault(Fault.UNREACHABLE, f"{self.server} {why}"))
            return later
        self._waiting[token] = (later, subject)
        timer = asyncio.get_running_loop().call_later(seconds, self._settle, token, _Late(self.server, seconds))

        def done(_: Deferred[bytes]) -> None:
            timer.cancel()
            self._waiting.pop(token, None)

        later.add_done_callback(done)
        return later

    async def api(self, name: str, body: Any = None, seconds: float = REQUEST_SECONDS) -> Answer:
        """A request to JetStream."""
        data = b"" if body is None else codec.encode(body)
        return self.read(await self.request(f"{layout.API}.{name}", data, seconds))

    def read(self, data: bytes) -> Answer:
        try:
            answer = _ANSWER.decode(data)
        except codec.BadJson:
            raise BusFault(
                Fault.NOT_SET_UP, f"{self.server} answers as JetStream does not: update the server"
            ) from None
        if (error := answer.error) is None:
            return answer
        code = error.err_code
        if code in _FULL:
            fault, advice = Fault.FULL, "make room on its disk, or raise the limit of the stream"
        elif code in _NOT_SET_UP:
            fault, advice = Fault.NOT_SET_UP, "`bascule mesh init` makes what the mesh needs"
        else:
            fault, advice = Fault.UNREACHABLE, "tried again"
        raise ApiFault(fault, f"{self.server}: {error.description} ({code}); {advice}", code)

    def subscribe(self, subject: str, take: Take) -> None:
        """`take` is called in the order of arrival, and must not wait."""
        self._connection.subscribe(subject, take)

    async def answers(self) -> bool:
        """Whether the server is alive."""
        try:
            async with asyncio.timeout(PING_BACK_SECONDS):
                await self._connection.ping()
        except (TimeoutError, ServerError):
            return False
        return True

    # -- in

    def _on_answer(self, message: Message) -> None:
        token = message.subject.rpartition(".")[2]
        # The server says that nobody listens. Whoever else could write this could as well not answer.
        if message.status.startswith("503") and not message.data:
            waiting = self._waiting.get(token)
            self._settle(token, _nobody(self.server, waiting[1] if waiting else ""))
        else:
            self._settle(token, message.data)

    def _settle(self, token: str, result: bytes | BusFault) -> None:
        waiting = self._waiting.get(token)
        if waiting is None or waiting[0].done():
            return
        if isinstance(result, BusFault):
            waiting[0].set_exception(result)
        else:
            waiting[0].set_result(result)

    def _on_error(self, text: str) -> None:
        """Of a permission: the only error that a connection outlives."""
        found = _FORBIDDEN.search(text)
        what, subject = found.groups() if found is not None else ("use", text)
        verb = "subscribe to" if what.lower() == "subscription" else "publish to"
        fault = BusFault(
            Fault.FORBIDDEN, f"{self.server} does not let this node {verb} {subject}; its operator must, {_DOCS}"
        )
        if subject.startswith(self.inbox):
            self._no_answers = fault
        for later, asked in list(self._waiting.values()):
            if (asked == subject or self._no_answers is not None) and not later.done():
                later.set_exception(fault)
        self.on_forbidden(subject, fault)

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    def close(self) -> None:
        self.lose("closed")
        self._connection.abort()
        fault = BusFault(Fault.UNREACHABLE, f"the connection to {self.server} was lost")
        for later, _ in list(self._waiting.values()):
            if not later.done():
                later.set_exception(fault)


class _Late(BusFault):
    """Nobody answered in time; the reason may be known elsewhere."""

    def __init__(self, server: str, seconds: float) -> None:
        super().__init__(Fault.UNREACHABLE, f"{server} did not confirm it within {seconds:g} s")


def is_late(fault: BaseException) -> bool:
    return isinstance(fault, _Late)


def _nobody(server: str, subject: str) -> BusFault:
    if subject.startswith(f"{layout.JOIN}."):
        # It may have begun the mesh a moment ago, or be starting again.
        return BusFault(Fault.UNREACHABLE, f"nobody at {server} answers who wants to join: is that daemon running?")
    # A server of a cluster whose disk is full turns JetStream off and says no more than this.
    return BusFault(
        Fault.NOT_SET_UP,
        f"{server} has no stream for it: JetStream is off, which a full disk does to it, or `bascule mesh init` was "
        "never run",
    )


def wall_ms(text: str) -> float:
    """Of a time as the server writes it."""
    try:
        return datetime.fromisoformat(text).timestamp() * 1_000
    except (ValueError, OverflowError):
        raise BusFault(Fault.NOT_SET_UP, f"the server says a time that is none: {text[:40]!r}; update it") from None
