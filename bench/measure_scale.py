"""Does a call cost more when there is more of everything? CPU time of a real daemon with few and with many open
tickets (`scale-tickets`), few and many agents (`scale-agents`); and what a waiter costs in memory (`waiters`)."""

import asyncio
import contextlib
import http.client
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
import uvloop

import processes
from bascule.foundation import paths
from ends_frames import FrameClient, as_user, encode, link
from measure_http import free_port, send_many
from processes import Server, cpu_seconds, memory_bytes
from report import Section, Settings, micros, ratio
from scene import PAYLOAD, RECEIVER

TICKETS = (10, 1_000, 100_000)
AGENTS = (10, 1_000, 10_000)
QUICK_TICKETS = (10, 300, 3_000)
QUICK_AGENTS = (10, 100, 300)
ASKER = "Tom"
ELSEWHERE = "Full"
# Per kind of call and round; sent this many at a time on one connection.
CALLS = 1_000
QUICK_CALLS = 100
_AT_ONCE = 250
# Times the usual rounds, of which the fastest counts: the calls of one kind take 10 to 40 ms, and whatever else runs on
# the machine adds to them. Medians of five named another call as the one that grows in every run.
_MORE_ROUNDS = 3
WAITERS = 10_000
HTTP_WAITERS = 2_000
QUICK_WAITERS = 300
# The daemon refuses more than 4096 open requests of one connection.
_PER_CONNECTION = 4_000
_HELD_SECONDS = 30.0

_taken = msgspec.json.Decoder(type=dict).decode


