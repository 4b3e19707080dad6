"""The tools of the broker spec's section 6 over its section 5: for a broker that has that and nothing else."""

from __future__ import annotations

import time

from bascule.local_client.exits import DoorError, Refusal, WrongUsage
from bascule.local_client.http import ANSWER_SECONDS, call
from bascule.local_client.values import agent_id, encode, ticket_id
from bascule.programs.mcp_stdio import words
from bascule.programs.mcp_stdio.mcp import SLICE_MS

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from bascule.local_client.http import Door

    Register = Callable[[dict[str, Any]], dict[str, Any]]

# The spec's default is 25 s; a broker may know no longer wait.
_WAIT_MS = 25_000
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~")


class Broker:
    """The broker, as one agent sees it."""

    def __init__(self, door: Door, token: str | None, handle: str, session: dict[str, Any], register: Register) -> None:
        self.door = door
        self.token = token
        self.handle = handle
        self.trust = session["trust"]
        self.default_timeout_ms: int | None = session.get("defaultTimeoutMs")
        self.register = register

    def ask(self, verb: str, path: str, body: Any = None, *, seconds: float = ANSWER_SECONDS) -> Any:
        return call(self.door, verb, path, body, token=self.token, seconds=seconds)

    def heartbeat(self) -> None:
        """5.6: optional, so a broker without it is alive all the same."""
        try:
            self.ask("POST", f"/agents/{_quoted(self.handle)}/heartbeat", {})
        except Refusal:
            return


def use(broker: Broker, name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    """The tool's structured result."""
    tool = _TOOLS.get(name)
    if tool is None:
        raise DoorError(
            f"{name} needs Bascule, and {broker.door.where} is another broker",
            f"there are: {', '.join(_TOOLS)}; unset BRIDGE_BROKER_URL to use your own Bascule",
        )
    if not isinstance(arguments, dict):
        raise WrongUsage(f"{name}: arguments must be an object")
    return tool(broker, arguments, call_id)


def _send_message(broker: Broker, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    target = agent_id(_text(arguments, "agentId"))
    timeout_ms = _number(arguments, "timeoutMs") or broker.default_timeout_ms
    message = {
        "ticketId": call_id,
        "payload": _text(arguments, "payload"),
        "metadata": {"origin": broker.handle, **_object(arguments, "metadata")},
        "expectReply": True,
    }
    if timeout_ms is not None:
        message["timeoutMs"] = timeout_ms
    broker.ask("POST", f"/agents/{_quoted(target)}/send", message)
    if arguments.get("awaitResponse", True) is False:
        return {"ticketId": call_id, "status": "pending", "next": "await_reply"}
    return _reply_to(broker, call_id, timeout_ms)


def _await_reply(broker: Broker, arguments: dict[str, Any], _call_id: str) -> dict[str, Any]:
    return _reply_to(broker, ticket_id(_text(arguments, "ticketId")), _number(arguments, "timeoutMs"))


def _reply_to(broker: Broker, ticket: str, own_ms: int | None) -> dict[str, Any]:
    own_time = own_ms is not None and own_ms <= SLICE_MS
    deadline = time.monotonic() + (own_ms if own_ms is not None and own_time else SLICE_MS) / 1000
    while True:
        left_ms = max(0, round((deadline - time.monotonic()) * 1000))
        wait_ms = min(left_ms, _WAIT_MS)
        path = f"/replies/{_quoted(ticket)}?waitMs={wait_ms}"
        view = broker.ask("GET", path, seconds=wait_ms / 1000 + ANSWER_SECONDS)
        if isinstance(view, dict):
            return {**view, "note": words.note(broker.trust, view.get("from"), verified=False)}
        if left_ms == wait_ms:
            about = {"ticketId": ticket, "ticketStatus": "pending"}
            return {"status": "timeout", **about} if own_time else {"status": "pending", **about, "next": "await_reply"}


def _list_agents(broker: Broker, arguments: dict[str, Any], _call_id: str) -> dict[str, Any]:
    filters = "&".join(f"{each}={_quoted(_text(arguments, each))}" for each in ("type", "status") if each in arguments)
    return {"agents": broker.ask("GET", f"/agents?{filters}" if filters else "/agents"), "you": broker.handle}


def _co_workers(broker: Broker, _arguments: dict[str, Any], _call_id: str) -> dict[str, Any]:
    others = []
    for agent in broker.ask("GET", "/agents") or ():
        if isinstance(agent, dict) and agent.get("agentId") != broker.handle:
            short = {each: agent[each] for each in ("agentId", "type", "status") if each in agent}
            metadata = agent.get("metadata")
            if isinstance(metadata, dict) and "cwd" in metadata:
                short["cwd"] = metadata["cwd"]
            others.append(short)
    return {"agents": others, "you": broker.handle}


def _post_reply(broker: Broker, arguments: dict[str, Any], _call_id: str) -> dict[str, Any]:
    ticket = ticket_id(_text(arguments, "ticketId"))
    if "payload" not in arguments:
        raise WrongUsage("the argument payload is missing")
    metadata = {"agent": broker.handle, **_object(arguments, "metadata")}
    broker.ask("POST", "/replies", {"ticketId": ticket, "payload": arguments["payload"], "metadata": metadata})
    return {"ticketId": ticket, "status": "responded"}


def _register_agent(broker: Broker, arguments: dict[str, Any], _call_id: str) -> dict[str, Any]:
    name = agent_id(_text(arguments, "agentId"))
    registered = broker.register({**arguments, "metadata": _object(arguments, "metadata")})
    out = {"agentId": name, "status": "registered", "you": name}
    return {**out, "expiresAt": registered["expiresAt"]} if registered.get("expiresAt") else out


_TOOLS: dict[str, Callable[[Broker, dict[str, Any], str], dict[str, Any]]] = {
    "send_message": _send_message,
    "await_reply": _await_reply,
    "list_agents": _list_agents,
    "co_workers": _co_workers,
    "post_reply": _post_reply,
    "register_agent": _register_agent,
}


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise WrongUsage(f"the argument {name} must be a text")
    return value


def _number(arguments: dict[str, Any], name: str) -> int | None:
    value = arguments.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise WrongUsage(f"the argument {name} must be a number, 1 or more")
    return value


def _object(arguments: dict[str, Any], name: str) -> dict[str, Any]:
    value = arguments.get(name, {})
    if not isinstance(value, dict):
        raise WrongUsage(f"the argument {name} must be an object")
    # Written once here, so that what cannot be written is refused before anything is sent.
    encode(value)
    return value


def _quoted(text: str) -> str:
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())
