"""The byte streams a mod serves: sockets it listens on, or its own stdin and stdout. None of them ever blocks."""

import contextlib
import errno
import os
import socket
import struct
import sys
from typing import Protocol

from bascule_mod.endpoint import BadEndpoint, Endpoint

# What a pipe holds, and small enough that the allocator has it at hand: a buffer of 256 KiB for each read of a few
# hundred bytes was a tenth of a call.
READ_BYTES = 64 * 1024
LISTEN_BACKLOG = 64
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class NoRoom(Exception):
    """No descriptor is left for a connection that waits; it stays in the backlog."""


class ByteStream(Protocol):
    # What a selector watches; the same for both unless stdin and stdout are two.
    read_fd: int
    write_fd: int

    def read(self) -> bytes | None:
        """b"" at the end; None when there is nothing yet."""

    def write(self, data: bytes | memoryview) -> int: ...

    def close(self) -> None: ...


class SocketStream:
    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self.read_fd = self.write_fd = sock.fileno()

    def read(self) -> bytes | None:
        try:
            return self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def write(self, data: bytes | memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def close(self) -> None:
        self._socket.close()


class StdioStream:
    """The process's stdin and stdout, taken away from everybody else: a stray `print` would break the framing."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self.read_fd = os.dup(0)
        self.write_fd = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self.write_fd, False)

    def read(self) -> bytes | None:
        try:
            return os.read(self.read_fd, READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def write(self, data: bytes | memoryview) -> int:
        try:
            return os.write(self.write_fd, data)
        except (BlockingIOError, InterruptedError):
            return 0

    def close(self) -> None:
        for descriptor in (self.read_fd, self.write_fd):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def listen(endpoint: Endpoint) -> socket.socket:
    if endpoint.transport == "pipe":
        return _listen_unix(endpoint.address)
    port = endpoint.port
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            # A game that is started again must get its port back from its predecessor's dying connections.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # transport.md 1.2: local connections only.
        sock.bind(("127.0.0.1", port))
        sock.listen(LISTEN_BACKLOG)
    except OSError as error:
        sock.close()
        raise BadEndpoint(f"{endpoint.source}: cannot listen on port {endpoint.address}: {error.strerror}") from None
    sock.setblocking(False)
    return sock


def _listen_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # On Linux a socket's mode is the one its file is made with: it is private from the first moment.
        os.fchmod(sock.fileno(), 0o600)
        # Fails when the name exists, whatever it is: it may be somebody's trap.
        sock.bind(path)
        os.chmod(path, 0o600)
        sock.listen(LISTEN_BACKLOG)
    except OSError as error:
        sock.close()
        raise BadEndpoint(f"cannot listen on {path}: {error.strerror}") from None
    sock.setblocking(False)
    return sock


def accept(listener: socket.socket) -> socket.socket | None:
    """A new connection; None when there is none, or it is another user's."""
    try:
        sock, _ = listener.accept()
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise NoRoom from None
        # There is none, or it gave up meanwhile.
        return None
    if sock.family == socket.AF_UNIX and not _is_ours(sock):
        sock.close()
        return None
    if sock.family != socket.AF_UNIX:
        # Answers are small and wait for nobody.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _is_ours(sock: socket.socket) -> bool:
    if not hasattr(socket, "SO_PEERCRED"):
        # The socket's mode is what there is.
        return True
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(uid == os.getuid())
