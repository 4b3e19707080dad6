"""HTTP requests per second: beside an application that does nothing behind uvicorn (measure `http`), and
every other route in memory and on disk (measure `routes`)."""

import asyncio
import base64
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from typing import NamedTuple

import processes
from bascule.foundation import paths
from ends_frames import FrameClient, as_user, encode
from http_load import NUMBER
from processes import HERE, Server
from report import Section, Settings, median, micros, rate, ratio
from scene import PAYLOAD

CONNECTIONS = 16
LISTED = 100
RUN_PATIENCE_SECONDS = 60.0
# Tickets made for each second of a run that answers or cancels one per request; more than any server gets through.
NUMBERED_PER_SECOND = 12_000

SEND = "POST /agents/{id}/send"
REPLY = "POST /replies"
SETTLED = "GET /replies/{id}, settled"
HEARTBEAT = "POST /agents/{id}/heartbeat"
LIST = f"GET /agents ({LISTED})"


class Wanted(NamedTuple):
    verb: str
    path: str
    token: str
    body: object = None
    # Each request is about a ticket of its own, made before.
    numbered: bool = False


def request(wanted: Wanted, port: int, run: str) -> bytes:
    """`run` is in the names of the tickets that this run uses up."""
    content = b"" if wanted.body is None else json.dumps(wanted.body).replace("@RUN@", run).encode()
    path = wanted.path.replace("@RUN@", run)
    head = f"{wanted.verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {wanted.token}\r\n"
    if content:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


class Door:
    """Single requests, to prepare what the load then asks for."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._token = token

    def __call__(self, verb: str, path: str, body: object = None, token: str | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": "application/json"}
        self._connection.request(verb, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{verb} {path}: {answer.status} {text.decode()}")
        return text


class House:
    """A daemon with a hundred agents, and the requests to ask it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self._state = server.address
        self._runs = 0
        local = paths.read_private_file(paths.local_token_file(self._state)).strip()
        self._door = Door(port, local)
        tokens = {}
        for number in range(LISTED):
            body = {"agentId": f"agent-{number}", "metadata": {"pid": number}}
            tokens[number] = json.loads(self._door("POST", "/agents/register", body))["agentToken"]
        sent = json.loads(self._door("POST", "/agents/agent-1/send", {"payload": PAYLOAD}))["ticketId"]
        self._door("POST", "/replies", {"ticketId": sent, "payload": PAYLOAD}, tokens[1])
        for _ in range(LISTED):
            self._door("POST", "/agents/agent-3/send", {"payload": PAYLOAD, "conversationId": "talk"})
        ticket = f"@RUN@-{NUMBER.decode()}"
        quiet = tokens[2]
        self.judged = {
            SEND: Wanted("POST", "/agents/agent-0/send", local, {"payload": PAYLOAD}),
            REPLY: Wanted("POST", "/replies", tokens[0], {"ticketId": ticket, "payload": PAYLOAD}, numbered=True),
            SETTLED: Wanted("GET", f"/replies/{sent}", local),
            HEARTBEAT: Wanted("POST", "/agents/agent-0/heartbeat", tokens[0]),
            LIST: Wanted("GET", "/agents", local),
        }
        again = {"agentId": "agent-2", "metadata": {"pid": 2}}
        self.others = {
            "POST /agents/register, again": Wanted("POST", "/agents/register", quiet, again),
            "GET /agents/{id}/inbox, empty": Wanted("GET", "/agents/agent-2/inbox?waitMs=0", quiet),
            "GET /agents/{id}/inbox/watch, empty": Wanted("GET", "/agents/agent-2/inbox/watch?waitMs=0", quiet),
            "POST /agents/{id}/inbox/ack": Wanted(
                "POST", "/agents/agent-0/inbox/ack", tokens[0], {"ticketIds": [ticket]}, numbered=True
            ),
            "POST /tickets/{id}/cancel": Wanted("POST", f"/tickets/{ticket}/cancel", local, {}, numbered=True),
            "GET /tickets/{id}": Wanted("GET", f"/tickets/{sent}", local),
            f"GET /tickets ({LISTED})": Wanted("GET", f"/tickets?limit={LISTED}&agentId=agent-3", local),
            f"GET /conversations/{{id}} ({LISTED})": Wanted("GET", f"/conversations/talk?limit={LISTED}", local),
            "GET /events/recent (50)": Wanted("GET", "/events/recent", local),
            "GET /status": Wanted("GET", "/status", local),
            "GET /metrics": Wanted("GET", "/metrics", local),
            "GET /healthz": Wanted("GET", "/healthz", local),
        }

    def prepared(self, wanted: Wanted, seconds: float) -> tuple[bytes, int]:
        """The request of the next run, and how many of it there may be."""
        self._runs += 1
        run = f"run{self._runs}"
        count = 0
        if wanted.numbered:
            count = int(NUMBERED_PER_SECOND * seconds)
            as_user(self._state, lambda client: send_many(client, "agent-0", run, count))
        return request(wanted, self.port, run), count

    def answer_bytes(self, wanted: Wanted) -> int:
        """How long its answer is; what uses up a ticket answers without a body (204)."""
        return 0 if wanted.numbered else len(self._door(wanted.verb, wanted.path, wanted.body, wanted.token))


