"""`space.sock`: what a command in a sandbox reaches of the daemon.

One socket per space, bound into its cells. Behind it everybody is that space's agent and may send and answer
messages; what else there is in the house is not served there, whatever is presented.
"""

import contextlib
import itertools
import os
import socket
import stat
import tempfile
from collections.abc import Callable

from bascule.foundation import paths
from bascule.surfaces.http.app import App
from bascule.surfaces.http.server import HttpDoor

# To find whom to ask, ask, wait for the answer; to be asked, and answer. Everything else is not for inside.
SPACE_METHODS = frozenset(
    {
        "agents.heartbeat",
        "agents.list",
        "inbox.ack",
        "inbox.take",
        "messages.send",
        "replies.post",
        "replies.wait",
    }
)
# At one door. A few helpers that wait at the same time fit; each is a descriptor of the daemon's.
MAX_SPACE_CONNECTIONS = 64
# Not yet accepted. All of them are taken in one turn of the loop, so this is how long a loop that only connects can
# keep it: some milliseconds.
SPACE_BACKLOG = 32
# Where the daemon is root and a workspace another user's: commands run as that user, who cannot enter our directory.
_ELSEWHERE = "bascule-door-"


class SpaceDoor:
    """The port's `Door`."""

    def __init__(self, path: str, agent: str, door: HttpDoor, closed: Callable[["SpaceDoor"], None]) -> None:
        self.path = path
        self.agent = agent
        self._door = door
        self._closed = closed

    async def close(self) -> None:
        self._closed(self)
        await self._door.stop(0)


class SpaceDoors:
    """The port's `Doors`. `directory` is ours alone; what an earlier life left in it goes."""

    def __init__(self, directory: str, app: Callable[[str], App], on_closed: Callable[[str], None]) -> None:
        self._directory = directory
        self._app = app
        self._on_closed = on_closed
        self._numbers = itertools.count(1)
        self._open: set[SpaceDoor] = set()
        paths.make_private_dir(directory)
        for name in os.listdir(directory):
            _remove(os.path.join(directory, name))
        # A state directory may have a path that is too long for a socket's address; this one never is.
        self._descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    async def open(self, space_id: str, user: int) -> SpaceDoor:
        # Never by the same name: a space that is opened again may still be closing its old one.
        name = f"{next(self._numbers)}.sock"
        record = os.path.join(self._directory, name)
        path, address = record, f"/proc/self/fd/{self._descriptor}/{name}"
        if user != os.getuid():
            path = address = _place_for_another(record)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            sock.bind(address)
            os.chmod(path, 0o600)
            os.chown(path, user, -1)
            http = HttpDoor(
                self._app(space_id),
                sock,
                peer_uid=user,
                max_connections=MAX_SPACE_CONNECTIONS,
                backlog=SPACE_BACKLOG,
            )
            await http.start()
        except BaseException:
            sock.close()
            _remove(record)
            raise

        def closed(door: SpaceDoor) -> None:
            _remove(record)
            self._open.discard(door)
            if all(other.agent != space_id for other in self._open):
                self._on_closed(space_id)

        door = SpaceDoor(path, space_id, http, closed)
        self._open.add(door)
        return door

    def close(self) -> None:
        """After the last door was."""
        os.close(self._descriptor)


def _place_for_another(record: str) -> str:
    """A directory that others may pass through and not look into. The link stays with us, so that the next daemon
    finds what this one leaves when it is killed."""
    made = tempfile.mkdtemp(prefix=_ELSEWHERE)
    os.chmod(made, 0o711)  # noqa: S103 - to pass through; what lies there is its user's alone
    os.symlink(made, record)
    return os.path.join(made, "space.sock")


def _remove(record: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.path.islink(record):
            made = os.readlink(record)
            found = os.lstat(made)
            # After a reboot the name in /tmp may be anybody's.
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(made, "space.sock"))
                os.rmdir(made)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record)
