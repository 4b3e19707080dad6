"""Connections to mods: TCP on 127.0.0.1 and unix sockets, only to listeners of our own user."""

import asyncio
import contextlib
import os
import socket
import stat
from typing import Final, cast

from bascule.game.ports import MAX_UNSENT_BYTES, Address, ConnectFault, OnData, OnLost, Wire
from bascule.local_client import peers
from bascule.transports.peercred import peer_of

# A listener on this machine answers at once, or hangs.
CONNECT_SECONDS = 5.0
# Until the mod's accept shows in the kernel's table.
OWNER_SECONDS = 5.0
# Linux only. Lib.GAB writes a frame's header and body by two sends with Nagle's algorithm on: the body waits for the
# ACK of the header, which Linux delays by 40 ms and more.
_QUICK_ACK: Final[int] = getattr(socket, "TCP_QUICKACK", 0)


class StreamWire(asyncio.Protocol):
    """Bytes both ways. Told once that it is lost, also when we close it."""

    def __init__(
        self,
        on_data: OnData,
        on_lost: OnLost,
        max_unsent_bytes: int,
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
        end = peers.far_end(sock)
        return None if end is None else _holder(end[1])


class LoopbackConnector:
    def __init__(self, *, uid: int | None = None) -> None:
        self._uid = os.getuid() if uid is None else uid

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

    async def connect(
        self, address: Address, on_data: OnData, on_lost: OnLost, *, max_unsent_bytes: int = MAX_UNSENT_BYTES
    ) -> Wire:
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
        wire = StreamWire(on_data, on_lost, max_unsent_bytes, tcp=tcp)
        await loop.create_connection(lambda: wire, sock=sock)
        return wire

    async def _unix(self, path: str) -> socket.socket:
        # A link would let its owner choose the listener after we looked.
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConnectFault(f"{path} is not a socket", fatal=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, path)
            self._check(path, peer_of(sock).uid)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _tcp(self, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # Calls are small and wait for an answer.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            await self._check_accepted(sock, port)
        except BaseException:
            sock.close()
            raise
        return sock

    def _check(self, what: str, owner: int) -> None:
        if owner != self._uid:
            raise ConnectFault(
                f"{what} belongs to uid {owner}, not to you: the token is not sent; start the game again", fatal=True
            )

    async def _check_accepted(self, sock: socket.socket, port: int) -> None:
        if peers.is_itself(sock):
            raise ConnectFault(f"nobody listens on port {port}")
        if not peers.can_identify_peer():
            return
        look = 0.0
        # In a thread: the kernel's table is long on a busy machine.
        while (end := await asyncio.to_thread(peers.far_end, sock)) is None:
            if peers.is_closed(sock):
                raise ConnectFault(f"port {port} closed the connection at once")
            if look >= OWNER_SECONDS:
                raise ConnectFault(f"port {port} does not accept, so it is not known whose it is: no token is sent")
            await asyncio.sleep(peers.LOOK_SECONDS)
            look += peers.LOOK_SECONDS
        self._check(f"port {port}", end[0])


def _holder(inode: int) -> int | None:
    """The process of ours that has this socket open. Looks through all of them: for rare occasions."""
    name = f"socket:[{inode}]"
    for process in os.listdir("/proc"):
        if process.isdigit() and int(process) != os.getpid():
            # Others' processes cannot be looked into, and those of ours come and go.
            with contextlib.suppress(OSError):
                for descriptor in os.listdir(f"/proc/{process}/fd"):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"/proc/{process}/fd/{descriptor}") == name:
                            return int(process)
    return None
