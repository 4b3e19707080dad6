"""A door for callers who are not on this machine: one application behind tokens of its own, and nothing else.

None of the daemon's own routes is served here, whatever is presented. Host and Origin are checked as at the TCP door.
"""

import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from bascule.foundation.clock import Clock
from bascule.kernel.bridge import Port
from bascule.kernel.call import Principal
from bascule.kernel.journal_ports import Log
from bascule.kernel.route import Route
from bascule.surfaces.http.admission import OutsideAdmission, loopback_hosts
from bascule.surfaces.http.app import App
from bascule.surfaces.http.endpoints import Mount
from bascule.surfaces.http.routes import RouteTable
from bascule.surfaces.http.server import HttpDoor

# Connections of all clients together: each may hold some streams open; a descriptor of the daemon's is one each.
MAX_OUTSIDE_CONNECTIONS = 256
OUTSIDE_BACKLOG = 64


class Outside(NamedTuple):
    """What is to be served, and where."""

    listen: str
    # 0 for any that is free.
    port: int
    # What others call it, where that is another address.
    url: str | None
    tls: tuple[str, str | None] | None
    routes: tuple[Route, ...]
    mount: Mount
    # Awaited before the first request is taken.
    load: Callable[[], Awaitable[None]]
    client_of: Callable[[str], Principal | None]
    # Of a verb and a path: served without a token.
    is_open: Callable[[str, bytes], bool]


class Where(Protocol):
    """Told where the door is, or why it is not open."""

    base: str | None
    problem: str | None


class MakeApp(Protocol):
    def __call__(self, admission: OutsideAdmission, table: RouteTable, mounts: dict[str, Mount], /) -> App: ...


class OutsideDoors:
    def __init__(
        self,
        make_app: MakeApp,
        clock: Clock,
        log: Log,
        *,
        on_open: Callable[[str], None],
        on_wrong_token: Callable[[], None],
    ) -> None:
        """`on_open` is called with where it is."""
        self._make_app = make_app
        self._on_open = on_open
        self._clock = clock
        self._log = log
        self._on_wrong_token = on_wrong_token

    async def __call__(self, outside: Outside, where: Where, /) -> HttpDoor | None:
        """Open it; the daemon goes on without it when the port is taken."""
        try:
            sock = _bind(outside.listen, outside.port)
        except OSError as error:
            where.problem = f"{outside.listen}:{outside.port} cannot be ours: {(error.strerror or str(error)).lower()}"
            self._log("no_a2a", level="error", error=where.problem)
            return None
        port = sock.getsockname()[1]
        scheme = "https" if outside.tls is not None else "http"
        shown = f"[{outside.listen}]" if ":" in outside.listen else outside.listen
        await outside.load()
        where.base = (outside.url or f"{scheme}://{shown}:{port}").rstrip("/")
        admission = OutsideAdmission(
            hosts=_hosts(shown, port, where.base),
            client_of=outside.client_of,
            is_open=outside.is_open,
            clock=self._clock,
            on_wrong_token=self._on_wrong_token,
        )
        mounts = {route.method: outside.mount for route in outside.routes}
        app = self._make_app(admission, RouteTable(outside.routes), mounts)
        door = HttpDoor(app, sock, max_connections=MAX_OUTSIDE_CONNECTIONS, backlog=OUTSIDE_BACKLOG, tls=outside.tls)
        await door.start()
        self._on_open(where.base)
        self._log("a2a_door", at=where.base)
        return door


OUTSIDE_DOOR: Port[OutsideDoors] = Port("a door for callers from outside")


def _bind(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    sock.set_inheritable(False)
    return sock


def _hosts(shown: str, port: int, base: str) -> frozenset[bytes]:
    """What a Host header may say: the address itself, and what others call it."""
    url = urlsplit(base)
    named = {url.netloc, f"{shown}:{port}"}
    if url.port is None and url.hostname is not None:
        named.add(f"{url.netloc}:{443 if url.scheme == 'https' else 80}")
    return loopback_hosts(port) | frozenset(each.encode() for each in named)
