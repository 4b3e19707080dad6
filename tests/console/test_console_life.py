"""Sessions of a real daemon: what ends with them, and what a thief has of one."""

import os

import pytest
from living import Living, short_dir
from pages import CALL, Page
from wires import LinkWire, Wire, request

import inside

MAX_SESSIONS = 32
# What only the person may: the answer to what a run asks.
DECISION = "/v1/approvals/apr_1/decision"
APPROVE = {"decision": "approved"}
# Two pages within a minute are refused; these tests open many.
AT_ONCE = {"bascule.admin.pairing.ALONE_SECONDS": 0.0}
# A method that opens a session of the person's, as signing in does.
SIGN_IN = """
from bascule.admin.console import Console, opened
from bascule.kernel.call import Grade

def signed_in(self, params):
    pairing = self.pairings.claim(params.pairing_id, params.secret)
    return None if pairing is None else opened(self.sessions, Grade.SIGNED_IN)
Console._claim = signed_in
"""

# The limit is a default of the class.
IDLE_AT_ONCE = """
from bascule.kernel.identity.sessions import Sessions
Sessions.__init__.__kwdefaults__["idle_seconds"] = 0.0
"""


@pytest.fixture
def house(state):
    with Living(state, console_port=0, constants=AT_ONCE | inside.CHEAP_PASSPHRASE) as living:
        yield living


def test_a_session_dies_with_the_daemon(state):
    with Living(state, console_port=0) as first:
        page = Page(first).pair()
        port = page.port
        assert page.get("/status").status == 200
        assert first.stop() == 0
    with Living(state, console_port=port) as second:
        assert Page(second, page.token).get("/status").status == 401


def test_no_token_of_a_session_is_on_disk(house):
    page = Page(house).pair()
    with LinkWire(house.link_socket).hello() as link:
        link.call("console.sessions")
    paths = [os.path.join(folder, name) for folder, _, files in os.walk(house.state) for name in files]
    kept = [path for path in paths if os.path.isfile(path)]
    assert {"bascule.db", "daemon.log"} <= {os.path.basename(path) for path in kept}
    for path in kept:
        with open(path, "rb") as file:
            assert page.token.encode() not in file.read(), path


def test_nothing_that_a_person_shows_is_on_disk_or_in_the_log(house):
    """Signed in with the passphrase, once wrong; then a body that is not what it should be."""
    passphrase, wrong = "seven brass keys on one ring", "eight brass keys on one ring"
    with LinkWire(house.link_socket).hello() as link:
        link.call("person.set", {"passphrase": passphrase})
    page = Page(house)
    shown = [passphrase, wrong]
    for typed in (wrong, passphrase):
        challenge = page.post("/v1/person/challenge", {"purpose": "sign-in"}).json
        answer = page.post("/v1/person/prove", {"challengeId": challenge["challengeId"], "passphrase": typed})
    shown.append(answer.json["token"])
    refused = page.post("/v1/person/prove", {"challengeId": 7, "passphrase": passphrase})
    assert passphrase.encode() not in refused.body
    page.token = answer.json["token"]
    assert page.post("/v1/console/signout", more={"Bascule-Proof": "prf_made_up"}).status == 200
    house.stop()
    paths = [os.path.join(folder, name) for folder, _, files in os.walk(house.state) for name in files]
    found = [path for path in paths if os.path.isfile(path) for each in shown if each.encode() in read(path)]
    assert found == []
    # The control: what is recorded is found that way.
    assert any(answer.json["sessionId"].encode() in read(path) for path in paths if os.path.isfile(path))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_an_open_stream_ends_with_its_session(house):
    page, other = Page(house).pair(), Page(house).pair()
    wires = []
    for each in (page, other):
        wire = Wire(("127.0.0.1", each.port))
        wire.send(request("GET", "/events", each.headers("GET")))
        assert wire.head()[0] == 200
        wires.append(wire)
    assert page.post("/v1/console/signout").json["revoked"] == 1
    with wires[0], wires[1]:
        # Cut in the middle of an answer that has no end of its own.
        with pytest.raises((ConnectionResetError, ValueError)):
            list(wires[0].chunks())
        # The other one goes on: an event that comes now is written to it.
        assert other.post("/agents/register", {"agentId": "Late"}).status == 200
        assert any(b"Late" in chunk for chunk in wires[1].chunks())


