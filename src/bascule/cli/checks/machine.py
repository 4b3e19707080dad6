"""The machine below: Python, SQLite, loopback, disk, memory, PATH, clock."""

import importlib
import importlib.util
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

from bascule.cli.checks.patient import Patient, Verdict, fail, info, ok, warn
from bascule.foundation import paths

OLDEST_PYTHON = (3, 11)
NEEDED_PACKAGES = ("msgspec", "uvloop", "httptools")
# The first release without the WAL-reset bug (3.7.0 to 3.51.2).
FIXED_SQLITE = (3, 51, 3)
# Every waiting agent, stream and helper is one open file of the daemon.
MIN_OPEN_FILES = 1024
SYNC_ROUNDS = 9
# SQLite's smallest write: one page.
SYNC_BYTES = 4096
# Before this version existed: a clock that says so has never been set.
EARLIEST_WALL_TIME = 1_767_225_600  # 2026-01-01
# Writes and reads of the clock are not one moment; more than this is a clock that went back.
CLOCK_SLACK_SECONDS = 60
COMMANDS = ("bascule", "bridgectl", "bridge-register", "bridge-reply", "bridge-recv", "bridge-send")
# SQLite's write-ahead log and our locks want one machine's own file system.
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "afs", "fuse.sshfs", "fuse.glusterfs"})
FORGETFUL_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})


def check_python(_: Patient) -> Verdict:
    what = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return fail(what, "install Python 3.11 or newer and run `make up` again")
    return ok(what)


def _missing_packages() -> list[str]:
    return [name for name in NEEDED_PACKAGES if importlib.util.find_spec(name) is None]


def check_packages(_: Patient) -> Verdict:
    missing = _missing_packages()
    if missing:
        return fail(f"not installed: {', '.join(missing)}", "run `make up` in the checkout, or install bascule again")
    return ok(", ".join(NEEDED_PACKAGES))


def check_mcp(_: Patient) -> Verdict:
    """The daemon loads it at the first request for /mcp; what would fail then is found now."""
    if _missing_packages():
        return info("not looked at: a package that everything needs is missing")
    try:
        importlib.import_module("bascule.surfaces.mcp.surface")
    except Exception as error:  # noqa: BLE001 - a package that is half installed may raise anything
        return fail(
            f"/mcp cannot be served: {type(error).__name__}: {error}",
            "run `make up` in the checkout, or install bascule again; `bascule mcp` over stdio works without it",
        )
    return ok("the MCP SDK can be loaded when a client asks for /mcp")


def check_sqlite(_: Patient) -> Verdict:
    if importlib.util.find_spec("_sqlite3") is None:
        return fail(
            "this Python was built without SQLite",
            "install libsqlite3-dev and build it again, or use another",
        )
    import sqlite3

    return judge_sqlite(sqlite3.sqlite_version_info)


def judge_sqlite(version: tuple[int, ...]) -> Verdict:
    text = ".".join(map(str, version))
    if version >= FIXED_SQLITE:
        return ok(text)
    what = f"{text} is older than 3.51.3, whose fix is for several writers at once; the daemon has one writer"
    return warn(what, "nothing to do: it is harmless here; do not write to the store with other programs")


def check_loopback(_: Patient) -> Verdict:
    with socket.socket(socket.AF_INET) as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            return fail(
                f"127.0.0.1 cannot be used: {error.strerror}",
                "bring the loopback interface up: ip link set lo up",
            )
    try:
        found = {str(row[4][0]) for row in socket.getaddrinfo("localhost", None, socket.AF_INET)}
    except OSError:
        found = set()
    if "127.0.0.1" not in found:
        return warn(
            "the name localhost does not mean 127.0.0.1",
            "add `127.0.0.1 localhost` to /etc/hosts, or use the number",
        )
    return ok("127.0.0.1 works and localhost means it")


