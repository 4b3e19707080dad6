"""The agent broker: agents register, send each other messages as tickets, wait or are called back.

Field names follow the agent broker spec; sections are quoted as (5.1). What we add beside it is marked.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bascule.foundation.ids import AGENT_ID_PATTERN, BROADCAST_ID_PATTERN, TARGET_PATTERN, TICKET_ID_PATTERN
from bascule.kernel.rows import Params, Payload, Result

# (5.3) "default 25s".
DEFAULT_WAIT_MS = 25_000
# (8) "configurable TTL (default 30 minutes)"; the reply deadline defaults to the same.
DEFAULT_TIMEOUT_MS = 30 * 60_000
DEFAULT_TICKET_TTL_MS = 30 * 60_000
# Longer than any agent is meant to think about one message.
MAX_TIMEOUT_MS = 7 * 24 * 3_600_000
# A shorter heartbeat is a denial of service against ourselves; a longer one than a day says nothing.
MIN_HEARTBEAT_MS = 100
MAX_HEARTBEAT_MS = 24 * 3_600_000
# One answer stays well below the 1 MiB frame even when a few payloads are large.
MAX_TAKE = 32
# A receiver that catches up after a pause; one transaction stays short.
MAX_ACK = 1_000
# Each is a ticket of its own in one transaction; more are two broadcasts.
MAX_BROADCAST = 256
# Of the payload, once for each that gets it: they are digested and stored one by one while others wait.
MAX_BROADCAST_BYTES = 16 * 1024 * 1024
# What a person scrolls through; the rest is a filter away.
MAX_LIST = 1_000
# Queues one agent shares with others; more would be an agent for everything.
MAX_GROUPS = 16
# A word such as `claude-code`; it stands in lists.
MAX_TYPE_CHARS = 64
# A bell's name is shown to senders: "claude asyncRewake", "codex queue".
MAX_BELL_CHARS = 64

AgentIdText = Annotated[str, Meta(pattern=AGENT_ID_PATTERN, description="A handle: 1 to 64 of A-Z a-z 0-9 . _ -")]
TargetText = Annotated[
    str,
    Meta(pattern=TARGET_PATTERN, description="A handle, and with @ and a name behind it an agent of another machine"),
]
TicketIdText = Annotated[str, Meta(pattern=TICKET_ID_PATTERN, description="1 to 128 of A-Z a-z 0-9 . _ -")]
BroadcastIdText = Annotated[str, Meta(pattern=BROADCAST_ID_PATTERN, description="1 to 63 of A-Z a-z 0-9 . _ -")]
TypeText = Annotated[str, Meta(min_length=1, max_length=MAX_TYPE_CHARS)]
WaitMs = Annotated[int, Meta(ge=0, le=2**53, description="Milliseconds to wait; clamped to 60000")]
TimeoutMs = Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)]
BellText = Annotated[
    str,
    Meta(pattern=r"^[!-~]([ -~]*[!-~])?$", max_length=MAX_BELL_CHARS, description="Who rings: 1 to 64 visible ASCII"),
]


class TicketStatus(StrEnum):
    """(8), and `delivered` of (4.2). `timed_out` there is `timeout` here."""

    PENDING = "pending"
    DELIVERED = "delivered"
    RESPONDED = "responded"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class TicketEvent(StrEnum):
    """What may happen to a ticket."""

    ACK = "ack"
    REPLY = "reply"
    DEADLINE = "deadline"
    CANCEL = "cancel"


class AgentStatus(StrEnum):
    ONLINE = "online"
    OFFLINE = "offline"
    # Online when the daemon stopped, and not seen since: it may have ended meanwhile.
    UNKNOWN = "unknown"
    # On a machine that nothing was heard of for a while; its messages wait here.
    UNREACHABLE = "unreachable"


# The whole life of a ticket. A missing cell is an event that changes nothing there: a late acknowledgement of a settled
# ticket is noted, a second reply is kept. A reply to a cancelled ticket is the one refusal: 409 `ticket cancelled`.
TRANSITIONS: dict[tuple[TicketStatus, TicketEvent], TicketStatus] = {
    (TicketStatus.PENDING, TicketEvent.ACK): TicketStatus.DELIVERED,
    (TicketStatus.PENDING, TicketEvent.REPLY): TicketStatus.RESPONDED,
    (TicketStatus.PENDING, TicketEvent.DEADLINE): TicketStatus.TIMEOUT,
    (TicketStatus.PENDING, TicketEvent.CANCEL): TicketStatus.CANCELLED,
    (TicketStatus.DELIVERED, TicketEvent.REPLY): TicketStatus.RESPONDED,
    (TicketStatus.DELIVERED, TicketEvent.DEADLINE): TicketStatus.TIMEOUT,
    (TicketStatus.DELIVERED, TicketEvent.CANCEL): TicketStatus.CANCELLED,
    # Agents are slow and work must not be lost: a late reply still answers (`late: true`).
    (TicketStatus.TIMEOUT, TicketEvent.REPLY): TicketStatus.RESPONDED,
}
OPEN_STATUSES = frozenset({TicketStatus.PENDING, TicketStatus.DELIVERED})


# -- agents ---------------------------------------------------------------------------------------


class RegisterParams(Params, frozen=True, kw_only=True):
    """(5.0)"""

    agent_id: AgentIdText
    type: TypeText = "agent"
    metadata: dict[str, Any] = {}
    heartbeat_interval_ms: Annotated[int, Meta(ge=MIN_HEARTBEAT_MS, le=MAX_HEARTBEAT_MS)] | None = None
    # Ours: refuse (409) when another live link connection acts as this agent, even with its token: `bascule mcp` asks.
    exclusive: bool = False
    # Ours: groups whose queue it shares. Left out on a reconnect, they stay as they were.
    groups: Annotated[list[AgentIdText], Meta(max_length=MAX_GROUPS)] | None = None


class RegisterResult(Result, frozen=True, kw_only=True):
    agent_id: str
    status: str
    expires_at: str
    # Ours: present when the handle is new or was taken over. A reconnect keeps its token.
    agent_token: str | None = None
    reconnected: bool = False
    unread: int = 0


class AgentParams(Params, frozen=True, kw_only=True):
    agent_id: AgentIdText


class HeartbeatResult(Result, frozen=True, kw_only=True):
    agent_id: str
    status: AgentStatus
    expires_at: str
    unread: int = 0


class AgentsListParams(Params, frozen=True, kw_only=True):
    """(5.5)"""

    type: str | None = None
    status: AgentStatus | None = None


class AgentView(Result, frozen=True, kw_only=True):
    agent_id: str
    type: str
    status: AgentStatus
    # Left out of an agent elsewhere whose machine was not heard of since this daemon started.
    last_heartbeat: str | None = None
    metadata: dict[str, Any]
    unread: int = 0
    # Ours: the groups it is a member of. A group is listed too, with type `group` and `members` in its metadata.
    groups: list[str] = []


class RevokeResult(Result, frozen=True, kw_only=True):
    agent_id: str
    status: str


# -- messages -------------------------------------------------------------------------------------


class SendParams(Params, frozen=True, kw_only=True):
    """(5.1)"""

    agent_id: TargetText
    payload: Payload
    ticket_id: TicketIdText | None = None
    metadata: dict[str, Any] = {}
    expect_reply: bool = True
    timeout_ms: TimeoutMs | None = None
    # Ours.
    conversation_id: TicketIdText | None = None
    require_online: bool = False
    # An ask in one call, answered when the ticket is settled or this time is over.
    wait_ms: WaitMs = 0


class SendResult(Result, frozen=True, kw_only=True):
    ticket_id: str
    status: TicketStatus
    wait_endpoint: str
    # Ours: an offline agent's message is queued, and the sender is told.
    agent_status: AgentStatus
    conversation_id: str | None = None
    # Ours: how the ticket ended, when `waitMs` was given and it did within that time.
    reply: "ReplyView | None" = None


class BroadcastParams(Params, frozen=True, kw_only=True):
    """(6.6) `broadcast_message`: one ticket each."""

    payload: Payload
    # Who: these handles, or everyone but the sender that fits `type`.
    agent_ids: Annotated[list[TargetText], Meta(min_length=1, max_length=MAX_BROADCAST)] | None = None
    type: str | None = None
    # Without `agentIds`: everyone of this machine, or also of others.
    scope: Literal["local", "mesh"] = "local"
    broadcast_id: BroadcastIdText | None = None
    metadata: dict[str, Any] = {}
    expect_reply: bool = True
    timeout_ms: TimeoutMs | None = None
    conversation_id: TicketIdText | None = None


class BroadcastTicket(Result, frozen=True, kw_only=True):
    agent_id: str
    ticket_id: str
    status: TicketStatus
    agent_status: AgentStatus


class BroadcastFailure(Result, frozen=True, kw_only=True):
    agent_id: str
    error: dict[str, Any]


class BroadcastResult(Result, frozen=True, kw_only=True):
    broadcast_id: str
    tickets: list[BroadcastTicket]
    failed: list[BroadcastFailure] = []


# -- replies --------------------------------------------------------------------------------------


class ReplyParams(Params, frozen=True, kw_only=True):
    """(5.2)"""

    ticket_id: TicketIdText
    payload: Payload
    metadata: dict[str, Any] = {}


class ReplyResult(Result, frozen=True, kw_only=True):
    ticket_id: str
    status: TicketStatus
    # False when an earlier reply answers the ticket; this one is kept behind it.
    first: bool
    late: bool = False


class ReplyWaitParams(Params, frozen=True, kw_only=True):
    """(5.3)"""

    ticket_id: TicketIdText
    wait_ms: WaitMs = DEFAULT_WAIT_MS
    # `replies` begins behind so many: how many of them an answer with `more` has shown so far.
    after: Annotated[int, Meta(ge=0, le=2**31)] = 0


class TicketParams(Params, frozen=True, kw_only=True):
    ticket_id: TicketIdText


class ReplyView(Result, frozen=True, kw_only=True):
    """(5.3), and the data of the one SSE event of (5.4)."""

    ticket_id: str
    status: TicketStatus
    payload: Any = msgspec.UNSET
    latency_ms: int | None = None
    metadata: dict[str, Any] = {}
    late: bool = False
    # The verified sender of the reply.
    from_: str | None = msgspec.field(default=None, name="from")
    # Every reply in order when there is more than one, 4 MiB of them at once.
    replies: list["ReplyItem"] = []
    # How many follow: wait again with `after`.
    more: int = 0


class ReplyItem(Result, frozen=True, kw_only=True):
    payload: Any
    metadata: dict[str, Any]
    from_: str = msgspec.field(name="from")
    at: str
    late: bool = False


class GatherParams(Params, frozen=True, kw_only=True):
    """Wait for several tickets at once: all of them, or the first `count` that are answered."""

    ticket_ids: Annotated[list[TicketIdText], Meta(min_length=1, max_length=MAX_BROADCAST)]
    count: Annotated[int, Meta(ge=1, le=MAX_BROADCAST)] | None = None
    wait_ms: WaitMs = DEFAULT_WAIT_MS


class GatherResult(Result, frozen=True, kw_only=True):
    # How each settled ticket ended, in the order they were named, 4 MiB at once.
    replies: list[ReplyView] = []
    # Settled, too, and left out for their size: gather these next.
    more: list[str] = []
    # Tickets that are still open.
    open: list[str] = []
    # Enough replies, or no more can come; otherwise the time was over.
    done: bool


# -- inbox ----------------------------------------------------------------------------------------


class InboxTakeParams(Params, frozen=True, kw_only=True):
    agent_id: AgentIdText
    wait_ms: WaitMs = DEFAULT_WAIT_MS
    max: Annotated[int, Meta(ge=1, le=MAX_TAKE)] = 1


class InboxItem(Result, frozen=True, kw_only=True):
    ticket_id: str
    # Verified: the principal that sent it, whatever `metadata.origin` says.
    from_: str = msgspec.field(name="from")
    payload: Any
    metadata: dict[str, Any]
    expect_reply: bool
    created_at: str
    reply_by: str
    attempts: int
    lease_ms: int
    # The sender stopped waiting; a reply is still stored, as late.
    timed_out: bool = False
    conversation_id: str | None = None
    # It was sent to this group, and this member has it.
    group: str | None = None


class InboxTakeResult(Result, frozen=True, kw_only=True):
    messages: list[InboxItem]
    # How many more are waiting behind these.
    remaining: int = 0


class SkipRung(StrEnum):
    """Which messages a watch does not count, because a bell was rung for them already."""

    NONE = "none"
    # Those that this bell (`by`) has rung for.
    OWN = "own"
    ANY = "any"


class InboxWatchParams(Params, frozen=True, kw_only=True):
    """Look at an inbox, or wait for it, without taking anything."""

    agent_id: AgentIdText
    wait_ms: WaitMs = DEFAULT_WAIT_MS
    # The bell that will be rung with the answer; recorded, in memory, for the messages it names.
    by: BellText | None = None
    # A wait that skips something is a bell: the newest of one name takes the place of the older.
    skip_rung: SkipRung = SkipRung.NONE
    # False: nothing is recorded yet. For a bell that may fail: look, ring, then look again and record.
    record: bool = True


class InboxWatchResult(Result, frozen=True, kw_only=True):
    unread: int = 0
    # Verified senders, each once, in the order of their oldest message.
    from_: list[str] = msgspec.field(default_factory=list, name="from")
    # The ticket that waits longest.
    oldest: str | None = None
    # Another wait of the same bell took this one's place: the caller should stop.
    superseded: bool = False


class InboxAckParams(Params, frozen=True, kw_only=True):
    agent_id: AgentIdText
    ticket_ids: Annotated[list[TicketIdText], Meta(min_length=1, max_length=MAX_ACK)]


class InboxAckResult(Result, frozen=True, kw_only=True):
    acked: list[str]
    unknown: list[str] = []


# -- tickets, conversations, events ---------------------------------------------------------------


class CancelParams(Params, frozen=True, kw_only=True):
    ticket_id: TicketIdText
    reason: Annotated[str, Meta(max_length=500)] | None = None


# A word or two, or an id.
MAX_SEARCH_CHARS = 200


class TicketsListParams(Params, frozen=True, kw_only=True):
    status: TicketStatus | None = None
    # Only tickets addressed to this agent.
    agent_id: TargetText | None = None
    # Only tickets this agent is a side of, as sender or addressee.
    party: TargetText | None = None
    # Only tickets sent before this one: the last one of the page before.
    before: TicketIdText | None = None
    # Only those with this text, in any case, in id, conversation, group, sender or addressee; for their two sides and
    # the person also in what was said. At most 2,000 tickets and 4 MiB of payloads are looked at.
    text: Annotated[str, Meta(min_length=1, max_length=MAX_SEARCH_CHARS)] | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIST)] = 100


class DeliveryState(StrEnum):
    """How far a message got. `pending` and `delivered` of (4.2) are told apart by `acknowledged`."""

    # It waits in the inbox.
    QUEUED = "queued"
    # It waits, and a bell was rung for it.
    RUNG = "rung"
    # It is out under a lease; back to waiting when that ends without acknowledgement.
    FETCHED = "fetched"
    ACKNOWLEDGED = "acknowledged"
    # For an agent elsewhere: it waits here; it is with the post between the machines; the other daemon has it.
    OUTBOX = "outbox"
    MAILED = "mailed"
    ARRIVED = "arrived"


class Delivery(Result, frozen=True, kw_only=True):
    state: DeliveryState
    # Since when.
    at: str
    # Bells that were rung while it waited. Kept in memory: empty after a restart, and once acknowledged.
    by: list[str] = []


class TicketView(Result, frozen=True, kw_only=True):
    """(4.2). Payload, metadata and replies are shown to the ticket's two sides and to the person only."""

    ticket_id: str
    target_agent: str
    from_: str = msgspec.field(name="from")
    status: TicketStatus
    created_at: str
    updated_at: str
    reply_by: str
    expect_reply: bool
    attempts: int = 0
    # Absent when it was withdrawn before anybody had it.
    delivery: Delivery | None = None
    acked_at: str | None = None
    settled_at: str | None = None
    late: bool = False
    reason: str | None = None
    conversation_id: str | None = None
    # It was sent to this group; `targetAgent` is the member that has it, or the group while none does.
    group: str | None = None
    payload_bytes: int
    payload: Any = msgspec.UNSET
    metadata: dict[str, Any] | None = None
    response: Any = msgspec.UNSET
    # 4 MiB of them.
    replies: list[ReplyItem] = []
    # How many follow: `replies.wait` shows them.
    more_replies: int = 0


