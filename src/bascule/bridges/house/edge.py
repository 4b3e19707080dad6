"""From HTTP to the house's methods."""

from bascule.protocols.route import Route

ROUTES: tuple[Route, ...] = (Route("GET", "/status", "daemon.status"),)
