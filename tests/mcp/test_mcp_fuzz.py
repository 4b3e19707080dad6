"""Whatever is posted to /mcp is answered, or refused as JSON-RPC refuses; never an internal error."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speaking import ACCEPT, HANDSHAKE, META, MODERN, Modern, Session
from wires import Wire

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
# Names that mean something, so that a guess gets further than the first check.
METHODS = st.sampled_from(
    [
        *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/subscribe", "completion/complete", "logging/setLevel", "notifications/cancelled", "tasks/get"),
    ]
) | st.text(max_size=8)
FIELDS = st.sampled_from(["name", "arguments", "uri", "cursor", "_meta", "requestId", "protocolVersion", "level"])
TOOLS = st.sampled_from(["co_workers", "list_tickets", "post_reply", "cancel_ticket", "register_agent", "await_reply"])
PARAMS = st.dictionaries(FIELDS, VALUES | TOOLS | st.just(META), max_size=4)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | VALUES,
        "id": st.integers(0, 9) | st.text(max_size=4) | VALUES,
        "method": METHODS,
        "params": PARAMS | VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)
FAST = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def fuzzed(daemon):
    """Agents of its own: what they do to themselves disturbs nobody."""
    from speaking import Agent

    return Agent(daemon, "Fuzzed")


class Poster:
    """One connection as long as the daemon keeps it."""

    def __init__(self, agent, *headers) -> None:
        self._daemon = agent.daemon
        self._headers = [*agent.caller.headers, ("Content-Type", "application/json"), ACCEPT, *headers]
        self._wire = None

    def post(self, body: bytes) -> None:
        if self._wire is None:
            self._wire = Wire(self._daemon.tcp)
        answer = self._wire.ask("POST", "/mcp", self._headers, body)
        if answer.headers.get("connection") == "close":
            self.close()
        assert answer.status < 500, answer
        if answer.status >= 400 and answer.body:
            assert answer.headers["content-type"] == "application/json"
            assert isinstance(answer.json["error"]["code"], int)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@pytest.fixture(scope="module", params=["nothing opened", "a session", "2026-07-28"])
def poster(request, daemon, fuzzed):
    match request.param:
        case "nothing opened":
            made = Poster(fuzzed)
        case "a session":
            opened = Session(daemon, fuzzed.token).session_id
            made = Poster(fuzzed, ("Mcp-Session-Id", opened), ("MCP-Protocol-Version", HANDSHAKE))
        case _:
            made = Poster(fuzzed, ("MCP-Protocol-Version", MODERN))
    yield made
    made.close()


@FAST
@given(message=MESSAGES)
def test_no_message_is_an_internal_error(poster, message):
    poster.post(json.dumps(message).encode())


@FAST
@given(body=st.binary(min_size=1, max_size=60))
def test_no_bytes_are_an_internal_error(poster, body):
    poster.post(body)


@FAST
@given(name=TOOLS, arguments=st.dictionaries(st.sampled_from(["ticketId", "agentId", "payload", "limit"]), VALUES))
def test_no_arguments_are_an_internal_error(daemon, fuzzed, name, arguments):
    answer = Modern(daemon, fuzzed.token).call(name, **arguments)
    if answer["isError"]:
        assert "internal" not in answer["content"][0]["text"]
