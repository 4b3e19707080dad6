"""The agent broker's method rows."""

from bascule.broker.protocol import (
    AgentParams,
    AgentsListParams,
    AgentView,
    BroadcastParams,
    BroadcastResult,
    CancelParams,
    ConversationParams,
    ConversationsListParams,
    ConversationSummary,
    ConversationView,
    Event,
    EventsParams,
    GatherParams,
    GatherResult,
    HeartbeatResult,
    InboxAckParams,
    InboxAckResult,
    InboxItem,
    InboxTakeParams,
    InboxTakeResult,
    InboxWatchParams,
    InboxWatchResult,
    RecentEventsParams,
    RegisterParams,
    RegisterResult,
    ReplyParams,
    ReplyResult,
    ReplyView,
    ReplyWaitParams,
    RevokeResult,
    SendParams,
    SendResult,
    TicketParams,
    TicketsListParams,
    TicketView,
)
from bascule.kernel.rows import (
    ANYONE,
    PERSON_ONLY,
    Changes,
    Effect,
    Http,
    Reads,
    Streams,
    Waits,
    always,
    party,
    rows_of,
    self_,
    words_need_proof,
)

AGENTS_REGISTER = Changes[RegisterParams, RegisterResult](
    "agents.register",
    "Announce a handle, or come back to it with its token.",
    Http("POST", "/agents/register", section="5.0"),
    effect=Effect.MESSAGE,
    stopped=always,
)
MESSAGES_SEND = Changes[SendParams, SendResult](
    "messages.send",
    "Send a message to an agent; the answer names the ticket.",
    Http("POST", "/agents/{agentId}/send", section="5.1"),
    effect=Effect.MESSAGE,
    outside=ANYONE,
)
# (5.2) "204 No Content".
REPLIES_POST = Changes[ReplyParams, ReplyResult](
    "replies.post",
    "Answer a ticket.",
    Http("POST", "/replies", status=204, section="5.2"),
    effect=Effect.MESSAGE,
    who=party("ticket_id"),
)
REPLIES_WAIT = Waits[ReplyWaitParams, ReplyView | None](
    "replies.wait",
    "Wait for the answer to a ticket (long poll).",
    Http("GET", "/replies/{ticketId}", section="5.3"),
    who=party("ticket_id"),
)
REPLIES_STREAM = Streams[TicketParams, ReplyView](
    "replies.stream",
    "Receive one event when the ticket settles, then the stream ends.",
    Http("GET", "/replies/{ticketId}/stream", section="5.4"),
    who=party("ticket_id"),
)
# Anyone: each ticket's sides are checked by the handler, since a row names one parameter.
REPLIES_GATHER = Waits[GatherParams, GatherResult](
    "replies.gather",
    "Wait for the answers to several tickets of the caller: all, or the first few.",
    Http("POST", "/replies/gather"),
)
AGENTS_LIST = Reads[AgentsListParams, list[AgentView]](
    "agents.list", "List registered agents with status and metadata.", Http("GET", "/agents", section="5.5")
)
AGENTS_HEARTBEAT = Reads[AgentParams, HeartbeatResult](
    "agents.heartbeat",
    "Say that the agent is alive.",
    Http("POST", "/agents/{agentId}/heartbeat", section="5.6"),
    who=self_("agent_id"),
)
AGENTS_REVOKE = Changes[AgentParams, RevokeResult](
    "agents.revoke", "Revoke an agent's token and free its handle.", effect=Effect.ADMIN, who=PERSON_ONLY
)
INBOX_TAKE = Waits[InboxTakeParams, InboxTakeResult | None](
    "inbox.take",
    "Take the next messages under a lease; acknowledge them or they come again.",
    Http("GET", "/agents/{agentId}/inbox"),
    who=self_("agent_id"),
)
INBOX_WATCH = Waits[InboxWatchParams, InboxWatchResult | None](
    "inbox.watch",
    "Say how many messages wait and from whom, or wait for one, without taking any.",
    Http("GET", "/agents/{agentId}/inbox/watch"),
    who=self_("agent_id"),
)
INBOX_STREAM = Streams[AgentParams, InboxItem](
    "inbox.stream",
    "Receive messages as they come, at most 32 unacknowledged at a time.",
    Http("GET", "/agents/{agentId}/inbox/stream"),
    who=self_("agent_id"),
)
INBOX_ACK = Changes[InboxAckParams, InboxAckResult](
    "inbox.ack",
    "Acknowledge messages: they are delivered and will not come again.",
    Http("POST", "/agents/{agentId}/inbox/ack"),
    effect=Effect.MESSAGE,
    who=self_("agent_id"),
    stopped=always,
)
MESSAGES_BROADCAST = Changes[BroadcastParams, BroadcastResult](
    "messages.broadcast",
    "Send one message to several agents, one ticket each.",
    Http("POST", "/broadcast"),
    effect=Effect.MESSAGE,
)
TICKETS_LIST = Reads[TicketsListParams, list[TicketView]](
    "tickets.list", "List tickets, newest first.", Http("GET", "/tickets"), outside=ANYONE
)
TICKETS_SHOW = Reads[TicketParams, TicketView](
    "tickets.show",
    "Show one ticket; its two sides also see payload and replies.",
    Http("GET", "/tickets/{ticketId}"),
    outside=party("ticket_id"),
)
TICKETS_CANCEL = Changes[CancelParams, TicketView](
    "tickets.cancel",
    "Withdraw a ticket that is not settled.",
    Http("POST", "/tickets/{ticketId}/cancel"),
    effect=Effect.PROCESS_CONTROL,
    who=party("ticket_id"),
    proof=words_need_proof,
)
CONVERSATIONS_LIST = Reads[ConversationsListParams, list[ConversationSummary]](
    "conversations.list", "List conversations, the one with the newest ticket first.", Http("GET", "/conversations")
)
CONVERSATIONS_SHOW = Reads[ConversationParams, ConversationView](
    "conversations.show",
    "Show the tickets of a conversation that the caller is a side of, oldest first.",
    Http("GET", "/conversations/{conversationId}"),
)
EVENTS_STREAM = Streams[EventsParams, Event](
    "events.stream",
    "Receive lifecycle events: agents and tickets, ids and times, never payloads.",
    Http("GET", "/events"),
)
EVENTS_RECENT = Reads[RecentEventsParams, list[Event]](
    "events.recent", "Show the newest lifecycle events, oldest first.", Http("GET", "/events/recent")
)

METHODS = rows_of(globals())
