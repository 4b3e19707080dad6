"""What the daemon itself provides to the bridges that it makes."""

from collections.abc import Callable
from typing import Protocol

from bascule.admin.ports import Anchors
from bascule.kernel.bridge import Port
from bascule.kernel.identity.tokens import TokenBook
from bascule.surfaces.http.admission import SpaceAdmission
from bascule.surfaces.http.app import App
from bascule.surfaces.link import LinkConnections


class SideApp(Protocol):
    def __call__(self, admission: SpaceAdmission, served: frozenset[str], what: str, /) -> App:
        """What a socket beside the daemon's own leads to: some methods, as admission says who."""


STATE_DIR: Port[str] = Port("state directory")
CONFIG_DIR: Port[str] = Port("config directory")
TOKENS: Port[TokenBook] = Port("tokens")
CONNECTIONS: Port[LinkConnections] = Port("link connections")
ANCHORS: Port[Anchors] = Port("anchors")
SIDE_APP: Port[SideApp] = Port("side app")
# Whether somebody has the console open in a browser.
CONSOLE_IS_OPEN: Port[Callable[[], bool]] = Port("console is open")
