"""bridge-reply: answer a ticket."""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.local_client import choice, exits
from bascule.local_client.exits import WrongUsage
from bascule.local_client.http import Door, call
from bascule.local_client.retry import retrying
from bascule.local_client.values import agent_id, decode_argument, ticket_id
from bascule.programs.helpers import program, seen, terminal

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

EXAMPLES = """\
  bridge-reply 5f1c0a4e-... "The tests pass."
  bridge-reply --ticket 5f1c0a4e-... --message "The tests pass."
  git diff | bridge-reply --ticket 5f1c0a4e-...
  BRIDGE_TICKET=5f1c0a4e-... bridge-reply "The tests pass."
  bridge-reply 5f1c0a4e-... '{"passed": 12}' --json-payload

With BRIDGE_TICKET set, a single argument is the text. The answer is given as --agent,
BRIDGE_AGENT_TOKEN or BRIDGE_AGENT_ID say, else as the agent the ticket is addressed to.
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    ticket, text = _ticket_and_text(options)
    payload: Any = text
    if options.json_payload:
        payload = decode_argument(text, "the text, with --json-payload,")
    body: dict[str, Any] = {"ticketId": ticket, "payload": payload}
    if options.metadata:
        body["metadata"] = decode_argument(options.metadata, "--metadata")
        if not isinstance(body["metadata"], dict):
            raise WrongUsage('--metadata is not a JSON object like {"status":"completed"}')
    state = paths.state_dir(options.state_dir)
    door = choice.find_door(state)
    token = _identity(options, door, ticket)
    retrying(lambda: call(door, "POST", "/replies", body, token=token))
    if options.json:
        terminal.show_json({"ticketId": ticket, "status": "sent"})
    else:
        terminal.show(f"replied to {ticket}")
    return exits.OK


def _ticket_and_text(options: argparse.Namespace) -> tuple[str, str]:
    words: list[str] = options.words
    ticket: str | None = options.ticket
    if ticket is None and (len(words) == 2 or (len(words) == 1 and _only_word_is_ticket(options))):
        ticket = words.pop(0)
    if ticket is None:
        ticket = os.environ.get("BRIDGE_TICKET")
    if not ticket:
        raise WrongUsage('which ticket? Write `bridge-reply TICKET "text"`, or set BRIDGE_TICKET')
    if len(words) > 1 or (words and options.message is not None):
        raise WrongUsage("there is more than one text", "put the whole text in quotes")
    text = options.message if options.message is not None else (words[0] if words else None)
    return ticket_id(ticket), terminal.text_argument(text)


def _only_word_is_ticket(options: argparse.Namespace) -> bool:
    return options.message is not None or not os.environ.get("BRIDGE_TICKET")


def _identity(options: argparse.Namespace, door: Door, ticket: str) -> str | None:
    token = choice.chosen_token(door, agent_id(options.agent) if options.agent else None)
    # Another broker may know neither tokens nor tickets' sides: section 5 has `POST /replies` and no more.
    if token or door.state is None:
        return token
    handle = seen.handle_of(door.state, ticket)
    if handle is None or choice.stored_token(door, handle) is None:
        view = retrying(lambda: call(door, "GET", f"/tickets/{ticket}"))
        handle = agent_id(str(view.get("targetAgent", "")))
    return choice.token_of(door, handle)


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-reply", "Answer a message that another agent sent you.", EXAMPLES)
    parser.add_argument("words", nargs="*", metavar="[TICKET] TEXT", help="the ticket and the text; - reads stdin")
    parser.add_argument("--ticket", metavar="ID", help="the ticket to answer (default: BRIDGE_TICKET)")
    parser.add_argument("--message", metavar="TEXT", help="the answer (default: the argument, else stdin)")
    parser.add_argument("--metadata", metavar="JSON", help='a JSON object, e.g. {"status":"completed"}')
    parser.add_argument("--json-payload", action="store_true", help="the text is JSON and is sent as such")
    parser.add_argument("--agent", metavar="NAME", help="answer as this agent")
    parser.add_argument("--json", action="store_true", help="report in JSON")
    return parser
