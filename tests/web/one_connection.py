"""One HTTP connection on a transport of the test's, an application that answers with what was asked, and a clock."""

import asyncio
from types import SimpleNamespace
from typing import Any

from bascule.foundation.errors import BasculeError, Unauthenticated
from bascule.surfaces.http.connection import HttpConnection
from bascule.surfaces.http.exchange import Pending, Request, Response

WHO = b"Host: x\r\n"


class Transport:
    """Writes into a list; does not read ahead of the test."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = False
        self.aborted = False
        self.unread = 0
        self.reading = True

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        assert not self.closing, "written behind the end"
        self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Turns:
    """A share of calls that is used up; the rest waits until the test gives another."""

    def __init__(self, share: int = 1_000_000) -> None:
        self.share = share
        self.waiting: list[Any] = []

    def take(self, _who: Any, _size: int, _calls: int) -> bool:
        self.share -= 1
        return self.share >= 0

    def is_spent(self, _who: Any) -> bool:
        return self.share <= 0

    def wait(self, _who: Any, _size: int, go_on: Any) -> None:
        self.waiting.append(go_on)

    def give(self, share: int) -> None:
        self.share = share
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on()


class Wait(Pending):
    def start(self, connection: HttpConnection) -> None:
        self.connection: HttpConnection | None = connection

    def left(self) -> None:
        self.connection = None

    def answer(self) -> None:
        assert self.connection is not None
        self.connection.respond(Response(200, [], b"waited"))


class Pieces(Wait):
    in_pieces = True

    def answer(self) -> None:
        assert self.connection is not None
        self.connection.begin(200, [], in_chunks=True)
        self.connection.piece(b"one")
        self.connection.piece(b"")
        self.connection.ended()


class App:
    """Answers with what was asked. `/wait` and `/pieces` are answered later, `/deny` by nobody it knows."""

    closes_refused = False
    header_lines = b""

    def __init__(self) -> None:
        self.turns = Turns()
        self.served: list[tuple[str, bytes, bytes]] = []
        self.pending: list[Wait] = []
        self.max_body = 1000
        self.revoked = False
        self.admitted = 0

    def admit(self, request: Request) -> Response | None:
        self.admitted += 1
        if request.path == b"/deny" or self.revoked:
            return self.refusal(Unauthenticated("who?"))
        request.principal = "agent"
        request.endpoint = SimpleNamespace(max_body=self.max_body)
        return None

    def answer(self, request: Request, body: bytes) -> Response | Pending:
        self.served.append((request.verb, request.path, body))
        if request.path in (b"/wait", b"/pieces"):
            self.pending.append(Wait() if request.path == b"/wait" else Pieces())
            return self.pending[-1]
        return Response(200, [], request.path[1:])

    def refusal(self, error: BasculeError) -> Response:
        return Response(error.status, [], b"", error.status in (400, 413))


class Peer:
    """The client's side, and the door's clock."""

    def __init__(self, app: App | None = None) -> None:
        self.app = app or App()
        self.transport = Transport()
        self.door: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            app=self.app,
            now=0.0,
            peer_uid=0,
            entered=lambda _: True,
            left=lambda _: None,
        )
        self.connection = HttpConnection(self.door)
        self.connection.connection_made(self.transport)

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.transport.written.split(b"HTTP/1.1 ")[1:]]

    def after(self, seconds: float) -> None:
        self.door.now += seconds
        if self.connection.due <= self.door.now:
            self.connection.overdue()


def get(path: bytes, *headers: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\n" % path + WHO + b"".join(each + b"\r\n" for each in headers) + b"\r\n"


def post(path: bytes, body: bytes, *headers: bytes) -> bytes:
    return get(path, b"Content-Length: %d" % len(body), *headers).replace(b"GET", b"POST", 1) + body


def chunked(path: bytes, *rest: bytes) -> bytes:
    return get(path, b"Transfer-Encoding: chunked").replace(b"GET", b"POST", 1) + b"".join(rest)
