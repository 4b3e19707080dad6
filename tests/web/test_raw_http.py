"""HTTP as no library would send it: smuggled, flooding, slow. Each is cut, and nobody else notices."""

import contextlib
import json
import select
import socket
import time

import pytest
from living import Living, short_dir
from wires import Caller, Wire, request

from bascule.surfaces.http.connection import MAX_AHEAD
from patience import PATIENCE

JSON = ("Content-Type", "application/json")
# What must never be answered: a request hidden where a body was announced.
HIDDEN = b"GET /tickets/smuggled HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n\r\n"


@pytest.fixture(autouse=True)
def _unharmed(daemon):
    seen = len(daemon.terminal())
    yield
    assert Caller(daemon).get("/healthz").body == b"ok\n"
    assert "Traceback" not in daemon.terminal()[seen:]


def everything(wire: Wire) -> bytes:
    """All that comes until the daemon closes; fails when it does not."""
    out = b""
    while data := _received(wire):
        out += data
    return out


def _received(wire: Wire) -> bytes:
    try:
        return wire.sock.recv(1 << 16)
    except ConnectionResetError:
        return b""


# -- smuggling ------------------------------------------------------------------------------------

CHUNKED = ("Transfer-Encoding", "chunked")

AMBIGUOUS = {
    "two lengths": [("Content-Length", "0"), ("Content-Length", "HIDDEN")],
    "two lengths in one": [("Content-Length", "0, HIDDEN")],
    "chunks and a length": [CHUNKED, ("Content-Length", "HIDDEN")],
    "a length and chunks": [("Content-Length", "HIDDEN"), CHUNKED],
    "a signed length": [("Content-Length", "+HIDDEN")],
    "a negative length": [("Content-Length", "-1")],
    "a length in hex": [("Content-Length", "0x10")],
    "an endless length": [("Content-Length", "9" * 40)],
    "no digits": [("Content-Length", "")],
    "a coding nobody knows": [("Transfer-Encoding", "xchunked")],
    "chunked, then something else": [("Transfer-Encoding", "chunked, identity")],
    "a space before the colon": [("Content-Length ", "HIDDEN")],
    "a header without a colon": [("nonsense\r\nX", "y")],
    "a NUL in a value": [("X-Name", "a\x00b")],
    "a NUL in a name": [("X\x00Name", "b")],
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_request_whose_end_is_ambiguous_is_400_and_closed_with_nothing_behind_it_answered(daemon, case):
    caller = Caller(daemon)
    hidden = HIDDEN.replace(b"HOST", daemon.host.encode()).replace(b"TOKEN", caller.token.encode())
    headers = [(name, value.replace("HIDDEN", str(len(hidden)))) for name, value in AMBIGUOUS[case]]
    body = b"0\r\n\r\n" if CHUNKED in headers else b""
    with Wire(daemon.tcp) as wire:
        wire.send(request("POST", "/agents/register", [*caller.headers, JSON, *headers]) + body + hidden)
        answer = everything(wire)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "line",
    [
        b"GET /healthz HTTP/9.9",
        b"GET /health z HTTP/1.1",
        b"FLY /healthz HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz HTTP/1.1\r\nX: y\r\n\tfolded",
        b"{}",
    ],
)
def test_what_is_no_request_is_400_and_closed(daemon, line):
    head = "".join(f"{name}: {value}\r\n" for name, value in Caller(daemon).headers).encode()
    with Wire(daemon.tcp) as wire:
        wire.send(line + b"\r\n" + head + b"\r\n")
        answer = everything(wire)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"ok\n" not in answer


def test_a_refused_request_with_its_body_unread_does_not_become_the_next_request(daemon):
    caller = Caller(daemon)
    hidden = HIDDEN.replace(b"HOST", daemon.host.encode()).replace(b"TOKEN", caller.token.encode())
    with Wire(daemon.tcp) as wire:
        # 401 leaves the connection open; what follows is the body, whatever it looks like.
        first = wire.ask("POST", "/agents/register", [("Host", daemon.host), JSON], hidden)
        second = wire.ask("GET", "/healthz", caller.headers)
    assert (first.status, second.status, second.body) == (401, 200, b"ok\n")


def test_requests_sent_at_once_are_answered_in_order(daemon):
    caller = Caller(daemon)
    paths = ["/healthz", "/nope", "/status", "/readyz"]
    with Wire(daemon.tcp) as wire:
        wire.send(b"".join(request("GET", path, caller.headers) for path in paths))
        assert [wire.answer().status for _ in paths] == [200, 404, 200, 200]


