"""What the broker bounds, and why. Every value is a setting; these are the defaults."""

import msgspec

from bascule.broker.protocol import DEFAULT_TICKET_TTL_MS, DEFAULT_TIMEOUT_MS

DAY_MS = 24 * 3_600_000


class BrokerLimits(msgspec.Struct, frozen=True, kw_only=True):
    # (8) and (10) of the broker spec.
    default_timeout_ms: int = DEFAULT_TIMEOUT_MS
    ticket_ttl_ms: int = DEFAULT_TICKET_TTL_MS
    # A receiver that has not acknowledged by then is taken for dead, and the message is offered again.
    lease_ms: int = 60_000
    # After so many unacknowledged hand-overs something is wrong with the receiver: said in an event.
    undeliverable_after: int = 5
    # A settled id is remembered this long, so that "expired" and "never existed" differ.
    remember_ms: int = DAY_MS
    # An offline agent keeps record and inbox this long; so does a message nobody fetched.
    agent_retention_ms: int = 7 * DAY_MS
    # Without any act for this long an agent that sends no heartbeats counts as offline.
    silence_ms: int = 30 * 60_000
    # With a heartbeat interval: offline after this many missed.
    missed_heartbeats: int = 3
    # A handle whose agent was silent this long may be registered by somebody else.
    takeover_ms: int = DAY_MS
    # A payload is a message, not a file transfer; over it the answer suggests a file reference.
    max_payload_bytes: int = 1024 * 1024
    # Metadata is shown in lists; it is for names and paths.
    max_metadata_bytes: int = 64 * 1024
    # One agent that never reads cannot hurt the others: its own inbox fills up, and only that.
    max_inbox_messages: int = 1_000
    max_inbox_bytes: int = 64 * 1024 * 1024
    # Of them from one sender: one loop cannot keep everybody else out of an inbox.
    max_inbox_messages_per_sender: int = 250
    max_inbox_bytes_per_sender: int = 16 * 1024 * 1024
    # Open tickets one sender may have: enough for a fleet, not for a runaway loop.
    max_open_tickets: int = 1_000
    # The same for one caller that is not on this machine: some conversations, nothing that a person has to dig out.
    max_open_tickets_outside: int = 100
    # Messages and replies of one principal that are kept, settled ones included, and their bytes: a loop that sends
    # and cancels must not fill the memory that everybody shares.
    max_kept_messages: int = 100_000
    max_kept_bytes: int = 256 * 1024 * 1024
    # Ids of expired tickets; past this the oldest are forgotten early, and answer "unknown" instead of "expired".
    max_remembered: int = 200_000
    # Replies kept behind one ticket; the first answers, these are for the record.
    max_replies: int = 100
    # Registered agents, online or not.
    max_agents: int = 10_000
    # Long polls and streams one principal may hold open.
    max_waits: int = 1_000
    # What an offline known agent means: queue (and say so), or the spec's 404.
    reject_offline: bool = False
