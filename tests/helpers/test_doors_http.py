"""One blocking request: every way an answer can be delimited, refused or broken."""

import contextlib
import errno
import socket
import threading

import pytest
from fake_http import FakeHttp, answer, refusal
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation import paths
from bascule.local_client import exits, http
from bascule.local_client.choice import find_door
from patience import PATIENCE


@pytest.fixture
def serve(state):
    def start(*script):
        return FakeHttp(paths.http_socket(state), list(script))

    return start


def test_a_request_says_who_we_are_and_closes(serve, state):
    with serve(answer(200, {"ok": True})) as daemon:
        assert http.call(find_door(state), "POST", "/x", {"a": "é"}, token="t") == {"ok": True}
    got = daemon.got[0]
    assert (got.verb, got.path, got.json, got.bearer) == ("POST", "/x", {"a": "é"}, "t")
    assert got.headers["bascule-protocol"] == "1"
    assert got.headers["connection"] == "close"
    assert got.headers["content-type"] == "application/json"


def test_the_unix_socket_needs_no_bearer(serve, state):
    with serve(answer(200, [])) as daemon:
        http.call(find_door(state), "GET", "/agents")
    assert daemon.got[0].bearer is None


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2;x=y\r\n2]\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[1,2]",
        b"HTTP/1.0 200 OK\r\n\r\n[1,2]",
    ],
)
def test_length_chunks_and_close_delimit_the_same_body(serve, state, raw):
    with serve(raw):
        assert http.call(find_door(state), "GET", "/x") == [1, 2]


def test_no_content_is_none(serve, state):
    with serve(b"HTTP/1.1 204 No Content\r\n\r\n"):
        assert http.call(find_door(state), "POST", "/replies", {}) is None


def test_a_refusal_carries_code_message_hint_details_and_when_to_come_back(serve, state):
    answer = refusal(429, "overloaded", "slow down", hint="wait", details={"limit": 5}, retry_after=2)
    with serve(answer), pytest.raises(exits.Refusal) as caught:
        http.call(find_door(state), "GET", "/x")
    fault = caught.value
    assert (fault.status, fault.code, fault.message, fault.hint) == (429, "overloaded", "slow down", "wait")
    assert (fault.details, fault.retry_after, fault.exit_code) == ({"limit": 5}, 2.0, exits.OVERLOADED)


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 4), (403, 4), (404, 5), (409, 6), (413, 2), (426, 10), (429, 9), (500, 1), (503, 7), (507, 9)],
)
def test_each_status_has_its_exit_code(serve, state, status, code):
    with serve(refusal(status, "x")), pytest.raises(exits.Refusal) as caught:
        http.call(find_door(state), "GET", "/x")
    assert caught.value.exit_code == code


def test_an_error_page_of_something_else_is_still_a_refusal(serve, state):
    with serve(answer(502)), pytest.raises(exits.Refusal, match="502"):
        http.call(find_door(state), "GET", "/x")


def test_an_answer_given_before_the_body_was_read_is_heard(state):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.http_socket(state))
        listener.listen()
        door = find_door(state)

        def refuse_early():
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)
                peer.sendall(refusal(413, "too_large"))

        thread = threading.Thread(target=refuse_early)
        thread.start()
        with pytest.raises(exits.DoorError) as caught:
            http.call(door, "POST", "/x", "y" * 8_000_000)
        thread.join()
    # A reset connection may swallow the answer; it never becomes a success or a hang.
    assert isinstance(caught.value, exits.Refusal | exits.ConnectionLost)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1,",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1",
    ],
)
def test_an_answer_that_breaks_off_is_a_lost_connection(serve, state, raw):
    with serve(raw), pytest.raises(exits.ConnectionLost):
        http.call(find_door(state), "GET", "/x")


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{{{",
        b"x" * 20_000,
    ],
)
def test_what_is_not_our_daemon_is_told_so(serve, state, raw):
    with serve(raw), pytest.raises(exits.BadAnswer):
        http.call(find_door(state), "GET", "/x")


def test_silence_is_not_waited_for_without_end(state):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.http_socket(state))
        listener.listen()
        with pytest.raises(exits.ConnectionLost, match="in time"):
            http.call(find_door(state), "GET", "/x", seconds=0.05)


def test_nobody_there_says_how_to_start_it(state):
    with pytest.raises(exits.NotRunning, match="start it with `bascule up -d`"):
        http.call(find_door(state), "GET", "/x")


