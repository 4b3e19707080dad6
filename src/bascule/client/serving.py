"""Turn a function into an agent.

    from bascule.client import serve

    @serve("echo", type="script")
    def echo(message):
        return message.payload.upper()

    echo.run()

What the function returns is the reply. None means "I reply myself, or not at all": the message is only
acknowledged, and `message.reply(...)` is there for it. An exception is answered as a reply whose metadata says
`{"status": "failed"}`, with the error's name and text and without its traceback, which goes to the log of
this process. A message that expects no reply gets none, whatever is returned.

A message is acknowledged when the function is done with it, so that a crash has it offered again, here or to
another process that serves the same handle. A function that takes longer than half the lease (30 of 60 s) has its
message acknowledged early, or it would be offered again while it is being worked on: a crash after that loses it,
and its sender hears nothing.

Plain functions run in a thread, `async` ones on the event loop; one message at a time unless `concurrency` says more.
"""

import asyncio
import inspect
import logging
import signal
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeAlias, TypeVar

from bascule.broker.protocol import ReplyResult
from bascule.client.client import Client
from bascule.client.durations import Duration
from bascule.client.messages import Message, SyncMessage
from bascule.client.streams import InboxReader
from bascule.foundation.errors import BasculeError, InvalidRequest, TooLarge
from bascule.kernel.link_protocol import CREDIT_WINDOW
from gabp import codec

# Like a person: one thing at a time, so that a handler needs no locks until somebody asks for more.
DEFAULT_CONCURRENCY = 1
# The daemon hands out no more unacknowledged messages than this.
MAX_CONCURRENCY = CREDIT_WINDOW
# The part of a lease after which a message that is still being worked on is acknowledged.
EARLY_ACK = 0.5

# What a handler's return value may turn out to be when it is to become JSON and a message.
_UNSENDABLE = (codec.BadJson, InvalidRequest, TooLarge, TypeError, ValueError, RecursionError, OverflowError)
FAILED = {"status": "failed"}

T = TypeVar("T")

Handler: TypeAlias = Callable[[Any], Any]

_log = logging.getLogger(__name__)


