"""From HTTP to methods: a table. Path names in braces are wire names of the method's parameters."""

from bascule.protocols.route import Route

_GAME = "/v1/games/{gameId}"

ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/games", "games.list"),
    Route("GET", _GAME, "games.show"),
    Route("GET", f"{_GAME}/status", "games.status"),
    Route("POST", f"{_GAME}/start", "games.start"),
    Route("POST", f"{_GAME}/connect", "games.connect"),
    Route("POST", f"{_GAME}/attach", "games.attach"),
    Route("POST", f"{_GAME}/stop", "games.stop"),
    Route("POST", f"{_GAME}/kill", "games.kill"),
    Route("GET", f"{_GAME}/tools", "games.tools"),
    # A tool's name has slashes.
    Route("GET", f"{_GAME}/tools/{{tool...}}", "games.tool"),
    Route("POST", f"{_GAME}/call", "games.call"),
    Route("GET", f"{_GAME}/events", "games.events"),
    Route("GET", f"{_GAME}/stream", "games.stream"),
    Route("POST", f"{_GAME}/unsubscribe", "games.unsubscribe"),
    Route("GET", f"{_GAME}/resources", "games.resources"),
    Route("GET", f"{_GAME}/resource", "games.resource"),
    Route("GET", f"{_GAME}/state", "games.state"),
    Route("PUT", f"{_GAME}/state", "games.setState"),
    Route("GET", f"{_GAME}/attention", "games.attention"),
    Route("POST", f"{_GAME}/attention", "games.acknowledge"),
)
