"""What the games' tools do, in the way of `calls`: generators that yield questions and return results."""

from __future__ import annotations

import json

from bascule.doors.exits import Refusal, WrongUsage
from bascule.shim.calls import Ask

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from bascule.shim.calls import Me, Tool

    Asking = Generator[Ask, Any, dict[str, Any]]

# About 4,000 tokens; a larger result is kept by the daemon and read in pieces of this size.
SHOWN_CHARS = 16_000
# GABS's own default.
DEFAULT_TIMEOUT_SECONDS = 30
SHOWN_EVENTS = 50
# What a model reads of a game at a glance.
_SHORT_STATUS = ("gameId", "name", "description", "state", "problem", "tools", "attention", "attached", "startedBy")


def list_games(_me: Me, _arguments: dict[str, Any]) -> Asking:
    listed = yield Ask("games.list", {}, repeat=True)
    out: dict[str, Any] = {"games": [_short(each) for each in listed["games"]]}
    if listed.get("problem"):
        out["problem"] = listed["problem"]
    if not out["games"]:
        out["hint"] = "the user puts games into games.toml in Bascule's configuration directory"
    return out


def status(_me: Me, arguments: dict[str, Any]) -> Asking:
    if "gameId" in arguments:
        return {"games": [(yield Ask("games.status", arguments, repeat=True))]}
    return {"games": (yield Ask("games.list", {}, repeat=True))["games"]}


def _life(method: str, following: str | None = None) -> Tool:
    def call(me: Me, arguments: dict[str, Any]) -> Asking:
        params = dict(arguments)
        if "timeout" in params:
            # How long to wait for it, as in GABS: it goes on starting all the same.
            params["waitMs"] = min(max(1, params.pop("timeout")) * 1000, me.slice_ms)
        out = _short((yield Ask(method, params)))
        if following is not None and out["state"] in ("starting", "reconnecting"):
            out["next"] = "games_status"
        elif following is not None and out["state"] == "live":
            out["next"] = following
        return out

    return call


def tool_names(me: Me, arguments: dict[str, Any]) -> Asking:
    page = yield from _tools(me, arguments)
    return {**page, "tools": [each["name"] for each in page["tools"]]}


def tools(me: Me, arguments: dict[str, Any]) -> Asking:
    page = yield from _tools(me, arguments)
    for each in page["tools"]:
        each.pop("schemaHash", None)
    return page


def _tools(_me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    return dict((yield Ask("games.tools", {**arguments, "gameId": game}, repeat=True)))


def call_tool(me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    seconds = min(arguments.get("timeout", DEFAULT_TIMEOUT_SECONDS), me.slice_ms // 1000)
    params = {
        "gameId": game,
        "tool": arguments["tool"],
        "arguments": arguments.get("arguments", {}),
        "timeoutMs": max(1, seconds) * 1000,
        "inlineBytes": SHOWN_CHARS,
    }
    try:
        # Never repeated: a connection lost under it may have lost the answer only.
        answer = yield Ask("games.call", params)
    except Refusal as refused:
        told = refused.details.get("gabp") if refused.details else None
        if told is None:
            raise
        return _failed(refused, told)
    out: dict[str, Any] = {"status": "ok", "executed": answer["executed"]}
    if "resource" in answer:
        return {**out, "resource": answer["resource"], "next": "games_read_resource"}
    return {**out, "result": answer.get("result")}


def _failed(refused: Refusal, told: dict[str, Any]) -> dict[str, Any]:
    """The game's own error, with its code and data."""
    data = told.get("data")
    blocked = isinstance(data, dict) and data.get("status") == "blocked_by_attention"
    error: dict[str, Any] = {name: told[name] for name in ("code", "message", "data") if name in told}
    if len(json.dumps(error, ensure_ascii=False)) > SHOWN_CHARS:
        error = {"code": told["code"], "message": str(told["message"])[:SHOWN_CHARS], "truncated": True}
    out = {"status": "blocked_by_attention" if blocked else "failed", "executed": refused.details["executed"]}
    if blocked:
        out["next"] = "games_ack_attention"
    elif refused.hint:
        out["hint"] = refused.hint
    return {**out, "error": error}


def events(me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    params = {"limit": SHOWN_EVENTS, **_joined(arguments, "channels"), "gameId": game}
    wait_ms = min(params.pop("waitMs", 0), me.slice_ms)
    page = yield Ask("games.events", params, wait_ms=wait_ms, repeat=True)
    out = {"events": [_event(each) for each in page["events"]], "cursor": page["cursor"]}
    if page.get("unknown"):
        out["unknown"] = page["unknown"]
    return out


def _event(event: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(event.get("payload"), ensure_ascii=False)) <= SHOWN_CHARS:
        return event
    return {**event, "payload": None, "message": "the payload is too large to be shown"}


def read_resource(_me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    params = {**arguments, "gameId": game, "limit": SHOWN_CHARS}
    content = yield Ask("games.resource", params, repeat=True)
    return {name: value for name, value in content.items() if name not in ("gameId", "uri")}


def set_state(_me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    return dict((yield Ask("games.setState", {**arguments, "gameId": game})))


def acknowledge(_me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    return dict((yield Ask("games.acknowledge", {**arguments, "gameId": game})))


def get_state(_me: Me, arguments: dict[str, Any]) -> Asking:
    game = yield from _game(arguments)
    return dict((yield Ask("games.state", {**_joined(arguments, "components"), "gameId": game}, repeat=True)))


def _joined(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    """The daemon takes names with commas between them."""
    return {**arguments, name: ",".join(arguments[name])} if name in arguments else arguments


def _about(method: str) -> Tool:
    """A question about the one game that is meant."""

    def call(_me: Me, arguments: dict[str, Any]) -> Asking:
        game = yield from _game(arguments)
        return dict((yield Ask(method, {**arguments, "gameId": game}, repeat=True)))

    return call


TOOLS: dict[str, Tool] = {
    "games_list": list_games,
    "games_start": _life("games.start", "games_tool_names"),
    "games_stop": _life("games.stop"),
    "games_kill": _life("games.kill"),
    "games_status": status,
    "games_connect": _life("games.connect", "games_tool_names"),
    "games_tool_names": tool_names,
    "games_tool_detail": _about("games.tool"),
    "games_tools": tools,
    "games_call_tool": call_tool,
    "games_get_attention": _about("games.attention"),
    "games_ack_attention": acknowledge,
    "games_events": events,
    "games_resources": _about("games.resources"),
    "games_read_resource": read_resource,
    "games_get_state": get_state,
    "games_set_state": set_state,
}


def _game(arguments: dict[str, Any]) -> Generator[Ask, Any, str]:
    """The game meant: the one named, else the only one that runs."""
    wanted = arguments.get("gameId")
    if wanted is not None:
        return str(wanted)
    listed = (yield Ask("games.list", {}, repeat=True))["games"]
    running = [each["gameId"] for each in listed if each["state"] != "stopped"]
    if len(running) == 1:
        return str(running[0])
    if running:
        raise WrongUsage("several games run", f"give gameId: {', '.join(running)}")
    names = ", ".join(each["gameId"] for each in listed) or "none; the user names games in games.toml"
    raise WrongUsage("no game runs", f"games_start one of: {names}")


def _short(view: dict[str, Any]) -> dict[str, Any]:
    return {name: view[name] for name in _SHORT_STATUS if name in view}
