"""What the daemon holds of `/mcp`: nothing of the SDK until somebody asks for it.

The import costs more CPU than the rest of the daemon's start and half of its memory (it builds some 640 models), and
many installations have no client that speaks MCP over HTTP. So the first request pays: the import runs in a thread,
requests for `/mcp` that come meanwhile wait for the same import, and all others are served.
"""

import asyncio
import contextlib
import gc
import importlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from bascule.foundation.errors import NotFound, Unavailable
from bascule.kernel.call import Principal
from bascule.kernel.gate import Gate
from bascule.kernel.journal_ports import Log
from bascule.kernel.tool import Tool
from bascule.surfaces.mcp.delivery import Receive, Scope, Send
from bascule.surfaces.mcp.tasks import McpTasks

# How long a client that comes while the daemon starts or stops is asked to wait.
RETRY_SECONDS = 1.0
# The stop waits for an import under way: a thread that is cut off inside a library's native code can take the process
# down with it. It takes a second; a disk that stalls for longer does not hold up the stop.
LOAD_STOP_SECONDS = 10.0


class Door(Protocol):
    async def __call__(self, principal: Principal, scope: Scope, body: bytes, receive: Receive, send: Send) -> None: ...

    async def run(self, running: Callable[[], None]) -> None:
        """Serve until stopped; says when it does."""

    async def stop(self) -> None: ...

    @property
    def policy_changed(self) -> Callable[[], None]: ...


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


def begin_loading(load: Callable[[], Any]) -> "asyncio.Future[Any]":
    """The module `surface`, when it is there."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[Any] = loop.create_future()

    def settle(module: Any, error: Exception | None) -> None:
        if error is not None:
            loaded.set_exception(error)
        else:
            loaded.set_result(module)

    def work() -> None:
        module: Any = None
        error: Exception | None = None
        try:
            module = load()
        except Exception as fault:  # noqa: BLE001 - raised where it is awaited
            error = fault
        except BaseException as fault:  # noqa: BLE001 - a library that exits must not take the daemon along
            error = ImportError(f"the import ended with {fault!r}")
        # The loop is closed if the daemon did not wait for this thread.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, module, error)

    # Not the loop's own executor, whose threads are joined without a limit.
    threading.Thread(target=work, name="bascule-mcp-import", daemon=True).start()
    return loaded


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
        tasks: McpTasks | None = None,
        on_left: Callable[[str], None] | None = None,
        console: Callable[[], str | None] = lambda: None,
        console_is_open: Callable[[], bool] = lambda: False,
        load: Callable[[], Any] = load,
    ) -> None:
        self._gate = gate
        self._log = log
        self._on = on
        self._tools = tools
        self._trust = trust
        self._tasks = tasks
        self._on_left = on_left
        self._console = console
        self._console_is_open = console_is_open
        self.load = load
        # What the door's task belongs to: there between start and stop.
        self._group: asyncio.TaskGroup | None = None
        self._loading: asyncio.Future[Any] | None = None
        self._opening: asyncio.Future[Door] | None = None
        self._opener: asyncio.Task[None] | None = None
        self._door: Door | None = None
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, principal: Principal, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        if not self._on:
            raise NotFound("/mcp is turned off", hint='set mcp = "on" in the settings, or use `bascule mcp` over stdio')
        door = self._door or await self._opened()
        await door(principal, scope, body, receive, send)

    def start(self, group: asyncio.TaskGroup) -> None:
        """From now on the first request opens the door."""
        self._group = group

    def policy_changed(self) -> None:
        """Whoever lists tools here may list others now."""
        if self._door is not None:
            self._door.policy_changed()

    async def stop(self) -> None:
        """Let what is being answered go out, end sessions and streams."""
        self._group = None
        if self._opener is not None:
            # Those who wait for it are refused; the door opens no more.
            self._opener.cancel()
        door, self._door = self._door, None
        if door is not None and self._task is not None:
            await door.stop()
            await asyncio.wait({self._task})
        if self._loading is not None:
            await asyncio.wait({self._loading}, timeout=LOAD_STOP_SECONDS)

    async def _opened(self) -> Door:
        if self._group is None:
            raise _not_serving()
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_future()
            self._opener = self._group.create_task(self._open(self._group, self._opening))
            self._opener.add_done_callback(partial(self._over, self._opening))
        opening = self._opening
        # Not awaited itself: a caller that leaves would cancel it for the others.
        await asyncio.wait({opening})
        return opening.result()

    async def _open(self, group: asyncio.TaskGroup, opening: "asyncio.Future[Door]") -> None:
        try:
            self._door, self._task = await self._new_door(group)
            opening.set_result(self._door)
        except Exception as error:  # noqa: BLE001 - raised in every request that waits for it
            opening.set_exception(error)

    def _over(self, opening: "asyncio.Future[Door]", _: "asyncio.Task[None]") -> None:
        """Called also of an opener that was cancelled before its first step."""
        if not opening.done():
            opening.set_exception(_not_serving())
        # Retrieved, even if every caller has left: else asyncio reports it.
        opening.exception()
        # After a fault the next request tries again.
        self._opening = None

    async def _new_door(self, group: asyncio.TaskGroup) -> "tuple[Door, asyncio.Task[None]]":
        self._loading = begin_loading(self.load)
        surface = await asyncio.shield(self._loading)
        door: Door = surface.open_door(
            self._gate,
            self._log,
            tools=self._tools,
            trust=self._trust,
            tasks=self._tasks,
            on_left=self._on_left,
            console=self._console,
            console_is_open=self._console_is_open,
        )
        running = asyncio.Event()
        task = group.create_task(door.run(running.set))
        try:
            await running.wait()
        except asyncio.CancelledError:
            task.cancel()
            raise
        return door, task


def _not_serving() -> Unavailable:
    return Unavailable("the daemon is starting or stopping", hint="try again", retry_after=RETRY_SECONDS)
