"""Parts of the HTTP surface by themselves: params out of path and body, an application behind it, time."""

import asyncio
import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bascule.broker.protocol import SendParams
from bascule.foundation.errors import BasculeError, Internal
from bascule.foundation.tasks import Tasks
from bascule.kernel.mounted import ParamsReader
from bascule.kernel.route import Route
from bascule.surfaces.http import server
from bascule.surfaces.http.endpoints import Endpoint, NotParams
from bascule.surfaces.http.exchange import Request, Response
from bascule.surfaces.http.mounts import MountExchange
from bascule.surfaces.http.server import HttpDoor
from gabp import codec
from patience import PATIENCE

JSON = [(b"content-type", b"application/json")]

# -- params ---------------------------------------------------------------------------------------

SEND = Endpoint(
    Route("POST", "/agents/{agentId}/send", "messages.send"),
    SimpleNamespace(params=SendParams, decoder=ParamsReader(SendParams)),
    page=None,
    mount=None,
    form=None,
    as_owner=False,
)


def posted(name: str, body: bytes) -> Any:
    request = Request("POST", b"/", "1.1", JSON, keep_alive=True)
    request.names = {"agentId": name}
    try:
        return SEND.params(request, body)
    except (NotParams, BasculeError) as error:
        return type(error), error.message


def reference(name: str, body: bytes) -> Any:
    """The same in two steps: JSON to a dict, its fields and the path's to params."""
    try:
        fields = codec.decode(body, dict[str, Any])
    except codec.BadJson as error:
        return error.message
    if "agentId" in fields:
        return "`agentId` stands in the path already"
    try:
        return codec.convert(fields | {"agentId": name}, SendParams)
    except codec.BadJson as error:
        return error.message


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("agentId"), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["payload", "ticketId", "metadata", "waitMs", "expectReply", "agentId", "other"])
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=5) | st.fixed_dictionaries({"payload": VALUES})
TEXTS = st.builds(
    lambda value, ascii_, indent: json.dumps(value, ensure_ascii=ascii_, indent=indent).encode("utf-8", "replace"),
    OBJECTS | VALUES,
    st.booleans(),
    st.sampled_from([None, 1]),
)


@given(name=st.sampled_from(["Jerry", "", "a b", 'q"uote', "\u00fc", "\\"]), body=TEXTS)
@example("Jerry", b"{}")
@example("Jerry", b" \r\n{ \t} ")
@example("Jerry", b'{"payload":1,"agentId":"Jerry"}')
@example("Jerry", b'{"payload":1,"agentId":"Tom"}')
@example("Jerry", b'{"payload":1,"\\u0061gentId":"Jerry"}')
@example("Jerry", b'{"payload":1,"agent\\u0049d":"Tom"}')
@example("Jerry", b'{"payload":{"agentId":"Tom"}}')
@example("Jerry", b'{"payload":"\\"agentId\\""}')
@example("Jerry", b'{"payload":1,}')
@example("Jerry", b'{,"payload":1}')
@example("Jerry", b'{"payload":1} {')
@example("Jerry", b'{"payload":1')
@example("Jerry", b'{"payload":"\xff"}')
@example("Jerry", b'[{"payload":1}]')
@example("Jerry", b"{" + b'"payload":' + b"[" * 70 + b"]" * 70 + b"}")
@example("Jerry", b"\xef\xbb\xbf{}")
def test_one_pass_over_path_and_body_reads_what_two_steps_read(name, body):
    found, wanted = posted(name, body), reference(name, body)
    assert (found[1] if isinstance(found, tuple) else found) == wanted


def test_a_name_of_the_path_that_is_overwritten_in_the_body_would_be_seen():
    # The control: without the closer look the decoder lets the body's one win.
    body = b'{"payload":1,"agent\\u0049d":"Tom"}'
    assert codec.decode(b'{"agentId":"Jerry",' + body[1:], SendParams).agent_id == "Tom"
    assert posted("Jerry", body)[1] == "`agentId` stands in the path already"


# -- an application behind HTTP -------------------------------------------------------------------


class Connection:
    """What an answer in pieces does with its connection."""

    def __init__(self) -> None:
        self.write_paused = False
        self.did: list[Any] = []

    def piece(self, body):
        self.did.append(bytes(body))

    def begin(self, status, headers, *, in_chunks):
        self.did.append((status, headers, in_chunks))

    def respond(self, response):
        self.did.append(response)

    def ended(self):
        self.did.append("ended")

    def abort(self):
        self.did.append("aborted")


def refused(error: BaseException) -> Response:
    known = error if isinstance(error, BasculeError) else Internal("on purpose")
    return Response(known.status, [], b"")


