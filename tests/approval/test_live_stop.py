"""STOP EVERYTHING in a real daemon: what it ends, and what is left when it is killed while it stops or resumes."""

import json
import os

import pytest
from living import eventually, run_command, short_dir
from living_grove import Grove, decide, person, records
from wires import Caller, LinkWire

from bascule.testing.failpoints import POINTS
from patience import PATIENCE

# Nobody here waits as long as a real client does.
QUICK = {"approval_hold_ms": 50}
OAK = {"path": "oak"}
STOPPING = [point for point in POINTS if point.startswith("halt.store")]
RESUMING = [point for point in POINTS if point.startswith("halt.resume")]


@pytest.fixture
def grove():
    with short_dir() as folder:
        yield Grove(folder)


def is_stopped(wire):
    return "stopped" in wire.call("daemon.status")


def asked(jerry):
    answer = jerry.post("/trees", OAK)
    assert answer.status == 202, answer
    return answer.error["details"]["approvalId"]


def test_a_grant_that_waits_has_no_effect_until_the_person_resumes(grove):
    with grove.live(**QUICK) as daemon:
        owner = person(daemon, new=True)
        jerry = Caller(daemon).register("Jerry")
        approval = asked(jerry)
        decide(owner, approval_id=approval)
        owner.call("admin.stop", {})
        refused = jerry.post("/trees", OAK)
        assert (refused.status, refused.error["code"]) == (423, "stopped")
        assert grove.felled() == []
        owner.call("admin.resume", {})
        assert jerry.post("/trees", OAK).json == "felled"
        assert records(owner).count("stopped") == 1
        owner.close()


def test_a_caller_that_waits_for_an_answer_is_answered_at_once(grove):
    with grove.live(approval_hold_ms=45_000) as daemon, LinkWire(daemon.link_socket) as link:
        owner = person(daemon, new=True)
        jerry = Caller(daemon).register("Jerry")
        link.hello(jerry.token)
        id_ = link.request("tree.cut", OAK)
        eventually(lambda: owner.call("approvals.list"), "it asks")
        owner.call("admin.stop", {})
        assert link.answer(id_)["error"]["data"]["code"] == "stopped"
        (waiting,) = owner.call("approvals.list")
        assert waiting["state"] == "pending", "the question stays"
        refusal = owner.refusal("approvals.decide", {"approvalId": waiting["approvalId"], "decision": "approved"})
        assert refusal["code"] == "stopped"
        assert grove.felled() == []
        owner.close()


@pytest.mark.parametrize("point", STOPPING)
def test_a_daemon_killed_while_it_stops_comes_back_stopped_or_never_answered(grove, point):
    with grove.live(point, **QUICK) as daemon:
        person(daemon, new=True).close()
        token = Caller(daemon).register("Jerry").token
        with LinkWire(daemon.link_socket).hello() as link:
            link.request("admin.stop", {"reason": "test"})
            assert daemon.process.wait(PATIENCE) == -9
    with grove.live(**QUICK) as daemon, LinkWire(daemon.link_socket).hello() as link:
        stopped = is_stopped(link)
        if point == "halt.stored:after":
            # On disk, and the answer was next.
            assert stopped
        if point == "halt.store:before":
            assert not stopped
        answer = Caller(daemon, token).post("/trees", OAK)
        assert answer.status == (423 if stopped else 202)
        assert daemon.stop() == 0
    assert run_command("ledger", "verify", "--state-dir", grove.state).returncode == 0


@pytest.mark.parametrize("point", RESUMING)
def test_a_daemon_killed_while_it_resumes_is_stopped_or_goes_on_and_never_half(grove, point):
    with grove.live(point, **QUICK) as daemon:
        owner = person(daemon, new=True)
        token = Caller(daemon).register("Jerry").token
        owner.call("admin.stop", {})
        owner.request("admin.resume", {})
        assert daemon.process.wait(PATIENCE) == -9
        owner.close()
    with grove.live(**QUICK) as daemon, LinkWire(daemon.link_socket).hello() as link:
        stopped = is_stopped(link)
        if point.startswith("halt.resumed"):
            # It counts once it is on disk, and it was.
            assert not stopped
        answer = Caller(daemon, token).post("/trees", OAK)
        assert answer.status == (423 if stopped else 202)
        assert grove.felled() == []
        assert daemon.stop() == 0
    assert run_command("ledger", "verify", "--state-dir", grove.state).returncode == 0


def test_a_daemon_that_forgets_its_stop_would_be_seen(grove):
    """The control: with the fact not read at start, the tests above would find it acting."""
    planted = """
from bascule.admin import stopping
stopping.HALT_KEY = "somewhere else"
"""
    with grove.live(**QUICK) as daemon:
        owner = person(daemon, new=True)
        owner.call("admin.stop", {})
        owner.close()
    with grove.live(bug=planted, **QUICK) as daemon, LinkWire(daemon.link_socket).hello() as link:
        assert not is_stopped(link)


def test_status_doctor_and_top_say_it(grove):
    with grove.live(**QUICK) as daemon:
        person(daemon, new=True).close()
        at = ("--state-dir", daemon.state)
        done = run_command("stop", "--reason", "wild", *at)
        assert done.returncode == 0
        assert done.stdout.startswith("everything is stopped")
        assert "STOPPED    everything" in (status := run_command("status", *at).stdout)
        assert "wild" in status
        assert "STOPPED since" in run_command("top", "--once", *at).stdout
        findings = json.loads(run_command("doctor", "--json", *at).stdout)
        assert "everything is stopped" in json.dumps(findings)
        with LinkWire(daemon.link_socket).hello() as link:
            assert link.refusal("admin.resume", {})["code"] == "forbidden"
        assert os.path.isdir(daemon.state)
