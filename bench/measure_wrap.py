"""The wrapper beside the plain terminal: how much output passes through, and how soon a message reaches a program."""

import contextlib
import os
import pty
import shutil
import sys
import threading
import time

import processes
from processes import PROGRAMS
from report import Section, Settings, middle, millis

SCRIPT = "`script`"
WRAPPED = "`bridge-wrap`"
BELL = "a message to an idle program, until its first byte"
FLOOD_BYTES = 100_000_000
QUICK_FLOOD_BYTES = 10_000_000
ROUNDS = 3
BELLS = 25
QUICK_BELLS = 5
PATIENCE_SECONDS = 120.0
# Reads every key and says on stdout when the first of a line came.
IDLE = """
import os, sys, time, tty
tty.setraw(0)
os.write(1, b"ready")
while True:
    data = os.read(0, 65536)
    with open(sys.argv[1], "a") as log:
        log.write(f"{time.time()} {data[:9]!r}\\n")
"""


def on_a_terminal(command: list[str], env: dict[str, str]) -> float:
    """How long it takes, its output read from a terminal as quickly as it comes."""
    began = time.perf_counter()
    child, master = pty.fork()
    if not child:
        os.execvpe(command[0], command, env)
    size = 0
    with contextlib.suppress(OSError):
        while data := os.read(master, 1 << 16):
            size += len(data)
    os.waitpid(child, 0)
    os.close(master)
    if size < QUICK_FLOOD_BYTES:
        raise RuntimeError(f"{command}: only {size} bytes came")
    return time.perf_counter() - began


def wrap(settings: Settings) -> Section:
    result = Section("wrap", "Programs in the wrapper", ("", "median", "fastest"))
    size = QUICK_FLOOD_BYTES if settings.quick else FLOOD_BYTES
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        stack.enter_context(processes.bascule(state, durability="memory"))
        env = processes.environment(BASCULE_STATE_DIR=state, TERM="xterm")
        flood = f"yes | head -c {size}"
        wrapped = [os.path.join(PROGRAMS, "bridge-wrap"), "--no-start", "--agent", "Flood", "--", "sh", "-c", flood]
        runs = {SCRIPT: ["script", "-qec", flood, "/dev/null"], WRAPPED: wrapped}
        if shutil.which("script") is None:
            del runs[SCRIPT]
        taken: dict[str, list[float]] = {}
        for _ in range(1 if settings.quick else ROUNDS):
            for label, command in runs.items():
                taken.setdefault(label, []).append(on_a_terminal(command, env))
            settings.progress()
        for label, times in taken.items():
            row = f"`{flood}` in {label}"
            result.add(row, f"{middle(times):.2f} s", f"{min(times):.2f} s")
            result.keep(label, median_s=middle(times), fastest_s=min(times))
        bells = _bells(settings, state, directory, env)
        result.add(BELL, millis(middle(bells)), millis(min(bells)))
        result.keep(BELL, median_ms=middle(bells), fastest_ms=min(bells))
    result.notes.append("The flood's time holds the start of each program. Its terminal is read by the bench.")
    return result


def _bells(settings: Settings, state: str, directory: str, env: dict[str, str]) -> list[float]:
    """From just before `messages.send` to the first key in a program that has been quiet."""
    from bascule.client import SyncClient

    log = os.path.join(directory, "keys")
    command = [os.path.join(PROGRAMS, "bridge-wrap"), "--no-start", "--agent", "Idle", "--"]
    child, master = pty.fork()
    if not child:
        os.execvpe(command[0], [*command, sys.executable, "-c", IDLE, log], env)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(master, 4096)
    threading.Thread(target=_drain, args=(master,), daemon=True).start()
    taken = []
    with SyncClient.connect(state) as client:
        for number in range(QUICK_BELLS if settings.quick else BELLS):
            # Longer than a program without a profile must have been quiet.
            time.sleep(1.3)
            began = time.time()
            ticket = client.send("Idle", f"message {number}").ticket_id
            taken.append((_keys(log, number) - began) * 1000)
            client.cancel(ticket)
    os.kill(child, 15)
    os.waitpid(child, 0)
    return taken


def _drain(master: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(master, 4096):
            pass


def _keys(log: str, number: int) -> float:
    """When the bell of this number began."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                begun = [float(line.split()[0]) for line in file if "[bascule" in line]
            if len(begun) > number:
                return begun[number]
        time.sleep(0.002)
    raise RuntimeError("the bell was never rung")
