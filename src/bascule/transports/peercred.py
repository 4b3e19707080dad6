"""Who is at the other end of a unix socket, as the kernel says it."""

import socket
from typing import NamedTuple

from bascule.local_client.peers import unix_peer


class Peer(NamedTuple):
    uid: int
    # 0 where the system does not say.
    pid: int = 0


def peer_of(sock: socket.socket) -> Peer:
    return Peer(*unix_peer(sock))
