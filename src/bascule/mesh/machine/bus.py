"""One connection to NATS, from login to loss: publishing, requests with answers, and why something was not done."""

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bascule.foundation.deferred import Deferred
from bascule.mesh.machine import layout
from bascule.mesh.machine.login import MAX_UNSENT_BYTES, BusFault, Login, close, connect
from bascule.mesh.ports import Fault
from gabp import codec

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

# An election in a cluster takes longer; who asked tries again.
REQUEST_SECONDS = 5.0
# A server that is alive answers a ping at once; over a bad line within this.
PING_BACK_SECONDS = 3
# What a publish adds to its data in the buffer: its subject, its reply subject and their lengths.
_COMMAND_BYTES = 1_024
_NO_PENDING_LIMIT = 0
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
    def __init__(self, user: str, server: str, report: Callable[[str, BaseException], object]) -> None:
        self.server = server
        self._report = report
        self.lost: Deferred[str] = Deferred()
        # Of subjects that we may not use; set by whoever shows it.
        self.on_forbidden: Callable[[str, BusFault], object] = lambda _subject, _fault: None
        # By the last token of the reply subject: who waits, and for an answer to what.
        self._waiting: dict[str, tuple[Deferred[bytes], str]] = {}
        self._numbers = itertools.count(1)
        self.client: Client
        # Random: a node can make the server answer to a subject that it names, so nobody may guess ours.
        self.inbox = f"{layout.inbox(user)}.{os.urandom(9).hex()}"

    @classmethod
    async def connect(cls, login: Login, server: str, report: Callable[[str, BaseException], object]) -> "Bus":
        bus = cls(login.user, server, report)
        bus.client = await connect(login, server, on_error=bus._on_error, on_closed=bus._on_closed)
        await bus.client.subscribe(f"{bus.inbox}.r.*", cb=bus._on_answer)
        return bus

    @property
    def version(self) -> str:
        version = self.client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    # -- out

    def publish(self, subject: str, data: bytes, reply: str = "", headers: dict[str, str] | None = None) -> bool:
        """Into the buffer of the connection, in this turn of the loop; False: lost, stuck, or too large."""
        client = self.client
        if (
            len(data) > client.max_payload
            or self.lost.done()
            or client.pending_data_size + len(data) + _COMMAND_BYTES > MAX_UNSENT_BYTES
        ):
            return False
        publishing = client.publish(subject, data, reply, headers)
        try:
            # With room in the buffer it waits for nothing, and needs no task.
            publishing.send(None)
        except StopIteration:
            return True
        except Exception as error:  # noqa: BLE001 - it was closed in this turn
            self._report("a letter", error)
            return False
        publishing.close()
        return False

    def request(self, subject: str, data: bytes, seconds: float = REQUEST_SECONDS) -> Deferred[bytes]:
        """The answer of whoever listens there. Fails with `BusFault`."""
        later: Deferred[bytes] = Deferred()
        token = str(next(self._numbers))
        if not self.publish(subject, data, f"{self.inbox}.r.{token}"):
            limit = self.client.max_payload
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

    async def subscribe(self, subject: str, take: "Callable[[Msg], object]") -> None:
        """`take` is called in the order of arrival, and must not wait."""

        async def taken(message: "Msg") -> None:
            take(message)

        # Who reads a stream asks for as much as it can take, and nothing of that may be dropped.
        await self.client.subscribe(subject, cb=taken, pending_bytes_limit=_NO_PENDING_LIMIT)

    async def answers(self) -> bool:
        """Whether the server is alive."""
        try:
            await self.client.rtt(timeout=PING_BACK_SECONDS)
        except Exception:  # noqa: BLE001 - whatever it is, there was no answer
            return False
        return True

    # -- in

    async def _on_answer(self, message: "Msg") -> None:
        token = message.subject.rpartition(".")[2]
        # The server's own word that nobody listens; a header of that name in somebody's answer means nothing.
        if not message.data and message.headers and message.headers.get("Status") == "503":
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

    async def _on_error(self, error: Exception) -> None:
        found = _FORBIDDEN.search(str(error))
        if found is not None:
            what, subject = found.groups()
            # nats-py makes what the server says lower case.
            refused = [(later, asked) for later, asked in self._waiting.values() if asked.lower() == subject.lower()]
            subject = refused[0][1] if refused else subject
            verb = "publish to" if what.lower() == "publish" else "subscribe to"
            fault = BusFault(
                Fault.FORBIDDEN, f"{self.server} does not let this node {verb} {subject}; its operator must, {_DOCS}"
            )
            for later, _ in refused:
                if not later.done():
                    later.set_exception(fault)
            self.on_forbidden(subject, fault)
        elif not isinstance(error, OSError) and type(error).__module__ != "nats.errors":
            # A fault of ours in a callback; those of the connection end in its loss.
            self._report("what NATS brought", error)

    async def _on_closed(self) -> None:
        self.lose("the connection was closed")

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    async def close(self) -> None:
        self.lose("closed")
        fault = BusFault(Fault.UNREACHABLE, f"the connection to {self.server} was lost")
        for later, _ in list(self._waiting.values()):
            if not later.done():
                later.set_exception(fault)
        with contextlib.suppress(Exception):
            await close(self.client)


class _Late(BusFault):
    """Nobody answered in time; the reason may be known elsewhere."""

    def __init__(self, server: str, seconds: float) -> None:
        super().__init__(Fault.UNREACHABLE, f"{server} did not confirm it within {seconds:g} s")


def is_late(fault: BaseException) -> bool:
    return isinstance(fault, _Late)


def _nobody(server: str, subject: str) -> BusFault:
    if subject.startswith(f"{layout.JOIN}."):
        return BusFault(Fault.NOT_SET_UP, f"nobody at {server} answers who wants to join: is that daemon running?")
    return BusFault(
        Fault.NOT_SET_UP, f"{server} has no stream for it: JetStream is off, or `bascule mesh init` was never run"
    )


def wall_ms(text: str) -> float:
    """Of a time as the server writes it."""
    return datetime.fromisoformat(text).timestamp() * 1_000