def test_requests_sent_behind_a_wait_are_answered_after_it_and_in_order(daemon):
    caller = Caller(daemon)
    caller.post("/agents/register", {"agentId": "Pip"})
    ticket = json.loads(caller.post("/agents/Pip/send", {"payload": "hi"}).body)["ticketId"]
    paths = [f"/replies/{ticket}?waitMs=100", "/nope", "/status", f"/replies/{ticket}?waitMs=50", "/healthz"]
    with Wire(daemon.tcp) as wire:
        wire.send(b"".join(request("GET", path, caller.headers) for path in paths))
        assert [wire.answer().status for _ in paths] == [204, 404, 200, 204, 200]


def test_streams_are_answered_in_order_too(daemon):
    caller = Caller(daemon)
    caller.post("/agents/register", {"agentId": "Pip"})
    ticket = json.loads(caller.post("/agents/Pip/send", {"payload": "hi", "timeoutMs": 200}).body)["ticketId"]
    paths = [f"/replies/{ticket}?waitMs=50", f"/replies/{ticket}/stream", f"/replies/{ticket}/stream", "/healthz"]
    with Wire(daemon.tcp) as wire:
        wire.send(b"".join(request("GET", path, caller.headers) for path in paths))
        answers = [wire.answer() for _ in paths]
    assert [answer.status for answer in answers] == [204, 200, 200, 200]
    assert [b"event: timeout" in answer.body for answer in answers] == [False, True, True, False]
    assert answers[-1].body == b"ok\n"


def test_more_than_can_be_sent_ahead_ends_the_connection_after_what_was_taken(daemon):
    caller = Caller(daemon)
    caller.post("/agents/register", {"agentId": "Pip"})
    ticket = json.loads(caller.post("/agents/Pip/send", {"payload": "hi"}).body)["ticketId"]
    paths = [f"/replies/{ticket}?waitMs=100", *["/healthz"] * (MAX_AHEAD + 5)]
    with Wire(daemon.tcp) as wire:
        wire.send(b"".join(request("GET", path, caller.headers) for path in paths))
        assert [wire.answer().status for _ in range(1 + MAX_AHEAD)] == [204, *[200] * MAX_AHEAD]
        assert everything(wire) == b""


# -- floods ---------------------------------------------------------------------------------------

# More than any client of ours sends, less than would hurt: what common servers allow a whole head.
LARGEST_HEAD_BYTES = 1024 * 1024


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param([("X-Flood", "y" * LARGEST_HEAD_BYTES)], id="one long header"),
        pytest.param([(f"X-{number}", "y" * 100) for number in range(10_000)], id="ten thousand headers"),
    ],
)
def test_a_flood_of_headers_is_refused(daemon, flood):
    with Wire(daemon.tcp) as wire:
        try:
            wire.send(request("GET", "/healthz", [*Caller(daemon).headers, *flood]))
            status, _ = wire.head()
        except (ConnectionError, AssertionError):
            # Cut without a word is a refusal too.
            return
    assert status in (400, 413, 431)