def test_the_thirty_third_session_is_refused(house):
    pages = [Page(house).pair() for _ in range(MAX_SESSIONS)]
    page = Page(house)
    pairing, secret = page.ask_to_pair()
    with LinkWire(house.link_socket).hello() as link:
        link.call("console.confirm", {"pairingId": pairing["pairingId"], "accept": True})
    refused = page.claim(pairing, secret)
    assert refused.status == 429
    assert "--revoke" in refused.error["hint"]
    assert pages[0].post("/v1/console/revoke").json["revoked"] == MAX_SESSIONS
    assert pages[-1].get("/status").status == 401


def test_a_stolen_session_cannot_do_what_only_the_person_may(house):
    thief = Page(house).pair()
    with LinkWire(house.link_socket).hello() as link:
        link.call("person.set", {"passphrase": "correct horse battery"})
    for more in ({}, {"Bascule-Proof": "prf_1"}):
        answer = thief.post(DECISION, APPROVE, more=more)
        assert answer.status == 403, answer
        assert answer.error["code"] == "proof_required"
        assert answer.error["details"]["grade"] == "signed_in"


def test_a_stolen_signed_in_session_reads_and_cannot_approve_either(state):
    with Living(state, console_port=0, bug=SIGN_IN) as house:
        thief = Page(house).pair()
        assert thief.get("/status").json["principal"] == "person"
        for more in ({}, {"Bascule-Proof": "prf_1"}):
            answer = thief.post(DECISION, APPROVE, more=more)
            assert answer.status == 403, answer
            assert answer.error["details"]["grade"] == "fresh"
        # Nor past the question: at the console a run is not resumed at all.
        resume = {"approval": {"operationId": "op-1", "decision": "approved"}}
        refused = thief.post("/v1/spaces/spc_1/runs/run_1/resume", resume)
        assert (refused.status, refused.error["code"]) == (403, "forbidden")
        assert "approvals.decide" in refused.error["hint"]
        # Words in the person's name are theirs alone as well.
        assert thief.post("/agents/register", {"agentId": "Mine"}).error["code"] == "proof_required"


def test_without_the_proof_check_the_same_session_approves(state):
    """The control: the question is not there, and that is what it hears."""
    bug = SIGN_IN + "import bascule.kernel.gate as gate\ngate.check_at_console = lambda *_: None\n"
    with Living(state, console_port=0, bug=bug) as house:
        thief = Page(house).pair()
        answer = thief.post(DECISION, APPROVE)
        assert answer.status == 404, answer


def test_an_idle_signed_in_session_is_over(state):
    with Living(state, console_port=0, bug=SIGN_IN + IDLE_AT_ONCE) as house:
        assert Page(house).pair().get("/status", fetch=CALL).status == 401


def test_a_session_lists_all_and_knows_itself(house):
    page, other = Page(house).pair(), Page(house).pair()
    listed = page.get("/v1/console/sessions").json
    assert len(listed) == 2
    assert [each["current"] for each in listed].count(True) == 1
    own = page.get("/v1/console/session").json["sessionId"]
    assert page.post("/v1/console/revoke", {"sessionId": own}).json["revoked"] == 1
    assert page.get("/status").status == 401
    assert other.get("/status").status == 200


# What the daemon leaves out of its latencies, written where the test can read it.
LEFT_OUT = """
from bascule.daemon.compose import Daemon
start = Daemon._record_start
def write(self, *given):
    with open({path!r}, "w") as file:
        file.write("\\n".join(self.metrics.waiting))
    return start(self, *given)
Daemon._record_start = write
"""


def test_what_waits_for_a_person_a_command_or_a_game_is_no_latency_of_the_daemon():
    with short_dir() as folder:
        path = f"{folder}/left-out"
        with Living(f"{folder}/s", bug=LEFT_OUT.format(path=path)):
            pass
        with open(path, encoding="ascii") as file:
            left_out = set(file.read().splitlines())
    assert {"daemon.doctor", "ledger.verify", "inbox.take", "games.call"} <= left_out
    assert not {"messages.send", "agents.list", "replies.post", "agents.heartbeat"} & left_out
