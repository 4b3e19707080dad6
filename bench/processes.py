"""The servers of a measure, each in a process of its own, and how much CPU they have used."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

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
    "BASCULE_MAX_INBOX_BYTES": "1000000000000",
}


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
    def __init__(self, process: "subprocess.Popen[bytes]", address: str, started_s: float) -> None:
        self.process = process
        self.address = address
        # From the first step of starting it until it said that it was ready.
        self.started_s = started_s

    @property
    def pid(self) -> int:
        return self.process.pid


def cpu_seconds(pid: int) -> float | None:
    """User and system time of a process; None where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
            said = pipe.readline() if readable else b""
        if said != b"ready\n":
            raise RuntimeError(f"{command[0:4]} did not become ready (exit code {process.poll()})")
        yield Server(process, address, time.perf_counter() - began)


def bascule(
    state: str, *, durability: str, port: int = 0, **settings: str
) -> "contextlib.AbstractContextManager[Server]":
    """The daemon as `bascule up` runs it: policy standard, log file on, every call logged and counted."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    command = [
        *(sys.executable, "-P", "-m", "bascule.cli.start", "up", "--state-dir", state, "--log", "off"),
        *("--port", str(port), "--durability", durability, "--ready-fd"),
    ]
    return ready_by_pipe(
        command, state, environment(**OPEN_LIMITS, BASCULE_CONFIG_DIR=os.path.join(state, "config"), **settings)
    )


def bare_broker(directory: str) -> "contextlib.AbstractContextManager[Server]":
    path = os.path.join(directory, "bare.sock")
    return ready_by_pipe([sys.executable, os.path.join(HERE, "bare_broker.py"), path], path, environment())


def bare_asgi(directory: str) -> "contextlib.AbstractContextManager[Server]":
    path = os.path.join(directory, "bare.port")
    return ready_by_pipe([sys.executable, os.path.join(HERE, "bare_asgi.py"), path], path, environment())


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
    began = time.perf_counter()
    process = subprocess.Popen(
        [program, "-c", config],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    with _running(process):
        # Written once it listens.
        ports = os.path.join(directory, f"nats-server_{process.pid}.ports")
        while not (os.path.exists(ports) and os.path.getsize(ports)):
            if process.poll() is not None or time.perf_counter() - began > READY_SECONDS:
                raise RuntimeError(f"nats-server did not become ready (exit code {process.poll()})")
            time.sleep(_POLL_SECONDS)
        with open(ports, encoding="utf-8") as file:
            address = json.load(file)["nats"][0]
        yield Server(process, address, time.perf_counter() - began)
