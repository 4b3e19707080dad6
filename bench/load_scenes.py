"""Scenes of load on a running daemon: what the load tests judge and `measure_load` puts into figures."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from bascule.foundation import paths

HERE = os.path.dirname(os.path.abspath(__file__))
# An order that takes longer hangs.
ORDER_SECONDS = 240.0
STOP_SECONDS = 20.0
PATIENCE_SECONDS = 60.0
# Hostile clients give way to the honest ones and to the daemon: on a small machine the CPU they would take is not
# what is measured.
HOSTILE_NICE = 10


class Target(NamedTuple):
    """A running daemon."""

    pid: int
    state: str
    port: int


class Swarm:
    """`swarm.py` in a process of its own, told what to do."""

    def __init__(self, target: Target, *, nice: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "swarm.py"), target.state, str(target.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.setpriority(os.PRIO_PROCESS, self.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + nice)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def order(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        # One order is open at a time, so nothing can hide in the reader's buffer.
        readable, _, _ = select.select([self.process.stdout], [], [], ORDER_SECONDS)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            raise RuntimeError(f"the swarm said nothing (exit code {self.process.poll()})")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def do(self, do: str, **more: Any) -> dict[str, Any]:
        self.order(do, **more)
        return self.answer()


# -- what the system says about the daemon --


def rss_bytes(pid: int) -> int:
    return _status(pid, "VmRSS") * 1024


def peak_rss_bytes(pid: int) -> int:
    return _status(pid, "VmHWM") * 1024


def threads(pid: int) -> int:
    return _status(pid, "Threads")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def sockets(pid: int) -> set[str]:
    """Its sockets, by their numbers. A file that is open for a moment, as an anchor is written, is none of them."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {each for each in found if each.startswith("socket:")}


def zombies(pid: int) -> int:
    """Children of `pid` that ended and were not waited for."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            state, parent = file.read().rpartition(b")")[2].split()[:2]
            count += state == b"Z" and int(parent) == pid
    return count


def _status(pid: int, field: str) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f"{field}:"))


def gauge(target: Target, name: str) -> float:
    """From /metrics, over the TCP door."""
    token = paths.read_private_file(paths.local_token_file(target.state)).strip()
    request = urllib.request.Request(
        f"http://127.0.0.1:{target.port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def until(look: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


# -- the scenes --


def polls(target: Target, *, door: str, agents: int, each: int, wait_ms: int = 60_000) -> dict[str, Any]:
    """`agents` x `each` long polls are held, then all are answered; what that costs."""
    with Swarm(target) as swarm:
        figures = swarm.do("send", agents=agents, each=each)
        count = figures["sent"]
        descriptors_before, rss_before = descriptors(target.pid), rss_bytes(target.pid)
        sockets_before = sockets(target.pid)
        asked = swarm.do("hold", door=door, wait_ms=wait_ms)
        held = until(lambda: gauge(target, "bascule_waits") >= count, 30)
        figures |= {"held": int(gauge(target, "bascule_waits")) if not held else count, "held_s": asked["took_s"]}
        rss = rss_bytes(target.pid)
        figures |= {
            "connections_held": len(sockets(target.pid) - sockets_before),
            "rss_mb": rss / 1e6,
            "per_wait_kb": (rss - rss_before) / count / 1e3,
        }
        figures |= swarm.do("reply")
        swarm.do("close")
        until(lambda: descriptors(target.pid) <= descriptors_before, 30)
        figures["descriptors_left"] = descriptors(target.pid) - descriptors_before
        figures["waits_left"] = gauge(target, "bascule_waits")
        figures["peak_rss_mb"] = peak_rss_bytes(target.pid) / 1e6
    return figures


@contextlib.contextmanager
def hostile(target: Target) -> Iterator[Swarm]:
    with Swarm(target, nice=HOSTILE_NICE) as swarm:
        yield swarm


def beside(
    target: Target,
    what: str,
    begin: Callable[[Swarm], None],
    end: Callable[[Swarm], dict[str, Any]],
    *,
    seconds: float,
    pause_s: float = 0.002,
    warm_up_s: float = 0.5,
) -> dict[str, Any]:
    """A good client's times alone, beside the load, and alone again; the quieter of the two counts."""
    with Swarm(target) as good, hostile(target) as bad:
        measure = {"what": what, "seconds": seconds, "pause_s": pause_s}
        before = good.do("measure", **measure)
        begin(bad)
        time.sleep(warm_up_s)
        loaded = good.do("measure", **measure)
        answer = end(bad)
        after = good.do("measure", **measure)
        alone = min(before, after, key=lambda run: run["p99_ms"])
        return {"alone": alone, "loaded": loaded, "ratio": loaded["p99_ms"] / alone["p99_ms"], **answer}


LORIS = ("silent", "head", "body", "stranger")


def loris(target: Target, *, each: int, seconds: float, styles: tuple[str, ...] = LORIS) -> dict[str, Any]:
    def begin(bad: Swarm) -> None:
        for style in styles:
            bad.do("loris", style=style, count=each, every_s=1.0)

    return beside(target, "fresh", begin, lambda bad: bad.do("cut", seconds=PATIENCE_SECONDS), seconds=seconds)


def flood(
    target: Target, *, door: str, connections: int, window: int, what: str, seconds: float, pause_s: float = 0.002
) -> dict[str, Any]:
    def begin(bad: Swarm) -> None:
        bad.do("flood", door=door, connections=connections, window=window)

    return beside(target, what, begin, lambda bad: bad.do("stop", name="flood"), seconds=seconds, pause_s=pause_s)


def heavy(target: Target, *, senders: int, seconds: float) -> dict[str, Any]:
    def begin(bad: Swarm) -> None:
        bad.do("heavy", senders=senders)

    return beside(target, "ask", begin, lambda bad: bad.do("stop", name="heavy"), seconds=seconds)