async def mounted(mount, connection: Connection, *, verb="POST", before=lambda _: None) -> Request:
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))
    app = SimpleNamespace(on_status=lambda _: None, refused=refused, tasks=tasks)
    request = Request(verb, b"/mcp?a=b", "1.1", JSON, keep_alive=True)
    request.principal, request.endpoint = "agent:Jerry", SimpleNamespace(method="mcp.post")
    exchange = MountExchange(app, mount, request, b"{}")
    exchange.start(connection)
    before(exchange)
    async with asyncio.timeout(PATIENCE):
        await tasks.close(PATIENCE)
    return request


def start(status=200, *headers):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body=b"", *, more=False):
    return {"type": "http.response.body", "body": body, "more_body": more}


def answering(*messages):
    async def mount(principal, scope, body, receive, send):
        assert (principal, scope["method"], scope["path"], body) == ("agent:Jerry", "POST", "/mcp", b"{}")
        for message in messages:
            await send(message)

    return mount


ANSWERS = {
    "with a length": (
        [start(200, (b"Content-Length", b"2")), piece(b"o", more=True), piece(b"k")],
        [(200, [(b"content-length", b"2")], False), b"o", b"k", "ended"],
    ),
    "in chunks": (
        [start(), piece(b"one", more=True), piece(b"two")],
        [(200, [], True), b"one", b"two", "ended"],
    ),
    "without a body": ([start(204), piece()], [(204, [], False), b"", "ended"]),
    "with ours left out": (
        [start(200, (b"Cache-Control", b"public"), (b"X", b"y")), piece()],
        [(200, [(b"x", b"y")], True), b"", "ended"],
    ),
    "longer than it says": (
        [start(200, (b"content-length", b"1")), piece(b"two")],
        [(200, [(b"content-length", b"1")], False), "aborted"],
    ),
    "shorter than it says": (
        [start(200, (b"content-length", b"9")), piece(b"two")],
        [(200, [(b"content-length", b"9")], False), "aborted"],
    ),
    "never ended": ([start(), piece(b"one", more=True)], [(200, [], True), b"one", "aborted"]),
    "never begun": ([], [Response(500, [], b"")]),
    "a second answer in a header": ([start(200, (b"x", b"y\r\n\r\nHTTP/1.1 200 OK"))], [Response(500, [], b"")]),
    "a header without a name": ([start(200, (b"", b"y"))], [Response(500, [], b"")]),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_application_answers_through_its_connection(case):
    messages, expected = ANSWERS[case]
    connection = Connection()
    request = asyncio.run(mounted(answering(*messages), connection))
    assert connection.did == expected
    assert request.keep_alive


def test_an_application_may_end_its_connection():
    connection = Connection()
    request = asyncio.run(mounted(answering(start(200, (b"Connection", b"close")), piece()), connection))
    assert (request.keep_alive, connection.did[0]) == (False, (200, [], True))


def test_a_refusal_of_an_application_is_answered_as_everywhere():
    async def mount(*_):
        raise Internal("no")

    connection = Connection()
    asyncio.run(mounted(mount, connection))
    assert connection.did == [Response(500, [], b"")]


def test_an_application_waits_while_its_client_does_not_read():
    connection = Connection()
    connection.write_paused = True
    seen = []

    def before(exchange):
        def read():
            seen.append(list(connection.did))
            connection.write_paused = False
            exchange.resumed()

        asyncio.get_running_loop().call_later(0.01, read)

    asyncio.run(mounted(answering(start(), piece(b"one")), connection, before=before))
    assert seen == [[]]
    assert connection.did[-1] == "ended"


def test_an_application_hears_that_its_client_left_and_writes_nothing_more():
    words = []

    async def mount(_principal, _scope, _body, receive, send):
        words.append((await receive())["type"])
        await send(start())

    connection = Connection()
    asyncio.run(mounted(mount, connection, before=lambda exchange: exchange.left()))
    assert (words, connection.did) == (["http.disconnect"], [])


# -- time -----------------------------------------------------------------------------------------


class Late:
    """A connection of a door's, and when it was found late."""

    def __init__(self, door: HttpDoor) -> None:
        self.door = door
        self.due = float("inf")
        self.found: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def overdue(self) -> None:
        self.due = float("inf")
        self.found.set_result(asyncio.get_running_loop().time())


def test_nobody_is_late_before_its_time(monkeypatch):
    monkeypatch.setattr(server, "SWEEP_SECONDS", 0.01)

    async def scene() -> tuple[float, bool]:
        with socket.socket(socket.AF_UNIX) as sock:
            door = HttpDoor(SimpleNamespace(), sock, max_connections=2)
            quick, idle = Late(door), Late(door)
            assert door.entered(quick)
            assert door.entered(idle)
            assert not door.entered(Late(door))
            # In the middle between two looks.
            await asyncio.sleep(0.005)
            began = asyncio.get_running_loop().time()
            quick.due = door.now + 0.05
            async with asyncio.timeout(PATIENCE):
                at = await quick.found
            door.left(quick)
            door.left(idle)
            return at - began, idle.found.done()

    after, idle_found = asyncio.run(scene())
    assert after >= 0.05
    assert not idle_found
