"""One TCP connection by its two addresses, asked of the kernel over netlink.

The table in /proc is made of every connection of the machine: tens of milliseconds on a busy one. This asks for one
in 20 microseconds (`man 7 sock_diag`; `inet_diag_req_v2` and `inet_diag_msg` in linux/inet_diag.h).
Standard library only: the helpers import this.
"""

from __future__ import annotations

import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_TCP_ESTABLISHED = 1
_ANY_STATE = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8
_SEQUENCE = 1
# nlmsghdr: length, type, flags, sequence number, port id of the sender.
_HEADER = struct.Struct("=IHHII")
# Of inet_diag_req_v2 what stands before the addresses: family, protocol, extensions, padding, states.
_WANTED = struct.Struct("=BBBxI")
# inet_diag_sockid, in network order: ports of the socket itself and of its peer, their addresses, interface, cookie.
_ADDRESSES = struct.Struct("!HH16s16s4s8s")
# inet_diag_msg: family, state, timer, retransmits, the addresses, expiry, two queues, uid, inode.
_FOUND = struct.Struct(f"=BBBB{_ADDRESSES.size}sIIIII")
# One message; the kernel may add attributes that nobody asked for.
_ANSWER_BYTES = 4_096
# The answer is there when the question is sent. More is a kernel that behaves as none does, and nobody waits for it.
_SECONDS = 1.0


class End:
    """Whose socket it is."""

    __slots__ = ("inode", "uid")

    def __init__(self, uid: int, inode: int) -> None:
        self.uid = uid
        # 0 until somebody has accepted the connection.
        self.inode = inode


def find_end(local: tuple[str, int], remote: tuple[str, int]) -> End | None:
    """The socket with these addresses, its own first. None where the kernel knows none that is connected, or does not
    speak this: then the table in /proc decides."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
            link.settimeout(_SECONDS)
            # From now on nobody but the kernel can send us anything.
            link.connect((0, 0))
            link.send(_question(local, remote))
            return _end(link.recv(_ANSWER_BYTES), local[1], remote[1])
    except (OSError, AttributeError):
        # AttributeError: a system without netlink.
        return None


def _question(local: tuple[str, int], remote: tuple[str, int]) -> bytes:
    # Asked for IPv4, the kernel also finds the end of a server on `::`, which has its address as ::ffff:a.b.c.d.
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    ends = (socket.inet_pton(family, host) for host, _ in (local, remote))
    body = _WANTED.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE)
    body += _ADDRESSES.pack(local[1], remote[1], *ends, bytes(4), _NO_COOKIE)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _SEQUENCE, 0) + body


def _end(answer: bytes, local_port: int, remote_port: int) -> End | None:
    """Where there is no such connection, the kernel answers with an error, or with the socket that listens there."""
    if len(answer) < _HEADER.size + _FOUND.size:
        return None
    _, kind, _, sequence, _ = _HEADER.unpack_from(answer)
    _, state, _, _, addresses, *_, uid, inode = _FOUND.unpack_from(answer, _HEADER.size)
    ports = _ADDRESSES.unpack(addresses)[:2]
    if (kind, sequence, state, ports) != (_SOCK_DIAG_BY_FAMILY, _SEQUENCE, _TCP_ESTABLISHED, (local_port, remote_port)):
        return None
    return End(uid, inode)
