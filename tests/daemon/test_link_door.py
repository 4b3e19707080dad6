"""The link door, frame by frame: who may speak, what is answered, what is closed, what is held and let go."""

import json
import os
import socket
import subprocess
import sys

import pytest
from living import Living, eventually, short_dir
from wires import Caller, LinkWire

from bascule import __version__
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.kernel.link_protocol import CREDIT_WINDOW
from gabp.content_length import frame
from patience import PATIENCE

HELLO = {"protocol": 1, "version": "test"}
NOBODY = 65534


@pytest.fixture
def link(daemon):
    with LinkWire(daemon.link_socket) as wire:
        yield wire.hello()


@pytest.fixture
def fresh(daemon):
    """A connection that has said nothing yet."""
    with LinkWire(daemon.link_socket) as wire:
        yield wire


@pytest.fixture
def handle(request) -> str:
    return f"agent-{abs(hash(request.node.nodeid)) % 10**9}"


# -- hello ----------------------------------------------------------------------------------------


def test_hello_says_who_the_daemon_takes_us_for(fresh):
    assert fresh.call("hello", HELLO) == {"protocol": 1, "version": __version__, "principal": "local"}


def test_before_hello_nothing_is_done(fresh):
    refusal = fresh.refusal("daemon.status")
    assert refusal["code"] == "unauthenticated"
    assert "hello" in refusal["hint"]
    # It was a mistake, not an attack: the connection lives.
    assert fresh.call("hello", HELLO)["principal"] == "local"


def test_before_hello_a_notification_is_nothing(fresh):
    fresh.notify("$/cancel", {"id": 1})
    fresh.notify("messages.send", {"agentId": "Tom", "payload": 1})
    assert fresh.call("hello", HELLO)["principal"] == "local"


def test_another_protocol_version_is_reported_in_a_sentence_and_closed(fresh):
    refusal = fresh.refusal("hello", {"protocol": 2, "version": "9.9.9"})
    assert refusal["code"] == "version_mismatch"
    assert f"this program is Bascule 9.9.9 and the running daemon is {__version__}" in refusal["message"]
    assert fresh.read() is None


def test_a_wrong_token_is_refused_and_closed(fresh):
    refusal = fresh.refusal("hello", {**HELLO, "token": "wrong"})
    assert refusal["code"] in ("unauthenticated", "overloaded")
    assert fresh.read() is None


def test_behind_a_refused_hello_nothing_is_done(daemon, fresh):
    before = Caller(daemon).get("/status").json["ledgerRecords"]
    wrong = {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"protocol": 2, "version": "x"}}
    right = {"jsonrpc": "2.0", "id": 2, "method": "hello", "params": HELLO}
    act = {"jsonrpc": "2.0", "id": 3, "method": "agents.register", "params": {"agentId": "Intruder"}}
    # One write, so that all three are there when the first is refused.
    fresh.send_bytes(b"".join(frame(json.dumps(each).encode()) for each in (wrong, right, act)))
    assert fresh.read()["error"]["data"]["code"] == "version_mismatch"
    assert fresh.read() is None
    assert Caller(daemon).get("/status").json["ledgerRecords"] == before


@pytest.mark.parametrize(
    "params", [{}, {"protocol": "1", "version": "x"}, {**HELLO, "extra": 1}, {**HELLO, "token": 5}, [1]]
)
def test_a_hello_of_another_shape_is_refused_and_closed(fresh, params):
    id_ = fresh.request("hello", params)
    assert fresh.answer(id_)["error"]["data"]["code"] == "invalid_request"
    assert fresh.read() is None


def test_hello_may_be_said_again_to_act_as_somebody_else(daemon, link, handle):
    token = link.call("agents.register", {"agentId": handle})["agentToken"]
    assert link.call("hello", {**HELLO, "token": token})["principal"] == f"agent:{handle}"
    assert link.call("agents.heartbeat", {"agentId": handle})["status"] == "online"
    assert link.call("hello", HELLO)["principal"] == "local"
    assert link.refusal("agents.heartbeat", {"agentId": handle})["code"] == "forbidden"


