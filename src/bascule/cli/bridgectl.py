"""bridgectl: look at agents and tickets, cancel one, follow the log and the events.

Standard library only, over `bascule.local_client`, like the helpers: it must answer when the daemon does not.
"""

from __future__ import annotations

import sys

from bascule.cli import tail
from bascule.foundation import paths
from bascule.foundation.text import one_line, visible
from bascule.local_client import choice, exits
from bascule.local_client.exits import Refusal, WrongUsage
from bascule.local_client.http import call
from bascule.local_client.values import agent_id, target_id, ticket_id
from bascule.programs.helpers import program, terminal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

DEFAULT_LINES = 10
DEFAULT_LIMIT = 50

EXAMPLES = """\
  bridgectl list agents --status online
  bridgectl list tickets --agent Jerry --status pending
  bridgectl show 5f1c0a4e-...
  bridgectl cancel 5f1c0a4e-... --reason "solved"
  bridgectl tail events
  bridgectl tail logs -n 50 --no-follow
"""


def main() -> int:
    return program.run("bridgectl", _main)


def _main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    state = paths.state_dir(options.state_dir)
    action: Any = options.action
    return int(action(options, state))


def _list_agents(options: argparse.Namespace, state: str) -> int:
    query = _query(type=options.type, status=options.status)
    agents = call(choice.find_door(state), "GET", "/agents" + query)
    if options.limit:
        agents = agents[: options.limit]
    if options.json:
        terminal.show_json(agents)
    elif not agents:
        terminal.say("no agents; register one with: bridge-register --agent NAME")
    else:
        terminal.show_table(
            ("AGENT", "TYPE", "STATUS", "LAST SEEN", "UNREAD", "WHERE"),
            [
                (
                    agent["agentId"],
                    agent["type"],
                    agent["status"],
                    tail.moment(agent.get("lastHeartbeat", "-")),
                    str(agent.get("unread", 0)),
                    _place_of(agent.get("metadata") or {}),
                )
                for agent in agents
            ],
        )
    return exits.OK


def _list_tickets(options: argparse.Namespace, state: str) -> int:
    agent = target_id(options.agent) if options.agent else None
    query = _query(status=options.status, agentId=agent, limit=options.limit or DEFAULT_LIMIT)
    tickets = call(choice.find_door(state), "GET", "/tickets" + query)
    if options.json:
        terminal.show_json(tickets)
    elif not tickets:
        terminal.say("no tickets; send a message with: bridge-send AGENT TEXT")
    else:
        terminal.show_table(
            ("TICKET", "STATUS", "FROM", "TO", "CREATED", "BYTES"),
            [
                (
                    ticket["ticketId"],
                    ticket["status"] + (" (late)" if ticket.get("late") else ""),
                    ticket["from"],
                    ticket["targetAgent"],
                    tail.moment(ticket["createdAt"]),
                    str(ticket["payloadBytes"]),
                )
                for ticket in tickets
            ],
        )
    return exits.OK


def _show(options: argparse.Namespace, state: str) -> int:
    door = choice.find_door(state)
    token = choice.chosen_token(door, agent_id(options.agent) if options.agent else None)
    view = call(door, "GET", f"/tickets/{ticket_id(options.ticket)}", token=token)
    if options.json:
        terminal.show_json(view)
        return exits.OK
    bodies = {"payload", "response", "replies", "metadata"}
    if isinstance(delivery := view.get("delivery"), dict):
        by = f" by {', '.join(delivery['by'])}" if delivery.get("by") else ""
        view["delivery"] = f"{delivery.get('state')}{by}, {delivery.get('at')}"
    for name, value in view.items():
        if name not in bodies:
            terminal.show(f"{one_line(name)}: {one_line(str(value))}")
    if view.get("metadata"):
        terminal.show(f"metadata: {one_line(terminal.payload_text(view['metadata']))}")
    if "payload" not in view:
        terminal.say(
            "the text is shown to the ticket's two sides only: "
            f"bridgectl show {options.ticket} --agent {one_line(str(view.get('targetAgent')))}"
        )
        return exits.OK
    _show_text("payload", view["payload"])
    for reply in view.get("replies") or []:
        _show_text(f"reply from {one_line(str(reply.get('from')))} at {reply.get('at')}", reply.get("payload"))
    return exits.OK


