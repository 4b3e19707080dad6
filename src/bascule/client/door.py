"""The daemon's socket: where it is, and whether it is our daemon that listens there."""

import os

from bascule.client.faults import NotRunning
from bascule.foundation import paths
from bascule.foundation.errors import BasculeError, Forbidden, InvalidRequest
from bascule.transports.peercred import Peer


def link_path(state: str) -> str:
    path = paths.link_socket(state)
    if len(os.fsencode(path)) > paths.MAX_SOCKET_PATH_BYTES:
        raise InvalidRequest(
            f"{path} is too long for a unix socket ({paths.MAX_SOCKET_PATH_BYTES} bytes)",
            hint="choose a shorter state directory",
        )
    return path


def unreachable(path: str, error: OSError) -> BasculeError:
    """The error that says which of the usual things is wrong."""
    if isinstance(error, PermissionError):
        return Forbidden(
            f"this program may not connect to {path}: {error.strerror}",
            hint="a sandbox may forbid sockets; run it outside, or use the MCP tools of `bascule mcp`",
        )
    return NotRunning(path, error.strerror or str(error))


def check_peer(path: str, peer: Peer | None) -> None:
    """A token goes to our own daemon only, and the kernel says whose the other end is."""
    if peer is not None and peer.uid != os.getuid():
        raise Forbidden(
            f"{path} is served by uid {peer.uid}, not by you (uid {os.getuid()})",
            hint="somebody else's daemon: check --state-dir and BASCULE_STATE_DIR",
        )
