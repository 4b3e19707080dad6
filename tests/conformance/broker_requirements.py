"""What the agent broker specification demands, in our own words, and how far we are.

Every sentence of its sections 4 to 12 and 15 that asks for something has an entry; tests name entries with
`@pytest.mark.req("BRK-5.1-2")`, and `test_requirements_table.py` holds the two together. The documentation's
coverage table is made from this file.

An entry is a line `id level status`, a sentence, and if needed a note after `~`. Levels are `must`, `should`, `may`.
`done`: as written. `differs`: the same purpose by other means, the note says which and why. `later`: not built yet,
the note says what there is today.
"""

import ast
from pathlib import Path
from typing import NamedTuple

from broker_decisions import DECISIONS


class Requirement(NamedTuple):
    section: str
    sentence: str
    level: str
    status: str
    note: str


SPECIFICATION = """
BRK-4.1-1 must done
    An agent's client reaches the broker through an MCP server.
BRK-4.1-2 must done
    There are tools that wait for the answer and tools that do not.
BRK-4.1-3 must differs
    The MCP server passes requests on to the broker over HTTP.
    ~ Over the link socket: the same methods behind the same gates, one connection per client.
BRK-4.1-4 may done
    Answers may reach the MCP server by stream or long poll.
BRK-4.1-5 should differs
    Only when the broker is away do the MCP tools offer raw tmux access.
    ~ And only with `--tmux-fallback`: one cleaned line into a pane that `bascule tmux launch` opened, nothing raw.
BRK-4.2-1 must done
    The broker is a small web server on localhost whose port can be chosen.
BRK-4.2-2 must differs
    Open tickets are held in memory.
    ~ In memory and in SQLite, so that they survive a crash; `durability = "memory"` is the letter of it.
BRK-4.2-3 must done
    A ticket has a string id, a UUID unless the caller chose one.
BRK-4.2-4 must done
    A ticket names the agent it is addressed to.
BRK-4.2-5 must done
    A payload is text or structured JSON.
BRK-4.2-6 must done
    A ticket's status is pending, delivered, responded or timed out.
    ~ The timed out state is called `timeout`, as in section 8.
BRK-4.2-7 must done
    A ticket may hold the response, text or JSON.
BRK-4.2-8 must done
    A ticket says when it was made and when it last changed.
BRK-4.2-9 must done
    Agents are registered under a handle they choose, with a type and metadata.
BRK-4.2-10 must done
    A handle belongs to one agent at a time.
    ~ Who comes without the handle's token while it is taken gets 409 and the name of a free one.
BRK-4.2-11 must done
    Registering a handle again updates its record.
BRK-4.2-12 must done
    The HTTP API takes messages from a sender.
BRK-4.2-13 must done
    The HTTP API takes replies that agents push.
BRK-4.2-14 must done
    The HTTP API lets clients wait for replies by stream or long poll.
BRK-4.2-15 must done
    The HTTP API is a directory of agents with their last sign of life.
BRK-4.2-16 may done
    The tmux pane an agent sits in may be captured.
    ~ `bridge-register` records TMUX_PANE.
BRK-4.3-1 must done
    The helper commands are there in an agent's shell.
BRK-4.3-2 must done
    The reply helper takes ticket, message and optional metadata.
BRK-4.3-3 must done
    The reply helper posts to `/replies`.
BRK-4.3-4 may done
    A PTY wrapper may read an interactive program's output and forward it.
    ~ `bridge-wrap --auto-reply`. Replies by helper command or MCP tool are the first choice.
BRK-4.3-5 may done
    An agent may instead be told to run the helper with its answer.
BRK-4.3-6 may done
    The wrapper may watch the agent's process and send heartbeats and logs.
    ~ Heartbeats for as long as the program lives; its end answers what it had received. Its output is not logged.
BRK-4.4-1 must done
    Agents may sit in tmux panes, and need not.
BRK-4.4-2 should done
    A launch script can hand the ticket over in BRIDGE_TICKET, or put the helper into PATH.
BRK-4.4-3 may done
    The broker may come with scripts that start agents with the wrapper attached.
    ~ `bascule tmux launch --agent Jerry -- codex`.
BRK-5.0-1 must done
    `POST /agents/register` takes agentId, type, metadata and heartbeatIntervalMs.
BRK-5.0-2 must done
    Registering answers agentId, status `registered` and expiresAt.
    ~ And `agentToken` the first time, with which the agent proves itself from then on.
BRK-5.0-3 must done
    expiresAt is the moment after which the agent, if silent, is taken for gone.
BRK-5.0-4 must differs
    The same handle again is a reconnect that replaces the record.
    ~ With the handle's token. Without it, 409: anybody could take the name otherwise.
BRK-5.1-1 must done
    `POST /agents/{agentId}/send` takes ticketId, payload, metadata, expectReply and timeoutMs.
BRK-5.1-2 must done
    Sending answers ticketId, status `pending` and waitEndpoint.
    ~ And `agentStatus`, because a message to an agent that is offline is queued.
BRK-5.1-3 must done
    The ticket id the caller chose is the ticket's.
BRK-5.1-4 must done
    waitEndpoint is the path of the ticket's stream, and it works.
BRK-5.1-5 must done
    Metadata, nested as it may be, reaches the receiver as it was sent.
BRK-5.1-6 must done
    expectReply tells the receiver whether an answer is awaited.
BRK-5.1-7 must done
    timeoutMs is the time after which the sender no longer waits.
BRK-5.2-1 must done
    `POST /replies` takes ticketId, payload and metadata.
BRK-5.2-2 must done
    A reply is answered 204 without content.
BRK-5.2-3 must done
    A reply makes the ticket `responded`.
BRK-5.2-4 must done
    The reply's payload is stored.
BRK-5.2-5 must done
    Whoever waits for the ticket is told at once.
BRK-5.3-1 must done
    `GET /replies/{ticketId}` holds the request until the reply is there.
BRK-5.3-2 must done
    waitMs says how long the daemon holds it.
BRK-5.3-3 must done
    Without waitMs it is 25 seconds.
BRK-5.3-4 must done
    The reply is given as ticketId, payload, status and latencyMs.
    ~ And `from`, the verified sender; `metadata`, `late` and `replies` where there are any.
BRK-5.3-5 must done
    When the time is over without a reply, the answer is 204.
BRK-5.4-1 must done
    `GET /replies/{ticketId}/stream` sends one server-sent event when the reply comes.
BRK-5.4-2 must done
    If the ticket times out, the one event says so.
BRK-5.4-3 must done
    One connection is enough: it stays open until the event and ends after it.
BRK-5.5-1 must done
    `GET /agents` lists every registered agent, online or not.
BRK-5.5-2 must done
    `?type=` keeps agents of that type.
BRK-5.5-3 must done
    `?status=` keeps agents that are online, or offline.
    ~ Or `unknown`: online when the daemon stopped, and not seen since it started again.
BRK-5.5-4 must done
    An agent is shown with agentId, type, status, lastHeartbeat and metadata.
    ~ And `unread` when messages wait for it.
BRK-5.6-1 may done
    `POST /agents/{agentId}/heartbeat` says that the agent lives.
BRK-5.6-2 may done
    A heartbeat shows in the agent's status and lastHeartbeat.
BRK-6.1-1 must done
    send_message takes agentId and payload.
BRK-6.1-2 must done
    send_message takes an optional timeoutMs, the ticket's deadline.
BRK-6.1-3 must done
    awaitResponse is true unless it is said otherwise.
BRK-6.1-4 must done
    send_message takes optional metadata.
BRK-6.1-5 must done
    send_message makes up the ticket id itself.
BRK-6.1-6 must done
    send_message posts to the broker.
BRK-6.1-7 must differs
    With awaitResponse it waits at once and returns the first reply.
    ~ For 45 s at most, because clients end longer calls: then `pending`, and `await_reply` goes on.
BRK-6.1-8 must done
    Without awaitResponse it returns the ticket, for await_reply.
BRK-6.1-9 must done
    A waited-for answer is ticketId, status `responded`, payload and latencyMs.
BRK-6.1-10 must done
    An answer not waited for is ticketId and status `pending`.
BRK-6.2-1 must done
    await_reply takes ticketId and optional timeoutMs.
BRK-6.2-2 must differs
    await_reply waits at the broker.
    ~ Over our own socket, not by `GET /replies`, and for 45 s at most; then it says `pending` and is called again.
BRK-6.2-3 must done
    await_reply answers in the form of send_message.
BRK-6.2-4 must done
    If the time is over, await_reply answers with status `timeout`.
BRK-6.3-1 must done
    list_agents shows handles and metadata of whoever is there.
BRK-6.3-2 may done
    co_workers may be a short form: handle, type, directory.
    ~ And the status. The caller itself is not among them.
BRK-6.4-1 may done
    register_agent takes what `/agents/register` takes.
BRK-6.4-2 may done
    A client can register itself through MCP.
BRK-6.5-1 must done
    post_reply takes ticketId, payload as text or JSON, and optional metadata.
BRK-6.5-2 must done
    An agent can reply through MCP instead of the command.
BRK-6.6-1 may done
    cancel_ticket may be a tool.
BRK-6.6-2 may done
    broadcast_message may be a tool.
BRK-6.6-3 may differs
    subscribe_updates may be a resource stream.
    ~ A resource to subscribe to, `bascule://transactions/recent`: the client is told that there is more, and reads it.
BRK-7.1-1 must done
    bridge-register announces a handle with optional metadata.
BRK-7.1-2 must done
    It understands --agent, --type and --pane.
BRK-7.1-3 must differs
    It finds the broker from the environment, else on localhost.
    ~ BRIDGE_BROKER_URL when set; without it the daemon's own socket, which needs no port.
BRK-7.1-4 must done
    bridge-register exits non-zero when it fails.
BRK-7.1-5 must done
    bridge-reply takes a ticket and a payload.
BRK-7.1-6 must done
    bridge-reply understands --ticket and --message.
BRK-7.1-7 must done
    bridge-reply reads the message from stdin.
BRK-7.1-8 must done
    bridge-reply exits non-zero when it fails.
BRK-7.2-1 may done
    A wrapper may start agents under a PTY.
    ~ `bridge-wrap`.
BRK-7.2-2 may done
    It may see the end of an answer and post it by itself.
    ~ `bridge-wrap --deliver payload --auto-reply`, by quiet time, prompt and optional sentinel.
BRK-7.2-3 may done
    It keeps track of which ticket an answer belongs to.
    ~ One message at a time is typed and answered. For helpers `bridge-recv` remembers who received which ticket.
BRK-7.3-1 should differs
    A template tells agents to choose a handle and register.
    ~ `bascule setup` writes it, e.g. into CLAUDE.md. It says how to change the handle: `bascule mcp` gives a first.
BRK-7.3-2 must done
    `bridge-reply <ticketId> "<message>"` is how an agent replies.
BRK-7.3-3 should done
    Aliases for the agents' shells.
    ~ `bascule setup shell` writes `reply` and `register`, the latter with the handle it was given.
BRK-7.3-4 should later
    The helpers are put into every agent's PATH.
    ~ They are installed beside `bascule`; `bascule doctor` says whether PATH has them. The aliases work without.
BRK-8-1 must differs
    Tickets expire after a time that can be set.
    ~ It counts from settling, and what nobody has fetched is kept for 7 days.
BRK-8-2 must done
    That time is 30 minutes unless set.
BRK-8-3 should done
    What has expired is removed without being asked for.
BRK-8-4 must done
    `pending`: the agent has not answered.
BRK-8-5 must done
    `responded`: a reply was posted.
BRK-8-6 must done
    `timeout`: the agent missed the deadline.
BRK-8-7 must done
    `cancelled`: a user withdrew it.
BRK-8-8 should done
    send_message says which of these it is, so that nobody waits for ever.
BRK-9-1 should done
    A POST that fails for a passing reason is repeated, with growing pauses.
BRK-9-2 must differs
    A message to an agent that is not registered gets 404 `agent not registered`.
    ~ So it does; one that is registered and offline gets it queued, and the 404 only with requireOnline.
BRK-9-3 must done
    The tool turns that into an error one can act on.
BRK-9-4 must done
    await_reply says `timeout` when nothing came.
BRK-9-5 should done
    The tools notice that the broker is away.
BRK-9-6 may done
    They may then fall back to tmux, and report reduced functionality.
    ~ With `--tmux-fallback`; without it they say that Bascule is not running and how to start it.
BRK-9-7 must done
    Several replies to one ticket are either kept in a list, or the first counts and the rest is logged.
    ~ Both: the first answers, all are kept in `replies`, each is logged.
BRK-10-1 should done
    `.mcp.json` names the MCP server `agent-bridge`.
    ~ `bascule setup claude --project` writes the entry.
BRK-10-2 must differs
    BRIDGE_BROKER_URL says where the broker is, 127.0.0.1:5050 unless set.
    ~ The daemon listens there. Commands use its unix socket, without the variable and with the daemon's address in it.
    ~ Loopback only, and another broker is shown BRIDGE_AGENT_TOKEN and no stored token.
BRK-10-3 must done
    BRIDGE_DEFAULT_TIMEOUT_MS sets the reply deadline of those who name none.
BRK-10-4 may done
    A registry file of agents may be named.
BRK-10-5 must done
    `broker.config.json` or the environment hold the broker's settings.
    ~ The file is read from the config directory or where `--config` says, never from the working directory.
BRK-10-6 must done
    They can list agents to know from the start, with tmux pane hints.
BRK-10-7 must done
    They can set the port.
BRK-10-8 must done
    They can turn on TLS.
    ~ For the TCP port. Helpers and `bascule mcp` verify the certificate of a broker at an `https://` address.
BRK-10-9 should done
    BRIDGE_AGENT_ID and BRIDGE_BROKER_URL tell the helpers who and where they are.
BRK-11-1 should done
    Sends, replies and heartbeats are logged as they come in.
BRK-11-2 should done
    Every change of a ticket's state is logged with its time.
BRK-11-3 should done
    Errors and timeouts are logged with the agent they concern.
BRK-11-4 may done
    The log may be JSON.
BRK-11-5 may done
    The MCP server may offer recent transactions as a resource to subscribe to.
    ~ Ids, states and times; never what was said.
BRK-11-6 should done
    `bridgectl list tickets` lists tickets.
BRK-11-7 should done
    `bridgectl tail logs` follows the log.
BRK-12-1 must done
    The broker listens on 127.0.0.1 only.
BRK-12-2 must differs
    No authentication is needed at first.
    ~ TCP needs a token unless `auth = "off"`; the unix sockets know their user. Host and Origin are always checked.
BRK-12-3 may done
    Later, several users need tokens and access rules.
    ~ Agents have tokens from the start; who may do what is in the method rows.
BRK-12-4 must done
    Helpers check a ticket id's length and letters before they use it.
BRK-12-5 should differs
    Payloads are not written to disk unless somebody wants logging.
    ~ Never to the log. To the private store until the ticket expires; not at all with `durability = "memory"`.
BRK-15-1 must done
    One agent asks another with send_message and gets the reply, without tmux.
BRK-15-2 should done
    One tool call is enough for a question and its answer.
BRK-15-3 must done
    A reply by helper command finds its way back to the one who asked.
BRK-15-4 must done
    Timeouts and errors are told clearly enough to ask again or give up.
BRK-15-5 must done
    A new agent needs its own configuration only; the others need no new instructions.
BRK-15-6 must done
    Agents have unique handles and are addressed by them alone.
"""