def test_a_second_hello_that_is_refused_leaves_the_first_in_force(link):
    assert link.refusal("hello", {**HELLO, "token": "wrong"})["code"] in ("unauthenticated", "overloaded")
    assert link.call("daemon.status")["principal"] == "local"


def test_a_connection_without_hello_is_closed():
    constants = {"bascule.surfaces.link.HELLO_SECONDS": 0.2}
    with (
        short_dir() as folder,
        Living(f"{folder}/s", constants=constants) as daemon,
        LinkWire(daemon.link_socket) as silent,
        LinkWire(daemon.link_socket) as polite,
        LinkWire(daemon.link_socket) as talkative,
    ):
        polite.hello()
        talkative.refusal("daemon.status")
        assert silent.read() is None
        # Talking is not saying hello.
        assert talkative.read() is None
        assert polite.call("daemon.status")["principal"] == "local"


# -- frames and envelopes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"Content-Length: many\r\n\r\n",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: %d\r\n\r\n" % (MAX_LINK_FRAME_BYTES + 1),
        b"Content-Length: 2\n\n{}",
        b"X" * 9_000,
        b'{"jsonrpc":"2.0","id":1,"method":"hello"}\n',
    ],
    ids=["http", "no digits", "negative", "twice", "too large", "bare newlines", "endless header", "lines"],
)
def test_a_broken_frame_is_answered_and_closed(daemon, link, data):
    link.send_bytes(data)
    answer = link.read()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    assert link.read() is None
    assert Caller(daemon).get("/healthz").status == 200


def test_what_came_whole_before_a_broken_frame_is_answered_however_it_was_cut(daemon):
    good = frame(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "person.status", "params": {}}).encode())
    for cut in (False, True):
        with LinkWire(daemon.link_socket) as wire:
            wire.hello()
            # So that nothing is on its way to the disk that the answer would wait for.
            assert wire.call("person.status")
            wire.send_bytes(good if cut else good + b"nonsense\r\n\r\n")
            if cut:
                assert wire.answer(9)["result"]
                continue
            # The same bytes in one piece mean the same.
            assert wire.answer(9)["result"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"a":NaN}}', -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b'{"id":7,"method":"daemon.status"}', -32600),
        (b'{"jsonrpc":"1.0","id":7,"method":"daemon.status"}', -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"daemon.status","params":5}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"daemon.status"}', -32600),
        (b'{"jsonrpc":"2.0","id":7,"method":"daemon.status","extra":1}', -32600),
    ],
)
def test_a_broken_envelope_is_answered_and_the_connection_lives(link, body, code):
    link.send_bytes(frame(body))
    assert link.read()["error"]["code"] == code
    assert link.call("daemon.status")["principal"] == "local"


def test_an_unknown_method_is_named(link):
    refusal = link.refusal("agents.dance")
    assert refusal["code"] == "not_found"
    assert "agents.dance" in refusal["message"]


@pytest.mark.parametrize("params", [{"agentId": 5}, {"colour": 1}, [], ["Tom"]])
def test_params_of_another_shape_are_400_and_named(link, params):
    answer = link.answer(link.request("agents.register", params))
    assert answer["error"]["code"] == -32000
    assert answer["error"]["data"]["code"] == "invalid_request"
    assert answer["error"]["data"]["details"] == {"method": "agents.register"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ledger.show", {"what": "9" * 30}),
        ("ledger.show", {"what": "\u0663"}),
        ("ledger.tail", {"before": 2**70}),
        ("tickets.list", {"limit": 2**70}),
        ("events.stream", {"after": 2**70}),
        ("replies.wait", {"ticketId": "x", "waitMs": 2**70}),
    ],
)
def test_a_number_beyond_all_records_is_no_internal_error(link, method, params):
    answer = link.answer(link.request(method, params))
    if "error" in answer:
        assert answer["error"]["data"]["code"] in ("invalid_request", "not_found")


