"""bridge-send: a message to another agent, and its answer."""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.foundation.text import one_line, visible
from bascule.local_client import choice, exits
from bascule.local_client.exits import DoorError, NothingCame, WrongUsage
from bascule.local_client.http import ANSWER_SECONDS, Door, call
from bascule.local_client.retry import retrying
from bascule.local_client.values import agent_id, new_ticket_id, target_id, ticket_id
from bascule.programs.helpers import program, terminal, waiting

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

# How long to wait at a broker that need not have a default: as long as our own daemon would.
DEFAULT_TIMEOUT_MS = 30 * 60 * 1000
# After the deadline of its ticket a broker has this long to say that it has passed.
GRACE_SECONDS = 2

EXAMPLES = """\
  bridge-send Jerry "Please review the diff in /tmp/a.patch"
  git diff | bridge-send Jerry --timeout 600000
  bridge-send Jerry "Build is red" --no-wait
  bridge-send Jerry "And now?" --as Spock --conversation review-7

Prints the answer. Exit code 3: none came in time; `bridgectl show TICKET` tells more.
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    target = target_id(options.agent)
    ticket = ticket_id(options.ticket) if options.ticket else new_ticket_id()
    state = paths.state_dir(options.state_dir)
    door = choice.find_door(state)
    token = choice.chosen_token(door, agent_id(options.sender) if options.sender else None)
    # Our own ticket id makes a repeated send the same send.
    body: dict[str, Any] = {"ticketId": ticket, "payload": terminal.text_argument(options.text)}
    if (timeout := options.timeout or _default_timeout_ms()) is not None:
        body["timeoutMs"] = timeout
    if options.conversation:
        body["conversationId"] = ticket_id(options.conversation)
    sent = retrying(lambda: call(door, "POST", f"/agents/{target}/send", body, token=token))
    if sent.get("agentStatus") == "offline":
        terminal.say(f"{target} is offline: the message waits in its inbox (ticket {ticket})")
    elif sent.get("agentStatus") == "unknown" and "@" in target:
        terminal.say(f"{target} is not known here: its machine takes the message or ends the ticket ({ticket})")
    elif sent.get("agentStatus") == "unknown":
        terminal.say(f"{target} has not been seen since the daemon started: the message waits in its inbox ({ticket})")
    elif sent.get("agentStatus") == "unreachable":
        terminal.say(f"the machine of {target} cannot be reached now: the message waits here (ticket {ticket})")
    if options.no_wait:
        if options.json:
            terminal.show_json(sent)
        else:
            terminal.show(ticket)
        return exits.OK
    # Our daemon has a deadline for every ticket; another broker need not have one.
    wait_ms = timeout if timeout is not None or door.state is not None else DEFAULT_TIMEOUT_MS
    return _await(door, token, target, ticket, wait_ms, as_json=options.json)


def _await(door: Door, token: str | None, target: str, ticket: str, wait_ms: int | None, *, as_json: bool) -> int:
    """Wait for the reply. The broker ends the wait at the ticket's deadline; if it does not, we do, a little later."""
    try:
        view = waiting.wait_in_slices(
            lambda slice_ms: call(
                door,
                "GET",
                f"/replies/{ticket}?waitMs={slice_ms}",
                token=token,
                seconds=slice_ms / 1000 + (ANSWER_SECONDS if wait_ms is None else GRACE_SECONDS),
            ),
            None if wait_ms is None else wait_ms + GRACE_SECONDS * 1000,
        )
    except (DoorError, KeyboardInterrupt):
        terminal.say(f"stopped waiting for ticket {ticket}; look at it with: bridgectl show {ticket}")
        raise
    view = view if isinstance(view, dict) else {"ticketId": ticket, "status": "timeout"}
    if as_json:
        terminal.show_json(view)
    status = view.get("status")
    if status == "responded":
        if not as_json:
            who = one_line(str(view.get("from") or target))
            who += " (sender verified)" if door.state is not None else " (as the broker says)"
            terminal.say(f"reply from agent {who}, not from your user; ticket {ticket}:")
            terminal.show(visible(terminal.payload_text(view.get("payload"))))
        return exits.OK
    if status == "cancelled":
        terminal.say(f"ticket {ticket} was cancelled; see: bridgectl show {ticket}")
        return exits.CONFLICT
    raise NothingCame(
        f"no reply from {target} in time (ticket {ticket})",
        f"see whether it was delivered, or answered late: bridgectl show {ticket}",
    )


def _default_timeout_ms() -> int | None:
    text = os.environ.get("BRIDGE_DEFAULT_TIMEOUT_MS")
    if not text:
        return None
    if not text.isdigit() or int(text) == 0:
        raise WrongUsage(f"BRIDGE_DEFAULT_TIMEOUT_MS is {text!r}, not a number of milliseconds")
    return int(text)


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-send", "Send a message to an agent and wait for its answer.", EXAMPLES)
    parser.add_argument("agent", metavar="AGENT", help="whom: a handle, see `bridgectl list agents`")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the message (default or -: stdin)")
    parser.add_argument(
        "--timeout",
        metavar="MS",
        type=program.milliseconds,
        help="when the answer is too late (default: BRIDGE_DEFAULT_TIMEOUT_MS, else the daemon's)",
    )
    parser.add_argument("--no-wait", action="store_true", help="print the ticket and do not wait")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--as", dest="sender", metavar="NAME", help="send as this agent (default: BRIDGE_AGENT_ID)")
    parser.add_argument("--ticket", metavar="ID", help="choose the ticket id; the same again is a retry")
    parser.add_argument("--conversation", metavar="ID", help="the conversation this belongs to")
    return parser
