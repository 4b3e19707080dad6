"""From HTTP to methods: a table. Path names in braces are wire names of the method's parameters."""

from bascule.protocols.route import Route

ROUTES: tuple[Route, ...] = (
    Route("POST", "/agents/register", "agents.register", section="5.0"),
    Route("POST", "/agents/{agentId}/send", "messages.send", section="5.1"),
    # (5.2) "204 No Content".
    Route("POST", "/replies", "replies.post", status=204, section="5.2"),
    Route("GET", "/replies/{ticketId}", "replies.wait", section="5.3"),
    Route("GET", "/replies/{ticketId}/stream", "replies.stream", section="5.4"),
    Route("POST", "/replies/gather", "replies.gather"),
    Route("GET", "/agents", "agents.list", section="5.5"),
    Route("POST", "/agents/{agentId}/heartbeat", "agents.heartbeat", section="5.6"),
    Route("GET", "/agents/{agentId}/inbox", "inbox.take"),
    Route("GET", "/agents/{agentId}/inbox/watch", "inbox.watch"),
    Route("GET", "/agents/{agentId}/inbox/stream", "inbox.stream"),
    Route("POST", "/agents/{agentId}/inbox/ack", "inbox.ack"),
    Route("POST", "/broadcast", "messages.broadcast"),
    Route("GET", "/tickets", "tickets.list"),
    Route("GET", "/tickets/{ticketId}", "tickets.show"),
    Route("POST", "/tickets/{ticketId}/cancel", "tickets.cancel"),
    Route("GET", "/conversations/{conversationId}", "conversations.show"),
    Route("GET", "/events", "events.stream"),
    Route("GET", "/events/recent", "events.recent"),
)