def test_a_ticket_whose_id_is_a_number_can_be_looked_up_in_the_ledger(link, handle):
    link.call("agents.register", {"agentId": handle})
    link.call("messages.send", {"agentId": handle, "payload": 1, "ticketId": "90000001"})
    assert [record["method"] for record in link.call("ledger.show", {"what": "90000001"})] == ["messages.send"]


def test_requests_sent_at_once_are_all_answered(link):
    ids = [link.request("daemon.status") for _ in range(200)]
    assert {link.answer(id_)["result"]["principal"] for id_ in ids} == {"local"}


# -- waits ----------------------------------------------------------------------------------------


def waiting(daemon: Living, wanted: int) -> None:
    local = Caller(daemon)
    eventually(lambda: local.gauge("bascule_waits") == wanted, f"{wanted} wait")


@pytest.fixture
def ticket(link, handle) -> str:
    link.call("agents.register", {"agentId": handle})
    return link.call("messages.send", {"agentId": handle, "payload": "hello"})["ticketId"]


def test_a_wait_that_is_cancelled_is_answered_and_let_go(daemon, link, ticket):
    id_ = link.request("replies.wait", {"ticketId": ticket, "waitMs": 30_000})
    waiting(daemon, 1)
    link.notify("$/cancel", {"id": id_})
    assert link.answer(id_)["error"]["data"]["message"] == "cancelled"
    waiting(daemon, 0)


@pytest.mark.parametrize("params", [{"id": 12345}, {"id": None}, {"id": [1]}, {}, []])
def test_cancelling_what_is_not_there_is_nothing(link, params):
    link.notify("$/cancel", params)
    assert link.call("daemon.status")["principal"] == "local"


def test_a_wait_whose_time_is_over_is_null(link, ticket):
    assert link.call("replies.wait", {"ticketId": ticket, "waitMs": 30}) is None


def test_a_connection_that_goes_away_lets_its_waits_go(daemon, ticket):
    with LinkWire(daemon.link_socket) as other:
        other.hello()
        other.request("replies.wait", {"ticketId": ticket, "waitMs": 30_000})
        other.request("replies.wait", {"ticketId": ticket, "waitMs": 30_000})
        waiting(daemon, 2)
    waiting(daemon, 0)


def test_an_id_in_use_is_refused_and_the_first_call_goes_on(daemon, link, ticket, handle):
    link.request("replies.wait", {"ticketId": ticket, "waitMs": 30_000}, id_="same")
    waiting(daemon, 1)
    link.request("daemon.status", id_="same")
    refused = link.read()
    assert refused["id"] == "same"
    assert "in use" in refused["error"]["data"]["message"]
    link.notify("$/cancel", {"id": "same"})
    assert link.read()["error"]["data"]["message"] == "cancelled"
    # Free again.
    link.request("daemon.status", id_="same")
    assert link.read()["result"]["principal"] == "local"


# -- streams --------------------------------------------------------------------------------------


def test_an_inbox_stream_keeps_to_its_credit_and_acknowledging_returns_it(daemon, link, handle):
    local = Caller(daemon)
    token = link.call("agents.register", {"agentId": handle})["agentToken"]
    tickets = [local.send(handle, number) for number in range(CREDIT_WINDOW + 2)]
    with LinkWire(daemon.link_socket) as bot:
        bot.hello(token)
        stream = bot.request("inbox.stream", {"agentId": handle})
        assert bot.read() == {"jsonrpc": "2.0", "id": stream, "result": {}}
        items = [bot.read() for _ in range(CREDIT_WINDOW)]
        assert {(item["method"], item["params"]["stream"]) for item in items} == {("inbox.item", stream)}
        assert [item["params"]["item"]["ticketId"] for item in items] == tickets[:CREDIT_WINDOW]
        # A round trip: had a 33rd been sent, it would stand before this answer.
        bot.request("daemon.status", id_="here")
        assert bot.read()["id"] == "here"
        acked = bot.request("inbox.ack", {"agentId": handle, "ticketIds": tickets[:2]})
        more = [bot.read() for _ in range(3)]
        assert {each["params"]["item"]["ticketId"] for each in more if "method" in each} == set(tickets[-2:])
        assert [each["id"] for each in more if "id" in each] == [acked]


