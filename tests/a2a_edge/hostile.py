"""A server that answers as a test says, byte by byte: what no SDK would send."""

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

# What to do with a request: its path and its decoded body (None for GET) to a status, headers and a body; or None, when
# the handler has answered by itself.
Answer = Callable[["Handler", str, Any], "tuple[int, dict[str, str], bytes] | None"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Any) -> None:
        self.server.seen.append((self.path, body, dict(self.headers)))
        if self.path.endswith("agent-card.json") and self.server.card_is_plain:
            answer = 200, {}, json.dumps(self.server.card()).encode()
        else:
            answer = self.server.answer(self, self.path, body)
        if answer is None:
            return
        status, headers, data = answer
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in {
                "content-length": str(len(data)),
                "content-type": "application/json",
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quietly."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    card_is_plain = True

    def __init__(self, answer: Answer, **card: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.more = card
        # Path, body and headers of each request.
        self.seen: list[tuple[str, Any, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def card(self) -> dict[str, Any]:
        return {
            "name": "Hostile",
            "description": "x",
            "version": "1",
            "capabilities": {},
            "skills": [],
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [{"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            **self.more,
        }

    def messages(self) -> list[str]:
        """The ids of the messages that came, in order."""
        return [
            body["params"]["message"]["messageId"]
            for _, body, _ in self.seen
            if body and body["method"] == "SendMessage"
        ]


@contextlib.contextmanager
def serving(answer: Answer, **card: Any) -> Iterator[Server]:
    server = Server(answer, **card)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def result(value: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"jsonrpc": "2.0", "id": "1", "result": value}).encode()


def message(text: str) -> dict[str, Any]:
    return {"message": {"messageId": "r", "role": "ROLE_AGENT", "parts": [{"text": text}]}}


def task(state: str, task_id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"id": task_id, "contextId": "c1", "status": {"state": f"TASK_STATE_{state}"}, **more}
