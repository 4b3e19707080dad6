"""Who is at the other end of a unix socket, as the kernel says it."""

import socket
import struct
import sys
from typing import NamedTuple

_UCRED = struct.Struct("3i")
# macOS: LOCAL_PEERCRED at level 0 gives an xucred (version, uid, ngroups, groups).
_MACOS_LOCAL_PEERCRED = 0x001
_XUCRED = struct.Struct("IIh")


class Peer(NamedTuple):
    uid: int
    # 0 where the system does not say.
    pid: int = 0


def peer_of(sock: socket.socket) -> Peer:
    if sys.platform == "darwin":
        raw = sock.getsockopt(0, _MACOS_LOCAL_PEERCRED, _XUCRED.size + 64)
        return Peer(_XUCRED.unpack_from(raw)[1])
    pid, uid, _gid = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(uid, pid)
