"""Requests of clients outside, behind the door's admission: which agent is meant, how many may be open, who serves."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from bascule.a2a.cards import WELL_KNOWN
from bascule.a2a.ports import MAX_VALUES
from bascule.a2a.publishing import Door, Publishing
from bascule.a2a.tasks import Tasks
from bascule.foundation.clock import Clock
from bascule.foundation.errors import (
    MethodNotAllowed,
    NotFound,
    Overloaded,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from bascule.foundation.tasks import Tasks as OwnedTasks
from bascule.kernel.call import Principal
from bascule.kernel.faults import EventLog, log_fault
from bascule.kernel.route import Route
from gabp import codec

Scope = MutableMapping[str, Any]

# A payload of 1 MiB as JSON text, with its envelope.
MAX_BODY_BYTES = 2 * 1024 * 1024
# Requests that one client may have open: streams, and messages whose answer it waits for.
MAX_OPEN_PER_CLIENT = 32
_PATHS = (("POST", "/{agentId}"), *((verb, "/{agentId}/{rest...}") for verb in ("GET", "POST", "DELETE")))
ROUTES: tuple[Route, ...] = tuple(Route(verb, path, "a2a.door", max_body=MAX_BODY_BYTES) for verb, path in _PATHS)


def is_card(verb: str, path: bytes) -> bool:
    """What is read without a token: a card is made to be found."""
    return verb == "GET" and path.endswith(WELL_KNOWN.encode()) and path.count(b"/") == 3


class Incoming:
    """What a request is given to; awaiting it serves the request."""

    def __init__(
        self,
        publishing: Publishing,
        tasks: Tasks,
        door: Door,
        clock: Clock,
        log: EventLog,
        *,
        max_open: int = MAX_OPEN_PER_CLIENT,
        max_values: int = MAX_VALUES,
    ) -> None:
        self._publishing = publishing
        self._tasks = tasks
        self._door = door
        self._clock = clock
        self._log = log
        self._max_open = max_open
        self._max_values = max_values
        # The modules that know the SDK: there once the door is open.
        self._serve: Callable[..., Awaitable[None]] | None = None
        self._sdk: Any = None
        # By client; each with the agent that it is about.
        self._open: dict[Principal, dict[asyncio.Task[None], str]] = {}
        self._owned = OwnedTasks(lambda name, error: log_fault(log, error, task=name))
        publishing.on_revoked.append(self.end_client)
        publishing.on_unpublished.append(self.end_agent)

    async def load(self) -> None:
        """Import the SDK: a second of a processor, beside the loop."""
        self._sdk = await asyncio.to_thread(_Sdk)
        self._serve = self._sdk.server.make_application(self._tasks, self._clock, self._log)

    async def __call__(self, client: Principal, scope: Scope, body: bytes, receive: Any, send: Any) -> None:
        handle, slash, rest = str(scope["path"]).removeprefix("/").partition("/")
        published = self._publishing.handles.rows.get(handle)
        if published is None:
            raise NotFound("no such agent", hint="its owner knows the address of its card")
        if self._serve is None:
            raise Unavailable("the daemon is starting or stopping", hint="try again", retry_after=1.0)
        if slash + rest == WELL_KNOWN:
            if scope["method"] != "GET":
                raise MethodNotAllowed("a card is read", hint="use GET", details={"allow": "GET"})
            await _answer(send, codec.encode(self._sdk.card.card_of(handle, published, self._door.base)))
            return
        if not client.partition(":")[2]:
            raise Unauthenticated("a token is needed", hint="send `Authorization: Bearer <token>`")
        if codec.has_too_many_values(body, self._max_values):
            raise TooLarge(
                f"the request has more than {self._max_values} values, or is not in UTF-8",
                hint="send fewer, or all of it as one text",
            )
        caller = self._sdk.handler.Caller(client, handle)
        scope["path"], scope["raw_path"] = f"/{rest}", f"/{rest}".encode()
        await self._exchange(caller, scope, body, receive, send)

    async def _exchange(self, caller: Any, scope: Scope, body: bytes, receive: Any, send: Any) -> None:
        """In a task of its own, which ends when the client leaves, its token is revoked or the agent is published no
        more."""
        assert self._serve is not None
        serving = self._open.setdefault(caller.client, {})
        if len(serving) >= self._max_open:
            raise Overloaded(
                f"{len(serving)} requests of yours are open",
                hint="close streams, or send with returnImmediately and ask for the task later",
                retry_after=1.0,
            )
        given = False

        async def received() -> Any:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        work = self._owned.start(_finished(self._serve(caller, scope, received, send)), "a2a request")
        leaving = self._owned.start(_left(receive, work), "a2a client")
        serving[work] = caller.handle
        try:
            await asyncio.wait({work})
        finally:
            work.cancel()
            leaving.cancel()
            serving.pop(work, None)
            if not serving:
                self._open.pop(caller.client, None)
        if not work.cancelled():
            work.result()

    def end_client(self, client: Principal) -> None:
        for task in tuple(self._open.get(client, ())):
            task.cancel()

    def end_agent(self, handle: str) -> None:
        for serving in list(self._open.values()):
            for task in [task for task, about in serving.items() if about == handle]:
                task.cancel()

    def end(self) -> None:
        """New requests are refused; what waits is answered by those it waits for."""
        self._serve = None

    def count(self) -> int:
        return sum(map(len, self._open.values()))

    async def close(self) -> None:
        await self._owned.close()


async def _finished(serving: Awaitable[None]) -> None:
    await serving


async def _left(receive: Any, work: "asyncio.Task[None]") -> None:
    await receive()
    work.cancel()


async def _answer(send: Any, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Sdk:
    """The modules of ours that import the a2a-sdk."""

    def __init__(self) -> None:
        at = "bascule.a2a.machine"
        self.card, self.handler, self.server = (
            importlib.import_module(f"{at}.{name}") for name in ("card", "handler", "server")
        )