def serve(
    agent_id: str,
    *,
    type: str = "script",  # noqa: A002 - the spec's name
    metadata: dict[str, Any] | None = None,
    concurrency: int = DEFAULT_CONCURRENCY,
    heartbeat: Duration | None = None,
    groups: Iterable[str] | None = None,
) -> Callable[[Handler], "ServedAgent"]:
    """A decorator: the function becomes the agent `agent_id`, started with `.run()` or `await .serve()`."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise InvalidRequest(f"`concurrency` is {concurrency}; it may be 1 to {MAX_CONCURRENCY}")

    def decorate(handler: Handler) -> ServedAgent:
        return ServedAgent(
            handler,
            agent_id,
            type_=type,
            metadata=metadata,
            concurrency=concurrency,
            heartbeat=heartbeat,
            groups=groups,
        )

    return decorate


class ServedAgent:
    """A function and the handle it answers for. Calling it calls the function."""

    def __init__(
        self,
        handler: Handler,
        agent_id: str,
        *,
        type_: str,
        metadata: dict[str, Any] | None,
        concurrency: int,
        heartbeat: Duration | None,
        groups: Iterable[str] | None = None,
    ) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler)
        self._type = type_
        self._metadata = metadata
        self._concurrency = concurrency
        self._heartbeat = heartbeat
        self._groups = None if groups is None else list(groups)
        self._serving = False
        self._stopping = False
        self._reader: InboxReader | None = None
        self.agent_id = agent_id

    def __call__(self, message: Any) -> Any:
        return self._handler(message)

    def run(self, *, state_dir: str | None = None, start_daemon: bool = False) -> None:
        """Serve until SIGINT or SIGTERM: what is being worked on is finished and answered first."""
        import uvloop  # noqa: PLC0415 - only a program that is nothing but this agent chooses its event loop here

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._until_signal(state_dir, start_daemon=start_daemon))

    async def _until_signal(self, state_dir: str | None, *, start_daemon: bool) -> None:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            # A second Ctrl-C does not wait for the function.
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            self.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        await self.serve(state_dir=state_dir, start_daemon=start_daemon)

    async def serve(self, *, state_dir: str | None = None, start_daemon: bool = False) -> None:
        """Register and answer messages until `stop()`; through restarts of the daemon."""
        if self._serving:
            raise InvalidRequest(f"{self.agent_id} is being served already")
        self._serving, self._stopping = True, False
        try:
            await self._serve(state_dir, start_daemon=start_daemon)
        finally:
            self._serving, self._reader = False, None

    async def _serve(self, state_dir: str | None, *, start_daemon: bool) -> None:
        connecting = Client.connect(
            state_dir,
            self.agent_id,
            start_daemon=start_daemon,
            register=True,
            type=self._type,
            metadata=self._metadata,
            heartbeat=self._heartbeat,
            groups=self._groups,
        )
        async with connecting as client:
            pool = None if self._is_async else ThreadPoolExecutor(self._concurrency, f"serve-{self.agent_id}")
            try:
                with closing(client.inbox()) as reader:
                    self._reader = reader
                    if self._stopping:
                        return
                    async with asyncio.TaskGroup() as group:
                        for _ in range(self._concurrency):
                            group.create_task(self._work(reader, pool))
            except BaseExceptionGroup as several:
                # The workers share one inbox and fail alike.
                raise several.exceptions[0] from None
            finally:
                if pool is not None:
                    pool.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Take no more messages; `serve` returns when those in work are answered. On the event loop's thread."""
        self._stopping = True
        if self._reader is not None:
            self._reader.stop()

    async def _work(self, reader: InboxReader, pool: ThreadPoolExecutor | None) -> None:
        while (message := await reader.next()) is not None:
            try:
                await self._answer(message, pool)
            except BasculeError as error:
                # Cancelled, expired, or the daemon did not come back in time: this message, not this agent.
                _log.warning("%s: ticket %s: %s", self.agent_id, message.ticket_id, error.message)
            finally:
                reader.release(message.ticket_id)

    async def _answer(self, message: Message, pool: ThreadPoolExecutor | None) -> None:
        try:
            answer = await self._handled(message, pool)
        except Exception as error:  # noqa: BLE001 - the boundary to somebody else's code
            _log.warning("%s: ticket %s failed", self.agent_id, message.ticket_id, exc_info=error)
            await self._finish(message, _failure(error), FAILED)
            return
        try:
            # As the daemon will read it: what it cannot read at all, it cannot refuse by name.
            codec.decode(codec.encode(answer), Any)
            await self._finish(message, answer, None)
        except _UNSENDABLE as error:
            # The function answered, but with what cannot be sent: half a surrogate pair, a list within itself.
            await self._finish(message, _failure(error), FAILED)

    async def _finish(self, message: Message, answer: Any, metadata: dict[str, Any] | None) -> None:
        if answer is None or not message.expect_reply:
            await message.ack()
        else:
            await message.reply(answer, metadata)

    async def _handled(self, message: Message, pool: ThreadPoolExecutor | None) -> Any:
        """What the function returns; the message is acknowledged early if that takes long."""
        loop = asyncio.get_running_loop()
        running: asyncio.Future[Any]
        if pool is None:
            running = asyncio.ensure_future(self._handler(message))
        else:
            running = loop.run_in_executor(pool, self._handler, _in_thread(message, loop))
        try:
            done, _ = await asyncio.wait((running,), timeout=message.lease_seconds * EARLY_ACK)
            if not done:
                try:
                    await message.ack()
                except BasculeError as error:
                    # The work goes on; at worst the message is offered once more.
                    _log.warning("%s: ticket %s: %s", self.agent_id, message.ticket_id, error.message)
            return await running
        finally:
            running.cancel()


def _failure(error: BaseException) -> str:
    """What the sender is told: no traceback, and nothing that could not be sent."""
    return f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()


def _in_thread(message: Message, loop: asyncio.AbstractEventLoop) -> SyncMessage:
    """The same message for a function in a thread, whose replies go through the event loop."""

    def wait_for(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def ack(_: str) -> None:
        wait_for(message.ack())

    def reply(_: str, payload: Any, metadata: dict[str, Any] | None) -> ReplyResult:
        return wait_for(message.reply(payload, metadata))

    return SyncMessage(message.item, ack, reply)
