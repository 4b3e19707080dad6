"""A nats-server of our own, as a child of the daemon: its certificate, who may log in, its life."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from bascule.foundation.backoff import Backoff
from bascule.foundation.deferred import Deferred
from bascule.foundation.paths import make_private_dir, write_private_file
from bascule.foundation.tasks import Tasks
from bascule.mesh.machine import hub_config, layout
from bascule.mesh.machine.certificate import fingerprint, new_certificate
from bascule.mesh.machine.login import BusFault, fetch_certificate
from bascule.mesh.machine.nats_program import PROGRAM, find_program, start_program
from bascule.mesh.ports import Fault
from gabp import codec

# Of the disk that is free when the hub is made; mail of a week is far below it.
MAX_STORE_BYTES = 10 * 1024 * 1024 * 1024
_LEAST_STORE_BYTES = 256 * 1024 * 1024
# It answers within a fraction of a second, unless it has a large store to read.
START_SECONDS = 60.0
RELOAD_SECONDS = 10.0
END_SECONDS = 5.0
POLL_SECONDS = 0.02
FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0
# One that ran for so long did not die of its start.
STEADY_SECONDS = 60.0
# Of its log, to say why it ended.
_TAIL_BYTES = 4_096
_RELOADED = b"Reloaded server configuration"
_NOT_RELOADED = b"Failed to reload"


class _Kept(msgspec.Struct, kw_only=True):
    """What outlives the server: bus keys by node, and until when (wall time) others are invited."""

    admitted: dict[str, str]
    invited: dict[str, int] = {}
    store_bytes: int


_KEPT: codec.Decoder[_Kept] = codec.Decoder(_Kept)


class _Files(NamedTuple):
    kept: str
    config: str
    certificate: str
    key: str
    store: str
    log: str
    errors: str
    pid: str


class NatsHub:
    """`folder`: private, and the hub's alone. `node` and `bus_key`: our own, which may do more than others."""

    def __init__(
        self, folder: str, *, node: str, bus_key: str, listen: str, report: Callable[[str, BaseException], object]
    ) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._node, self._bus_key = node, bus_key
        names = ("users.json", "server.conf", "certificate.pem", "key.pem", "store", "log", "errors", "pid")
        self._folder = folder
        self._files = _Files(*(os.path.join(folder, name) for name in names))
        self._tasks = Tasks(report)
        self._process: asyncio.subprocess.Process | None = None
        self._changing = asyncio.Lock()
        self._kept: _Kept | None = None
        self._program = ""
        # How often the configuration was written.
        self._written = 0
        self.addresses = reachable_at(self._host, self._port)
        # SHA-256 in hex, and the certificate itself; once it is started.
        self.certificate = ""
        self.certificate_pem = ""
        # Why it does not run, if it does not.
        self.fault: BusFault | None = None

    @property
    def own_address(self) -> str:
        """Where the daemon itself reaches it."""
        host = self._host if self._host not in ("0.0.0.0", "", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
        return _join(host, self._port)

    @property
    def mail_bytes(self) -> int:
        """How much the stream of letters may hold, for `set_up`."""
        assert self._kept is not None
        return self._kept.store_bytes - 4 * layout.BOARD_BYTES

    async def start(self) -> None:
        """Raises `BusFault` when it does not answer the first time; it is tried again all the same, until `close`."""
        self._program = await asyncio.to_thread(find_program)
        await asyncio.to_thread(self._prepare)
        for bus_key, until in self._known().invited.items():
            seconds = max(0.0, until / 1_000 - time.time())
            self._tasks.start(self._end_invitation(bus_key, until, seconds), "an invitation")
        first: Deferred[None] = Deferred()
        self._tasks.start(self._supervise(first), "the hub")
        await first

    async def admit(self, node: str, bus_key: str) -> None:
        async with self._changing:
            kept = self._known()
            kept.admitted[node] = bus_key
            kept.invited.pop(bus_key, None)
            await self._apply()

    async def expel(self, node: str) -> None:
        async with self._changing:
            # Without any user the server would let everybody in.
            if node != self._node and self._known().admitted.pop(node, None) is not None:
                await self._apply()

    async def invite(self, bus_key: str, seconds: float) -> None:
        until = round((time.time() + seconds) * 1_000)
        async with self._changing:
            self._known().invited[bus_key] = until
            await self._apply()
        self._tasks.start(self._end_invitation(bus_key, until, seconds), "an invitation")

    async def withdraw(self, bus_key: str) -> None:
        async with self._changing:
            if self._known().invited.pop(bus_key, None) is not None:
                await self._apply()

    async def close(self) -> None:
        await self._tasks.close(cancel_seconds=2 * END_SECONDS)

    # -- what it is started with

    def _prepare(self) -> None:
        make_private_dir(self._folder)
        files = self._files
        if not (os.path.exists(files.certificate) and os.path.exists(files.key)):
            certificate, key = new_certificate()
            write_private_file(files.key, key)
            write_private_file(files.certificate, certificate)
        with open(files.certificate, encoding="ascii") as file:
            self.certificate_pem = file.read()
        self.certificate = fingerprint(self.certificate_pem)
        if self._kept is None:
            self._kept = self._read_kept()
        self._kept.admitted[self._node] = self._bus_key
        self._write()

    def _read_kept(self) -> _Kept:
        try:
            with open(self._files.kept, "rb") as file:
                return _KEPT.decode(file.read())
        except FileNotFoundError:
            # Kept from then on: a server with less room than before does not find its own streams.
            free = shutil.disk_usage(self._folder).free
            return _Kept(admitted={}, store_bytes=max(_LEAST_STORE_BYTES, min(MAX_STORE_BYTES, free // 2)))
        except codec.BadJson as error:
            raise BusFault(Fault.NOT_SET_UP, f"{self._files.kept} is damaged ({error}); restore or remove it") from None

    def _known(self) -> _Kept:
        assert self._kept is not None, "the hub is started first"
        return self._kept

    def _write(self) -> None:
        kept, files = self._known(), self._files
        now = time.time() * 1_000
        kept.invited = {key: until for key, until in kept.invited.items() if until > now}
        write_private_file(files.kept, codec.encode(kept).decode())
        logins = hub_config.users(self._node, kept.admitted, list(kept.invited))
        config = hub_config.config(
            self._host or "0.0.0.0",  # noqa: S104 - as its user said
            self._port,
            hub_config.HubFiles(files.certificate, files.key, files.store, files.log, files.pid),
            kept.store_bytes,
            logins,
        )
        write_private_file(files.config, codec.encode(config).decode())
        self._written += 1

    # -- changes

    async def _apply(self) -> None:
        """On disk and in force: whoever is not listed any more is disconnected."""
        await asyncio.to_thread(self._write)
        process = self._process
        if process is None or process.returncode is not None:
            # The next start reads it.
            return
        before = self._log_size()
        process.send_signal(signal.SIGHUP)
        end = asyncio.get_running_loop().time() + RELOAD_SECONDS
        while asyncio.get_running_loop().time() < end and process.returncode is None:
            text = self._log_since(before)
            if _RELOADED in text:
                return
            if _NOT_RELOADED in text:
                break
            await asyncio.sleep(POLL_SECONDS)
        if process.returncode is None:
            # What it does not read while it runs it reads when it starts.
            process.kill()

    async def _end_invitation(self, bus_key: str, until: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        # One that was extended has a timer of its own.
        if self._known().invited.get(bus_key) == until:
            await self.withdraw(bus_key)

    def _log_size(self) -> int:
        with contextlib.suppress(OSError):
            return os.path.getsize(self._files.log)
        return 0

    def _log_since(self, before: int) -> bytes:
        # It begins a new file when one is full.
        with contextlib.suppress(OSError), open(self._files.log, "rb") as file:
            file.seek(before if self._log_size() >= before else 0)
            return file.read()
        return b""

    # -- its life

    async def _supervise(self, first: Deferred[None]) -> None:
        waits = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._run(first)
            except (BusFault, OSError) as error:
                self.fault = error if isinstance(error, BusFault) else BusFault(Fault.UNREACHABLE, str(error))
                if not first.done():
                    first.set_exception(self.fault)
            if loop.time() - began > STEADY_SECONDS:
                waits.reset()
            await asyncio.sleep(next(waits))

    async def _run(self, first: Deferred[None]) -> None:
        """One life of the server."""
        await asyncio.to_thread(end_stale, self._files.pid, self._files.config)
        before, written = self._log_size(), self._written
        process = await start_program(self._program, self._files.config, self._files.errors)
        try:
            await self._answers(process, before)
            self._process, self.fault = process, None
            if written != self._written:
                # Somebody was admitted or expelled while it started.
                process.send_signal(signal.SIGHUP)
            if not first.done():
                first.set_result(None)
            await process.wait()
            raise self._ended(before)
        finally:
            self._process = None
            await _end(process)

    async def _answers(self, process: asyncio.subprocess.Process, before: int) -> None:
        host, _, port = self.own_address.rpartition(":")
        end = asyncio.get_running_loop().time() + START_SECONDS
        while asyncio.get_running_loop().time() < end:
            if process.returncode is not None:
                raise self._ended(before)
            with contextlib.suppress(BusFault):
                # Ours, and not somebody's who has the port.
                shown = await fetch_certificate(host.strip("[]"), int(port), 1.0)
                if shown[1] == self.certificate and read_pid(self._files.pid) == process.pid:
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise BusFault(Fault.UNREACHABLE, f"the hub's nats-server does not answer; its log: {self._files.log}")

    def _ended(self, before: int) -> BusFault:
        text = self._log_since(before)[-_TAIL_BYTES:].decode(errors="replace")
        if "address already in use" in text:
            return BusFault(
                Fault.UNREACHABLE,
                f"port {self._port} is taken by another program: end that one, or let the hub listen on another port",
            )
        with contextlib.suppress(OSError), open(self._files.errors, encoding="utf-8", errors="replace") as file:
            text += file.read(_TAIL_BYTES)
        last = text.strip().splitlines()[-1:] or ["it said nothing"]
        return BusFault(
            Fault.UNREACHABLE,
            f"the hub's nats-server ended: {last[0]}; it is started again, its log: {self._files.log}",
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def end_stale(pid_file: str, config: str) -> None:
    """A server of ours that outlived a killed daemon, where the system does not end it (it does on Linux)."""
    pid = read_pid(pid_file)
    # Any process may have that number by now.
    if {PROGRAM, config} <= {PROGRAM if word.endswith(PROGRAM) else word for word in arguments_of(pid)}:
        # Another user's process may call itself what it likes; it is not ours to end, and no reason not to start.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def read_pid(file_name: str) -> int:
    """0 for none."""
    with contextlib.suppress(OSError, ValueError), open(file_name, encoding="ascii") as file:
        return int(file.read())
    return 0


def arguments_of(pid: int) -> list[str]:
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read().split("\0")
        return []
    words = ["ps", "-ww", "-o", "args=", "-p", str(pid)]
    shown = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - a number
    # A folder with a space in its name is not found, and its server not ended.
    return shown.stdout.split()


def reachable_at(host: str, port: int) -> list[str]:
    """Where others reach who listens on `host`: the likeliest first."""
    if host not in ("0.0.0.0", "", "::"):  # noqa: S104 - compared, not bound
        return [_join(host, port)]
    found = []
    # By which of our addresses we would reach the world; no packet leaves for it.
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            found.append(probe.getsockname()[0])
    found.append(socket.gethostname())
    return [_join(each, port) for each in found]


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