class ConversationParams(Params, frozen=True, kw_only=True):
    conversation_id: TicketIdText
    # Only tickets sent before this one: the first one of an answer with `more`.
    before: TicketIdText | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIST)] = 100


class ConversationsListParams(Params, frozen=True, kw_only=True):
    # Only those whose newest ticket is older than that of this one: the last one of the page before.
    before: TicketIdText | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIST)] = 100


class ConversationSummary(Result, frozen=True, kw_only=True, omit_defaults=False):
    conversation_id: str
    tickets: int
    # Of these, how many somebody still has to do something about.
    open: int
    # When its newest ticket was sent.
    last_at: str
    # Senders and addressees, 32 at most.
    members: list[str]


class ConversationView(Result, frozen=True, kw_only=True):
    conversation_id: str
    # Oldest first; 4 MiB at once.
    tickets: list[TicketView]
    # There are older ones: ask again with `before`.
    more: bool = False


class EventsParams(Params, frozen=True, kw_only=True):
    # Send what happened after this event id first, as far back as the ring reaches.
    after: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    agent_id: AgentIdText | None = None


class RecentEventsParams(Params, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=MAX_LIST)] = 50
    agent_id: AgentIdText | None = None


class Event(Result, frozen=True, kw_only=True):
    """One lifecycle event: ids and times, never payloads."""

    id: int
    event: str
    at: str
    ticket_id: str | None = None
    agent_id: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    status: str | None = None
    detail: str | None = None
