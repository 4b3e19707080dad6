"""What GABP 1.0 and 1.1 demand, in our own words, and how far we are.

The numbered sections are those of the transport specification, every sentence of which that asks for something has an
entry. ENV, MET, TOOL, EVT, ATT, ERR and SEC hold what the rest of the protocol asks: envelope, methods, tools, events,
attention, error codes, security. GAME-* is what agents and their users are promised. Tests anywhere in tests/game name
entries with `@pytest.mark.req("GABP-2.1-2")`; `test_requirements_table.py` holds the two together. The form is
that of `broker_requirements.py`.
"""

import ast
from pathlib import Path

from broker_requirements import Requirement, requirements

SPECIFICATION = """
GABP-1-1 must done
    At least one of stdio, TCP and pipes is supported.
    ~ All three, at both ends; named pipes of Windows excepted.
GABP-1.1-1 must done
    Over stdio the bridge starts the mod and talks to it through its stdin and stdout.
GABP-1.1-2 must done
    A token is checked over stdio too.
GABP-1.2-1 must done
    Over TCP the mod listens on 127.0.0.1 only.
GABP-1.3-1 must done
    On Unix the mod makes a socket and the bridge connects to it.
GABP-1.3-2 may later
    On Windows the mod makes a named pipe.
    ~ The port has room for it; Bascule's daemon does not run there yet.
GABP-2-1 must done
    Every transport frames messages in the same way.
GABP-2.1-1 must done
    Each message is prefixed with headers.
GABP-2.1-2 must done
    Content-Length is the length of the JSON in bytes.
    ~ The specification's own example says 156 where it is 152.
GABP-2.1-3 must differs
    Content-Type is application/json.
    ~ Always sent; demanded by strict sessions only, for GABS and the guide leave it out. Compat does not look at it.
GABP-2.1-4 must done
    The headers end with an empty line of CR LF.
GABP-2.1-5 must done
    The JSON follows the headers at once.
GABP-2.1-6 must done
    The JSON is valid UTF-8.
    ~ We send ASCII with escapes: some mods count characters where the frame counts bytes.
GABP-2.3-1 must done
    A reader reads to the end of the headers, takes the length, and reads exactly so many bytes.
GABP-2.3-2 must done
    The bytes are parsed as UTF-8 encoded JSON.
GABP-2.3-3 must differs
    The JSON is validated against the envelope schema.
    ~ By strict sessions to the letter; compat ones let known habits of real peers pass.
GABP-3.1-1 must done
    Over TCP the bridge connects to 127.0.0.1 on the configured port.
GABP-3.1-2 must done
    The bridge says session/hello with the token.
GABP-3.1-3 must done
    The mod checks the token and answers with its welcome.
GABP-3.2-1 must done
    Over stdio the bridge starts the process, then says hello through the pipes.
GABP-3.3-1 must done
    Over a socket the mod makes it where it was told, and the bridge connects.
GABP-3.3-2 must done
    Where it is, the configuration tells.
GABP-4.3-1 should done
    The bridge connects again when the game restarts.
GABP-4.3-2 should done
    Configuration and state outlive short disconnections.
    ~ Subscriptions, cursors and the last numbers of channels.
GABP-4.3-3 should done
    Everything is cleaned up when a session ends.
GABP-4.3-4 should done
    Crashes and lost connections are handled.
    ~ A call that was under way fails as `unknown: may have run`.
GABP-5.1-1 must done
    The bridge writes its configuration where the platform keeps such files.
GABP-5.2-1 must done
    The configuration is a JSON object with token, transport and metadata.
GABP-5.3-1 must differs
    It names the transport: tcp, stdio or pipe.
    ~ Never stdio: such a launch writes no file, for another process could not use it and would read its token.
GABP-5.3-2 must done
    For TCP the address is the port as a string, for a socket its path.
GABP-5.3-3 may done
    Metadata holds pid, start time and launch id.
GABP-5.4-1 must done
    Only the current user has access to the file.
GABP-5.4-2 must done
    It is made atomically.
GABP-5.4-3 must done
    The token has at least 128 random bits.
    ~ 256.
GABP-5.4-4 should done
    The token changes with every session.
GABP-6.1-1 should done
    A refused connection, a lost one, broken framing and broken JSON are told apart.
GABP-6.2-1 should done
    A bridge connects again with growing pauses.
GABP-6.2-2 should done
    A mod goes on accepting connections after a bridge has gone.
GABP-6.2-3 must done
    Both take partial reads and writes.
GABP-7.1-1 should done
    Messages of up to 1 MB are supported.
GABP-7.1-2 may done
    Larger ones may be refused.
    ~ The bridge takes 16 MiB (`max_receive_bytes`); a larger one is skipped and fails its call. Our mods take 1 MiB.
GABP-7.1-3 should done
    Large payloads go by resource uri.
GABP-7.2-1 may done
    A mod may limit how many bridges are connected; ten are recommended.
GABP-7.2-2 should done
    Several clients are queued fairly.
GABP-7.3-1 should done
    Outgoing messages are buffered so that nobody blocks.
GABP-7.3-2 should done
    The size of the buffers can be set.
    ~ `max_unsent_bytes` in games.toml; `max_buffer` and `max_event_buffer` of a mod.
GABP-7.3-3 must done
    A full buffer is handled gracefully.
    ~ Events are dropped and show as a gap; a peer that takes no answers is cut off.
GABP-8.1-1 may later
    On Windows: named pipes, access lists, process starts.
    ~ The mod SDK listens on TCP there; the daemon does not run there yet.
GABP-8.2-1 must done
    A socket is called /tmp/gabp-<launchId>.sock.
    ~ `socket_dir` chooses another directory.
GABP-8.2-2 must done
    Its mode is 0600.
GABP-ENV-1 must done
    Every message has v, id and type; requests a method, responses a result or an error, events channel, seq, payload.
GABP-ENV-2 must done
    An unsupported version is rejected.
GABP-ENV-3 must done
    A response carries the id of its request.
GABP-ENV-4 must done
    Many requests may be outstanding at once.
GABP-ENV-5 must done
    A null result alone is a result.
    ~ And, for Lib.GAB, a null error beside it is none.
GABP-ENV-6 must done
    Methods, channels and types are what the schema says; what only the other side may send is never dispatched.
GABP-ENV-7 must differs
    Ids are UUIDs.
    ~ Ours always are; only strict sessions demand it of others.
GABP-ENV-8 must done
    A value arrives as it was sent.
    ~ Integers of any size, characters of every plane.
GABP-MET-1 must done
    session/hello and its welcome carry what the schemas say.
GABP-MET-2 must done
    tools/list gives all tools, or those a filter names.
GABP-MET-3 must done
    tools/call takes a name and arguments.
    ~ `parameters`, which GABS sends, is taken for `arguments`.
GABP-MET-4 must done
    events/subscribe and events/unsubscribe answer with the channels they changed.
GABP-MET-5 must done
    resources/list and resources/read.
GABP-MET-6 must done
    state/get and state/set, with errors field by field and a check without effect.
GABP-MET-7 must done
    attention/current and attention/ack.
GABP-MET-8 should differs
    Capability changes are told by an event.
    ~ On tools/changed, announced as an extension: the protocol names no channel.
GABP-MET-9 must done
    Before hello nothing else is answered.
GABP-MET-10 should done
    A bridge keeps to the limits that the mod announces.
GABP-MET-11 should done
    What real mods and bridges do otherwise is understood.
    ~ GABS, Lib.GAB and the Python client of RimBridge, as they were watched on the wire.
GABP-TOOL-1 must done
    A tool has name, title, description, inputSchema and outputSchema.
GABP-TOOL-2 must done
    Tool names are lower case words joined by slashes.
GABP-EVT-1 must done
    Events of a channel come in the order of their numbers.
GABP-EVT-2 should done
    Gaps in the numbers are noticed.
GABP-EVT-3 must done
    Whoever comes late counts from the first event it sees.
GABP-EVT-4 should done
    A channel that does not exist is told.
GABP-ATT-1 must done
    While a blocking attention is open, what acts is not executed, and that is said.
GABP-ATT-2 must done
    Attention ends by an explicit acknowledgement of its id; calling again is none.
GABP-ATT-3 must done
    What only looks is let through.
GABP-ATT-4 must done
    A matter keeps its id while it is updated.
GABP-ATT-5 must done
    When one is cleared, what else is open counts.
GABP-ATT-6 must done
    A call during which attention opens has its real result.
GABP-ERR-1 must done
    The registry's codes are used for what they mean.
GABP-ERR-2 should done
    The data of an error is kept.
GABP-ERR-3 should done
    Codes that libraries made up are told as the registry's, with their own beside it.
GABP-SEC-1 must done
    Tokens are compared in constant time and never logged.
GABP-SEC-2 should done
    Frames, headers and requests in flight are limited.
GABP-SEC-3 must done
    A wrong token is refused and the connection closed.
GABP-SEC-4 should done
    Whoever breaks the framing, floods or falls silent costs only its own session.
"""

