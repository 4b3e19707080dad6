"""Several machines: an ask of an agent of another one (`mesh`), what the mesh costs those who stay at home
(`mesh-local`), letters for a node that was away and a node that has nothing to do (`mesh-node`), and the directory of a
large mesh (`mesh-directory`)."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import uvloop

import meshes
import processes
from ends_frames import ASKERS, encode, link
from measure_ask import Contender, receiver, run_asker
from measure_start import call_all
from mesh_directory import COUNTS, QUICK_COUNTS, Costs, measured_apart
from processes import Server, cpu_seconds, memory_bytes
from report import Section, Settings, micros, middle, millis, rate, ratio
from scene import FAR, PAYLOAD, RECEIVER

REMOTE = "Bascule, an agent of another machine"
LOCAL = "Bascule, an agent here, no mesh"
BARE = "NATS core, nats-py"
FLOOR = "NATS core + Bascule, an agent here"
MESH_ON = "in a mesh"
MESH_OFF = "in none"
CAUGHT_UP = "1,000 letters for a node that was away, until all are in its inboxes"
IDLE_CPU = "A node that has nothing to do, CPU"
CLIENTS = (1, 32)
# Times the usual rounds: four processes are disturbed more often than three, and the fastest round of each counts.
_MORE_ROUNDS = 3
LETTERS = 1_000
QUICK_LETTERS = 50
# Agents of the node that was away: each has an inbox.
INBOXES = 10
# Two signs of life, and what follows from them.
IDLE_SECONDS = 65.0
SETTLE_SECONDS = 8.0
# One ask each in turn, so often: the difference that is looked for is smaller than the noise of a run.
PAIRS = 1_000
QUICK_PAIRS = 50
_AT_ONCE = 500
_POLL_SECONDS = 0.005


class Stage(NamedTuple):
    near: Server
    far: Server
    alone: Server
    hub: int | None


@contextlib.contextmanager
def two_nodes(directory: str) -> Iterator[Stage]:
    """Two daemons that are members of one mesh, and one that is in none; all with their stores on disk."""
    with contextlib.ExitStack() as stack:
        near, far, alone = (
            stack.enter_context(processes.bascule(os.path.join(directory, name), durability="fsync"))
            for name in ("near", "far", "alone")
        )
        meshes.make(near, far)
        yield Stage(near, far, alone, meshes.hub_pid(near))


# -- asks --


def mesh(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        stage = enter(two_nodes(directory))
        nats = enter(processes.nats(os.path.join(directory, "nats")))
        others = {"far": stage.far.pid} | ({} if stage.hub is None else {"hub": stage.hub})
        contenders = [
            Contender(REMOTE, "remote", stage.near, enter(receiver("link", stage.far)), others=others),
            Contender(LOCAL, "link", stage.alone, enter(receiver("link", stage.alone))),
            Contender(BARE, "nats", nats, enter(receiver("nats", nats))),
        ]
        runs: dict[tuple[str, int], list[dict[str, float]]] = {}
        for _ in range(_rounds(settings)):
            for clients in CLIENTS:
                for each in contenders:
                    runs.setdefault((each.label, clients), []).append(run_asker(each, clients, settings.seconds))
                    settings.progress()
    return _asks_table(runs, settings)


_NONE = ("", "", "")


def _rounds(settings: Settings) -> int:
    return 1 if settings.quick else _MORE_ROUNDS * settings.rounds


def _asks_table(runs: dict[tuple[str, int], list[dict[str, float]]], settings: Settings) -> Section:
    result = Section(
        "mesh",
        "An ask of an agent of another machine",
        ("", "clients", "p10", "p50", "p99", "asks/s", "CPU per ask: daemon / other daemon / NATS"),
    )
    for (label, clients), each in runs.items():
        p10, p50, p99 = (min(run[key] for run in each) for key in ("p10_us", "p50_us", "p99_us"))
        fastest = max(each, key=lambda run: run["per_second"])
        cpu = [fastest.get(f"{role}_us") for role in ("server", "far", "hub")]
        shown = " / ".join("-" if value is None else micros(value) for value in cpu)
        result.add(label, str(clients), *map(micros, (p10, p50, p99)), rate(fastest["per_second"]), shown)
        spread = [round(run["p50_us"], 1) for run in each]
        result.keep(
            label,
            clients=clients,
            p10_us=p10,
            p50_us=p50,
            p99_us=p99,
            per_second=fastest["per_second"],
            p50_us_of_each_run=spread,
            per_second_of_each_run=[round(run["per_second"]) for run in each],
        )
    for clients in CLIENTS:
        limit, ours = {}, {}
        for key in ("p10_us", "p50_us"):
            limit[key] = sum(min(run[key] for run in runs[label, clients]) for label in (LOCAL, BARE))
            ours[key] = ratio(min(run[key] for run in runs[REMOTE, clients]) / limit[key])
        result.keep(FLOOR, clients=clients, **limit)
        result.add(f"{FLOOR} (the limit)", str(clients), *map(micros, limit.values()), "", "", "")
        result.add("ours / the limit", str(clients), *ours.values(), "", "", "")
        remote, local = ([run["per_second"] for run in runs[label, clients]] for label in (REMOTE, LOCAL))
        in_turn = middle([theirs / own for theirs, own in zip(remote, local, strict=True)])
        result.add("ours / an agent here, fastest rounds", str(clients), *_NONE, ratio(max(remote) / max(local)), "")
        result.add("ours / an agent here, median of rounds", str(clients), *_NONE, ratio(in_turn), "")
    result.notes.append(ASK_NOTE.format(rounds=_rounds(settings)))
    return result


ASK_NOTE = (
    "One ask as above: 1 KiB there and back. Two daemons are members of one mesh, each with its store on disk "
    "(`fsync`), and nats-server is the hub that the first of them runs, with TLS. Asker and daemon, NATS, the other "
    "daemon and the receiver are a process each. A remote ask waits for two commits, one on each machine, as a local "
    "one does; what is on the other machine's disk is not waited for here. Letters are encrypted with a key of the "
    "session. Receipts are not waited for. The limit is what nobody can leave out: a bare request through nats-server, "
    "without TLS, and a local ask on disk. Of {rounds} runs each, taking turns, the fastest counts."
)


def mesh_local(settings: Settings) -> Section:
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        stage = enter(two_nodes(enter(processes.scratch(settings.directory))))
        servers = {MESH_ON: stage.near, MESH_OFF: stage.alone}
        for server in servers.values():
            enter(receiver("link", server))
        taken: dict[str, list[list[float]]] = {label: [] for label in servers}
        for _ in range(settings.rounds):
            for label, times in uvloop.run(_in_turn(servers, QUICK_PAIRS if settings.quick else PAIRS)).items():
                taken[label].append(sorted(times))
            settings.progress()
    result = Section("mesh-local", "An ask at home, in a mesh and in none", ("", "p50", "p99", "p50 / in none"))
    best = {
        label: tuple(min(times[len(times) * part // 100] for times in runs) * 1e6 for part in (50, 99))
        for label, runs in taken.items()
    }
    for label, (p50, p99) in best.items():
        result.add(f"Bascule, {label}", micros(p50), micros(p99), ratio(p50 / best[MESH_OFF][0]))
        result.keep(label, p50_us=p50, p99_us=p99)
    result.notes.append(
        "Asker, daemon and receiver on one machine, on disk: one daemon is a member of a mesh whose other node is "
        "connected and quiet, one is in none. One asker asks the two in turn, ask by ask, and the fastest of "
        f"{settings.rounds} runs counts."
    )
    return result


async def _in_turn(servers: dict[str, Server], pairs: int) -> dict[str, list[float]]:
    asks = {label: await ASKERS["link"](server.address, "asker") for label, server in servers.items()}
    times: dict[str, list[float]] = {label: [] for label in servers}
    order = list(asks.items())
    for number in range(pairs + pairs // 10):
        for label, ask in order:
            began = time.perf_counter()
            await ask()
            if number >= pairs // 10:
                times[label].append(time.perf_counter() - began)
        # Whoever comes second finds the caches of the one before.
        order.reverse()
    return times


# -- a node that was away, and one that has nothing to do --


def mesh_node(settings: Settings) -> Section:
    count = QUICK_LETTERS if settings.quick else LETTERS
    with processes.scratch(settings.directory) as directory, contextlib.ExitStack() as stack:
        near = stack.enter_context(processes.bascule(os.path.join(directory, "near"), durability="fsync"))
        far_state = os.path.join(directory, "far")
        with processes.bascule(far_state, durability="fsync") as far:
            meshes.make(near, far)
            uvloop.run(_register(far.address))
        took = []
        for number in range(settings.few_rounds):
            uvloop.run(_write(near.address, number, count))
            with processes.bascule(far_state, durability="fsync") as far:
                took.append(uvloop.run(_all_there(far.address, (number + 1) * count)) * 1000)
            settings.progress()
        with processes.bascule(far_state, durability="fsync") as far:
            idle = _at_rest({"node": far.pid, "hub's node": near.pid, "NATS": meshes.hub_pid(near)}, settings)
            memory = (memory_bytes(far.pid) or 0) / 2**20
    result = Section("mesh-node", "A node that was away, and one that has nothing to do", ("", "measured", ""))
    result.add(CAUGHT_UP, millis(min(took)), "of each run: " + ", ".join(map(millis, took)))
    result.keep(CAUGHT_UP, fastest_ms=min(took), median_ms=middle(took), of_each_run=took, letters=count)
    shares = ", ".join(f"{who} {share:.2f} %" for who, share in idle.items() if who != "node")
    result.add(IDLE_CPU, f"{idle['node']:.2f} %", f"{shares}; the node has {memory:.0f} MiB")
    result.keep(IDLE_CPU, percent=idle["node"], of_each=idle)
    result.notes.append(
        f"{count:,} letters of 1 KiB for {INBOXES} agents of a node whose daemon is not running; then it is started. "
        "The time counts from when the daemon says that it is ready, before it is connected with NATS, and ends when "
        "each letter is on its disk. A node at rest is connected, says every 30 s that it is alive and hears the same "
        f"of the other; CPU of {IDLE_SECONDS:.0f} s, in shares of one core."
    )
    return result


async def _register(state: str) -> None:
    user = await link(state)
    for number in range(INBOXES):
        await user.call("agents.register", encode({"agentId": f"{RECEIVER}-{number}"}))
    # Told to the other node with the next list; a letter to an agent that is not known there yet would be taken, too.


async def _write(state: str, round_: int, count: int) -> None:
    writer = await link(state, "Tom")
    letters = [
        {
            "agentId": f"{RECEIVER}-{number % INBOXES}@{FAR}",
            "payload": PAYLOAD,
            "ticketId": f"letter-{round_}-{number:06d}",
        }
        for number in range(count)
    ]
    for start in range(0, count, _AT_ONCE):
        await call_all(writer, "messages.send", letters[start : start + _AT_ONCE])


async def _all_there(state: str, count: int) -> float:
    began = time.perf_counter()
    user = await link(state)

    async def there() -> bool:
        found: int = (await meshes.call(user, "daemon.status"))["tickets"]
        return found >= count

    while not await there():
        if time.perf_counter() - began > meshes.PATIENCE_SECONDS:
            raise RuntimeError("the letters for a node that was away did not arrive")
        await asyncio.sleep(_POLL_SECONDS)
    return time.perf_counter() - began


def _at_rest(pids: dict[str, int | None], settings: Settings) -> dict[str, float]:
    """Percent of a core."""
    time.sleep(1.0 if settings.quick else SETTLE_SECONDS)
    seconds = 1.0 if settings.quick else IDLE_SECONDS
    known = {who: pid for who, pid in pids.items() if pid is not None}
    before = {who: cpu_seconds(pid) or 0.0 for who, pid in known.items()}
    time.sleep(seconds)
    return {who: ((cpu_seconds(pid) or 0.0) - before[who]) / seconds * 100 for who, pid in known.items()}


# -- many nodes --


def mesh_directory(settings: Settings) -> Section:
    counts = QUICK_COUNTS if settings.quick else COUNTS
    runs: dict[int, list[Costs]] = {count: [] for count in counts}
    for _ in range(settings.few_rounds):
        for count in counts:
            runs[count].append(measured_apart(count))
            settings.progress()
    result = Section(
        "mesh-directory",
        "A large mesh, as one node knows it",
        ("", *(f"{count:,} nodes" for count in counts), f"{counts[-1]:,} / {counts[0]:,}"),
    )
    for label in runs[counts[0]][0]:
        costs = {count: min(run[label] for run in runs[count]) for count in counts}
        growth = costs[counts[-1]] / costs[counts[0]]
        show: Callable[[float], str] = _kilobytes if label.startswith("memory") else micros
        result.add(label, *map(show, costs.values()), ratio(growth))
        result.keep(label, growth=growth, costs=costs)
    result.notes.append(
        "The cards, signs of life and lists of agents of so many nodes in one process, ten agents each, all signed. "
        "Memory is that of the process, times are its CPU time. Signs of life come every 30 s from each node: those of "
        "1,000 nodes are 33 per second. What is counted is what the directory itself does, without NATS."
    )
    return result


def _kilobytes(value: float) -> str:
    return f"{value / 1000:.1f} kB"


MEASURES: dict[str, Callable[[Settings], Section]] = {
    "mesh": mesh,
    "mesh-local": mesh_local,
    "mesh-node": mesh_node,
    "mesh-directory": mesh_directory,
}
