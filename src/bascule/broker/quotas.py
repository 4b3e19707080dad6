"""Is there room for one more message? Each refusal is the sender's alone: nobody else's messages suffer."""

from bascule.broker.agents import Agents
from bascule.broker.state import BrokerState
from bascule.foundation.errors import Overloaded
from bascule.foundation.ids import is_reserved_handle
from bascule.kernel.call import Principal, agent_of, is_a2a, node_of, sender_name

# Of every inbox: what the agents of one other machine, all together, cannot fill.
SHARE_OF_NODE = 0.2
# Of every inbox: what commands in sandboxes and clients beyond A2A, all together, cannot fill. Tickets that timed out
# stay in an inbox until they are fetched, so the limit of open tickets alone would let one loop keep others out.
SHARE_OF_OUTSIDE = 0.5


def check_kept(state: BrokerState, principal: Principal, size: int) -> None:
    """What one principal has said and is still kept, settled tickets included: memory is everybody's."""
    limits = state.limits
    count, kept = state.kept.get(principal, (0, 0))
    if count >= limits.max_kept_messages or kept + size > limits.max_kept_bytes:
        raise Overloaded(
            f"{sender_name(principal)} has {count} messages kept ({kept} bytes)",
            hint="settled tickets are kept until their time to live is over; say less, or wait",
            retry_after=60.0,
        )


def check_room(state: BrokerState, agents: Agents, principal: Principal, target: str, size: int) -> None:
    """The sender's open tickets, what it has kept, and the receiver's inbox."""
    check_kept(state, principal, size)
    limits = state.limits
    outside = is_a2a(principal)
    most = limits.max_open_tickets_outside if outside else limits.max_open_tickets
    if state.open_by_sender.get(principal, 0) >= most:
        raise Overloaded(
            f"{sender_name(principal)} has {most} open tickets",
            hint="wait for replies, or cancel some" + ("" if outside else ": bridgectl list tickets --status pending"),
            retry_after=1.0,
        )
    inbox = state.inboxes.get(target)
    if inbox is None:
        return
    count, waiting = inbox.by_sender.get(principal, (0, 0))
    if count >= limits.max_inbox_messages_per_sender or waiting + size > limits.max_inbox_bytes_per_sender:
        raise Overloaded(
            f"{sender_name(principal)} has {count} messages ({waiting} bytes) in the inbox of {target}: "
            f"one sender's share is {limits.max_inbox_messages_per_sender} messages "
            f"and {limits.max_inbox_bytes_per_sender} bytes",
            hint=f"wait until {target} fetches some, or cancel some: bridgectl list tickets --agent {target}; "
            "the share is a setting (max_inbox_messages_per_sender, max_inbox_bytes_per_sender)",
            details={"agentId": target, "agentStatus": agents.status(target).value},
            retry_after=5.0,
        )
    share = SHARE_OF_OUTSIDE if outside or is_reserved_handle(agent_of(principal) or "") else 1.0
    if len(inbox) >= limits.max_inbox_messages * share or inbox.bytes + size > limits.max_inbox_bytes * share:
        raise Overloaded(
            f"the inbox of {target} is full ({len(inbox)} messages, {inbox.bytes} bytes)",
            hint=f"{target} does not fetch its messages; try later or ask somebody else",
            details={"agentId": target, "agentStatus": agents.status(target).value},
            retry_after=5.0,
        )


def check_share_of_node(state: BrokerState, principal: Principal, target: str, size: int) -> None:
    """Of a sender elsewhere: what all senders of its machine have in this inbox."""
    inbox = state.inboxes.get(target)
    if inbox is None:
        return
    machine = node_of(principal) or ""
    count, waiting = inbox.by_machine.get(machine, (0, 0))
    limits = state.limits
    if count >= limits.max_inbox_messages * SHARE_OF_NODE or waiting + size > limits.max_inbox_bytes * SHARE_OF_NODE:
        raise Overloaded(
            f"agents of {machine} have {count} messages ({waiting} bytes) in the inbox of {target}: "
            f"one machine's share is {SHARE_OF_NODE:.0%}",
            hint=f"they are taken when {target} has fetched some",
            retry_after=5.0,
        )


def check_kept_of_machine(state: BrokerState, principal: Principal, size: int) -> None:
    """Of a sender elsewhere: its machine may choose another name for each message. Those beyond A2A have the names that
    the person gave them."""
    machine = _machine(principal)
    if machine != "@a2a":
        check_kept(state, Principal(machine), size)


def _machine(principal: Principal) -> str:
    return principal[principal.rindex("@") :]