def test_a_stream_that_is_cancelled_sends_no_more(daemon, link, handle):
    local = Caller(daemon)
    stream = link.request("events.stream")
    assert link.answer(stream)["result"] == {}
    local.register(handle)
    assert link.read()["method"] == "events.item"
    link.notify("$/cancel", {"id": stream})
    link.call("daemon.status")
    while link._frames:
        link.read()
    local.send(handle)
    link.request("daemon.status", id_="next")
    assert link.read()["id"] == "next"


def test_a_reply_stream_ends_with_the_ticket(link, ticket, daemon, handle):
    stream = link.request("replies.stream", {"ticketId": ticket})
    assert link.answer(stream)["result"] == {}
    link.call("tickets.cancel", {"ticketId": ticket})
    seen = []
    while (message := link.read())["method"] != "replies.end":
        seen.append(message["method"])
    assert seen == ["replies.item"]
    assert message["params"] == {"stream": stream}


def test_a_revoked_agents_connection_is_closed(daemon, handle):
    local = Caller(daemon)
    token = local.register(handle).token
    with LinkWire(daemon.link_socket) as bot, LinkWire(daemon.link_socket) as person:
        bot.hello(token)
        unlock(person.hello())
        assert person.call("agents.revoke", {"agentId": handle})["status"] == "revoked"
        assert bot.read() is None
    with LinkWire(daemon.link_socket) as bot:
        assert bot.refusal("hello", {**HELLO, "token": token})["code"] in ("unauthenticated", "overloaded")


# -- exclusive handles ----------------------------------------------------------------------------


def test_an_exclusive_handle_is_refused_while_another_connection_lives_and_free_after(daemon, handle):
    with LinkWire(daemon.link_socket) as first:
        first.hello()
        token = first.call("agents.register", {"agentId": handle, "exclusive": True})["agentToken"]
        first.hello(token)
        with LinkWire(daemon.link_socket) as second:
            second.hello(token)
            refusal = second.refusal("agents.register", {"agentId": handle, "exclusive": True})
            assert refusal["code"] == "conflict"
            assert refusal["details"]["free"] == f"{handle}-2"
            # Without `exclusive` the token is enough.
            assert second.call("agents.register", {"agentId": handle})["reconnected"] is True
        # The same connection may come back to its own name.
        eventually(lambda: Caller(daemon).gauge("bascule_link_connections") == 1, "the second is gone")
        assert first.call("agents.register", {"agentId": handle, "exclusive": True})["reconnected"] is True
    eventually(lambda: Caller(daemon).gauge("bascule_link_connections") == 0, "the first is gone")
    with LinkWire(daemon.link_socket) as third:
        third.hello(token)
        assert third.call("agents.register", {"agentId": handle, "exclusive": True})["reconnected"] is True


def test_an_agent_is_online_as_long_as_one_of_its_connections_is(daemon, handle):
    local = Caller(daemon)
    token = local.register(handle).token

    def status() -> str:
        return next(each["status"] for each in local.get("/agents").json if each["agentId"] == handle)

    with LinkWire(daemon.link_socket) as first:
        first.hello(token)
        with LinkWire(daemon.link_socket) as second:
            second.hello(token)
        eventually(lambda: local.gauge("bascule_link_connections") == 1, "the second is gone")
        assert status() == "online"
    assert eventually(lambda: status() == "offline", "its process is gone")


# -- the person -----------------------------------------------------------------------------------

PASSPHRASE = {"passphrase": "correct horse battery"}


def unlock(link: LinkWire) -> None:
    if not link.call("person.status")["set"]:
        link.call("person.set", PASSPHRASE)
    link.call("person.unlock", PASSPHRASE)


