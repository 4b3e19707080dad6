"""`bridge.json`, where transport.md 5 says mods look: the newest live launch, written atomically, for us alone.

There is one file for all games. Launches whose mods got the environment do not need it; one whose mod reads only the
file has it to itself from launch to welcome, and the next such launch waits.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from bascule.foundation import paths
from bascule.foundation.clock import Clock, rfc3339
from bascule.game.ports import Address, LaunchFault
from bascule.kernel.journal_ports import Log
from gabp.codec import BadJson, decode, encode
from gabp.messages import MIN_TOKEN_CHARS

# Another bridge writes for less than a millisecond. One that was suspended meanwhile, or a program that locks the file
# and stays, must hold up neither us nor a game.
LOCK_SECONDS = 5.0
LOCK_PAUSE_SECONDS = 0.02


class _Metadata(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    pid: int = 0
    start_time: str
    launch_id: str
    # Ours, so that a game alone does not take up what is meant for another.
    game_id: str
    # And whose it is: a bridge that was killed cannot take it away.
    bridge_pid: int


class _Transport(msgspec.Struct, rename="camel"):
    type: str
    # A port is a string here (5.3).
    address: str


class _Entry(msgspec.Struct, kw_only=True):
    token: str
    transport: _Transport
    metadata: _Metadata


class BridgeJson:
    def __init__(self, path: str, clock: Clock, log: Log) -> None:
        self._path = path
        self._clock = clock
        self._log = log
        # In order of launch.
        self._entries: dict[str, _Entry] = {}
        # Who has the file to itself until it is welcomed.
        self._alone: str | None = None
        # Launches whose entry was ever in the file: what may be removed.
        self._written: set[str] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._retry_until = 0.0
        # Set while nobody has.
        self._free = asyncio.Event()
        self._free.set()

    async def publish(
        self, launch_id: str, game_id: str, token: str, address: Address, *, alone: bool, seconds: float
    ) -> None:
        assert len(token) >= MIN_TOKEN_CHARS
        if alone:
            async with asyncio.timeout(seconds):
                while self._alone is not None:
                    await self._free.wait()
            self._alone = launch_id
            self._free.clear()
        entry = _Entry(
            token=token,
            transport=_Transport(address.transport, address.where),
            metadata=_Metadata(
                start_time=rfc3339(self._clock.wall_ms()), launch_id=launch_id, game_id=game_id, bridge_pid=os.getpid()
            ),
        )
        self._entries[launch_id] = entry
        try:
            async with asyncio.timeout(min(seconds, LOCK_SECONDS)):
                while not self._try_to_write():  # noqa: ASYNC110 - a lock file wakes nobody
                    await asyncio.sleep(LOCK_PAUSE_SECONDS)
        except TimeoutError:
            self._held()
            if alone:
                self.withdraw(launch_id)
                raise LaunchFault(
                    f"{self._path} cannot be written, and {game_id} reads nothing else: another program holds "
                    f"{self._path}.lock; end it, then start the game again"
                ) from None

    def sweep(self) -> None:
        """What a bridge of ours that was killed left there: a game alone would listen where nobody comes."""
        if not os.path.lexists(self._path):
            return
        try:
            with self._locked() as locked:
                if not locked:
                    self._held()
                    return
                found = self._found()
                pid = found.get("bridgePid")
                if isinstance(pid, int) and "gameId" in found and (pid == os.getpid() or not _is_running(pid)):
                    os.unlink(self._path)
        except OSError as error:
            self._log("bridge_file", level="error", path=self._path, error=error)

    def started(self, launch_id: str, pid: int) -> None:
        entry = self._entries.get(launch_id)
        if entry is not None:
            entry.metadata.pid = pid
            self._write()

    def welcomed(self, launch_id: str) -> None:
        self._release(launch_id)

    def withdraw(self, launch_id: str) -> None:
        if self._entries.pop(launch_id, None) is not None:
            self._release(launch_id)
            self._write()

    def _release(self, launch_id: str) -> None:
        if self._alone == launch_id:
            self._alone = None
            self._write()
            self._free.set()

    # -- the file --

    def _write(self) -> None:
        """What is so now, or a moment later if another program writes."""
        if self._retry is not None:
            return
        if not self._try_to_write():
            self._retry_until = self._clock.monotonic() + LOCK_SECONDS
            self._write_later()

    def _write_later(self) -> None:
        self._retry = asyncio.get_running_loop().call_later(LOCK_PAUSE_SECONDS, self._write_again)

    def _write_again(self) -> None:
        self._retry = None
        if self._try_to_write():
            return
        if self._clock.monotonic() < self._retry_until:
            self._write_later()
        else:
            self._held()

    def _held(self) -> None:
        # Games that got the environment do not need it.
        why = "another program holds its lock: end it"
        self._log("bridge_file", level="error", path=self._path, lock=f"{self._path}.lock", error=why)

    def _try_to_write(self) -> bool:
        """False while another program holds the lock."""
        try:
            with self._locked() as locked:
                if not locked:
                    return False
                newest = self._alone if self._alone is not None else next(reversed(self._entries), None)
                entry = self._entries.get(newest) if newest is not None else None
                if entry is None:
                    self._remove()
                else:
                    self._replace(encode(entry))
                    self._written.add(entry.metadata.launch_id)
        except OSError as error:
            # Games that got the environment do not need it.
            self._log("bridge_file", level="error", path=self._path, error=error)
        return True

    def _replace(self, text: bytes) -> None:
        # security.md 5.2: a new file of mode 0600 beside it, then its name.
        temporary = f"{self._path}.tmp.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, text)
            finally:
                os.close(descriptor)
            os.rename(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _remove(self) -> None:
        """Only what is ours: another bridge of this user may have written since."""
        if self._found().get("launchId") in self._written:
            os.unlink(self._path)
            self._written.clear()

    def _found(self) -> dict[str, Any]:
        """The metadata of the file that is there now, of any writer."""
        try:
            found = decode(paths.read_private_file(self._path).encode())["metadata"]
        except (FileNotFoundError, paths.UnsafePlace, BadJson, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Two bridges of one user do not write at once. Never waits: this is the event loop."""
        directory = os.path.dirname(self._path)
        os.makedirs(directory, mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(f"{self._path}.lock", flags, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True
