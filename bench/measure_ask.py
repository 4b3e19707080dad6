"""An ask and its answer: in memory (measures `ask`) and on disk before anybody sees them (`durable`)."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import processes
from processes import HERE, Server
from report import Section, Settings, median, micros, rate, ratio

CLIENTS = (1, 32)
# Longer than any run asked for, so that a stuck contender ends the bench with its name and not in silence.
RUN_PATIENCE_SECONDS = 60.0


class Contender(NamedTuple):
    label: str
    # Which ends of `asks` it is met with.
    kind: str
    server: Server


@contextlib.contextmanager
def receiver(kind: str, server: Server) -> Iterator[None]:
    command = [sys.executable, os.path.join(HERE, "asks.py"), "receiver", kind, server.address, "--ready-fd"]
    with processes.ready_by_pipe(command, server.address, processes.environment()):
        yield


def run_asker(contender: Contender, clients: int, seconds: float) -> dict[str, float]:
    done = subprocess.run(
        [
            *(sys.executable, os.path.join(HERE, "asks.py"), "asker", contender.kind, contender.server.address),
            *("--clients", str(clients), "--seconds", str(seconds), "--server-pid", str(contender.server.pid)),
        ],
        env=processes.environment(),
        capture_output=True,
        timeout=seconds + RUN_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{contender.label}: {done.stderr.decode(errors='replace').strip()}")
    return json.loads(done.stdout)


def interleaved(contenders: list[Contender], settings: Settings) -> dict[tuple[str, int], list[dict[str, float]]]:
    """One run each, and again: what disturbs the machine for a minute disturbs all of them."""
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(settings.rounds):
        for clients in CLIENTS:
            for contender in contenders:
                figures = run_asker(contender, clients, settings.seconds)
                runs.setdefault((contender.label, clients), []).append(figures)
                settings.progress()
    return runs


def section(name: str, title: str, contenders: list[Contender], limit: str, settings: Settings) -> Section:
    runs = interleaved(contenders, settings)
    result = Section(
        name,
        title,
        ("", "clients", "p50", "p99", "asks/s", f"asks/s of {limit}", "server CPU per ask"),
    )
    for clients in CLIENTS:
        best = median(runs[limit, clients], "per_second")
        for contender in contenders:
            figures = {key: median(runs[contender.label, clients], key) for key in runs[contender.label, clients][0]}
            result.add(
                contender.label,
                str(clients),
                micros(figures["p50_us"]),
                micros(figures["p99_us"]),
                rate(figures["per_second"]),
                ratio(figures["per_second"] / best),
                micros(figures["server_us"]),
            )
            spread = [round(run["p50_us"], 1) for run in runs[contender.label, clients]]
            result.keep(contender.label, clients=clients, p50_us_of_each_run=spread, **figures)
    return result


BARE = "bare broker (the limit)"
ASK_NOTE = (
    "One ask: the message reaches a receiver in a third process, its reply comes back; 1 KiB each way. Server, "
    "asker and receiver are three processes; every client is one connection with one ask open. Bascule's ask is "
    "`messages.send`, `inbox.item`, `replies.post`, `replies.wait`: four messages where the others need two. "
    "`link` is a bare client of frames, the same code as the bare broker's; NATS is met with nats-py, Bascule's "
    "Python client is what compares with that."
)


def ask(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        servers = {
            "bare": enter(processes.bare_broker(directory)),
            "nats": enter(processes.nats(os.path.join(directory, "nats"))),
            "link": enter(processes.bascule(os.path.join(directory, "state"), durability="memory")),
        }
        for kind, server in (*servers.items(), ("client", servers["link"])):
            enter(receiver(kind, server))
        contenders = [
            Contender(BARE, "bare", servers["bare"]),
            Contender("Bascule, link", "link", servers["link"]),
            Contender("Bascule, Python client", "client", servers["link"]),
            Contender("NATS core, nats-py", "nats", servers["nats"]),
        ]
        result = section("ask", "An ask in memory", contenders, BARE, settings)
    result.notes.append(ASK_NOTE)
    return result


def durable(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        floor = fsync_micros(directory)
        contenders = []
        for durability, interval, named in (("fsync", "always", "always"), ("relaxed", "2m", "every 2 min")):
            ours = enter(processes.bascule(os.path.join(directory, durability), durability=durability))
            theirs = enter(processes.nats(os.path.join(directory, f"nats-{durability}"), jetstream=interval))
            enter(receiver("link", ours))
            enter(receiver("jetstream", theirs))
            contenders.append(Contender(f"Bascule, {durability}", "link", ours))
            contenders.append(Contender(f"JetStream, sync {named}", "jetstream", theirs))
        result = section("durable", "An ask on disk", contenders, "JetStream, sync always", settings)
    result.notes.append(
        "Message and reply are both on disk before their sender is answered and before the other side sees them. "
        "`fsync` and `sync always` survive a power cut; `relaxed` and JetStream's default survive a crash of the "
        "server. Bascule commits what arrives together in one fsync, and writes the ledger in the same transaction. "
        "With JetStream an ask is a publish to one stream and its reply a publish to another, both acknowledged, "
        f"read by push consumers. Appending 4 KiB and one fsync, alone on this disk: {micros(floor)} (median)."
    )
    return result


def fsync_micros(directory: str, times: int = 200) -> float:
    """What the disk itself asks for a promise."""
    taken = []
    descriptor = os.open(os.path.join(directory, "floor"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(times):
            began = time.perf_counter()
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
            taken.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(descriptor)
    return sorted(taken)[times // 2]
