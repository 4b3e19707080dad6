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
import pythons
from ends_poll import POLL_SECONDS
from processes import HERE, NotInstalled, Server
from report import Section, Settings, median, micros, rate, ratio

CLIENTS = (1, 32)
# Longer than any run asked for, so that a stuck contender ends the bench with its name and not in silence.
RUN_PATIENCE_SECONDS = 60.0
# A process that computes for this share of a core's time has no more to give.
SATURATED = 0.9

BARE = "bare broker (the limit)"
FORWARDER = "bare forwarder"
LINK = "Bascule, link"
CLIENT = "Bascule, Python client"
NATS = "NATS core, nats-py"
REDIS = "Redis streams, redis-py"
A2A = "a2a-sdk echo"
POLL = "polled inbox, every 1 s"
FSYNC = "Bascule, fsync"
JETSTREAM = "JetStream, sync always"
REDIS_ALWAYS = "Redis streams, fsync always"
RELAXED = "Bascule, relaxed"
JETSTREAM_LATER = "JetStream, sync every 2 min"


class Contender(NamedTuple):
    label: str
    # Which ends of `asks` it is met with.
    kind: str
    server: Server
    # None where the server is the receiver.
    receiver: Server | None
    # For one that takes its time.
    seconds: float = 0.0
    # Other processes that an ask goes through, by what they are.
    others: "dict[str, int]" = {}


@contextlib.contextmanager
def receiver(kind: str, server: Server) -> Iterator[Server]:
    command = [sys.executable, os.path.join(HERE, "asks.py"), "receiver", kind, server.address, "--ready-fd"]
    with processes.ready_by_pipe(command, server.address, processes.environment()) as started:
        yield started


