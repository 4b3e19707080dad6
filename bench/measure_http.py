"""HTTP requests per second, beside an application that does nothing behind the same uvicorn."""

import base64
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys

import processes
from bascule import places
from processes import HERE, Server
from report import Section, Settings, median, micros, rate, ratio

CONNECTIONS = 16
LISTED_AGENTS = 100
RUN_PATIENCE_SECONDS = 60.0


def request(verb: str, path: str, port: int, token: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
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


def prepare(port: int, state: str) -> dict[str, tuple[bytes, int]]:
    """The requests, and how long each answer is."""
    local = places.read_private_file(places.local_token_file(state)).strip()
    door = Door(port, local)
    tokens = {}
    for number in range(LISTED_AGENTS):
        name = f"agent-{number}"
        registered = json.loads(door("POST", "/agents/register", {"agentId": name, "metadata": {"pid": number}}))
        tokens[name] = registered["agentToken"]
    name, token = next(iter(tokens.items()))
    send = {"payload": "x" * 1024}
    sent = json.loads(door("POST", f"/agents/{name}/send", send))
    door("POST", "/replies", {"ticketId": sent["ticketId"], "payload": "x" * 1024}, token)
    wanted = {
        "POST /agents/{id}/send": ("POST", f"/agents/{name}/send", local, send),
        "GET /replies/{id}, settled": ("GET", f"/replies/{sent['ticketId']}", local, None),
        "POST /agents/{id}/heartbeat": ("POST", f"/agents/{name}/heartbeat", token, None),
        f"GET /agents ({LISTED_AGENTS})": ("GET", "/agents", local, None),
    }
    return {
        label: (request(verb, path, port, bearer, body), len(door(verb, path, body, bearer)))
        for label, (verb, path, bearer, body) in wanted.items()
    }


def load(server: Server, port: int, text: bytes, settings: Settings) -> dict[str, float]:
    order = {
        "port": port,
        "request": base64.b64encode(text).decode(),
        "connections": CONNECTIONS,
        "seconds": settings.seconds,
        "server_pid": server.pid,
    }
    done = subprocess.run(
        [sys.executable, os.path.join(HERE, "http_load.py")],
        input=json.dumps(order).encode(),
        env=processes.environment(),
        capture_output=True,
        timeout=settings.seconds + RUN_PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"http: {done.stderr.decode(errors='replace').strip()}")
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


def http_requests(settings: Settings) -> Section:
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        directory = enter(processes.scratch(settings.directory))
        state = os.path.join(directory, "state")
        port = free_port()
        server = enter(processes.bascule(state, durability="memory", port=port))
        bare = enter(processes.bare_asgi(directory))
        with open(bare.address, encoding="utf-8") as file:
            bare_port = int(file.read())
        requests = prepare(port, state)
        for _ in range(settings.rounds):
            for label, (text, answer_bytes) in requests.items():
                runs.setdefault((label, "bascule"), []).append(load(server, port, text, settings))
                bare_text = bare_request(text, answer_bytes)
                runs.setdefault((label, "bare"), []).append(load(bare, bare_port, bare_text, settings))
                settings.progress()
    result = Section(
        "http",
        "HTTP",
        ("", "requests/s", "bare ASGI", "of bare ASGI", "p50", "p99", "server CPU", "bare server CPU"),
    )
    for label in requests:
        ours, theirs = runs[label, "bascule"], runs[label, "bare"]
        share = median(ours, "per_second") / median(theirs, "per_second")
        result.add(
            f"`{label}`",
            rate(median(ours, "per_second")),
            rate(median(theirs, "per_second")),
            ratio(share),
            micros(median(ours, "p50_us")),
            micros(median(ours, "p99_us")),
            micros(median(ours, "server_us")),
            micros(median(theirs, "server_us")),
        )
        result.keep(label, per_second=median(ours, "per_second"), bare_per_second=median(theirs, "per_second"))
    result.notes.append(
        f"{CONNECTIONS} keep-alive connections over TCP from one process, each with one request open, durability "
        "`memory`. The bare application reads the same request behind the same uvicorn settings and answers as many "
        "bytes; it checks no Host, Origin or token, decodes nothing and knows nobody."
    )
    return result