class Caller:
    """Calls one kind at a time and notes what each cost the daemon."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        self.spent: dict[str, float] = {}

    async def __call__(self, client: FrameClient, method: str, params: list[dict], label: str | None = None) -> list:
        bodies = [encode(each) for each in params]
        answers = []
        before = cpu_seconds(self._pid)
        for first in range(0, len(bodies), _AT_ONCE):
            answers += await asyncio.gather(*(client.call(method, each) for each in bodies[first : first + _AT_ONCE]))
        after = cpu_seconds(self._pid)
        if before is None or after is None:
            raise RuntimeError("scale: the CPU time of another process cannot be read on this system")
        self.spent[label or method] = (after - before) / len(bodies) * 1e6
        return answers


async def calls_of_an_ask(server: Server, calls: int) -> dict[str, float]:
    asker, receiver = await link(server.address, ASKER), await link(server.address, RECEIVER)
    call = Caller(server)
    await call(asker, "messages.send", [{"agentId": RECEIVER, "payload": PAYLOAD}] * calls)
    taken = await call(receiver, "inbox.take", [{"agentId": RECEIVER, "waitMs": 0}] * calls)
    ids = [_taken(each.result)["messages"][0]["ticketId"] for each in taken]
    await call(receiver, "inbox.watch", [{"agentId": RECEIVER, "waitMs": 0}] * calls)
    await call(receiver, "inbox.ack", [{"agentId": RECEIVER, "ticketIds": [each]} for each in ids])
    await call(receiver, "replies.post", [{"ticketId": each, "payload": PAYLOAD} for each in ids])
    await call(asker, "replies.wait", [{"ticketId": each} for each in ids])
    await call(asker, "tickets.show", [{"ticketId": each} for each in ids])
    await call(receiver, "agents.heartbeat", [{"agentId": RECEIVER}] * calls)
    listed = {"party": RECEIVER, "status": "responded", "limit": 10}
    await call(receiver, "tickets.list", [listed] * max(1, calls // 5), "tickets.list, 10 answered ones")
    await call(asker, "daemon.status", [{}] * calls)
    return call.spent


async def calls_of_agents(server: Server, calls: int, agents: int, round_: int) -> dict[str, float]:
    spent = await calls_of_an_ask(server, calls)
    user = await link(server.address)
    call = Caller(server)
    everybody = [{"agentId": f"agent-{number % agents}", "payload": PAYLOAD} for number in range(calls)]
    await call(user, "messages.send", everybody, "messages.send, to everybody in turn")
    # Few, for they stay.
    fresh = [{"agentId": f"new-{round_}-{number}"} for number in range(calls // 100)]
    await call(user, "agents.register", fresh, "agents.register")
    return spent | call.spent


async def register_many(client: FrameClient, count: int) -> None:
    for first in range(0, count, _AT_ONCE):
        names = [f"agent-{number}" for number in range(first, min(first + _AT_ONCE, count))]
        await asyncio.gather(*(client.call("agents.register", encode({"agentId": name})) for name in names))


async def fill_tickets(state: str, count: int) -> None:
    """Half of them in the inbox that the calls are about, half in another."""
    asker = await link(state, ASKER)
    for name in (RECEIVER, ELSEWHERE):
        await link(state, name)
        await send_many(asker, name, f"kept-{name}", count // 2)


@contextlib.contextmanager
def daemons(settings: Settings, counts: tuple[int, ...]) -> Iterator[dict[int, Server]]:
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        yield {
            count: stack.enter_context(processes.bascule(os.path.join(directory, f"{count}"), durability="memory"))
            for count in counts
        }


def table(name: str, title: str, what: str, runs: dict[int, list[dict[str, float]]]) -> Section:
    counts = list(runs)
    result = Section(name, title, ("", *(f"{count:,} {what}" for count in counts), f"{counts[-1]:,} / {counts[0]:,}"))
    for method in runs[counts[0]][0]:
        costs = {count: min(run[method] for run in runs[count]) for count in counts}
        growth = costs[counts[-1]] / costs[counts[0]]
        result.add(f"`{method}`", *(micros(cost) for cost in costs.values()), ratio(growth))
        result.keep(method, growth=growth, costs=costs)
    return result


def _rounds(settings: Settings) -> int:
    return 1 if settings.quick else _MORE_ROUNDS * settings.rounds


def scale_tickets(settings: Settings) -> Section:
    counts = QUICK_TICKETS if settings.quick else TICKETS
    calls = QUICK_CALLS if settings.quick else CALLS
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    with daemons(settings, counts) as servers:
        for count, server in servers.items():
            uvloop.run(fill_tickets(server.address, count))
            uvloop.run(calls_of_an_ask(server, calls))
        for _ in range(_rounds(settings)):
            for count, server in servers.items():
                runs[count].append(uvloop.run(calls_of_an_ask(server, calls)))
                settings.progress()
    result = table("scale-tickets", "CPU of one call with many open tickets", "open", runs)
    result.notes.append(
        f"CPU time of the daemon per call over the link, {calls} calls in a row, durability `memory`; the fastest of "
        f"{_rounds(settings)} rounds. Half of the tickets wait in the inbox that the calls are about, "
        "half in another one."
    )
    return result


def scale_agents(settings: Settings) -> Section:
    counts = QUICK_AGENTS if settings.quick else AGENTS
    calls = QUICK_CALLS if settings.quick else CALLS
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    with daemons(settings, counts) as servers:
        for count, server in servers.items():
            as_user(server.address, lambda client, count=count: register_many(client, count))
            uvloop.run(calls_of_an_ask(server, calls))
        for number in range(_rounds(settings)):
            for count, server in servers.items():
                runs[count].append(uvloop.run(calls_of_agents(server, calls, count, number)))
                settings.progress()
    result = table("scale-agents", "CPU of one call with many agents", "agents", runs)
    result.notes.append("The same with so many registered agents, all of them online, and few tickets.")
    return result


# -- memory of those who wait --


async def hold_link_waits(server: Server, count: int) -> tuple[int, int]:
    """Resident memory before and with so many waits on open tickets."""
    clients = [await link(server.address, ASKER) for _ in range(-(-count // _PER_CONNECTION))]
    bodies = [encode({"ticketId": f"kept-{number:08d}", "waitMs": 60_000}) for number in range(count)]
    before = memory_bytes(server.pid)
    waits = [clients[number // _PER_CONNECTION].call("replies.wait", body) for number, body in enumerate(bodies)]
    for client in clients:
        # Requests of a connection are taken in order: when this is answered the waits before it are held.
        await client.call("tickets.show", encode({"ticketId": "kept-00000000"}))
    after = memory_bytes(server.pid)
    if any(wait.done() for wait in waits):
        raise RuntimeError("waiters: a wait was answered though nobody replied")
    return before or 0, after or 0


async def hold_http_waits(server: Server, port: int, count: int) -> tuple[int, int]:
    token = paths.read_private_file(paths.token_file(server.address, ASKER)).strip()
    head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    before = memory_bytes(server.pid)
    connections = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /replies/kept-{number:08d}?waitMs=60000 HTTP/1.1\r\n{head}".encode())
        connections.append((reader, writer))
    async with asyncio.timeout(_HELD_SECONDS):
        held = 0
        while held < count:
            held = await asyncio.to_thread(waits_held, port, token)
    after = memory_bytes(server.pid)
    for _, writer in connections:
        writer.transport.abort()
    return before or 0, after or 0


def waits_held(port: int, token: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(f"//127.0.0.1:{port}").netloc, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = re.search(r"^bascule_waits(?:_open)? (\d+)", text, re.MULTILINE)
    if found is None:
        raise RuntimeError("waiters: /metrics does not say how many waits are held")
    return int(found[1])


def waiters(settings: Settings) -> Section:
    link_count = QUICK_WAITERS if settings.quick else WAITERS
    http_count = QUICK_WAITERS if settings.quick else HTTP_WAITERS
    result = Section("waiters", "Memory of those who wait", ("", "before", "with them", "each"))
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        for label, count in (("replies.wait over the link", link_count), ("GET /replies/{id} over TCP", http_count)):
            port = free_port()
            state = os.path.join(directory, f"{port}")
            server = stack.enter_context(processes.bascule(state, durability="memory", port=port))

            async def prepared(count: int = count, server: Server = server, port: int = port, label: str = label):
                asker = await link(server.address, ASKER)
                await link(server.address, RECEIVER)
                await send_many(asker, RECEIVER, "kept", count)
                if "link" in label:
                    return await hold_link_waits(server, count)
                return await hold_http_waits(server, port, count)

            before, after = uvloop.run(prepared())
            each = (after - before) / count
            result.add(
                f"`{label}`, {count:,}", f"{before / 2**20:.0f} MiB", f"{after / 2**20:.0f} MiB", f"{each:.0f} B"
            )
            result.keep(label, waiters=count, bytes_each=each)
            settings.progress()
    result.notes.append(
        "Resident memory of the daemon. Over the link the waits share three connections; over TCP each has its own."
    )
    return result