def parse(text: str) -> list[tuple[str, str, str, list[str]]]:
    """(id, level, status, lines below it) of each entry, in order."""
    entries: list[tuple[str, str, str, list[str]]] = []
    for line in filter(None, text.splitlines()):
        if line.startswith(" "):
            entries[-1][3].append(line.strip())
        else:
            name, level, status = line.split()
            entries.append((name, level, status, []))
    return entries


def requirements(text: str, section_of: dict[str, str] | None = None) -> dict[str, Requirement]:
    table: dict[str, Requirement] = {}
    for name, level, status, lines in parse(text):
        assert name not in table, f"{name} stands twice"
        note = " ".join(line.removeprefix("~ ") for line in lines if line.startswith("~"))
        sentence = " ".join(line for line in lines if not line.startswith("~"))
        section = name.split("-")[1] if section_of is None else section_of[name]
        table[name] = _checked(name, Requirement(section, sentence, level, status, note), table)
    return table


def _checked(name: str, row: Requirement, before: dict[str, Requirement]) -> Requirement:
    family, _, number = name.rpartition("-")
    assert int(number) == 1 + sum(each.rpartition("-")[0] == family for each in before), f"{name} does not count up"
    assert row.level in {"must", "should", "may"}, f"{name} is {row.level}"
    assert row.status in {"done", "differs", "later"}, f"{name} is {row.status}"
    assert row.sentence.endswith("."), f"{name} has no sentence"
    # Whoever reads that something is missing or different wants to know what there is instead.
    assert row.note or row.status == "done", f"{name} has no note"
    return row


REQUIREMENTS: dict[str, Requirement] = {**requirements(SPECIFICATION), **requirements(*DECISIONS)}


def proofs() -> dict[str, list[str]]:
    """Which tests name which requirement, read from the source: `file::test`."""
    found: dict[str, list[str]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for name in _marked(node):
                    found.setdefault(name, []).append(f"{file.name}::{node.name}")
    return found


def _marked(function: ast.FunctionDef) -> list[str]:
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
