"""What we decided where the agent broker specification is silent or disagrees with itself; same form as there."""

_GROUPS: dict[str, str] = {
    "States": """
DEC-BRK-1 must done
    A message that was handed over and not acknowledged is still pending, and is handed over again after its lease.
DEC-BRK-2 must done
    Hand-overs are counted; after five an event says that the message is undeliverable.
DEC-BRK-3 must done
    Leases live in memory only: after a restart everything unacknowledged is offered again.
DEC-BRK-4 must done
    A ticket is delivered when it is acknowledged: by ack, by a reply, or because bridge-recv printed it.
DEC-BRK-5 must done
    A reply after the timeout still answers the ticket, marked late.
DEC-BRK-6 must done
    A reply to a cancelled ticket is refused: 409 `ticket cancelled`.
DEC-BRK-7 must done
    expectReply is true unless said otherwise; with false a ticket ends at delivered, and a reply is still stored.
""",
    "Time": """
DEC-BRK-8 must done
    timeoutMs counts from sending and ends the wait, not the delivery: the message stays, marked timedOut.
DEC-BRK-9 must done
    Without timeoutMs the setting counts, and without that 30 minutes.
DEC-BRK-10 must done
    The time to live runs from the moment the ticket is settled.
DEC-BRK-11 must done
    An expired ticket and one that never was are told apart: 404 `ticket expired`, 404 `unknown ticket`.
""",
    "Replies": """
DEC-BRK-12 must done
    The first reply answers; later ones are kept in order, logged, and answered 204 like the first.
""",
    "Ids": """
DEC-BRK-13 must done
    A ticket id has 1 to 128 letters, digits, dots, underscores or dashes.
DEC-BRK-14 must done
    The same id from the same sender with the same body is a retry with the same answer; anything else is 409.
DEC-BRK-15 must done
    A handle has 1 to 64 of the same letters; its case matters, and no two in use differ by it alone.
""",
    "Waiting": """
DEC-BRK-16 must done
    A waitMs above 60 seconds is accepted and cut to 60 seconds.
DEC-BRK-17 must done
    A wait on a settled ticket answers 200 at once with its status, also for timeout and cancelled.
DEC-BRK-18 must done
    The stream's one event is named reply, timeout or cancelled, and its data has the form of section 5.3.
DEC-BRK-19 must done
    A tool whose own time is over says `timeout` and the ticket's own status.
DEC-BRK-20 must done
    A tool that waited its 45 seconds says `pending`, and to call await_reply next.
DEC-BRK-21 must done
    A client that goes away releases its wait, and takes no message with it.
DEC-BRK-22 must done
    When the daemon is told to stop, everybody who waits gets an answer first.
""",
    "Presence": """
DEC-BRK-23 must done
    Whatever an agent does with its token is a heartbeat.
DEC-BRK-24 must done
    With a heartbeat interval an agent is offline after three, and expiresAt says when that will be.
DEC-BRK-25 must done
    Without one it is online until its connection is seen to end, or 30 minutes passed without any act.
DEC-BRK-26 must done
    An agent that is offline is still listed and keeps its inbox.
""",
    "Unknown and offline": """
DEC-BRK-27 must done
    The 404 for an unknown handle names who is online.
DEC-BRK-28 must done
    A message to a known agent that is offline is queued, and the answer says agentStatus offline.
DEC-BRK-29 must done
    With requireOnline, or the setting offline = reject, it gets the 404 of the specification.
""",
    "Inbox": """
DEC-BRK-30 must done
    Messages are pulled from an inbox: long poll, stream, bridge-recv, wait_for_message.
DEC-BRK-31 may done
    Hooks, the PTY wrapper or a tmux pane ring for an agent with one short line.
    ~ `bridge-wait` (tests/helpers/test_wait*.py), `bridge-wrap` and `bascule tmux ring` (tests/wrap).
DEC-BRK-32 must done
    Delivery is at least once, and the ticket id tells a second time from a new message.
""",
    "Sender": """
DEC-BRK-33 must done
    `from` is who sent it, verified; metadata stays what the caller said.
""",
    "Commands and settings": """
DEC-BRK-34 must done
    bridge-reply takes the ticket as a word, --ticket or BRIDGE_TICKET, and the text as a word, --message or stdin.
DEC-BRK-35 must done
    Settings may be `broker.config.json` or TOML, and every key has an environment variable.
DEC-BRK-36 should done
    The entry in `.mcp.json` is called agent-bridge.
""",
    "Payloads": """
DEC-BRK-37 must done
    A payload is UTF-8 text or JSON of at most 1 MiB; over that 413 suggests a file.
""",
    "Retries": """
DEC-BRK-38 must done
    Send and reply are repeated with the same ticket id for up to ten seconds.
DEC-BRK-39 must done
    A question that waits for its answer goes on waiting after the daemon was restarted.
DEC-BRK-40 must later
    Calls with other effects are never repeated and answer `unknown`.
    ~ There are none yet: all of the broker's effects are messages under their own id.
""",
    "Terminals": """
DEC-BRK-41 must done
    Text typed into a terminal loses its control characters, and Enter is sent on its own.
    ~ tests/wrap/test_tmux.py pastes thousands of hostile texts into real shells. What is printed shows controls.
DEC-BRK-42 must done
    A shell that may not open sockets is recognised, and the command prints the next step.
DEC-BRK-43 may done
    The tmux fallback of the tools is off unless configured, and says `reduced functionality`.
""",
    "Without tokens": """
DEC-BRK-44 must done
    With `auth = "off"` whoever comes over TCP without a token may register, beat and reply for any agent.
    ~ So that section 5 works with plain curl. Such a reply is from `local`; an inbox still needs the agent's token.
""",
}

# For `broker_requirements.requirements`: the entries, and the group each stands in.
DECISIONS: tuple[str, dict[str, str]] = (
    "".join(_GROUPS.values()),
    {
        line.split()[0]: group
        for group, text in _GROUPS.items()
        for line in text.splitlines()
        if line.startswith("DEC-")
    },
)
