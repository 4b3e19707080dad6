"""Connections to mods: TCP on 127.0.0.1 and unix sockets, only to listeners of our own user."""

import asyncio
import contextlib
import os
import socket
import stat
from typing import Final, cast

from bascule.adapters.games import tcp_owner
from bascule.bridges.game.ports import Address, ConnectFault, OnData, OnLost, Wire
from bascule.transports.peercred import peer_of

# A mod that does not read while this much waits for it is stuck; the session ends, and is made anew.
MAX_UNSENT_BYTES = 16 * 1024 * 1024
# A listener on this machine answers at once, or hangs.
CONNECT_SECONDS = 5.0
# Until the mod's accept shows in the kernel's table.
OWNER_SECONDS = 5.0
OWNER_LOOK_SECONDS = 0.02
# Linux only. Lib.GAB writes a frame's header and body by two sends with Nagle's algorithm on: the body waits for the
# ACK of the header, which Linux delays by 40 ms and more.
_QUICK_ACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)


class StreamWire(asyncio.Protocol):
    """Bytes both ways. Told once that it is lost, also when we close it."""

    def __init__(
        self,
        on_data: OnData,
        on_lost: OnLost,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        *,
        tcp: socket.socket | None = None,
    ) -> None:
        self._on_data = on_data
        self._on_lost = on_lost
        self._max_unsent = max_unsent_bytes
        self._transport: asyncio.WriteTransport | None = None
        self._tcp = tcp if _QUICK_ACK else None
        self._overflow = False
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._acknowledge_at_once()
        self._on_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._tcp = None
        if not self._lost:
            self._lost = True
            overflow = ConnectFault("the mod does not read what it is sent") if self._overflow else None
            self._on_lost(overflow or exc)

    def send(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > self._max_unsent:
            self._overflow = True
            transport.abort()
            return
        self._acknowledge_at_once()

    def _acknowledge_at_once(self) -> None:
        """The option holds until the kernel takes the connection for an interactive one again, so after each turn."""
        if self._tcp is not None:
            # A connection that was reset meanwhile is reported by the transport.
            with contextlib.suppress(OSError):
                self._tcp.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def peer_pid(self) -> int | None:
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None:
            return None
        if sock.family == socket.AF_UNIX:
            return peer_of(sock).pid or None
        return tcp_owner.pid_of(int(sock.getpeername()[1]), int(sock.getsockname()[1]))


class LoopbackConnector:
    def __init__(self, *, uid: int | None = None, max_unsent_bytes: int = MAX_UNSENT_BYTES) -> None:
        self._uid = os.getuid() if uid is None else uid
        self._max_unsent = max_unsent_bytes

    def free_port(self) -> int:
        """Free now; the game must take it before somebody else does, and the owner check tells when it did not."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    def forget(self, address: Address) -> None:
        if address.transport == "pipe":
            with contextlib.suppress(OSError):
                found = os.lstat(address.where)
                if stat.S_ISSOCK(found.st_mode) and found.st_uid == self._uid:
                    os.unlink(address.where)

    async def connect(self, address: Address, on_data: OnData, on_lost: OnLost) -> Wire:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if address.transport == "pipe":
                    sock = await self._unix(address.where)
                else:
                    sock = await self._tcp(int(address.where))
        except TimeoutError:
            raise ConnectFault(f"no connection to {address.where} within {CONNECT_SECONDS:g} s") from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno is not None else str(error)
            refused = isinstance(error, ConnectionRefusedError)
            raise ConnectFault(f"cannot connect to {address.where}: {reason}", refused=refused) from None
        loop = asyncio.get_running_loop()
        tcp = sock if address.transport == "tcp" else None
        wire = StreamWire(on_data, on_lost, self._max_unsent, tcp=tcp)
        await loop.create_connection(lambda: wire, sock=sock)
        return wire

    async def _unix(self, path: str) -> socket.socket:
        # A link would let whoever owns it choose the listener after we looked.
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConnectFault(f"{path} is not a socket", fatal=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, path)
            self._check(path, [peer_of(sock).uid])
        except BaseException:
            sock.close()
            raise
        return sock

    async def _tcp(self, port: int) -> socket.socket:
        if tcp_owner.can_tell():
            self._check(f"port {port}", tcp_owner.listeners(port))
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # Calls are small and wait for an answer.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            _check_not_itself(sock)
            if tcp_owner.can_tell():
                await self._check_accepted(sock, port)
        except BaseException:
            sock.close()
            raise
        return sock

    def _check(self, what: str, owners: list[int]) -> None:
        foreign = [uid for uid in owners if uid != self._uid]
        if foreign:
            raise ConnectFault(
                f"{what} belongs to uid {foreign[0]}, not to you: the token is not sent; start the game again",
                fatal=True,
            )

    async def _check_accepted(self, sock: socket.socket, port: int) -> None:
        """Until it is accepted, older kernels show uid 0 for the other end."""
        own_port = int(sock.getsockname()[1])
        look = 0.0
        while True:
            owner = tcp_owner.accepted_by(port, own_port)
            if owner == self._uid:
                break
            if owner is not None and owner != 0:
                self._check(f"port {port}", [owner])
            if _is_closed(sock):
                # Its row is gone from the kernel's table, and will not come.
                raise ConnectFault(f"whoever listens on port {port} closed the connection at once")
            if look >= OWNER_SECONDS:
                raise ConnectFault(f"whose port {port} is cannot be told: the token is not sent")
            await asyncio.sleep(OWNER_LOOK_SECONDS)
            look += OWNER_LOOK_SECONDS
        self._check(f"port {port}", tcp_owner.listeners(port))


def _is_closed(sock: socket.socket) -> bool:
    """By the other end. A mod says nothing before hello, so there is nothing else to read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def _check_not_itself(sock: socket.socket) -> None:
    # Linux connects a port to itself when nobody listens there and it picks the same one.
    if sock.getsockname() == sock.getpeername():
        raise ConnectFault(f"nobody listens on port {sock.getpeername()[1]}")
