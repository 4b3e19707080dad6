"""A hundred and fifty requests written by hand: what two readers could take differently is refused and closed.

Behind most of them stands a second request, complete and with the right token. Whoever reads the first one in
another way would carry it out; here nothing of it may ever happen.
"""

import re

import pytest
from raw_requests import ANSWERED, ANSWERED_AND_CLOSED, HIDDEN, REFUSED
from wires import Caller, Wire, request

STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


@pytest.fixture(scope="module")
def jerry(daemon) -> Caller:
    agent = Caller(daemon).register("Jerry")
    agent.send("Jerry", ticketId="bait")
    return agent


@pytest.fixture(autouse=True)
def _unharmed(daemon):
    seen = len(daemon.terminal())
    yield
    answer = daemon.terminal()[seen:]
    # Neither a fault of ours nor a line for each piece of nonsense: anybody could fill the terminal with them.
    assert "Traceback" not in answer
    assert "HTTP request" not in answer


def hidden(agent: Caller, handle: str, new: str) -> bytes:
    """Two requests with an effect each: one is done when its head is read, the other needs its body."""
    take = request("GET", f"/agents/{handle}/inbox?waitMs=0", agent.headers)
    body = b'{"agentId":"%b"}' % new.encode()
    headers = [*Caller(agent.daemon).headers, ("Content-Type", "application/json")]
    return take + request("POST", "/agents/register", headers, body)


def filled(raw: bytes, daemon, agent: Caller) -> bytes:
    raw = raw.replace(HIDDEN, hidden(agent, "Jerry", "Smuggled"))
    raw = raw.replace(b"HOST", daemon.host.encode()).replace(b"PORT", str(daemon.port).encode())
    return raw.replace(b"TOKEN", daemon.token.encode())


def effects(agent: Caller, ticket: str) -> tuple[object, object, object]:
    """What would differ if something had been carried out."""
    status = agent.get("/status").json
    return status["ledgerRecords"], status["agents"], agent.get(f"/tickets/{ticket}").json["delivery"]


def sent_and_closed(daemon, raw: bytes) -> bytes:
    """All that comes until the daemon closes; a TimeoutError when it does not."""
    out = b""
    with Wire(daemon.tcp) as wire:
        try:
            wire.send(raw)
            while data := wire.sock.recv(1 << 16):
                out += data
        except ConnectionError:
            # It closed with bytes of ours unread: the kernel may cut off what we had not taken yet.
            pass
    return out


def test_what_is_hidden_has_an_effect_when_it_is_not_hidden(daemon):
    tom = Caller(daemon).register("Tom")
    tom.send("Tom", ticketId="toms-bait")
    before = effects(tom, "toms-bait")
    with Wire(daemon.tcp) as wire:
        wire.send(hidden(tom, "Tom", "NotSmuggled"))
        assert [wire.answer().status for _ in range(2)] == [200, 200]
    after = effects(tom, "toms-bait")
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, False], (before, after)


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_closed(daemon, jerry, case):
    before = effects(jerry, "bait")
    with Wire(daemon.tcp) as beside:
        answer = sent_and_closed(daemon, filled(REFUSED[case], daemon, jerry))
        assert beside.ask("GET", "/healthz", jerry.headers).status == 200
    statuses = [int(status) for status in STATUS.findall(answer)]
    assert len(statuses) == 1, answer
    assert 400 <= statuses[0] < 500
    assert b"onnection: close" in answer
    assert effects(jerry, "bait") == before


@pytest.mark.parametrize("case", ANSWERED_AND_CLOSED)
def test_an_answer_that_ends_the_connection_leaves_what_is_behind_it_undone(daemon, jerry, case):
    before = effects(jerry, "bait")
    answer = sent_and_closed(daemon, filled(ANSWERED_AND_CLOSED[case], daemon, jerry))
    assert STATUS.findall(answer) == [b"200"]
    assert b"upgrade" not in answer.lower()
    assert effects(jerry, "bait") == before


@pytest.mark.parametrize("case", ANSWERED)
def test_what_is_odd_but_plain_is_answered_and_the_connection_stays_in_step(daemon, jerry, case):
    raw, expected = ANSWERED[case]
    before = effects(jerry, "bait")
    with Wire(daemon.tcp) as wire:
        wire.send(filled(raw, daemon, jerry))
        assert wire.answer("HEAD" if case == "HEAD" else "GET").status == expected
        assert wire.ask("GET", "/healthz", jerry.headers).body == b"ok\n"
    assert effects(jerry, "bait") == before


def test_a_client_that_waits_for_a_word_before_its_body_gets_one(daemon, jerry):
    body = b'{"agentId":"Jerry"}'
    head = [*jerry.headers, ("Content-Type", "application/json"), ("Expect", "100-continue")]
    with Wire(daemon.tcp) as wire:
        wire.send(request("POST", "/agents/register", [*head, ("Content-Length", str(len(body)))]))
        assert wire.head()[0] == 100
        wire.send(body)
        assert wire.answer().status == 200


def test_a_refused_client_that_waits_for_a_word_is_told_at_once(daemon):
    head = [("Host", daemon.host), ("Expect", "100-continue"), ("Content-Length", "22")]
    with Wire(daemon.tcp) as wire:
        wire.send(request("POST", "/agents/register", head))
        assert wire.answer().status == 401
