"""The servers of a measure, each in a process of its own, and how much CPU they have used."""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.dirname(sys.executable)
# A server that takes longer to start is broken, whoever made it.
READY_SECONDS = 60.0
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.01

# What a load generator would run into long before the server is busy. The gates stay in the path: only
# their limits are out of reach.
OPEN_LIMITS = {
    "BASCULE_CALLS_PER_SECOND": "1e12",
    "BASCULE_BURST_CALLS": "1e12",
    "BASCULE_MAX_OPEN_TICKETS": "100000000",
    "BASCULE_MAX_KEPT_MESSAGES": "100000000",
    "BASCULE_MAX_KEPT_BYTES": "1000000000000",
    "BASCULE_MAX_INBOX_MESSAGES": "100000000",
    "BASCULE_MAX_INBOX_MESSAGES_PER_SENDER": "100000000",
    "BASCULE_MAX_INBOX_BYTES_PER_SENDER": "1000000000000",
    "BASCULE_MAX_INBOX_BYTES": "1000000000000",
    "BASCULE_MAX_WAITS": "100000000",
    "BASCULE_MAX_AGENTS": "100000000",
}


class NotInstalled(RuntimeError):
    """A peer is not on this machine: the others are measured without it, and the table says so."""


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change the daemon's settings behind the bench's back."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BASCULE_", "BRIDGE_"))}
    return kept | more


@contextlib.contextmanager
def scratch(parent: str | None) -> Iterator[str]:
    """A directory on a real disk: /tmp may be memory, where fsync costs nothing."""
    path = tempfile.mkdtemp(prefix="bascule-bench-", dir=parent or "/var/tmp")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Server:
    def __init__(self, process: "subprocess.Popen[bytes]", address: str, began: float) -> None:
        self.process = process
        self.address = address
        self._began = began
        # From the first step of starting it until it said that it was ready.
        self.started_s = 0.0

    def started(self) -> None:
        self.started_s = time.perf_counter() - self._began

    def wait_until(self, ready: Callable[[], bool], name: str) -> None:
        """For servers that do not say when they are."""
        while not ready():
            if self.process.poll() is not None or time.perf_counter() - self._began > READY_SECONDS:
                raise RuntimeError(f"{name} did not become ready (exit code {self.process.poll()})")
            time.sleep(_POLL_SECONDS)
        self.started()

    @property
    def pid(self) -> int:
        return self.process.pid


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process, all threads of it; None where another process's cannot be read."""
    if sys.platform != "linux":
        return None
    try:
        # The number that clock_getcpuclockid(3) gives. /proc/<pid>/stat counts in steps of 10 ms.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


def memory_bytes(pid: int) -> int | None:
    """Resident memory; None where there is no /proc."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


@contextlib.contextmanager
def _running(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def ready_by_pipe(command: list[str], address: str, env: dict[str, str]) -> Iterator[Server]:
    """Start `command` with the number of a pipe as its last argument, in which it says that it is ready."""
    read, write = os.pipe()
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, str(write)],
        env=env,
        pass_fds=(write,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    os.close(write)
    with _running(process):
        with os.fdopen(read, "rb") as pipe:
            readable, _, _ = select.select([pipe], [], [], READY_SECONDS)
            line = pipe.readline() if readable else b""
        if line != b"ready\n":
            raise RuntimeError(f"{command[0:4]} did not become ready (exit code {process.poll()})")
        server = Server(process, address, began)
        server.started()
        yield server


def bascule(
    state: str, *, durability: str, port: int = 0, python: str = sys.executable, **settings: str
) -> "contextlib.AbstractContextManager[Server]":
    """The daemon as `bascule up` runs it: policy standard, log file on, every call logged and counted."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    command = [
        *(python, "-P", "-m", "bascule.cli.start", "up", "--state-dir", state, "--log", "off"),
        *("--port", str(port), "--durability", durability, "--ready-fd"),
    ]
    return ready_by_pipe(
        command, state, environment(**OPEN_LIMITS, BASCULE_CONFIG_DIR=os.path.join(state, "config"), **settings)
    )


def bare_broker(directory: str) -> "contextlib.AbstractContextManager[Server]":
    path = os.path.join(directory, "bare.sock")
    return ready_by_pipe([sys.executable, os.path.join(HERE, "bare_broker.py"), path], path, environment())


@contextlib.contextmanager
def http_program(name: str, directory: str) -> Iterator[Server]:
    """One of the small HTTP servers beside this file; it says itself where it listens."""
    path = os.path.join(directory, f"{name}.address")
    with ready_by_pipe([sys.executable, os.path.join(HERE, f"{name}.py"), path], path, environment()) as server:
        with open(path, encoding="utf-8") as file:
            server.address = file.read()
        yield server


@contextlib.contextmanager
def nats(directory: str, *, jetstream: str | None = None) -> Iterator[Server]:
    """nats-server; `jetstream` is its sync_interval, None for core NATS alone."""
    program = os.path.join(PROGRAMS, "nats-server")
    if not os.path.exists(program):
        raise RuntimeError("nats-server is not installed; `make bench` installs it before it measures")
    os.makedirs(directory, exist_ok=True)
    config = os.path.join(directory, "nats.conf")
    lines = ["host: 127.0.0.1", "port: -1", f'ports_file_dir: "{directory}"', f'log_file: "{directory}/log"']
    if jetstream is not None:
        lines.append(f'jetstream {{ store_dir: "{directory}/store", sync_interval: "{jetstream}" }}')
    with open(config, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    # Written once it listens.
    ports = os.path.join(directory, "nats-server_{pid}.ports")
    with _spawned([program, "-c", config]) as server:
        ports = ports.format(pid=server.pid)
        server.wait_until(lambda: os.path.exists(ports) and os.path.getsize(ports) > 0, "nats-server")
        with open(ports, encoding="utf-8") as file:
            server.address = json.load(file)["nats"][0]
        yield server


def redis_program() -> str:
    """Debian's redis-server is another name of a program in redis-tools, which starts no service when installed."""
    found = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if found is None:
        raise NotInstalled("Redis is not measured: neither redis-server nor redis-tools is installed")
    return found


@contextlib.contextmanager
def redis(directory: str, *, durable: bool = False) -> Iterator[Server]:
    """redis-server on a unix socket. `durable`: every write is in the append-only file, synced, before its answer."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "redis.sock")
    keeping = ["--appendonly", "yes", "--appendfsync", "always"] if durable else ["--appendonly", "no"]
    command = [
        *("redis-server", "--port", "0", "--unixsocket", path, "--dir", directory, "--save", ""),
        *("--logfile", os.path.join(directory, "log"), *keeping),
    ]

    def answers() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
            except OSError:
                return False

    with _spawned(command, program=redis_program()) as server:
        server.wait_until(answers, "redis-server")
        server.address = path
        yield server


@contextlib.contextmanager
def _spawned(command: list[str], program: str | None = None) -> Iterator[Server]:
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        executable=program,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    with _running(process):
        yield Server(process, "", began)