def _show_text(title: str, payload: Any) -> None:
    terminal.show(f"--- {title}\n{visible(terminal.payload_text(payload))}")


def _cancel(options: argparse.Namespace, state: str) -> int:
    door = choice.find_door(state)
    token = choice.chosen_token(door, agent_id(options.agent) if options.agent else None)
    ticket = ticket_id(options.ticket)
    body = {"reason": options.reason} if options.reason else {}
    try:
        view = call(door, "POST", f"/tickets/{ticket}/cancel", body, token=token)
    except Refusal as fault:
        if fault.status == 403 and not options.agent:
            fault.hint = fault.hint or "a ticket is cancelled by one of its two sides: pass --agent NAME"
        raise
    if options.json:
        terminal.show_json(view)
    else:
        terminal.show(f"cancelled {ticket}")
    return exits.OK


# -- words ----------------------------------------------------------------------------------------


def _place_of(metadata: dict[str, Any]) -> str:
    return " ".join(str(metadata[key]) for key in ("paneId", "cwd") if metadata.get(key))


def _query(**fields: Any) -> str:
    pairs = [f"{name}={_escaped(str(value))}" for name, value in fields.items() if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def _escaped(text: str) -> str:
    return "".join(
        chr(byte) if chr(byte).isalnum() and byte < 0x80 else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")
    )


def _count(text: str) -> int:
    if not text.isdigit():
        raise WrongUsage(f"{text!r} is not a number")
    return int(text)


# -- options --------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = program.parser("bridgectl", "Look at Bascule's agents and tickets, and follow what happens.", EXAMPLES)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="list agents or tickets").add_subparsers(metavar="WHAT", required=True)
    agents = _command(listing, "agents", "who is registered", _list_agents)
    agents.add_argument("--type", help="only this kind")
    agents.add_argument("--status", choices=("online", "offline", "unknown", "unreachable"))
    agents.add_argument("--limit", metavar="N", type=_count, help="at most N")
    tickets = _command(listing, "tickets", "what was sent, newest first", _list_tickets)
    tickets.add_argument("--status", choices=("pending", "delivered", "responded", "timeout", "cancelled"))
    tickets.add_argument("--agent", metavar="NAME", help="only tickets this agent is a side of")
    tickets.add_argument("--limit", metavar="N", type=_count, help=f"at most N (default: {DEFAULT_LIMIT})")

    show = _command(commands, "show", "one ticket", _show)
    show.add_argument("ticket", metavar="TICKET")
    show.add_argument("--agent", metavar="NAME", help="look as this agent: its own tickets show their text")
    cancel = _command(commands, "cancel", "withdraw a ticket that is not answered", _cancel)
    cancel.add_argument("ticket", metavar="TICKET")
    cancel.add_argument("--reason", metavar="TEXT")
    cancel.add_argument("--agent", metavar="NAME", help="cancel as this agent")

    tails = commands.add_parser("tail", help="follow the log or the events").add_subparsers(
        metavar="WHAT", required=True
    )
    for name, about, action in (
        ("logs", "the daemon's log", tail.logs),
        ("events", "agents and tickets as they change", tail.events),
    ):
        command = _command(tails, name, about, action)
        command.add_argument(
            "-n", dest="lines", metavar="N", type=_count, default=DEFAULT_LINES, help="begin with the last N"
        )
        command.add_argument("-f", "--follow", action="store_true", default=True, help="go on (the default)")
        command.add_argument("--no-follow", dest="follow", action="store_false", help="stop after them")
    return parser


def _command(to: Any, name: str, about: str, action: Any) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = to.add_parser(name, help=about, description=about)
    command.set_defaults(action=action)
    command.add_argument("--json", action="store_true", help="print JSON")
    program.add_state_dir(command, below=True)
    return command


if __name__ == "__main__":
    sys.exit(main())
