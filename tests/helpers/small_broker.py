"""A broker that has section 5 of its specification and nothing else: no tokens, no inbox, no tickets by id."""

import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

# The longest that a test lets one request wait.
MAX_WAIT_SECONDS = 20.0


class SmallBroker(ThreadingHTTPServer):
    # A request that waits must not keep the test from ending.
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = threading.Condition()
        self.agents: dict[str, dict[str, Any]] = {}
        self.replies: dict[str, Any] = {}
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.tokens: list[str | None] = []
        # Whether `waitMs` is heeded, and whether a wait is ever answered.
        self.waits = True
        self.answers = True
        self.scheme = "http"
        self.stopped = threading.Event()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A client that leaves, or is no TLS client, is not this broker's fault."""


class _Handler(BaseHTTPRequestHandler):
    server: SmallBroker

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        broker, path = self._noted()
        match path.split("/")[1:]:
            case ["agents"]:
                self._answer(200, list(broker.agents.values()))
            case ["replies", ticket]:
                self._wait_for(broker, ticket)
            case _:
                self._page(404)

    def do_POST(self) -> None:
        broker, path = self._noted()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match path.split("/")[1:]:
            case ["agents", "register"]:
                view = {"type": "agent", "status": "online", "lastHeartbeat": "2025-10-20T07:59:12Z", "metadata": {}}
                broker.agents[body["agentId"]] = view | body
                self._answer(
                    200, {"agentId": body["agentId"], "status": "registered", "expiresAt": "2025-10-20T08:00:00Z"}
                )
            case ["agents", agent, "send"]:
                if agent not in broker.agents:
                    self._answer(404, {"error": "agent not registered"})
                    return
                with broker.changed:
                    broker.sent.append(body["ticketId"])
                    broker.changed.notify_all()
                stream = f"/replies/{body['ticketId']}/stream"
                self._answer(200, {"ticketId": body["ticketId"], "status": "pending", "waitEndpoint": stream})
            case ["replies"]:
                with broker.changed:
                    broker.replies[body["ticketId"]] = body["payload"]
                    broker.changed.notify_all()
                self._answer(204)
            case _:
                self._page(404)

    def _noted(self) -> tuple[SmallBroker, str]:
        path = urlsplit(self.path).path
        self.server.asked.append(f"{self.command} {path}")
        self.server.tokens.append(self.headers["Authorization"])
        return self.server, path

    def _wait_for(self, broker: SmallBroker, ticket: str) -> None:
        wait = int(parse_qs(urlsplit(self.path).query).get("waitMs", ["25000"])[0]) / 1000 if broker.waits else 0
        if not broker.answers:
            broker.stopped.wait()
            return
        with broker.changed:
            broker.changed.wait_for(lambda: ticket in broker.replies, min(wait, MAX_WAIT_SECONDS))
            there = ticket in broker.replies
        if there:
            payload = broker.replies[ticket]
            self._answer(200, {"ticketId": ticket, "payload": payload, "status": "responded", "latencyMs": 1})
        else:
            self._answer(204)

    def _answer(self, status: int, value: Any = None) -> None:
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        if data:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _page(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"<!DOCTYPE html>\n<pre>Cannot serve that</pre>")


@contextlib.contextmanager
def small_broker(certificate: tuple[Path, Path] | None = None) -> Iterator[SmallBroker]:
    with SmallBroker() as broker:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            broker.socket = context.wrap_socket(broker.socket, server_side=True)
            broker.scheme = "https"
        serving = threading.Thread(target=broker.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield broker
        finally:
            broker.stopped.set()
            broker.shutdown()
            serving.join()
