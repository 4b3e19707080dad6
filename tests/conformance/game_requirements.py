"""What GABP 1.0 and 1.1 demand, in our own words, and how far we are.

The numbered sections are those of the transport specification, every sentence of which that asks for something has an
entry. ENV, MET, TOOL, EVT, ATT, ERR and SEC hold what the rest of the protocol asks: envelope, methods, tools, events,
attention, error codes, security. Tests anywhere in tests/game name entries with `@pytest.mark.req("GABP-2.1-2")`;
`test_game_requirements_table.py` holds the two together. The form is that of `broker_requirements.py`.
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
    ~ Always sent; demanded by strict sessions only, for GABS and the specification's own guide leave it out.
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
GABP-5.3-1 must done
    It names the transport: tcp, stdio or pipe.
    ~ A launch over stdio writes no file: there is nothing in it that another process could use.
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
GABP-TOOL-1 must done
    A tool has name, title, description, inputSchema and outputSchema.
GABP-TOOL-2 must done
    Tool names are lower case words joined by slashes.
GABP-EVT-1 must done
    Events of a channel come in the order of their numbers.
GABP-EVT-2 should done
    Gaps in the numbers are noticed.
GABP-ATT-1 must done
    While a blocking attention is open, what acts is not executed, and that is said.
GABP-ATT-2 must done
    Attention ends by an explicit acknowledgement of its id; calling again is none.
GABP-ATT-3 must done
    What only looks is let through.
GABP-ERR-1 must done
    The registry's codes are used for what they mean.
GABP-ERR-2 should done
    The data of an error is kept.
GABP-SEC-1 must done
    Tokens are compared in constant time and never logged.
GABP-SEC-2 should done
    Frames, headers and requests in flight are limited.
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

GAME_REQUIREMENTS: dict[str, Requirement] = {
    **requirements(SPECIFICATION),
    **requirements(DECISIONS, {f"DEC-GABP-{number}": "decisions" for number in range(1, 100)}),
}


def game_proofs() -> dict[str, list[str]]:
    """Which tests name which requirement, read from the source: `file::test`."""
    found: dict[str, list[str]] = {}
    tests = Path(__file__).parents[1]
    for file in (*sorted((tests / "game").glob("test_*.py")), tests / "wire" / "test_gabp.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.req":
                        for argument in decorator.args:
                            assert isinstance(argument, ast.Constant)
                            found.setdefault(str(argument.value), []).append(f"{file.name}::{node.name}")
    return found
