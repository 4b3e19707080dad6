"""Small things the client's tests do often."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from bascule.client import Client, Message
from patience import PATIENCE

T = TypeVar("T")


def go(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine on an event loop of its own, under a bound."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await main

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def answering(client: Client, answer: Callable[[Message], Awaitable[object]]) -> AsyncIterator[None]:
    """Meanwhile `client` answers its messages with `answer`."""

    async def work() -> None:
        async for message in client.messages():
            await answer(message)

    task = asyncio.get_running_loop().create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def echo(message: Message) -> None:
    await message.reply(message.payload)


async def first(messages: AsyncIterator[T]) -> T:
    return await anext(aiter(messages))


async def until(look: Callable[[], Awaitable[Any]]) -> Any:
    """What `look` answers once it answers something true."""
    while not (seen := await look()):  # noqa: ASYNC110 - another process changes it, and sets no event of ours
        await asyncio.sleep(0.005)
    return seen
