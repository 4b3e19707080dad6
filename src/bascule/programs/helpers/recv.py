"""bridge-recv: the next message for an agent, acknowledged when it has been printed."""

from __future__ import annotations

from bascule.foundation import paths
from bascule.foundation.text import one_line, visible
from bascule.local_client import choice, exits
from bascule.local_client.exits import NothingCame
from bascule.local_client.http import ANSWER_SECONDS, call
from bascule.local_client.retry import retrying
from bascule.local_client.values import agent_id
from bascule.programs.helpers import program, seen, terminal, waiting

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

# The broker spec's own default for a long poll.
DEFAULT_WAIT_MS = 25_000

EXAMPLES = """\
  bridge-recv --agent Jerry
  BRIDGE_AGENT_ID=Jerry bridge-recv --wait 600000
  bridge-recv --agent Jerry --wait 0 --json

Prints one message and acknowledges it. Exit code 3: nothing came in time, run it again.
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    state = paths.state_dir(options.state_dir)
    door = choice.find_door(state)
    handle, token = choice.inbox_owner(door, agent_id(options.agent) if options.agent else None)
    taken = waiting.wait_in_slices(
        lambda slice_ms: call(
            door,
            "GET",
            f"/agents/{handle}/inbox?waitMs={slice_ms}&max=1",
            token=token,
            seconds=slice_ms / 1000 + ANSWER_SECONDS,
        ),
        options.wait,
        # Somebody who asks for a message while nothing runs should hear that at once.
        contact_seconds=0,
    )
    messages = taken.get("messages") if taken else None
    if not messages:
        raise NothingCame(f"no message for {handle} within {options.wait} ms", "run bridge-recv again")
    message = messages[0]
    ticket = str(message["ticketId"])
    # Before it is printed: a reader of the ticket may answer at once.
    seen.remember(state, ticket, handle)
    # If the reader is gone this raises, the message stays unacknowledged and comes again.
    if options.json:
        terminal.show_json({**message, "remaining": taken.get("remaining", 0)})
    else:
        terminal.show(describe(message, handle, taken.get("remaining", 0)))
    retrying(lambda: call(door, "POST", f"/agents/{handle}/inbox/ack", {"ticketIds": [ticket]}, token=token))
    return exits.OK


def describe(message: dict[str, Any], handle: str, remaining: int) -> str:
    """Header lines, a line of dashes, the text: nothing in the text can stand above the dashes."""
    sender = one_line(str(message["from"]))
    ticket = one_line(str(message["ticketId"]))
    lines = [f"message for {handle} from {terminal.describe_sender(sender)}", f"ticket: {ticket}"]
    if message.get("conversationId"):
        lines.append(f"conversation: {one_line(str(message['conversationId']))}")
    if message.get("attempts", 1) > 1:
        lines.append(f"handed out {message['attempts']} times: you may have seen it already")
    if message.get("timedOut"):
        lines.append("the sender has stopped waiting; a reply is still kept")
    if message.get("expectReply", True):
        lines.append(f'reply with: bridge-reply {ticket} "your answer"')
    else:
        lines.append("no reply is expected")
    if remaining:
        lines.append(f"{remaining} more waiting: run bridge-recv again")
    header = "\n".join("[bascule] " + line for line in lines)
    return f"{header}\n{'-' * 40}\n{visible(terminal.payload_text(message['payload']))}"


def _wait_ms(text: str) -> int:
    return 0 if text == "0" else program.milliseconds(text)


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-recv", "Receive the next message for an agent.", EXAMPLES)
    parser.add_argument("--agent", metavar="NAME", help="whose inbox (default: BRIDGE_AGENT_ID)")
    parser.add_argument(
        "--wait",
        metavar="MS",
        type=_wait_ms,
        default=DEFAULT_WAIT_MS,
        help=f"how long to wait for one (default: {DEFAULT_WAIT_MS})",
    )
    parser.add_argument("--json", action="store_true", help="print the message as JSON")
    return parser