async def send_many(client: FrameClient, agent_id: str, prefix: str, count: int, at_once: int = 500) -> None:
    for first in range(0, count, at_once):
        numbers = range(first, min(first + at_once, count))
        sends = [{"agentId": agent_id, "payload": PAYLOAD, "ticketId": f"{prefix}-{each:08d}"} for each in numbers]
        await asyncio.gather(*(client.call("messages.send", encode(each)) for each in sends))


def load(server: Server, address: str, text: bytes, seconds: float, count: int) -> dict[str, float]:
    order = {
        "address": address,
        "request": base64.b64encode(text).decode(),
        "connections": CONNECTIONS,
        "seconds": seconds,
        "server_pid": server.pid,
        "count": count,
    }
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "http_load.py")],
        input=json.dumps(order).encode(),
        env=processes.environment(),
        capture_output=True,
        timeout=seconds + RUN_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"http: {text[:80]!r}: {done.stderr.decode(errors='replace').strip()}")
    figures = json.loads(done.stdout)
    if any(not status.startswith("2") for status in figures["statuses"]):
        raise RuntimeError(f"http: answered {figures['statuses']} to {text[:80]!r}")
    return figures


def bare_request(text: bytes, answer_bytes: int) -> bytes:
    """The same request, for the application that answers as many bytes as its path says."""
    verb, _, rest = text.partition(b" ")
    return b"%b /%d %b" % (verb, answer_bytes, rest.partition(b" ")[2])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def house(directory: str, durability: str):
    port = free_port()
    with processes.bascule(os.path.join(directory, durability), durability=durability, port=port) as server:
        yield House(server, port)


def http_requests(settings: Settings) -> Section:
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        ours = enter(house(directory, "memory"))
        bare = enter(processes.http_program("bare_asgi", directory))
        lengths = {label: ours.answer_bytes(wanted) for label, wanted in ours.judged.items()}
        for _ in range(settings.rounds):
            for label, wanted in ours.judged.items():
                text, count = ours.prepared(wanted, settings.seconds)
                address = f"http://127.0.0.1:{ours.port}"
                figures = load(ours.server, address, text, settings.seconds, count)
                runs.setdefault((label, "bascule"), []).append(figures)
                bare_text = bare_request(text, lengths[label])
                runs.setdefault((label, "bare"), []).append(
                    load(bare, bare.address, bare_text, settings.seconds, count)
                )
                settings.progress()
    result = Section(
        "http",
        "HTTP beside bare ASGI",
        ("", "requests/s", "bare ASGI", "of bare ASGI", "p50", "p99", "server CPU", "bare server CPU", "client busy"),
    )
    for label in lengths:
        mine, theirs = runs[label, "bascule"], runs[label, "bare"]
        share = median(mine, "per_second") / median(theirs, "per_second")
        result.add(
            f"`{label}`",
            rate(median(mine, "per_second")),
            rate(median(theirs, "per_second")),
            ratio(share),
            micros(median(mine, "p50_us")),
            micros(median(mine, "p99_us")),
            micros(median(mine, "server_us")),
            micros(median(theirs, "server_us")),
            f"{median(mine, 'client_busy'):.0%} / {median(theirs, 'client_busy'):.0%}",
        )
        result.keep(label, per_second=median(mine, "per_second"), bare_per_second=median(theirs, "per_second"))
    result.notes.append(
        f"{CONNECTIONS} keep-alive connections over TCP from one process, each with one request open, payload 1 KiB, "
        "durability `memory`. The bare application reads the same request behind uvicorn, on the same parser, and "
        "answers as many bytes; it checks no Host, Origin or token, decodes nothing and knows nobody. Replies and "
        "cancellations are each about a ticket of their own. *Client busy* is the load's own share of a core, "
        "beside Bascule and beside bare: near 100% it is the load that limits."
    )
    return result


def routes(settings: Settings) -> Section:
    """Each route once in memory and once on disk, taking turns."""
    seconds = settings.seconds / 3
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(processes.scratch(settings.directory))
        houses = {each: stack.enter_context(house(directory, each)) for each in ("memory", "fsync")}
        labels = list(houses["memory"].judged | houses["memory"].others)[:: 4 if settings.quick else 1]
        for _ in range(settings.few_rounds):
            for label in labels:
                for durability, each in houses.items():
                    wanted = (each.judged | each.others)[label]
                    text, count = each.prepared(wanted, seconds)
                    address = f"http://127.0.0.1:{each.port}"
                    figures = load(each.server, address, text, seconds, count)
                    runs.setdefault((label, durability), []).append(figures)
                settings.progress()
    result = Section(
        "routes",
        "Every HTTP route, in memory and on disk",
        ("", "memory: requests/s", "p50", "server CPU", "fsync: requests/s", "p50", "server CPU"),
    )
    for label in labels:
        cells = []
        for durability in ("memory", "fsync"):
            mine = runs[label, durability]
            cells += [
                rate(median(mine, "per_second")),
                micros(median(mine, "p50_us")),
                micros(median(mine, "server_us")),
            ]
            result.keep(label, durability=durability, per_second=median(mine, "per_second"))
        result.add(f"`{label}`", *cells)
    result.notes.append(
        f"The same load, {settings.few_rounds} shorter runs each. Reads do not wait for the disk, except for what was "
        "written just before them."
    )
    return result
