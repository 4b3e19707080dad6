"""What the daemon holds of `/mcp`: nothing of the SDK until it has been imported.

The import costs more than the rest of the daemon's start (it builds some 640 models), so it runs in a thread while
the store opens and the other doors begin to serve; the daemon says it is ready when it is done.
"""

import asyncio
import contextlib
import gc
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bascule.foundation.errors import NotFound, Unavailable
from bascule.kernel.call import Principal
from bascule.kernel.gate import Gate
from bascule.kernel.journal_ports import Log
from bascule.kernel.tool import Tool
from bascule.surfaces.mcp.delivery import Receive, Scope, Send

# A client that comes while the daemon starts is told to try again after this.
RETRY_SECONDS = 1.0


class Door(Protocol):
    async def __call__(self, principal: Principal, scope: Scope, body: bytes, receive: Receive, send: Send) -> None: ...

    async def run(self, running: Callable[[], None]) -> None:
        """Serve until stopped; says when it does."""

    async def stop(self) -> None: ...


def begin_loading() -> "asyncio.Future[Any]":
    """The module `surface`, when it is there."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[Any] = loop.create_future()

    def settle(module: Any, error: BaseException | None) -> None:
        if loaded.cancelled():
            return
        if error is not None:
            loaded.set_exception(error)
        else:
            loaded.set_result(module)

    def work() -> None:
        module, error = None, None
        try:
            module = load()
        except BaseException as fault:  # noqa: BLE001 - raised where it is awaited
            error = fault
        # The loop may be gone: a start that was refused does not wait for us.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, module, error)

    # Not the loop's own executor, which would be waited for when the start fails for another reason.
    threading.Thread(target=work, name="bascule-mcp-import", daemon=True).start()
    return loaded


def load() -> Any:
    """Import the SDK and what is built on it: about 0.6 s of CPU."""
    # A third of that time would be spent looking for garbage among models that live for ever. Afterwards they are
    # set aside, so that no later collection holds up the loop by walking them.
    gc.disable()
    try:
        return importlib.import_module("bascule.surfaces.mcp.surface")
    finally:
        gc.freeze()
        gc.enable()


class Mount:
    """The route's end in the daemon."""

    def __init__(
        self,
        gate: Gate,
        log: Log,
        *,
        on: bool = True,
        tools: Sequence[Tool],
        trust: str,
        on_left: Callable[[str], None] | None = None,
    ) -> None:
        self._gate = gate
        self._log = log
        self._on = on
        self._tools = tools
        self._trust = trust
        self._on_left = on_left
        self._door: Door | None = None
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, principal: Principal, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        if not self._on:
            raise NotFound("/mcp is turned off", hint='set mcp = "on" in the settings, or use `bascule mcp` over stdio')
        if self._door is None:
            raise Unavailable("the daemon is starting or stopping", hint="try again", retry_after=RETRY_SECONDS)
        await self._door(principal, scope, body, receive, send)

    async def start(self, group: asyncio.TaskGroup, surface: Any) -> None:
        door: Door = surface.open_door(
            self._gate, self._log, tools=self._tools, trust=self._trust, on_left=self._on_left
        )
        running = asyncio.Event()
        self._task = group.create_task(door.run(running.set))
        await running.wait()
        self._door = door

    async def stop(self) -> None:
        """Let what is being answered go out, end sessions and streams."""
        door, self._door = self._door, None
        if door is not None and self._task is not None:
            await door.stop()
            await asyncio.wait({self._task})
