"""The two ends of an ask, for every contender: who asks (`asker`) and who answers (`receiver`).

Run as programs by `measure_ask`, one process each, so that no contender's client shares a core with its
own receiver any more than another's does. The payload is 1 KiB of text and comes back as it went out.
"""

import argparse
import asyncio
import importlib
import json
import os
import sys
import time

import uvloop

from processes import cpu_seconds
from scene import ANSWER_SECONDS, Ask

# Imported only by the one that needs it: some of these take a second and megabytes.
ENDS = {
    "bare": "ends_frames",
    "forward": "ends_frames",
    "link": "ends_frames",
    "client": "ends_frames",
    "remote": "ends_frames",
    "nats": "ends_nats",
    "jetstream": "ends_nats",
    "redis": "ends_redis",
    "a2a": "ends_a2a",
    "poll": "ends_poll",
}


class Meter:
    """CPU used since it was made, by this process and by the others that an ask goes through."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = {"asker": os.getpid()} | pids
        self._before = self._read()

    def _read(self) -> dict[str, float | None]:
        return {role: cpu_seconds(pid) for role, pid in self._pids.items()}

    def spent(self) -> dict[str, float]:
        after = self._read()
        return {
            role: after[role] - before
            for role, before in self._before.items()
            if before is not None and after[role] is not None
        }


async def run_asker(
    kind: str, address: str, clients: int, seconds: float, pids: dict[str, int]
) -> dict[str, float | None]:
    """Every client asks, and asks again when it has its answer, for so long."""
    make = importlib.import_module(ENDS[kind]).ASKERS[kind]
    asks = [await make(address, f"asker-{number}") for number in range(clients)]
    times: list[float] = []

    async def one(ask: Ask, until: float) -> None:
        now = time.perf_counter()
        while now < until:
            await ask()
            after = time.perf_counter()
            times.append(after - now)
            now = after

    async def everybody(length: float) -> float:
        began = time.perf_counter()
        async with asyncio.timeout(length + ANSWER_SECONDS), asyncio.TaskGroup() as group:
            for ask in asks:
                group.create_task(one(ask, began + length))
        return time.perf_counter() - began

    # Caches, connections and branch predictors of all three processes.
    await everybody(min(0.4, seconds / 4))
    times.clear()
    meter = Meter(pids)
    took = await everybody(seconds)
    spent = meter.spent()
    times.sort()
    figures: dict[str, float | None] = {
        # What an ask takes that nobody disturbed, on a machine that has other work.
        "p10_us": times[len(times) // 10] * 1e6,
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "per_second": len(times) / took,
    }
    # All that were named, and three that every table shows.
    for role in dict.fromkeys(("server", "asker", "receiver", *pids)):
        cpu = spent.get(role)
        figures[f"{role}_us"] = None if cpu is None else cpu / len(times) * 1e6
        # Of one core.
        figures[f"{role}_busy"] = None if cpu is None else cpu / took
    return figures


async def run_receiver(kind: str, address: str, ready: int) -> None:
    await importlib.import_module(ENDS[kind]).RECEIVERS[kind](address)
    os.write(ready, b"ready\n")
    os.close(ready)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("asker", "receiver"))
    parser.add_argument("kind", choices=tuple(ENDS))
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--pids", type=json.loads, default={}, help="JSON: role to process id")
    parser.add_argument("--ready-fd", type=int, default=0)
    args = parser.parse_args()
    if args.role == "receiver":
        uvloop.run(run_receiver(args.kind, args.address, args.ready_fd))
        return
    figures = uvloop.run(run_asker(args.kind, args.address, args.clients, args.seconds, args.pids))
    sys.stdout.write(json.dumps(figures))
    sys.stdout.flush()
    # Without goodbyes: closing 32 connections politely is not part of any ask.
    os._exit(0)


if __name__ == "__main__":
    main()
