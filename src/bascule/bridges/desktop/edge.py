"""From HTTP to methods: a table of what agents may call. The switch is for people, in a terminal."""

from bascule.protocols.desktop_agents import METHODS
from bascule.protocols.methods import WhoKind
from bascule.protocols.route import Route

_READ = ("status", "health", "doctor", "windows")

ROUTES: tuple[Route, ...] = tuple(
    Route("GET" if name in _READ else "POST", f"/v1/desktop/{name}", row.name)
    for row in METHODS
    if row.who.kind is WhoKind.ANYONE
    for name in [row.name.removeprefix("desktop.")]
)
