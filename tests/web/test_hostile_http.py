"""Clients that mean harm, at a real daemon: floods beside a body, peers that do not read, revoked agents."""

import contextlib
import os
import re
import select
import socket
import ssl
import time
from pathlib import Path

import pytest
from living import Living, short_dir
from wires import Caller, LinkWire, Wire, request

from bascule.surfaces.http.connection import MAX_AHEAD
from certificates import certificate_in
from patience import PATIENCE

JSON = ("Content-Type", "application/json")
CHUNKED = ("Transfer-Encoding", "chunked")
MIB = 1024 * 1024
PASSPHRASE = {"passphrase": "correct horse battery"}


def memory(daemon: Living) -> int:
    pages = int(Path(f"/proc/{daemon.process.pid}/statm").read_text().split()[1])
    return pages * 4096


def flood(wire: Wire, piece: bytes) -> None:
    for _ in range(64):
        wire.send(piece)


@pytest.mark.parametrize("known", [True, False], ids=["with a token", "without one"])
@pytest.mark.parametrize(
    ("opening", "piece"),
    [
        pytest.param(b"0\r\nX: ", b"y" * MIB, id="a trailer without end"),
        pytest.param(b"1;", b"y" * MIB, id="an extension without end"),
        pytest.param(b"", b"2\r\nxy\r\n" * (MIB // 7), id="chunks of two bytes"),
    ],
)
def test_what_is_sent_beside_a_body_does_not_grow_the_daemon(daemon, opening, piece, known):
    caller = Caller(daemon)
    assert caller.get("/healthz").status == 200
    before = memory(daemon)
    headers = caller.headers if known else [("Host", daemon.host)]
    with Wire(daemon.tcp) as wire:
        wire.send(request("POST", "/agents/register", [*headers, JSON, CHUNKED]) + opening)
        with pytest.raises(ConnectionError):
            flood(wire, piece)
    assert memory(daemon) - before < 16 * MIB


def test_thousands_of_refusals_in_one_piece_are_cut_short(daemon):
    with Wire(daemon.tcp) as wire:
        with contextlib.suppress(ConnectionError):
            wire.send(request("GET", "/status", [("Host", daemon.host)]) * 5_000)
        answers = b""
        with contextlib.suppress(ConnectionError):
            while data := wire.sock.recv(1 << 16):
                answers += data
    # What one turn of the loop has for refusals, and what may be sent ahead: not thousands.
    assert 1 <= answers.count(b"HTTP/1.1 401 ") <= 4 * MAX_AHEAD
    assert answers.count(b"HTTP/1.1 ") == answers.count(b"HTTP/1.1 401 ")


def test_what_an_agent_sent_ahead_is_not_done_after_it_was_revoked(daemon):
    local = Caller(daemon)
    tom, jerry = local.register("Tom"), local.register("Jerry")
    body = b'{"payload":"from the revoked"}'
    head = request("POST", "/agents/Jerry/send", [*tom.headers, JSON, ("Content-Length", str(len(body)))])
    with (
        Wire(daemon.tcp) as ahead,
        Wire(daemon.tcp) as half,
        Wire(daemon.tcp) as early,
        LinkWire(daemon.link_socket) as link,
    ):
        # The control: while it is not revoked, half a request is done when the rest comes.
        early.send(head)
        early.send(body.replace(b"revoked", b"trusted"))
        assert early.answer().status == 200
        half.send(head)
        ahead.send(request("GET", "/agents/Tom/inbox?waitMs=60000", tom.headers) + head + body)
        link.hello()
        if not link.call("person.status")["set"]:
            link.call("person.set", PASSPHRASE)
        link.call("person.unlock", PASSPHRASE)
        link.call("agents.revoke", {"agentId": "Tom"})
        half.send(body)
        assert half.answer().status == 401
        assert ahead.answer().status in (204, 401, 403)
        assert ahead.answer().status == 401
    found = jerry.get("/agents/Jerry/inbox?waitMs=0").json["messages"]
    assert [each["payload"] for each in found] == ["from the trusted"]


@pytest.fixture(scope="module")
def hasty():
    constants = {"bascule.surfaces.http.connection.CLOSE_SECONDS": 1}
    with short_dir() as folder, Living(f"{folder}/s", constants=constants) as living:
        yield living


def test_a_client_that_never_reads_its_last_answer_is_cut(hasty):
    headers = Caller(hasty).headers
    ask = request("GET", "/openapi.json", headers) * 4
    with Wire(hasty.http_socket) as wire:
        wire.send(ask + request("GET", "/openapi.json", [*headers, ("Connection", "close")]))
        gone = select.poll()
        gone.register(wire.sock, select.POLLHUP)
        assert gone.poll(PATIENCE * 1000)


def test_http_1_0_gets_a_stream_without_chunks(daemon):
    local = Caller(daemon)
    local.register("Pip")
    ticket = local.send("Pip", timeoutMs=200)
    with Wire(daemon.tcp) as wire:
        wire.send(request("GET", f"/replies/{ticket}/stream", local.headers).replace(b"HTTP/1.1", b"HTTP/1.0"))
        status, headers = wire.head()
        body = b""
        while data := wire.sock.recv(1 << 16):
            body += data
    assert status == 200
    assert "transfer-encoding" not in headers
    assert headers["connection"] == "close"
    # All of it is text of events: no sizes in between.
    assert re.fullmatch(rb"(?:(?::.*|event: timeout|id: .*|data: \{.*\})?\n)*", body), body
    assert b"event: timeout" in body


def test_a_stop_does_not_wait_for_peers_that_do_not_read_or_never_finish_their_handshake():
    with short_dir() as folder:
        certificate, key = certificate_in(Path(folder))
        # A stop that waited for either would not end within our patience.
        constants = {"bascule.surfaces.http.server.HEAD_SECONDS": 10 * PATIENCE}
        files = {"tls_cert": str(certificate), "tls_key": str(key)}
        with Living(f"{folder}/s", constants=constants, **files) as daemon:
            page = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
            with Wire(daemon.http_socket) as unread, socket.create_connection(daemon.tcp) as silent:
                unread.send(page * 5)
                assert unread.sock.recv(1, socket.MSG_PEEK)
                silent.sendall(b"\x16\x03\x01")
                assert daemon.stop() == 0


def test_tls_connections_above_the_limit_keep_no_descriptor():
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def descriptors(daemon: Living) -> int:
        return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))

    with short_dir() as folder, contextlib.ExitStack() as held:
        certificate, key = certificate_in(Path(folder))
        files = {"tls_cert": str(certificate), "tls_key": str(key)}
        constants = {"bascule.surfaces.http.server.MAX_CONNECTIONS": 2}
        daemon = held.enter_context(Living(f"{folder}/s", constants=constants, **files))
        before = descriptors(daemon)
        for _ in range(20):
            plain = held.enter_context(socket.create_connection(daemon.tcp, timeout=PATIENCE))
            # A refused one may be gone before its handshake ends; none of them closes its own side.
            with contextlib.suppress(OSError):
                held.enter_context(trusting.wrap_socket(plain, suppress_ragged_eofs=False))
        # A connection that waits for its peer's end of TLS goes after asyncio's 30 s.
        deadline = time.monotonic() + PATIENCE
        while descriptors(daemon) > before + 2:
            assert time.monotonic() < deadline, "they are closed"
            time.sleep(0.05)
