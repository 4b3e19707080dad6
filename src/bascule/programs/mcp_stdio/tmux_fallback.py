"""What is left without a daemon: text typed into the tmux panes of agents that `bascule tmux launch` started.

Broker spec (9): "optionally fall back to tmux path, but report reduced functionality". There is no ticket, no reply
and no record; every answer says so. One line at most is typed: nothing tells whether the program takes pastes.
"""

from __future__ import annotations

from bascule.foundation.text import MAX_LINE_CHARS
from bascule.local_client.exits import DoorError
from bascule.local_client.values import agent_id
from bascule.terminals.tmux import Tmux, TmuxFailed

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

REDUCED = "reduced functionality: Bascule is not running; "


class CannotFallBack(DoorError):
    """There is no daemon, and tmux cannot help either."""


def answer(tool: str, arguments: dict[str, Any], me: str, tmux: Tmux | None = None) -> dict[str, Any] | None:
    """The tool's result as far as tmux can give one; None for tools that need the daemon."""
    server = tmux or Tmux()
    try:
        if tool in ("co_workers", "list_agents"):
            return _agents(server, me)
        if tool == "send_message":
            return _send(server, agent_id(str(arguments.get("agentId"))), str(arguments.get("payload")), me)
    except TmuxFailed as fault:
        raise CannotFallBack(f"Bascule is not running, and tmux cannot help: {fault}", _START) from None
    return None


_START = "start it with `bascule up -d`"


def _agents(tmux: Tmux, me: str) -> dict[str, Any]:
    agents = [
        {"agentId": pane.agent, "type": pane.command, "status": "unknown", "cwd": pane.cwd, "paneId": pane.id}
        for pane in tmux.panes()
        if pane.agent and pane.agent != me and not pane.dead
    ]
    note = f"{REDUCED}these are the panes that were started with `bascule tmux launch`"
    return {"agents": agents, "you": me, "reduced": note}


def _send(tmux: Tmux, target: str, payload: str, me: str) -> dict[str, Any]:
    pane = tmux.pane_of(target)
    if pane is None:
        raise CannotFallBack(f"Bascule is not running, and no tmux pane was launched for {target}", _START)
    if pane.in_mode:
        raise CannotFallBack(f"Bascule is not running, and {target}'s pane shows something else", "try again later")
    line = f"[bascule] from agent {me}, not from your user, no reply path: {payload}"
    # A cut message is worse than none.
    if len(line) > MAX_LINE_CHARS:
        raise CannotFallBack(
            f"Bascule is not running, and {len(payload)} characters are too many to type",
            f"write them to a file and send its path, or {_START}",
        )
    tmux.type_line(pane.id, line)
    note = f"{REDUCED}the text was typed into {target}'s pane {pane.id}; there is no ticket and no reply will come"
    return {"ticketId": "none", "status": "pending", "reduced": note}