def test_the_right_passphrase_makes_one_connection_the_persons(daemon, link, fresh, handle):
    token = link.call("agents.register", {"agentId": handle})["agentToken"]
    assert link.refusal("agents.revoke", {"agentId": handle})["code"] == "forbidden"
    unlock(link)
    assert link.call("daemon.status")["principal"] == "person"
    assert 0 < link.call("person.status")["unlockedS"] <= 900
    # Of this connection only, and not under another name.
    fresh.hello()
    assert fresh.call("daemon.status")["principal"] == "local"
    assert "unlockedS" not in fresh.call("person.status")
    assert link.hello(token).call("daemon.status")["principal"] == f"agent:{handle}"
    assert link.refusal("agents.revoke", {"agentId": handle})["code"] == "forbidden"


def test_an_agent_can_neither_set_nor_use_the_passphrase(daemon, link, handle):
    token = link.call("agents.register", {"agentId": handle})["agentToken"]
    link.hello(token)
    for method in ("person.set", "person.unlock"):
        assert link.refusal(method, PASSPHRASE)["code"] == "forbidden"


def test_guessing_the_passphrase_is_refused_then_slowed_down_for_everybody():
    with short_dir() as folder, Living(f"{folder}/s") as daemon, LinkWire(daemon.link_socket) as link:
        link.hello()
        assert link.refusal("person.unlock", PASSPHRASE)["code"] == "conflict"
        assert link.refusal("person.set", {"passphrase": "short"})["code"] == "invalid_request"
        assert link.call("person.set", PASSPHRASE) == {"set": True}
        assert link.refusal("person.set", PASSPHRASE)["code"] == "conflict"
        guesses = [link.request("person.unlock", {"passphrase": f"guess number {each}"}) for each in range(8)]
        answers = [link.answer(id_)["error"]["data"] for id_ in guesses]
        assert [answer["code"] for answer in answers] == ["forbidden"] * 5 + ["overloaded"] * 3
        assert answers[-1]["retryAfterMs"] > 20_000
        with LinkWire(daemon.link_socket) as other:
            assert other.hello().refusal("person.unlock", PASSPHRASE)["code"] == "overloaded"
        assert link.call("daemon.status")["principal"] == "local"
        refused = [each["outcome"] for each in link.call("ledger.show", {"what": "person.unlock"})]
        assert refused.count("forbidden") == 5


# -- other users ----------------------------------------------------------------------------------

_AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(path)
            sock.sendall(b"Content-Length: 2\\r\\n\\r\\n{}")
            print("closed" if not sock.recv(1) else "answered")
    except OSError as error:
        print(type(error).__name__)
"""

only_root = pytest.mark.skipif(
    os.getuid() != 0 and os.environ.get("CI") != "true", reason="only root can become another user"
)


@only_root
def test_another_user_does_not_get_to_the_sockets(daemon):
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, daemon.link_socket, daemon.http_socket],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.split() == ["PermissionError", "PermissionError"]


@only_root
def test_another_user_is_disconnected_even_when_the_socket_is_open_to_all():
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        os.chmod(folder, 0o755)
        os.chmod(daemon.state, 0o755)
        os.chmod(daemon.link_socket, 0o666)
        os.chmod(daemon.http_socket, 0o666)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, daemon.link_socket, daemon.http_socket],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert set(done.stdout.split()) <= {"closed", "ConnectionResetError", "BrokenPipeError"}
        assert len(done.stdout.split()) == 2
        assert Caller(daemon).get("/healthz").status == 200
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.terminal()
        assert f'"uid":{NOBODY}' in daemon.log()


def test_a_hundred_connections_that_come_and_go_leave_nothing_behind(daemon):
    local = Caller(daemon)
    before = len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    for _ in range(100):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(daemon.link_socket)
    eventually(lambda: local.gauge("bascule_link_connections") == 0, "all are gone")
    assert eventually(lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd")) <= before + 2, "so are their files")
