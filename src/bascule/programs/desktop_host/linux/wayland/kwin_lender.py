"""Connections that KWin gives its permission to: made by the launcher that started us, one for each request."""

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from bascule.desktop.kwin import LENDER
from bascule.programs.desktop_host.linux.wayland.connection import settle
from bascule.programs.desktop_host.ports import NotReachable

# It connects to sockets of this machine, and does nothing else.
ANSWER_SECONDS: Final = 5.0
REMEDY: Final = (
    "let a person run `bascule desktop kwin install`, which shows what it does first; then start the host again"
)
_UNIX: Final = re.compile(r"(?:\A|;)unix:(?:[^;]*,)?(path|abstract)=([^,;]+)")


class Lender:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asked: socket.socket | None = None
        self._turn = asyncio.Lock()
        number = environment.get(LENDER, "")
        with contextlib.suppress(OSError, ValueError):
            found = socket.socket(fileno=int(number))
            if found.type != socket.SOCK_SEQPACKET:
                # Somebody else's number: nothing is said there.
                found.detach()
                return
            os.set_inheritable(found.fileno(), False)
            found.setblocking(False)
            self._asked = found

    @property
    def there(self) -> bool:
        return self._asked is not None

    async def connect(self, address: bytes) -> socket.socket:
        """A connection to this socket that is the launcher's. The first byte of an abstract name is NUL."""
        if self._asked is None:
            raise NotReachable("KWin's permission belongs to Bascule's launcher, which did not start this host")
        loop = asyncio.get_running_loop()
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await loop.sock_sendall(self._asked, address)
                    data, descriptors = await self._answer(self._asked)
            except (OSError, TimeoutError) as error:
                raise NotReachable(f"the launcher of this host does not answer: {error or 'it hangs'}") from error
        if len(data) != 1 or data[0] or len(descriptors) != 1:
            for each in descriptors:
                os.close(each)
            why = os.strerror(data[0]) if data else "it has ended"
            raise NotReachable(f"the launcher of this host cannot connect: {why}")
        made = socket.socket(fileno=descriptors[0])
        made.setblocking(False)
        return made

    @staticmethod
    async def _answer(asked: socket.socket) -> tuple[bytes, list[int]]:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        loop.add_reader(asked.fileno(), settle, readable)
        try:
            await readable
        finally:
            loop.remove_reader(asked.fileno())
        data, descriptors, _, _ = socket.recv_fds(asked, 1, 1)
        for each in descriptors:
            os.set_inheritable(each, False)
        return data, descriptors

    def close(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None


def bus_socket(address: str) -> bytes:
    """Where a D-Bus address leads, as the kernel has it."""
    found = _UNIX.search(address)
    if found is None:
        raise NotReachable(f"the session bus is not at a socket of this machine: {address}")
    path = unquote_to_bytes(found[2])
    return b"\0" + path if found[1] == "abstract" else path
