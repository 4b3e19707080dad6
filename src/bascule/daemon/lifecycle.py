"""Start, run, stop. One process per state directory, held by a lock that dies with it."""

import asyncio
import contextlib
import errno
import fcntl
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvloop

from bascule import __version__
from bascule.bridge_list import BRIDGES
from bascule.daemon import ground
from bascule.daemon.compose import Daemon
from bascule.daemon.config import DaemonSettings
from bascule.daemon.console_port import ConsolePort, PortHeld, bind_console, extra_origins, wanted_port
from bascule.daemon.descriptors import claim_files, port_share, room_for_connections
from bascule.daemon.logs import DaemonLog
from bascule.daemon.opening import open_store
from bascule.daemon.stop_door import StopDoor
from bascule.foundation import paths
from bascule.foundation.clock import Clock, SystemClock
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, StorageFull
from bascule.foundation.paths import UnsafePlace
from bascule.kernel.declared import Declared
from bascule.kernel.settings import Config
from bascule.local_client.peers import is_our_end
from bascule.surfaces.console.door import ConsoleDoor
from bascule.surfaces.http.server import ConnectionLimit, HttpDoor
from gabp import codec

LOOPBACK = "127.0.0.1"
# Pid, version and three addresses, the longest paths included.
LOCK_NOTE_BYTES = 1_024
LINK_BACKLOG = 4_096
_SOCKETS = (paths.link_socket, paths.http_socket, paths.stop_socket)
# Ten times the default for young objects, twice for old ones: see `_settle_garbage`.
GC_THRESHOLDS = (10_000, 20, 20)
# How long the log's or the store's thread may keep the interpreter while the loop wants it; Python's own 5 ms is ten
# calls that wait.
SWITCH_SECONDS = 0.0005
# How often the loop's lateness is looked at: while the process works, and while it has nothing to do.
LAG_PROBE_SECONDS = 0.5
IDLE_LAG_PROBE_SECONDS = 2.0
# CPU between two looks from which on it works; a look itself takes a tenth of this.
IDLE_CPU_SECONDS = 0.001
# Answers of waits that were just ended need a moment to reach their clients before the sockets close.
FAREWELL_SECONDS = 1.0


class AlreadyRunning(Conflict):
    """Another daemon holds this state directory."""


class PortTaken(Conflict):
    """The TCP port is somebody else's."""


def run(
    config: Config,
    state_dir: str,
    *,
    tcp_optional: bool = False,
    on_ready: Callable[[Daemon], None] | None = None,
    bridges: Sequence[Declared] = BRIDGES,
) -> int:
    """Run the daemon in the foreground until SIGTERM or SIGINT; the exit code."""
    os.umask(0o077)
    # Report everything that is wrong with the settings before anything is touched.
    for settings in config.parts:
        settings.check((state_dir, paths.config_dir()))
    check_places(state_dir)
    try:
        with hold_lock(state_dir) as note:
            _run_locked(config, state_dir, note, tcp_optional=tcp_optional, on_ready=on_ready, bridges=bridges)
    except UnsafePlace as error:
        raise InvalidRequest(str(error)) from error
    except OSError as error:
        raise _in_words(error, state_dir) from error
    return 0


