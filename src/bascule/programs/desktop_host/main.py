"""The host's process: opens the desktop, listens, and leaves nothing pressed when it ends."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys
import traceback
from typing import Any, Final

import msgspec

from bascule.desktop.capabilities import Trust
from bascule.foundation import paths
from bascule.foundation.clock import SystemClock, rfc3339
from bascule.kernel.evidence import EvidenceRoot
from bascule.programs.desktop_host.linux.backend import LinuxDesktop
from bascule.programs.desktop_host.routes import KEEP_OUT
from bascule.programs.desktop_host.server import HostServer
from bascule.programs.desktop_host.service import Host

# What a socket's path may have, less the number behind it while it is made.
MAX_PATH_BYTES: Final = paths.MAX_SOCKET_PATH_BYTES - len(".4194304")


class CannotStart(Exception):
    """Said on the terminal, with what to do."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    workspace_root: str
    # One of the two: a socket to listen on, or a connected one given by the parent.
    listen: str | None = None
    descriptor: int | None = None
    phrase: bool = True
    allowed: tuple[str, ...] = ()
    keep_out: tuple[str, ...] = KEEP_OUT
    # A chord of the keyboard stops everything.
    stop_keys: bool = True
    trust: Trust = "checked"


class StderrLog:
    """JSON lines; never a payload. ASCII, so that no byte of a name can act on the terminal that prints them."""

    def __init__(self) -> None:
        self._clock = SystemClock()

    def __call__(self, event: str, /, *, level: str = "info", **fields: Any) -> None:
        line = {"at": rfc3339(self._clock.wall_ms()), "level": level, "event": event}
        for name, value in fields.items():
            if isinstance(value, BaseException):
                # Where, not what: the message of an unknown exception may hold anything.
                frames = traceback.extract_tb(value.__traceback__)
                line[name] = type(value).__name__ + " at " + " < ".join(f"{f.name}:{f.lineno}" for f in frames[::-1])
            elif value is not None:
                line[name] = value
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(json.dumps(line) + "\n")
            sys.stderr.flush()


def run(settings: Settings) -> int:
    return asyncio.run(_run(settings))


async def _run(settings: Settings) -> int:
    log = StderrLog()
    try:
        root = EvidenceRoot(settings.workspace_root)
    except OSError as error:
        raise CannotStart(f"WORKSPACE_ROOT {settings.workspace_root} cannot be opened: {error.strerror}") from error
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # Also from the thread that waits for the keys.
        loop.call_soon_threadsafe(lambda: server.tasks.start(host.stop_everything(), "stop"))

    desktop = LinuxDesktop(on_stop_keys=stop if settings.stop_keys else None, trust=settings.trust)
    host = Host(desktop, root, SystemClock(), log, phrase=settings.phrase, keep_out=settings.keep_out)
    server = HostServer(host, log, allowed=settings.allowed)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    # `bascule desktop stop` without a socket: a process that may signal us may stop us.
    loop.add_signal_handler(signal.SIGUSR1, stop)
    listener: asyncio.Server | None = None
    try:
        if settings.listen is not None:
            listener = await loop.create_unix_server(server.connection, sock=_listening(settings.listen))
            log("listening", socket=settings.listen, root=root.path)
        else:
            assert settings.descriptor is not None
            sock = socket.socket(fileno=settings.descriptor)
            sock.setblocking(False)
            await loop.connect_accepted_socket(server.connection, sock)
        opening = server.tasks.start(host.open(), "open")
        await _first_of(ending.wait(), *([] if listener is not None else [server.on_last_gone.wait()]))
        opening.cancel()
        return 0
    finally:
        if listener is not None:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(str(settings.listen))
        await server.close()
        await host.close()
        log("ended")


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(each) for each in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _listening(path: str) -> socket.socket:
    """A 0600 socket in a directory that is ours alone; a dead one that was left there is replaced."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise CannotStart(f"the path of the socket is longer than {MAX_PATH_BYTES} bytes: {path}")
    try:
        paths.make_private_dir(os.path.dirname(os.path.abspath(path)))
    except (paths.UnsafePlace, OSError) as error:
        raise CannotStart(str(error)) from error
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise CannotStart(f"{path} is in the way: it is not a socket")
        probe = socket.socket(socket.AF_UNIX)
        try:
            with contextlib.suppress(ConnectionRefusedError):
                probe.connect(path)
                raise CannotStart(f"a desktop host listens on {path} already")
        finally:
            probe.close()
    sock = socket.socket(socket.AF_UNIX)
    # Under its name only when it listens: a client that finds the name may connect.
    new = f"{path}.{os.getpid()}"
    before = os.umask(0o177)
    try:
        sock.bind(new)
    finally:
        os.umask(before)
    sock.listen()
    os.rename(new, path)
    return sock
