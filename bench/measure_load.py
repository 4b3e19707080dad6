"""Many waiters, slow and greedy clients: memory of a waiting request, and what a good client notices of the others."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import load_scenes
import processes
from load_scenes import Target
from measure_http import free_port
from report import Section, Settings, median, middle, millis, ratio

LINK_FLOOD = "ask beside a flood on 8 link connections"
HTTP_FLOOD = "HTTP call beside a flood on 64 connections"
LARGE = "ask beside 4 agents that send 1 MiB"


@contextlib.contextmanager
def _daemon(settings: Settings) -> Iterator[Target]:
    """With the limits as they are: quotas are part of what is measured."""
    with processes.scratch(settings.directory) as directory:
        state = os.path.join(directory, "state")
        port = free_port()
        limits, processes.OPEN_LIMITS = processes.OPEN_LIMITS, {}
        try:
            running = processes.bascule(state, durability="fsync", port=port, BASCULE_MCP="off")
        finally:
            processes.OPEN_LIMITS = limits
        with running as server:
            yield Target(server.pid, state, port)


def load(settings: Settings) -> Section:
    result = Section("load", "Under load", ("", "alone", "loaded", "p99 ratio", "RSS", "per waiter"))
    agents, each = (20, 20) if settings.quick else (100, 100)
    for door in ("tcp", "link"):
        runs = [
            _run(settings, lambda target, door=door: _polls(target, door, agents, each))
            for _ in range(_rounds(settings))
        ]
        woken = median(runs, "woken_s")
        result.add(
            f"{agents * each:,} long polls, {door}",
            "",
            f"all woken in {woken:.1f} s",
            "",
            f"{median(runs, 'rss_mb'):.0f} MB, peak {median(runs, 'peak_rss_mb'):.0f} MB",
            f"{median(runs, 'per_wait_kb'):.1f} kB",
        )
        result.keep(
            f"polls_{door}",
            woken_s=woken,
            **{key: median(runs, key) for key in ("rss_mb", "peak_rss_mb", "per_wait_kb")},
        )
    slow = 25 if settings.quick else 250
    seconds = 0.5 if settings.quick else 5.0
    scenes: dict[str, Callable[[Target], dict[str, Any]]] = {
        f"HTTP call beside {slow * len(load_scenes.LORIS):,} slow connections": lambda target: load_scenes.loris(
            target, each=slow, seconds=seconds
        ),
        LINK_FLOOD: lambda target: load_scenes.flood(
            target, door="link", connections=8, window=1_000, what="ask", seconds=seconds
        ),
        HTTP_FLOOD: lambda target: load_scenes.flood(
            target, door="tcp", connections=64, window=1, what="fresh", seconds=seconds
        ),
        LARGE: lambda target: load_scenes.heavy(target, senders=4, seconds=seconds),
    }
    for label, scene in scenes.items():
        runs = [_run(settings, scene) for _ in range(_rounds(settings))]
        alone, loaded = (middle([run[when]["p99_ms"] for run in runs]) for when in ("alone", "loaded"))
        share = median(runs, "ratio")
        result.add(label, f"p99 {millis(alone)}", f"p99 {millis(loaded)}", ratio(share), "", "")
        result.keep(label, alone_p99_ms=alone, loaded_p99_ms=loaded, ratio=share)
    result.notes.append(
        "Durability `fsync`, limits as they are by default. Clients run in processes of their own, hostile ones nice "
        f"{load_scenes.HOSTILE_NICE}, so that on two cores the CPU they take is not what is measured. `alone` is the "
        "quieter of the runs before and after the load."
    )
    return result


def _rounds(settings: Settings) -> int:
    # A round of slow connections takes half a minute.
    return settings.few_rounds


def _run(settings: Settings, scene: Callable[[Target], dict[str, Any]]) -> dict[str, Any]:
    with _daemon(settings) as target:
        figures = scene(target)
    settings.progress()
    return figures


def _polls(target: Target, door: str, agents: int, each: int) -> dict[str, Any]:
    figures = load_scenes.polls(target, door=door, agents=agents, each=each)
    if figures["outcomes"] != {"replied": agents * each}:
        raise RuntimeError(f"load: {figures['outcomes']}")
    return figures