def memory(daemon) -> int:
    with open(f"/proc/{daemon.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("at_once", [1, 400])
def test_answers_that_nobody_reads_do_not_grow_the_daemon(daemon, at_once):
    caller = Caller(daemon)
    before = memory(daemon)
    page = len(caller.get("/openapi.json").body)
    count = 200 * 1024 * 1024 // page // at_once
    ask = request("GET", "/openapi.json", caller.headers) * at_once
    with Wire(daemon.tcp) as wire:
        wire.sock.settimeout(0.5)
        with contextlib.suppress(ConnectionError, TimeoutError):
            for _ in range(count):
                wire.send(ask)
                assert caller.get("/healthz").status == 200
        assert memory(daemon) - before < 32 * 1024 * 1024


def test_a_request_behind_answers_that_nobody_reads_is_served_once_they_are_read(daemon):
    caller = Caller(daemon)
    body = b'{"agentId":"Late"}'
    pages = 5  # fewer than one turn of the loop serves, more than a unix socket holds
    ask = request("GET", "/openapi.json", caller.headers) * pages
    with Wire(daemon.http_socket) as wire:
        wire.send(ask + request("POST", "/agents/register", [*caller.headers, JSON], body))
        assert wire.sock.recv(1, socket.MSG_PEEK)
        # More turns of the loop than all of it would take.
        for _ in range(2 * pages):
            assert caller.get("/healthz").status == 200
        assert "Late" not in [each["agentId"] for each in caller.get("/agents").json]
        assert [wire.answer().status for _ in range(pages + 1)] == [200] * (pages + 1)
    assert "Late" in [each["agentId"] for each in caller.get("/agents").json]


def test_a_head_that_never_ends_does_not_grow_the_daemon(daemon):
    before = memory(daemon)
    with Wire(daemon.tcp) as wire:
        wire.send(b"GET /healthz HTTP/1.1\r\n")
        try:
            for number in range(64):
                wire.send(b"X-%d: " % number + b"y" * LARGEST_HEAD_BYTES + b"\r\n")
        except ConnectionError:
            return
        # 64 MiB are held for somebody who has shown neither Host nor token.
        assert memory(daemon) - before < 16 * 1024 * 1024


# -- slowness -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty():
    """A daemon whose patience is a second: enough for a request of a loaded machine."""
    constants = {
        "bascule.surfaces.http.connection.HEAD_SECONDS": 1,
        "bascule.surfaces.http.connection.BODY_SECONDS": 1,
        "bascule.surfaces.http.connection.KEEP_ALIVE_SECONDS": 1,
    }
    with short_dir() as folder, Living(f"{folder}/s", constants=constants) as living:
        yield living


@pytest.mark.parametrize("start", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: "])
def test_a_head_that_does_not_come_is_cut(hasty, start):
    with Wire(hasty.tcp) as wire:
        wire.send(start)
        assert everything(wire) == b""


def test_a_head_that_trickles_is_cut_at_the_same_moment(hasty):
    deadline = time.monotonic() + PATIENCE
    with Wire(hasty.tcp) as wire:
        wire.sock.settimeout(0.05)
        while True:
            # Each byte would give it more time, without end.
            assert time.monotonic() < deadline, "it is not cut"
            try:
                wire.send(b"X")
                if not wire.sock.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break


def test_the_head_of_a_second_request_is_cut_too(hasty):
    with Wire(hasty.tcp) as wire:
        assert wire.ask("GET", "/healthz", Caller(hasty).headers).status == 200
        wire.send(b"GET /heal")
        assert everything(wire) == b""


@pytest.mark.parametrize("start", [b"", b'{"agentId":'])
def test_a_body_that_does_not_come_is_answered_and_cut(hasty, start):
    caller = Caller(hasty)
    with Wire(hasty.tcp) as wire:
        wire.send(request("POST", "/agents/register", [*caller.headers, JSON, ("Content-Length", "99")]) + start)
        answer = wire.answer()
        assert 400 <= answer.status < 500
        assert "did not arrive" in answer.error["message"]
        assert wire.closed()


def test_chunks_that_do_not_come_are_answered_and_cut(hasty):
    with Wire(hasty.tcp) as wire:
        wire.send(request("POST", "/agents/register", [*Caller(hasty).headers, JSON, CHUNKED]) + b"1\r\n{\r\n")
        assert 400 <= wire.answer().status < 500
        assert wire.closed()


def test_a_client_that_goes_away_in_the_middle_of_its_body_changes_nothing(hasty):
    caller = Caller(hasty)
    before = caller.get("/status").json["ledgerRecords"]
    with Wire(hasty.tcp) as wire:
        head = [*caller.headers, JSON, ("Content-Length", "99")]
        wire.send(request("POST", "/agents/register", head) + b'{"agentId":"Tom"}')
    assert caller.get("/status").json["ledgerRecords"] == before
    assert caller.get("/agents").json == []


def test_a_client_that_never_reads_its_answers_is_cut(hasty):
    ask = request("GET", "/openapi.json", Caller(hasty).headers)
    with Wire(hasty.http_socket) as wire:
        wire.send(ask * 5)
        gone = select.poll()
        gone.register(wire.sock, select.POLLHUP)
        assert gone.poll(PATIENCE * 1000)


def test_slow_clients_do_not_hold_up_a_quick_one(daemon):
    slow = [Wire(daemon.tcp) for _ in range(100)]
    try:
        for wire in slow:
            wire.send(b"GET /healthz HTTP/1.1\r\n")
        assert Caller(daemon).get("/healthz").status == 200
        # It was not their end that it waited for.
        slow[-1].sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            slow[-1].sock.recv(1)
    finally:
        for wire in slow:
            wire.close()