def test_a_dead_socket_file_says_how_to_start_it(state):
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(paths.http_socket(state))
    with pytest.raises(exits.NotRunning):
        http.call(find_door(state), "GET", "/x")


class Forbidden(socket.socket):
    """What a sandbox without sockets does: the second call fails with EPERM."""

    def connect(self, _address):
        raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize(
    ("variable", "named"),
    [
        ("CODEX_SANDBOX_NETWORK_DISABLED", "sandbox_workspace_write.network_access=true"),
        ("CLAUDECODE", "sandbox.excludedCommands"),
        (None, "post_reply"),
    ],
)
def test_a_shell_without_sockets_is_told_the_way_out(state, monkeypatch, variable, named):
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr(http.socket, "socket", Forbidden)
    with pytest.raises(exits.SocketsForbidden) as caught:
        http.call(find_door(state), "GET", "/x")
    assert "agent-bridge" in str(caught.value.hint)
    assert named in str(caught.value.hint)
    assert caught.value.exit_code == exits.NO_SOCKETS


def test_codex_without_network_and_nobody_there_is_a_sandbox(state, monkeypatch):
    monkeypatch.setenv("CODEX_SANDBOX_NETWORK_DISABLED", "1")
    with pytest.raises(exits.SocketsForbidden):
        http.call(find_door(state), "GET", "/x")


def test_codex_without_network_but_with_our_socket_just_works(serve, state, monkeypatch):
    monkeypatch.setenv("CODEX_SANDBOX_NETWORK_DISABLED", "1")
    with serve(answer(200, [])):
        assert http.call(find_door(state), "GET", "/x") == []


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_events_come_one_by_one_and_quiet_is_none(state):
    begun, go_on = threading.Event(), threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(paths.http_socket(state))
        listener.listen()

        def stream():
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                # An event cut in the middle, a comment, and an event of two data lines with other line ends.
                peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"id: 7\nev"))
                begun.set()
                go_on.wait(PATIENCE)
                peer.sendall(chunk(b"ent: a\ndata: {}\n\n: hi\n"))
                peer.sendall(chunk(b"\ndata: one\r\ndata: two\r\n\r\n") + chunk(b""))

        thread = threading.Thread(target=stream)
        thread.start()
        with http.EventStream(find_door(state), "/events") as events:
            begun.wait(PATIENCE)
            assert events.next_event(0.01) is None
            go_on.set()
            assert events.next_event(10) == {"id": "7", "event": "a", "data": "{}"}
            assert events.next_event(10) == {"data": "one\ntwo"}
            with pytest.raises(exits.ConnectionLost):
                events.next_event(10)
        thread.join()


def test_a_refused_stream_is_a_refusal(serve, state):
    with serve(refusal(404, "not_found", "unknown ticket")), pytest.raises(exits.Refusal, match="unknown ticket"):
        http.EventStream(find_door(state), "/replies/x/stream")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_documented_error(raw):
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(raw)
        theirs.shutdown(socket.SHUT_WR)
        conversation = http.Conversation(ours, http.time.monotonic() + PATIENCE)
        with conversation, contextlib.suppress(exits.DoorError):
            conversation.whole_answer()


def test_a_daemon_that_is_busy_for_many_looks_is_waited_for(serve, state, monkeypatch):
    """The control of a stopped one: this process answers late, and is not stopped."""
    looked = threading.Semaphore(0)
    look = http.stopped_peer

    def counted(sock):
        looked.release()
        return look(sock)

    def late(_got):
        for _ in range(5):
            assert looked.acquire(timeout=PATIENCE)
        return answer(200, {"ok": True})

    monkeypatch.setattr(http, "STOPPED_SECONDS", 0.01)
    monkeypatch.setattr(http, "stopped_peer", counted)
    with serve(late):
        assert http.call(find_door(state), "GET", "/x", unless_stopped=True, seconds=PATIENCE) == {"ok": True}


def test_a_daemon_that_was_stopped_at_one_look_is_waited_for(serve, state, monkeypatch):
    looks = []

    def once(_sock):
        looks.append(1)
        if len(looks) == 4:
            done.set()
        # A debugger stops and continues it.
        return 7 if len(looks) % 2 else 0

    def late(_got):
        assert done.wait(PATIENCE)
        return answer(200, {"ok": True})

    done = threading.Event()
    monkeypatch.setattr(http, "STOPPED_SECONDS", 0.01)
    monkeypatch.setattr(http, "stopped_peer", once)
    with serve(late):
        assert http.call(find_door(state), "GET", "/x", unless_stopped=True, seconds=PATIENCE) == {"ok": True}
