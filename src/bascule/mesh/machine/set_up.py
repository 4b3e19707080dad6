"""Makes what the mesh needs on a server of NATS, and asks to be let into one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from bascule.mesh.machine import layout
from bascule.mesh.machine.bus import NO_STREAM, REQUEST_SECONDS, ApiFault, Bus
from bascule.mesh.machine.login import BusFault, Login
from bascule.mesh.ports import Fault

# Making a replicated stream waits for an election.
_CREATE_SECONDS = 15.0
# A server that reads its configuration anew refuses whoever has connected and not logged in yet, and a hub does so
# whenever somebody is invited or let in.
LOGIN_TRIES = 3
LOGIN_PAUSE_SECONDS = 0.3


async def set_up(
    login: Login,
    *,
    replicas: int = 1,
    max_bytes: int = layout.DEFAULT_MAX_BYTES,
    report: Callable[[str, BaseException], object] = lambda _what, _error: None,
) -> None:
    """Make the stream and the boards; what is there stays as it is. Raises `BusFault`."""
    async with _connected(login, report) as bus:
        for config in layout.streams(replicas, max_bytes):
            try:
                await bus.api(f"STREAM.INFO.{config['name']}")
            except ApiFault as fault:
                if fault.code != NO_STREAM:
                    raise
                await bus.api(f"STREAM.CREATE.{config['name']}", config, _CREATE_SECONDS)


async def ask_to_join(
    login: Login,
    node: str,
    data: bytes,
    seconds: float = REQUEST_SECONDS,
    report: Callable[[str, BaseException], object] = lambda _what, _error: None,
) -> bytes:
    """What the node that holds the mesh key answers. `login.user`: the text of the invited key. Raises `BusFault`."""
    async with _connected(login, report) as bus:
        return await bus.request(f"{layout.JOIN}.{node}", data, seconds)


@contextlib.asynccontextmanager
async def _connected(login: Login, report: Callable[[str, BaseException], object]) -> AsyncIterator[Bus]:
    """At the first server that lets us in."""
    bus = await _connect(login, report)
    try:
        yield bus
    finally:
        bus.close()


async def _connect(login: Login, report: Callable[[str, BaseException], object]) -> Bus:
    failed = BusFault(Fault.UNREACHABLE, "no server was named")
    for tries in range(LOGIN_TRIES):
        if tries:
            await asyncio.sleep(LOGIN_PAUSE_SECONDS)
        for server in login.servers:
            try:
                return await Bus.connect(login, server, report)
            except BusFault as fault:
                failed = fault
        if failed.fault is not Fault.REFUSED:
            break
    raise failed