def _run_locked(
    config: Config,
    state_dir: str,
    note: Callable[[dict[str, Any]], None],
    *,
    tcp_optional: bool,
    on_ready: Callable[[Daemon], None] | None,
    bridges: Sequence[Declared],
) -> None:
    clock = SystemClock()
    own = config.of(DaemonSettings)
    log = DaemonLog(clock, path=paths.log_file(state_dir), terminal=sys.stderr, form=own.log, level=own.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            life = _live(
                *(config, state_dir, clock, log, note), tcp_optional=tcp_optional, on_ready=on_ready, bridges=bridges
            )
            runner.run(life)
    finally:
        log.close()


def _in_words(error: OSError, state_dir: str) -> BasculeError:
    where = error.filename or state_dir
    if error.errno == errno.ENOSPC:
        return StorageFull(f"the disk that holds {state_dir} is full", hint="free some space, then start again")
    if error.errno == errno.ELOOP:
        return InvalidRequest(f"{where} is a symbolic link; remove it", hint="secrets are plain files of ours")
    return InvalidRequest(f"{where}: {error.strerror}", hint="the state directory must be ours to write")


def check_places(state_dir: str) -> None:
    longest = max((path(state_dir) for path in _SOCKETS), key=len)
    if len(os.fsencode(longest)) > paths.MAX_SOCKET_PATH_BYTES:
        raise InvalidRequest(
            f"{longest} is too long for a unix socket ({paths.MAX_SOCKET_PATH_BYTES} bytes)",
            hint="choose a shorter --state-dir",
        )
    try:
        ground.check_parents(state_dir)
        paths.make_private_dir(state_dir)
        ground.check_contents(state_dir)
    except UnsafePlace as error:
        raise InvalidRequest(str(error), hint="or choose another directory with --state-dir") from error
    except OSError as error:
        raise InvalidRequest(
            f"{state_dir} cannot be made: {error.strerror}", hint="choose another directory with --state-dir"
        ) from error


@contextlib.contextmanager
def hold_lock(state_dir: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Be the only daemon here. Yields a function that writes into the lock file who we are."""
    path = paths.lock_file(state_dir)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            known = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            raise AlreadyRunning(
                f"a Bascule daemon runs in {state_dir} already",
                hint="`bascule status` shows it, `bascule down` stops it",
                details={"lock": known} if known else None,
            ) from None

        def note(facts: dict[str, Any]) -> None:
            # Always the same size, over what is there: a full disk must not keep us from saying who we are.
            os.pwrite(descriptor, codec.encode(facts)[:LOCK_NOTE_BYTES].ljust(LOCK_NOTE_BYTES), 0)

        note({"pid": os.getpid(), "version": __version__})
        try:
            yield note
        finally:
            # The file stays: removing it would let two daemons hold two different locks.
            os.pwrite(descriptor, b" " * LOCK_NOTE_BYTES, 0)
    finally:
        os.close(descriptor)


async def _live(
    config: Config,
    state_dir: str,
    clock: Clock,
    log: DaemonLog,
    note: Callable[[dict[str, Any]], None],
    *,
    tcp_optional: bool,
    on_ready: Callable[[Daemon], None] | None,
    bridges: Sequence[Declared],
) -> None:
    _hold_garbage()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    # Bind before the store is opened: a taken port must not leave a start record behind.
    own = config.of(DaemonSettings)
    tcp = bind_tcp(own.port, optional=tcp_optional, log=log)
    console = _console(own, state_dir, log)
    link, http, stopping = (bind_unix(path(state_dir)) for path in _SOCKETS)
    store = open_store(own.durability, state_dir, log, bridges)
    daemon = Daemon(config, state_dir, clock, log, store, bridges=bridges)
    await daemon.open()
    timer = _Timer(daemon, loop)
    stop_door = StopDoor(stopping, daemon.gate, daemon.emergency, daemon.halt_note, clock=clock, log=log)
    link_server = await loop.create_unix_server(daemon.link_connection, sock=link, backlog=LINK_BACKLOG)
    most = room_for_connections(claim_files())
    room = ConnectionLimit(most)
    doors = [HttpDoor(daemon.web_app("unix"), http, room=room)]
    # Those of bridges are there already.
    daemon.doors = {"link": paths.link_socket(state_dir), "http": paths.http_socket(state_dir)} | daemon.doors
    if tcp is not None:
        port = tcp.getsockname()[1]
        tls = (own.tls_cert, own.tls_key) if own.tls_cert else None
        app = daemon.web_app("tcp", port)
        doors.append(HttpDoor(app, tcp, room=room, max_connections=port_share(most), tls=tls))
        scheme = "https" if own.tls_cert else "http"
        daemon.doors["tcp"] = f"{scheme}://{LOOPBACK}:{port}"
    doors += _console_doors(daemon, console, extra_origins(own.console_origins), room)
    # A client that finds the addresses can connect, and waits for a moment; one that is given one and served must
    # find out that it is its own daemon's.
    for sock in filter(None, (http, tcp)):
        sock.listen()
    note({"pid": os.getpid(), "version": __version__, "doors": daemon.doors})
    async with asyncio.TaskGroup() as group:
        for door in doors:
            await door.start()
        probe = group.create_task(_probe_lag(daemon))
        daemon.mcp.start(group)
        _settle_garbage()
        sys.setswitchinterval(SWITCH_SECONDS)
        daemon.ready = True
        log("ready", **daemon.doors)
        if on_ready is not None:
            on_ready(daemon)
        await stop.wait()
        log("stopping")
        probe.cancel()
        link_server.close()
        daemon.stop_waits()
        await _farewell(daemon)
        await daemon.mcp.stop()
        await asyncio.gather(*(door.stop() for door in doors))
    timer.stop()
    await _close(daemon, link_server, stop_door)
    _remove_sockets(state_dir)


async def _close(daemon: Daemon, link_server: asyncio.Server, stop_door: StopDoor) -> None:
    for connection in list(daemon.connections.all):
        connection.close()
    await link_server.wait_closed()
    await daemon.close()
    stop_door.close()


def _console(own: DaemonSettings, state_dir: str, log: DaemonLog) -> ConsolePort | PortHeld | None:
    """The console's port, or why there is none; None where none is wanted. The daemon goes on without it."""
    port = wanted_port(own.console_port, state_dir)
    if port is None:
        return None
    try:
        console = bind_console(port)
    except PortHeld as error:
        log("no_console", level="error", port=port, error=error.message, hint=error.hint)
        return error
    if len(console.sockets) == 1:
        log("console_without_ipv6", port=console.port, why="this machine has no ::1")
    return console


def _console_doors(
    daemon: Daemon, console: ConsolePort | PortHeld | None, extra: tuple[str, ...], room: ConnectionLimit
) -> list[ConsoleDoor]:
    if isinstance(console, PortHeld):
        daemon.console_problem = console.message
    if not isinstance(console, ConsolePort):
        return []
    daemon.sessions.origins = (console.origin, *extra)
    app = daemon.console_app()
    doors = [ConsoleDoor(app, sock, room=room, peer_check=is_our_end) for sock in console.sockets]
    daemon.sessions.on_end += [door.end_session for door in doors]
    daemon.doors["console"] = console.origin
    return doors


def _remove_sockets(state_dir: str) -> None:
    for path in _SOCKETS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path(state_dir))


def _hold_garbage() -> None:
    """What is loaded at start lives on: looking for garbage among it would take a third of the time."""
    gc.collect()
    gc.disable()


def _settle_garbage() -> None:
    """What was loaded stays: it is set aside. What comes is freed by counting; cycles are rare and looked for rarely.

    With the interpreter's defaults a full collection walked every ticket, and held up the loop for 40 ms at 3,000.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


async def _farewell(daemon: Daemon) -> None:
    """Let the answers of ended waits out: link answers leave in loop callbacks, HTTP and MCP ones in their tasks."""
    deadline = daemon.clock.monotonic() + FAREWELL_SECONDS
    # Counted down by whichever edge holds each wait; there is no one event for all of them.
    while _is_answering(daemon) and daemon.clock.monotonic() < deadline:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)


def _is_answering(daemon: Daemon) -> bool:
    return bool(daemon.waiting()) or daemon.link_sessions.busy


async def _probe_lag(daemon: Daemon) -> None:
    """A loop that has nothing to do is not late, so it is looked at rarely: each look wakes the machine."""
    used = time.process_time()
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            before, used = used, time.process_time()
            pause = LAG_PROBE_SECONDS if used - before > IDLE_CPU_SECONDS else IDLE_LAG_PROBE_SECONDS
            began = daemon.clock.monotonic()
            await asyncio.sleep(pause)
            daemon.sampler.look(max(0.0, daemon.clock.monotonic() - began - pause))


class _Timer:
    """The one timer of the loop behind the heap of deadlines."""

    # A wall of due entries is worked off in slices with the loop's other work in between.
    MIN_DELAY_S = 0.0005

    def __init__(self, daemon: Daemon, loop: asyncio.AbstractEventLoop) -> None:
        self._timers = daemon.timers
        self._clock = daemon.clock
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._at = float("inf")
        self._timers.on_earlier = self._arm
        first = self._timers.next()
        if first is not None:
            self._arm(first)

    def _arm(self, when: float) -> None:
        if when >= self._at:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at = when
        delay = max(self.MIN_DELAY_S, when - self._clock.monotonic())
        self._handle = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._handle = None
        self._at = float("inf")
        try:
            self._timers.tick(self._clock.monotonic())
        finally:
            # Time goes on, whatever happened in it.
            following = self._timers.next()
            if following is not None:
                self._arm(following)

    def stop(self) -> None:
        self._timers.on_earlier = None
        if self._handle is not None:
            self._handle.cancel()


def bind_tcp(port: int, *, optional: bool, log: DaemonLog) -> socket.socket | None:
    if not port:
        return None
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
    except OSError as error:
        sock.close()
        if optional:
            # Started by a stdio program: it needs only the unix sockets, and must not fail for somebody's port.
            log("no_tcp", level="warning", port=port, error=error.strerror)
            return None
        raise PortTaken(
            f"port {port} is in use",
            hint=f"stop what listens there (ss -ltnp 'sport = :{port}'), or choose another with --port; 0 for none",
        ) from error
    sock.set_inheritable(False)
    return sock


def bind_unix(path: str) -> socket.socket:
    """A 0600 socket. An old one is ours: we hold the lock of its directory, which is ours alone."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, 0o600)
    except OSError as error:
        sock.close()
        raise InvalidRequest(f"cannot listen on {path}: {error.strerror}") from error
    return sock
