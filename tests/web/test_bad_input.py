"""What clients get wrong, by accident and on purpose: the right status, one shape of answer, a daemon unharmed."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wires import Answer, Caller, Wire, request

from bascule.broker.protocol import MAX_TIMEOUT_MS
from bascule.daemon.compose import routes_of
from bascule.surfaces.http.endpoints import MAX_BODY_BYTES
from gabp.codec import MAX_DEPTH

ROUTES = routes_of()

JSON = ("Content-Type", "application/json")
PAYLOAD_LIMIT = 1024 * 1024
METADATA_LIMIT = 64 * 1024


@pytest.fixture(autouse=True)
def _unharmed(daemon):
    """After every one of these the daemon answers, and its terminal shows no traceback."""
    seen = len(daemon.terminal())
    yield
    assert Caller(daemon).get("/healthz").body == b"ok\n"
    assert "Traceback" not in daemon.terminal()[seen:]


@pytest.fixture(scope="module")
def local(daemon) -> Caller:
    return Caller(daemon)


@pytest.fixture(scope="module")
def jerry(local) -> Caller:
    agent = local.register("Jerry")
    local.send("Jerry", ticketId="t-1")
    return agent


def post(caller: Caller, path: str, body: bytes, *headers: tuple[str, str]) -> Answer:
    with Wire(caller.daemon.tcp) as wire:
        return wire.ask("POST", path, [*caller.headers, *(headers or [JSON])], body)


# -- bodies ---------------------------------------------------------------------------------------

REGISTER = "/agents/register"
SEND = "/agents/Jerry/send"


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


BAD_BODIES = {
    "a number for a handle": (REGISTER, b'{"agentId":5}', "agentId"),
    "null for a handle": (REGISTER, b'{"agentId":null}', "agentId"),
    "a field nobody knows": (REGISTER, b'{"agentId":"A","colour":"red"}', "colour"),
    "a field in the wrong case": (REGISTER, b'{"agentId":"A","Type":"x"}', "Type"),
    "a field missing": (REGISTER, b"{}", "agentId"),
    "no body at all": (REGISTER, b"", "agentId"),
    "a list": (REGISTER, b'["agentId"]', "object"),
    "a string": (REGISTER, b'"Jerry"', "object"),
    "null": (REGISTER, b"null", "object"),
    "text for metadata": (REGISTER, b'{"agentId":"A","metadata":"x"}', "metadata"),
    "a heartbeat too short": (REGISTER, b'{"agentId":"A","heartbeatIntervalMs":1}', "heartbeatIntervalMs"),
    "a heartbeat that is no whole number": (REGISTER, b'{"agentId":"A","heartbeatIntervalMs":1000.5}', "heartbeat"),
    "text for a switch": (REGISTER, b'{"agentId":"A","exclusive":"yes"}', "exclusive"),
    "an empty handle": (REGISTER, b'{"agentId":""}', "agentId"),
    "a handle too long": (REGISTER, b'{"agentId":"%s"}' % (b"a" * 65), "agentId"),
    "a handle with a slash": (REGISTER, b'{"agentId":"a/b"}', "agentId"),
    "a handle with a line break": (REGISTER, b'{"agentId":"Jerry\\n"}', "agentId"),
    "a handle with a NUL": (REGISTER, b'{"agentId":"Jerry\\u0000"}', "agentId"),
    "a handle beyond ASCII": (REGISTER, '{"agentId":"J\u0435rry"}'.encode(), "agentId"),
    "one dot for a handle": (REGISTER, b'{"agentId":"."}', "reserved"),
    "two dots for a handle": (REGISTER, b'{"agentId":".."}', "reserved"),
    "a principal's name for a handle": (REGISTER, b'{"agentId":"person"}', "reserved"),
    "an object cut short": (REGISTER, b'{"agentId":"A"', "cut short"),
    "two objects": (REGISTER, b'{"agentId":"A"}{}', "JSON"),
    "a trailing comma": (REGISTER, b'{"agentId":"A",}', "JSON"),
    "single quotes": (REGISTER, b"{'agentId':'A'}", "JSON"),
    "a comment": (REGISTER, b'{"agentId":"A"} // me', "JSON"),
    "bytes that are no UTF-8": (REGISTER, b'{"agentId":"\xff"}', "UTF-8"),
    "UTF-16": (REGISTER, '{"agentId":"A"}'.encode("utf-16-le"), "JSON"),
    "a byte order mark": (REGISTER, b'\xef\xbb\xbf{"agentId":"A"}', "byte order mark"),
    "half a surrogate pair": (SEND, b'{"payload":"\\ud800"}', "surrogate"),
    "not a number": (SEND, b'{"payload":NaN}', "JSON"),
    "infinity": (SEND, b'{"payload":-Infinity}', "JSON"),
    "a number beyond all numbers": (SEND, b'{"payload":1e999}', "number"),
    "an integer of five thousand digits": (SEND, b'{"payload":%s}' % (b"9" * 5_000), "integer"),
    "one level too deep": (SEND, b'{"payload":%s}' % nested(MAX_DEPTH).encode(), "nested"),
    "far too deep": (SEND, b'{"payload":%s}' % nested(100_000).encode(), "nested"),
    "a handle that stands in the path": (SEND, b'{"agentId":"Jerry","payload":1}', "path already"),
    "no payload": (SEND, b"{}", "payload"),
    "a wait of no time": (SEND, b'{"payload":1,"timeoutMs":0}', "timeoutMs"),
    "a wait of years": (SEND, b'{"payload":1,"timeoutMs":%d}' % (MAX_TIMEOUT_MS + 1), "timeoutMs"),
    "two dots for a ticket": (SEND, b'{"payload":1,"ticketId":".."}', "ticketId"),
    "a ticket id with a line break": (SEND, b'{"payload":1,"ticketId":"t-9\\n"}', "ticketId"),
    "a conversation with a line break": (SEND, b'{"payload":1,"conversationId":"c\\n"}', "conversationId"),
    "a ticket id too long": (SEND, b'{"payload":1,"ticketId":"%s"}' % (b"t" * 129), "ticketId"),
    "nobody to broadcast to": ("/broadcast", b'{"payload":1,"agentIds":[]}', "agentIds"),
    "nothing to acknowledge": ("/agents/Jerry/inbox/ack", b'{"ticketIds":[]}', "ticketIds"),
    "a reason too long": ("/tickets/t-1/cancel", b'{"reason":"%s"}' % (b"x" * 501), "reason"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
def test_a_body_that_is_not_what_the_method_takes_is_400_and_says_what(jerry, case):
    path, body, named = BAD_BODIES[case]
    answer = post(jerry, path, body)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_request"
    assert named.lower() in answer.error["message"].lower()


def test_the_deepest_payload_that_is_allowed_goes_through(local, jerry):
    assert post(local, SEND, b'{"payload":%s}' % nested(MAX_DEPTH - 1).encode()).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        [("Content-Type", "text/plain")],
        [("Content-Type", "application/x-www-form-urlencoded")],
        [("Content-Type", "multipart/form-data; boundary=x")],
        [("Content-Type", "application/jsonp")],
        [("Content-Type", "")],
        [("X-Nothing", "said")],
    ],
    ids=lambda kind: kind[0][1] or "empty",
)
def test_a_body_that_does_not_say_it_is_json_is_415(local, kind):
    # Browsers send these three kinds across origins without asking first.
    answer = post(local, REGISTER, b'{"agentId":"Tom"}', *kind)
    assert answer.status == 415
    assert "application/json" in answer.error["hint"]
    assert [each["agentId"] for each in local.get("/agents").json if each["agentId"] == "Tom"] == []


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"])
def test_json_may_come_with_parameters_and_in_any_case(local, kind):
    assert post(local, REGISTER, b'{"agentId":"."}', ("Content-Type", kind)).status == 400


# -- sizes ----------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_413_and_the_connection_is_closed(local):
    with Wire(local.daemon.tcp) as wire:
        wire.send(request("POST", REGISTER, [*local.headers, JSON, ("Content-Length", str(MAX_BODY_BYTES + 1))]))
        wire.send(b"[" * (MAX_BODY_BYTES + 1))
        answer = wire.answer()
        assert answer.status == 413
        assert answer.error["code"] == "too_large"
        assert "file" in answer.error["hint"]
        assert wire.closed()


def test_an_endless_chunked_body_is_cut_at_the_limit(local):
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with Wire(local.daemon.tcp) as wire:
        wire.send(request("POST", REGISTER, [*local.headers, JSON, ("Transfer-Encoding", "chunked")]))
        for _ in range(MAX_BODY_BYTES // 0x10000 + 1):
            wire.send(chunk)
        assert wire.answer().status == 413
        assert wire.closed()


@pytest.mark.parametrize("payload", [b'"%s"' % (b"x" * PAYLOAD_LIMIT), b'["%s"]' % (b"x" * PAYLOAD_LIMIT)])
def test_a_payload_over_the_limit_is_413_and_a_file_is_suggested(local, jerry, payload):
    answer = post(local, SEND, b'{"payload":%s}' % payload)
    assert answer.status == 413
    assert "payload" in answer.error["message"]
    assert "file" in answer.error["hint"]


def test_a_payload_of_exactly_the_limit_is_taken_and_comes_back_whole(local):
    agent = local.register("Heavy")
    text = "x" * (PAYLOAD_LIMIT - 2)
    ticket = local.send("Heavy", text)
    (message,) = agent.get("/agents/Heavy/inbox?waitMs=0").json["messages"]
    assert (message["ticketId"], message["payload"]) == (ticket, text)


def test_a_reply_over_the_limit_is_413_and_the_ticket_stays_open(local, jerry):
    answer = post(jerry, "/replies", b'{"ticketId":"t-1","payload":"%s"}' % (b"x" * PAYLOAD_LIMIT))
    assert answer.status == 413
    assert "file" in answer.error["hint"]
    assert local.get("/tickets/t-1").json["status"] == "pending"


@pytest.mark.parametrize(
    ("path", "body"),
    [(REGISTER, {"agentId": "Tom"}), (SEND, {"payload": 1}), ("/broadcast", {"payload": 1, "agentIds": ["Jerry"]})],
)
def test_metadata_over_the_limit_is_413(local, jerry, path, body):
    answer = post(local, path, json.dumps({**body, "metadata": {"x": "y" * METADATA_LIMIT}}).encode())
    if path == "/broadcast":
        # One refusal per addressee, inside an answer that is otherwise fine.
        assert answer.json["failed"][0]["error"]["code"] == "too_large"
    else:
        assert answer.status == 413
        assert "metadata" in answer.error["message"]


# -- query strings, paths, verbs ------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/replies/t-1?waitMs=soon",
        "/replies/t-1?waitMs=-1",
        "/replies/t-1?waitMs=1.5",
        "/replies/t-1?waitMs=NaN",
        "/replies/t-1?waitMs=",
        "/replies/t-1?waitMs",
        "/replies/t-1?=1",
        "/replies/t-1?&",
        "/replies/t-1?waitMs=%zz",
        "/replies/t-1?waitMs=%ff",
        "/replies/t-1?waitMs=1&waitMs=1",
        "/replies/t-1?waitMs=1&wait%4ds=1",
        "/replies/t-1?wait=1",
        "/replies/t-1?waitMs=0&ticketId=t-2",
        "/replies/t-1?waitMs=0;x=1",
        "/agents?status=asleep",
        "/agents?type=%ff",
        "/tickets?limit=0",
        "/tickets?limit=1001",
        "/tickets?limit=" + "9" * 5_000,
        "/tickets?" + "&".join(f"a{number}=1" for number in range(17)),
        "/tickets?agentId=a%2Fb",
        "/events?after=-1",
        # On a POST nothing is read from the query string, so whoever writes there is mistaken.
        "POST /agents/register?agentId=Tom",
        "POST /tickets/t-1/cancel?reason=tired",
    ],
)
def test_a_query_string_that_is_not_the_methods_is_400(jerry, path):
    if path.startswith("POST "):
        answer = post(jerry, path.removeprefix("POST "), b'{"agentId":"Jerry"}' if "register" in path else b"{}")
    else:
        answer = jerry.get(path)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_request"


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/nope", {404}),
        ("/", {404}),
        ("//", {404}),
        ("/agents/Jerry/nope", {404}),
        ("/AGENTS", {404}),
        ("/agents/Jerry", {404}),
        ("/tickets/t-1/", {200, 404}),
        ("/tickets//", {400, 404, 200}),
        ("/tickets/unknown", {404}),
        ("/tickets/.", {400, 404}),
        ("/tickets/..", {400, 404}),
        ("/tickets/%2e%2e", {400, 404}),
        ("/tickets/../agents", {404}),
        ("/tickets/a%2Fb", {400}),
        ("/tickets/a%5Cb", {400}),
        ("/tickets/%00", {400}),
        ("/tickets/%0a", {400}),
        ("/tickets/t-1%0a", {400}),
        ("/tickets/%zz", {400}),
        ("/tickets/%", {400}),
        ("/tickets/%ff", {400, 404}),
        ("/tickets/%c3%28", {400, 404}),
        ("/tickets/%ed%a0%80", {400, 404}),
        ("/tickets/t-1%20", {400}),
        ("/agents/%2e%2e/inbox?waitMs=0", {400, 403, 404}),
        ("/tickets/" + "a" * 129, {400}),
        ("/tickets/" + "a" * 5_000, {400, 404}),
    ],
)
def test_a_path_that_names_nothing_of_ours_is_refused_in_our_words(local, jerry, path, statuses):
    answer = local.get(path)
    assert answer.status in statuses
    if answer.status != 200:
        assert answer.error["code"] in ("not_found", "invalid_request", "forbidden")


def test_an_unknown_path_says_where_the_routes_are_listed(local):
    assert "/openapi.json" in local.get("/nope").error["hint"]


@pytest.mark.parametrize("verb", ["HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "PROPFIND"])
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.verb} {route.path}")
def test_a_verb_that_is_not_served_is_405_and_names_those_that_are(daemon, jerry, verb, route):
    # Where a directory is listed, the file of that name is served too.
    if (verb, route.path.rstrip("/")) in {(each.verb, each.path) for each in ROUTES}:
        return
    with Wire(daemon.tcp) as wire:
        answer = wire.ask(verb, route.path.replace("...", "").replace("{", "").replace("}", ""), jerry.headers)
    assert answer.status == 405
    assert route.verb in answer.headers["allow"].split(", ")


def test_get_where_only_post_is_served_names_post(local):
    answer = local.get("/replies")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.error["code"] == "method_not_allowed"


def test_a_handle_that_reads_like_a_route_can_still_be_written_to(local):
    # `register` fits the alphabet of handles; what can be registered must be reachable.
    first = local.post("/agents/register", {"agentId": "register"})
    if first.status == 200:
        assert local.post("/agents/register/send", {"payload": "hello"}).status == 200
    else:
        assert first.status == 400


# -- any JSON at all ------------------------------------------------------------------------------

FIELDS = [
    "agentId", "payload", "ticketId", "metadata", "expectReply", "timeoutMs", "conversationId", "requireOnline",
    "type", "heartbeatIntervalMs", "exclusive", "agentIds", "broadcastId", "ticketIds", "reason",
]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["Jerry", "t-1", ".", "..", "../x", "", "\x00", "a" * 65, "online"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), VALUES, max_size=6)
# Without /mcp, which answers as JSON-RPC does: tests/mcp.
POSTS = [
    route.path.replace("{agentId}", "Jerry").replace("{ticketId}", "t-1")
    for route in ROUTES
    # What is no operations message is told in another form; see the workspace's own tests.
    if route.verb == "POST" and route.path != "/mcp" and not route.path.startswith("/v1/")
]


class Reused:
    """One connection, opened again only when the daemon said it would close it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._wire: Wire | None = None

    def post(self, path: str, body: bytes) -> int:
        if self._wire is None:
            self._wire = Wire(self._caller.daemon.tcp)
        answer = self._wire.ask("POST", path, [*self._caller.headers, JSON], body)
        if answer.headers.get("connection") == "close":
            self.close()
        if answer.status >= 400:
            assert answer.error
        return answer.status

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


@pytest.fixture(scope="module")
def reused(jerry):
    connection = Reused(jerry)
    yield connection
    connection.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=OBJECTS)
def test_no_json_object_is_an_internal_error(reused, path, body):
    assert reused.post(path, json.dumps(body).encode()) < 500


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(POSTS), body=st.binary(min_size=1, max_size=200))
def test_no_bytes_at_all_are_an_internal_error(reused, path, body):
    assert reused.post(path, body) < 500
