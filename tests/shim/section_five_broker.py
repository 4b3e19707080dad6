"""A broker that has section 5 of the spec and nothing else: no /status, no inbox, no /mcp."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from patience import PATIENCE


class SectionFiveBroker:
    EXPIRES_AT = "2030-10-20T08:00:00Z"

    def __init__(self) -> None:
        self.agents: dict[str, dict[str, Any]] = {}
        self.sent: dict[str, dict[str, Any]] = {}
        self.replies: dict[str, dict[str, Any]] = {}
        # Paths that section 5 does not have.
        self.unknown: list[str] = []
        self.happened = threading.Condition()
        # Answered to everything, when set.
        self.odd: Any = None

    @property
    def tickets(self) -> list[str]:
        return list(self.sent)

    def __enter__(self) -> Self:
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                broker.serve(self)

            def do_POST(self) -> None:
                broker.serve(self)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE)
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        body = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)) or b"{}")
        status, answer = self._answer(request.command, parts.path.split("/")[1:], parse_qs(parts.query), body)
        if status == 404:
            self.unknown.append(parts.path)
        data = b"" if answer is None else json.dumps(answer).encode()
        request.send_response(status)
        if status != 204:
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _answer(self, verb: str, path: list[str], query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if self.odd is not None:
            return 200, self.odd
        match verb, path:
            case "POST", ["agents", "register"]:
                self.agents[body["agentId"]] = body
                return 200, {"agentId": body["agentId"], "status": "registered", "expiresAt": self.EXPIRES_AT}
            case "GET", ["agents"]:
                return 200, [{**each, "status": "online"} for each in self.agents.values()]
            case "POST", ["agents", _, "send"]:
                self.sent[body["ticketId"]] = body
                return 200, {"ticketId": body["ticketId"], "status": "pending", "waitEndpoint": "/x"}
            case "POST", ["replies"]:
                with self.happened:
                    self.replies[body["ticketId"]] = body
                    self.happened.notify_all()
                return 204, None
            case "GET", ["replies", ticket]:
                with self.happened:
                    wait = int(query.get("waitMs", ["25000"])[0]) / 1000
                    self.happened.wait_for(lambda: ticket in self.replies, wait)
                reply = self.replies.get(ticket)
                if reply is None:
                    return 204, None
                return 200, {"ticketId": ticket, "payload": reply["payload"], "status": "responded", "latencyMs": 1}
        return 404, "no such page"