DECISIONS = """
DEC-GABP-1 must done
    The first violation of the framing closes the connection, and nothing after it is dispatched.
DEC-GABP-2 must done
    Compat takes what real peers send, strict refuses it, and what we send is strict.
DEC-GABP-3 must done
    bridge.json holds the newest live launch; one whose mod reads only the file has it alone until it is welcomed.
DEC-GABP-4 must done
    The environment tells a launched mod where to listen and with which token.
DEC-GABP-5 must done
    The token is sent to listeners of our own user only.
DEC-GABP-6 must done
    Reconnects come after 100 ms, doubling to 1 s, with a quarter of chance; nothing that was called is called again.
DEC-GABP-7 must done
    A result above the message limit is kept, and answered with its uri.
DEC-GABP-8 must done
    Cancellation and progress are extensions, announced as such and used only then.
DEC-GABP-9 must done
    A tool's schema hash changes with everything that a person or a model reads of it.
"""

# What agents and their users are promised: the other half of the bridge.
AGENTS = """
GAME-LIFE-1 must done
    Games are those of games.toml; a change counts at once, and a broken one changes nothing and is told.
GAME-LIFE-2 must done
    A project cannot bring games along.
GAME-LIFE-3 must done
    When the daemon is killed, everything it launched ends, whatever the transport and whoever forked it.
GAME-LIFE-4 must done
    A launcher that forks and leaves is not the game: stop and kill end the real one.
GAME-LIFE-5 should done
    A game that its launcher handed to a program that ran before is known by its connection.
GAME-LIFE-6 must done
    Stop asks first and kills after `stop_timeout`; kill does not ask. Children end too.
GAME-LIFE-7 must done
    The end of the daemon ends its games and answers who waits.
GAME-LIFE-8 must done
    A game that does not start, or is not reached in time, says why and what it printed.
GAME-LIFE-9 must done
    What others started is attached to, by games.toml or by hand, and let go of, not ended.
GAME-LIFE-10 must done
    Killed and restarted under load, it is live again, its subscribers hear it, and no call ran twice.
GAME-LIFE-11 must done
    Fifty games run under one daemon.
GAME-CALL-1 must done
    Calls run side by side; a slow one holds up nobody.
GAME-CALL-2 must done
    Arguments are checked against the tool's schema before they are sent, and every mistake is named.
GAME-CALL-3 must done
    Whether a call was executed (yes, no, unknown) is in its answer and in the ledger.
GAME-CALL-4 must done
    The game's own error comes with its code, message and data.
GAME-CALL-5 must done
    A large result is a resource that is read piece by piece, whether the bridge or the mod keeps it.
GAME-CALL-6 must done
    One who calls much does not keep another waiting.
GAME-CALL-7 must done
    A call that is withdrawn is not sent, or is cancelled in a game that can.
GAME-EVENT-1 must done
    Events are read after a cursor, and waited for.
GAME-EVENT-2 must done
    Events are followed as they come, over HTTP and the link.
GAME-EVENT-3 must done
    What a reader missed is told (-32503), and a slow one holds up nobody.
GAME-EVENT-4 should done
    A follower goes on over restarts of the game and of the daemon.
GAME-EVENT-5 must done
    Readers are limited, and end with the handle they belong to.
GAME-READ-1 must done
    Resources are listed and read.
GAME-READ-2 must done
    State is read, changed, and checked without being changed.
GAME-READ-3 must done
    Attention is shown and acknowledged; what it holds back is recorded as not executed.
GAME-DOOR-1 must done
    HTTP and link lead to every method.
GAME-DOOR-2 must done
    The Python client has every verb, for asyncio and blocking alike.
GAME-DOOR-3 must done
    The command line lists, starts, stops, kills, attaches, calls, and shows tools and events.
GAME-DOOR-4 must done
    The MCP toolset has all tools of GABS under their names, and events, resources and state.
GAME-DOOR-5 must done
    It costs a session nothing unless it is asked for, and then at most 2,000 tokens.
GAME-DOOR-6 must done
    The official MCP client takes every kind of result.
GAME-DOOR-7 should done
    The only game that runs need not be named.
GAME-TRUST-1 must done
    Games of games.toml may be started and their tools called; destructive ones ask.
GAME-TRUST-2 must done
    A tool of an attached game asks on its first use, whatever was allowed of a game of that name before.
    ~ One answer may stand for all its tools that are new and not destructive, as they are at that moment.
GAME-TRUST-3 must done
    A tool whose schema or description changed since it was allowed asks again, whoever calls.
GAME-TRUST-4 must done
    A yes is not spent on what a tool has become meanwhile.
GAME-TRUST-5 must done
    Stopping or killing what another started asks.
GAME-TRUST-6 must done
    Agents attach to nothing by hand.
    ~ Which program speaks as a game, and which file is read as its token, is the user's to say.
GAME-TRUST-7 must done
    The ledger has the tool's name and the size of its arguments, and none of the words of game or agent.
GAME-TRUST-8 must done
    A game sees none of the daemon's secrets.
GAME-TRUST-9 must done
    Only a token is sent as one: nobody else can reach the file, and it holds one word.
GAME-TRUST-10 must done
    Under the restrictive policy games are watched and not played.
GAME-TRUST-11 must later
    A call that waits for a person is -32103 with data in GABP.
    ~ No agent speaks GABP with the daemon; HTTP, link and MCP have forms of their own.
GAME-TRUST-12 must done
    The token of a launch is masked in whatever its game prints, answers or tells.
GAME-TRUST-13 must done
    What a mod says of its tools, of attention and of errors is bounded before an agent reads it.
GAME-SDK-1 must done
    The SDK needs msgspec and nothing else.
GAME-SDK-2 must done
    Tools get their schemas from type hints and docstrings.
GAME-SDK-3 must done
    Handlers run on the thread that polls, within the budget of a poll.
GAME-SDK-4 must done
    Deadlines end what takes too long, and a watchdog names the line where a tool is stuck.
GAME-SDK-5 must done
    A mod works under GABS, and tells it what it observed only when it asks.
GAME-SDK-6 must done
    A mod works alone.
GAME-SDK-7 must done
    An agent plays the example games, without a window.
"""

GAME_REQUIREMENTS: dict[str, Requirement] = {
    **requirements(SPECIFICATION),
    **requirements(AGENTS),
    **requirements(DECISIONS, {f"DEC-GABP-{number}": "decisions" for number in range(1, 100)}),
}


def game_proofs() -> dict[str, list[str]]:
    """Which tests name which requirement, read from the source: `folder/file::test`."""
    found: dict[str, list[str]] = {}
    tests = Path(__file__).parents[1]
    others = (tests / "wire" / "test_gabp.py", *sorted((tests / "tools").glob("test_*.py")))
    for file in (*sorted((tests / "game").glob("test_*.py")), *others):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
                        for argument in decorator.args:
                            assert isinstance(argument, ast.Constant)
                            found.setdefault(str(argument.value), []).append(
                                f"{file.parent.name}/{file.name}::{node.name}"
                            )
    return found