def check_disk(patient: Patient) -> Verdict:
    free = shutil.disk_usage(patient.nearest).free
    what = f"{_megabytes(free)} free for {patient.state}"
    if free < patient.min_free_bytes:
        return fail(
            f"{what}, less than {_megabytes(patient.min_free_bytes)}",
            "free some space, then run `bascule gc`",
        )
    kind = file_system(patient.nearest)
    if kind in NETWORK_FILE_SYSTEMS:
        return warn(f"{what}, on a network file system ({kind})", "put it on a disk of this machine with --state-dir")
    if kind in FORGETFUL_FILE_SYSTEMS:
        return warn(f"{what}, in memory ({kind}): gone after a reboot", "put it on a disk with --state-dir")
    return ok(what)


def file_system(folder: Path) -> str:
    """The type of what is mounted there, from /proc; empty where there is no /proc."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    here = folder.resolve()
    best, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted = Path(before.split(" ")[4].replace("\\040", " "))
        # Of two mounts on one point the later covers the earlier.
        if here.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), after.split(" ")[0]
    return kind


def check_sync(patient: Patient) -> Verdict:
    if not os.access(patient.nearest, os.W_OK | os.X_OK):
        return info(f"not measured: {patient.nearest} is not yours to write")
    seconds = sorted(_sync_times(patient.nearest))[SYNC_ROUNDS // 2]
    what = f"a write reaches the disk in {seconds * 1000:.1f} ms (median of {SYNC_ROUNDS})"
    if seconds > patient.slow_sync_seconds:
        fix = "every answer to a send waits for one: put the state on a faster disk with --state-dir"
        return warn(what, fix)
    return ok(what)


def _sync_times(folder: Path) -> list[float]:
    times = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-") as file:
        for _ in range(SYNC_ROUNDS):
            started = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return times


def check_memory(patient: Patient) -> Verdict:
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        return info("not measured: there is no /proc/meminfo here")
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    what = f"{_megabytes(available)} available"
    if available < patient.min_memory_bytes:
        return warn(f"{what}, less than {_megabytes(patient.min_memory_bytes)}", "close something large first")
    return ok(what)


def check_open_files(_: Patient) -> Verdict:
    # The soft limit does not matter: the daemon raises it by itself.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= MIN_OPEN_FILES:
        return ok("no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}")
    fix = f"have the hard limit of {hard} raised (`nofile` in /etc/security/limits.conf) and log in again"
    return warn(f"up to {hard}; each waiting agent takes one", fix)


def check_helpers(patient: Patient) -> Verdict:
    # Not resolved: in a virtual environment python is a link, and the commands stand beside the link.
    ours = Path(patient.python).parent
    missing = [name for name in COMMANDS if not os.access(ours / name, os.X_OK)]
    line = f'export PATH="{ours}:$PATH"'
    for name in COMMANDS:
        found = shutil.which(name, path=patient.path)
        if found is None and not missing:
            return warn(f"{name} is not on PATH, agents will not find it", f"add to your shell's start file: {line}")
        if found is None:
            return warn(
                f"{name} is neither on PATH nor beside {patient.python}",
                "run `make up`, or install bascule again",
            )
        if not missing and not (ours / name).samefile(found):
            return warn(
                f"{name} on PATH is another installation: {found}",
                f"remove that one, or put ours first: {line}",
            )
    return ok(f"{len(COMMANDS)} commands on PATH")


def check_clock(patient: Patient) -> Verdict:
    fix = "set the clock, or turn time synchronisation on (timedatectl set-ntp true)"
    now = time.time()
    if now < EARLIEST_WALL_TIME:
        return fail(f"it says {time.strftime('%Y-%m-%d', time.gmtime(now))}", fix)
    try:
        behind = Path(paths.database_file(patient.state)).stat().st_mtime - now
    except FileNotFoundError:
        behind = 0.0
    if behind > CLOCK_SLACK_SECONDS:
        return warn(f"it is {behind:.0f} s before the store's last write: it went back", fix)
    return ok(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
