"""Is there room for one more message? Each refusal is the sender's alone: nobody else's messages suffer."""

from bascule.broker.agents import Agents
from bascule.broker.state import BrokerState
from bascule.foundation.errors import Overloaded
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import Call, agent_of, is_outside, sender_name

# Of every inbox: what commands in sandboxes and callers from outside, all together, cannot fill. Tickets that timed out stay in an inbox
# until they are fetched, so the limit of open tickets alone would let one loop keep everybody else out.
SHARE_OF_OUTSIDE = 0.5


def check_kept(state: BrokerState, call: Call, size: int) -> None:
    """What one principal has said and is still kept, settled tickets included: memory is everybody's."""
    limits = state.limits
    count, kept = state.kept.get(call.principal, (0, 0))
    if count >= limits.max_kept_messages or kept + size > limits.max_kept_bytes:
        raise Overloaded(
            f"{sender_name(call.principal)} has {count} messages kept ({kept} bytes)",
            hint="settled tickets are kept until their time to live is over; say less, or wait",
            retry_after=60.0,
        )


def check_room(state: BrokerState, agents: Agents, call: Call, target: str, size: int) -> None:
    """The sender's open tickets, what it has kept, and the receiver's inbox."""
    check_kept(state, call, size)
    limits = state.limits
    outside = is_outside(call.principal)
    most = limits.max_open_tickets_outside if outside else limits.max_open_tickets
    if state.open_by_sender.get(call.principal, 0) >= most:
        raise Overloaded(
            f"{sender_name(call.principal)} has {most} open tickets",
            hint="wait for replies, or cancel some"
            + ("" if outside else ": bridgectl list tickets --status pending"),
            retry_after=1.0,
        )
    inbox = state.inboxes.get(target)
    if inbox is None:
        return
    count, waiting = inbox.by_sender.get(call.principal, (0, 0))
    if count >= limits.max_inbox_messages_per_sender or waiting + size > limits.max_inbox_bytes_per_sender:
        raise Overloaded(
            f"{sender_name(call.principal)} has {count} messages ({waiting} bytes) in the inbox of {target}: "
            f"one sender's share is {limits.max_inbox_messages_per_sender} messages "
            f"and {limits.max_inbox_bytes_per_sender} bytes",
            hint=f"wait until {target} fetches some, or cancel some: bridgectl list tickets --agent {target}; "
            "the share is a setting (max_inbox_messages_per_sender, max_inbox_bytes_per_sender)",
            details={"agentId": target, "agentStatus": agents.status(target).value},
            retry_after=5.0,
        )
    share = SHARE_OF_OUTSIDE if outside or is_reserved_handle(agent_of(call.principal) or "") else 1.0
    if len(inbox) >= limits.max_inbox_messages * share or inbox.bytes + size > limits.max_inbox_bytes * share:
        raise Overloaded(
            f"the inbox of {target} is full ({len(inbox)} messages, {inbox.bytes} bytes)",
            hint=f"{target} does not fetch its messages; try later or ask somebody else",
            details={"agentId": target, "agentStatus": agents.status(target).value},
            retry_after=5.0,
        )