def run_asker(contender: Contender, clients: int, seconds: float) -> dict[str, float]:
    seconds = max(seconds, contender.seconds)
    pids = {"server": contender.server.pid, **contender.others}
    if contender.receiver is not None:
        pids["receiver"] = contender.receiver.pid
    done = subprocess.run(
        [
            *(sys.executable, os.path.join(HERE, "asks.py"), "asker", contender.kind, contender.server.address),
            *("--clients", str(clients), "--seconds", str(seconds), "--pids", json.dumps(pids)),
        ],
        env=processes.environment(),
        capture_output=True,
        timeout=seconds + RUN_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{contender.label}: {done.stderr.decode(errors='replace').strip()}")
    return json.loads(done.stdout)


Runs = dict[tuple[str, int], list[dict[str, float]]]


def interleaved(contenders: list[Contender], settings: Settings) -> Runs:
    """One run each, and again: what disturbs the machine for a minute disturbs all of them."""
    runs: Runs = {}
    for _ in range(settings.rounds):
        for clients in CLIENTS:
            for contender in contenders:
                figures = run_asker(contender, clients, settings.seconds)
                runs.setdefault((contender.label, clients), []).append(figures)
                settings.progress()
    return runs


def busy(figures: dict[str, float]) -> str:
    shares = [figures[f"{role}_busy"] for role in ("server", "asker", "receiver")]
    return " / ".join("-" if share is None else f"{share:.0%}" for share in shares)


def bound_by(figures: dict[str, float]) -> str:
    """What stands in the way of more asks per second."""
    shares = {role: figures[f"{role}_busy"] or 0.0 for role in ("server", "asker", "receiver")}
    full = [role for role, share in shares.items() if share >= SATURATED]
    if full:
        return " and ".join(full)
    if sum(shares.values()) >= SATURATED * (os.cpu_count() or 1):
        return "the cores"
    return "waiting"


def section(name: str, title: str, contenders: list[Contender], ours: str, settings: Settings) -> Section:
    runs = interleaved(contenders, settings)
    result = Section(
        name,
        title,
        (
            *("", "clients", "p50", "p99", "asks/s", "our p50 / its", "our asks/s / its", "server CPU per ask"),
            *("busy: server / asker / receiver", "bound by"),
        ),
    )
    for clients in CLIENTS:
        mine = {key: median(runs[ours, clients], key) for key in runs[ours, clients][0]}
        for contender in contenders:
            figures = {key: median(runs[contender.label, clients], key) for key in runs[contender.label, clients][0]}
            result.add(
                contender.label,
                str(clients),
                micros(figures["p50_us"]),
                micros(figures["p99_us"]),
                rate(figures["per_second"]),
                ratio(mine["p50_us"] / figures["p50_us"]),
                ratio(mine["per_second"] / figures["per_second"]),
                micros(figures["server_us"]),
                busy(figures),
                bound_by(figures),
            )
            spread = [round(run["p50_us"], 1) for run in runs[contender.label, clients]]
            result.keep(contender.label, clients=clients, p50_us_of_each_run=spread, **figures)
    result.notes.append(BUSY_NOTE.format(ours=ours))
    return result


BUSY_NOTE = (
    "The ratios are `{ours}` divided by the row: below 1 is better for p50, above 1 for asks per second. Busy is CPU "
    "time in shares of one core; *bound by* names the process that had none left, *the cores* when the three of them "
    "together used up the machine, *waiting* when there was time left on all of them."
)
ASK_NOTE = (
    "One ask: 1 KiB goes to a receiver in a third process and comes back. Server, asker and receiver are a process "
    "each, the asker's clients are a connection each with one ask open, and every Python process runs on uvloop.\n\n"
    "- **Bascule, link**: `messages.send` with `waitMs`; the receiver has an inbox stream and answers with "
    "`replies.post`, which also acknowledges. Five frames on a unix socket: the ask, the item, the reply and its "
    "receipt, the answer. A bare client of frames, the same code as the bare broker's.\n"
    "- **Bascule, Python client**: the same with `Client.ask` and `@serve`, as users write it.\n"
    "- **bare broker**: the same five frames through an asyncio broker that parses each envelope and passes it on: "
    "no identity, policy, record or ticket that outlives its answer. **bare forwarder** needs four frames, the least "
    "that is possible.\n"
    "- **NATS core**: one request and one reply on TCP (NATS has no unix sockets), nothing kept.\n"
    "- **Redis streams**: XADD to the receiver's stream, XREADGROUP there, XADD to the asker's and XACK, XREAD BLOCK; "
    "unix socket, hiredis, persistence off.\n"
    "- **a2a-sdk echo**: one `SendMessage` over HTTP, answered by the agent's own server: two processes, nobody "
    "between them, nothing kept.\n"
    "- **polled inbox**: messages in SQLite behind two HTTP routes, each side asks once a second what is new, as "
    "claude-peers and its kin do; a question comes at a random moment between two polls."
)
DURABLE_NOTE = (
    "Message and reply are both on disk before their sender is answered and before the other side sees them. `fsync`, "
    "`sync always` and Redis's `appendfsync always` survive a power cut; `relaxed` and JetStream's default survive a "
    "crash of the server. Bascule commits what arrives together in one fsync, and writes the ledger in the same "
    "transaction. With JetStream an ask is a publish to one stream and its reply a publish to another, both "
    "acknowledged, read by push consumers. Redis is asked as above. Appending 4 KiB and one fsync, alone on this "
    "disk: {floor} (median)."
)


class Stage:
    """Servers and receivers of one measure; what is not installed is left out and said."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._enter = stack.enter_context
        self.contenders: list[Contender] = []
        self.missing: list[str] = []

    def add(
        self, label: str, kind: str, server: "contextlib.AbstractContextManager[Server] | Server", *, seconds: float = 0
    ) -> Server | None:
        try:
            running = server if isinstance(server, Server) else self._enter(server)
        except NotInstalled as missing:
            self.missing.append(f"{missing}.")
            return None
        answering = None if kind == "a2a" else self._enter(receiver(kind, running))
        self.contenders.append(Contender(label, kind, running, answering, seconds))
        return running

    def add_beside(self, label: str, state: str, durability: str, settings: Settings) -> None:
        """Bascule once more, on the other Python."""
        if settings.beside is not None:
            server = processes.bascule(state, durability=durability, python=settings.beside)
            self.add(f"{label}, {pythons.probe(settings.beside)}", "link", server)


def ask(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        stage = Stage(stack)
        daemon = stage.add(LINK, "link", processes.bascule(os.path.join(directory, "state"), durability="memory"))
        assert daemon is not None
        stage.add(CLIENT, "client", daemon)
        stage.add_beside(LINK, os.path.join(directory, "beside"), "memory", settings)
        stage.add(NATS, "nats", processes.nats(os.path.join(directory, "nats")))
        stage.add(REDIS, "redis", processes.redis(os.path.join(directory, "redis")))
        stage.add(A2A, "a2a", processes.http_program("a2a_echo", directory))
        polls = processes.http_program("poll_broker", directory)
        stage.add(POLL, "poll", polls, seconds=POLL_SECONDS * (1 if settings.quick else 2))
        bare = stage.add(BARE, "bare", processes.bare_broker(directory))
        assert bare is not None
        stage.add(FORWARDER, "forward", bare)
        result = section("ask", "An ask in memory", stage.contenders, LINK, settings)
    result.notes += [ASK_NOTE, *stage.missing]
    return result


def durable(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        floor = fsync_micros(directory)
        stage = Stage(stack)

        def place(name: str) -> str:
            return os.path.join(directory, name)

        stage.add(FSYNC, "link", processes.bascule(place("fsync"), durability="fsync"))
        stage.add_beside(FSYNC, place("beside"), "fsync", settings)
        stage.add(JETSTREAM, "jetstream", processes.nats(place("nats-always"), jetstream="always"))
        stage.add(REDIS_ALWAYS, "redis", processes.redis(place("redis"), durable=True))
        stage.add(RELAXED, "link", processes.bascule(place("relaxed"), durability="relaxed"))
        stage.add(JETSTREAM_LATER, "jetstream", processes.nats(place("nats-later"), jetstream="2m"))
        result = section("durable", "An ask on disk", stage.contenders, FSYNC, settings)
    result.notes += [DURABLE_NOTE.format(floor=micros(floor)), *stage.missing]
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
