"""Consent in a real daemon: over link and HTTP, across kill -9 and restarts."""

import contextlib

import pytest
from living import eventually, run_command, short_dir
from living_grove import PASSPHRASE, Grove, as_json, decide, person, records
from wires import Caller, LinkWire, Wire, request

from patience import PATIENCE

OAK = {"path": "oak"}
# Nobody here waits as long as a real client does.
QUICK = {"approval_hold_ms": 300}
RACERS = 64


@pytest.fixture
def grove():
    with short_dir() as folder:
        yield Grove(folder)


def post(caller, path="/trees", body=None):
    """A request on its way, and the wire its answer comes on."""
    wire = Wire(caller.daemon.tcp)
    headers = [*caller.headers, ("Content-Type", "application/json")]
    wire.send(request("POST", path, headers, as_json(body or OAK)))
    return wire


def racers(daemon, open_things, count=RACERS):
    """Half of them by link, half by HTTP, all as the same agent; each is a way to have its answer."""
    jerry = Caller(daemon).register("Jerry")
    ways = []
    for number in range(count):
        if number % 2:
            wire = open_things.enter_context(post(jerry))
            ways.append(lambda wire=wire: (answer := wire.answer("POST")).status == 200 or answer.error["code"])
        else:
            link = open_things.enter_context(LinkWire(daemon.link_socket)).hello(jerry.token)
            id_ = link.request("tree.cut", OAK)

            def answered(link=link, id_=id_):
                answer = link.answer(id_)
                return True if "result" in answer else answer["error"]["data"]["code"]

            ways.append(answered)
    return jerry, ways


def test_of_64_callers_that_wait_for_one_answer_exactly_one_is_executed(grove):
    with grove.live() as daemon, contextlib.ExitStack() as open_things:
        owner = open_things.enter_context(person(daemon, new=True))
        _, ways = racers(daemon, open_things)
        eventually(
            lambda: owner.call("approvals.list") and owner.call("approvals.list")[0].get("waiting") == RACERS, "all"
        )
        decide(owner)
        answers = [way() for way in ways]
        assert answers.count(True) == 1
        assert answers.count("conflict") == RACERS - 1
        assert grove.felled() == ["oak"]
        assert records(owner) == ["approval_required", "begun", "ok"]


def test_of_64_callers_that_race_for_a_grant_exactly_one_wins(grove):
    with grove.live(**QUICK) as daemon, contextlib.ExitStack() as open_things:
        owner = open_things.enter_context(person(daemon, new=True))
        jerry = Caller(daemon).register("Jerry")
        held = jerry.post("/trees", OAK)
        assert held.status == 202
        decide(owner, approval_id=held.error["details"]["approvalId"])
        links = [open_things.enter_context(LinkWire(daemon.link_socket)).hello(jerry.token) for _ in range(RACERS // 2)]
        waiting = [(link, link.request("tree.cut", OAK)) for link in links]
        posts = [open_things.enter_context(post(jerry)) for _ in range(RACERS // 2)]
        answers = ["result" in link.answer(id_) for link, id_ in waiting]
        answers += [wire.answer("POST").status == 200 for wire in posts]
        assert answers.count(True) == 1
        assert grove.felled() == ["oak"]
        assert records(owner).count("begun") == 1


def test_the_forms_of_an_answer_that_waits_for_a_person(grove):
    with grove.live(**QUICK) as daemon, contextlib.ExitStack() as open_things:
        owner = open_things.enter_context(person(daemon, new=True))
        jerry = Caller(daemon).register("Jerry")
        over_http = jerry.post("/trees", OAK)
        assert over_http.status == 202
        assert over_http.error["code"] == "approval_required"
        assert over_http.error["message"] == "a tree is felled once"
        approval_id = over_http.error["details"]["approvalId"]
        assert approval_id in over_http.error["hint"]
        link = open_things.enter_context(LinkWire(daemon.link_socket)).hello(jerry.token)
        over_link = link.refusal("tree.cut", OAK)
        assert over_link == over_http.error, "the same question, joined"
        decide(owner, "denied")
        again = jerry.post("/trees", OAK)
        assert again.status == 202
        assert again.error["details"]["approvalId"] != approval_id
        no_http = post(jerry)
        eventually(lambda: owner.call("approvals.list")[0].get("waiting") == 1, "it waits")
        decide(owner, "denied")
        refused = no_http.answer("POST")
        assert (refused.status, refused.error["code"]) == (403, "policy_denied")
        no_http.close()
        assert grove.felled() == []


def test_a_client_that_hangs_up_withdraws_what_only_asks(grove):
    with grove.live() as daemon, contextlib.ExitStack() as open_things:
        owner = open_things.enter_context(person(daemon, new=True))
        jerry = Caller(daemon).register("Jerry")
        link = LinkWire(daemon.link_socket).hello(jerry.token)
        link.request("tree.cut", OAK)
        wire = post(jerry)
        eventually(lambda: [each.get("waiting") for each in owner.call("approvals.list")] == [2], "both wait")
        link.close()
        wire.close()
        eventually(lambda: not owner.call("approvals.list")[0].get("waiting"), "both are gone")
        decide(owner)
        assert grove.felled() == []
        assert jerry.post("/trees", OAK).json == "felled"
        assert grove.felled() == ["oak"]


def test_an_agent_can_neither_approve_nor_accept_nor_unlock_without_the_passphrase(grove):
    with grove.live(**QUICK) as daemon, contextlib.ExitStack() as open_things:
        open_things.enter_context(person(daemon, new=True))
        jerry = Caller(daemon).register("Jerry")
        approval_id = jerry.post("/trees", OAK).error["details"]["approvalId"]
        for token in (jerry.token, None):
            link = open_things.enter_context(LinkWire(daemon.link_socket)).hello(token)
            yes = {"approvalId": approval_id, "decision": "approved"}
            assert link.refusal("approvals.decide", yes)["code"] == "forbidden"
            assert link.refusal("policy.accept", {"digest": "0"})["code"] == "forbidden"
            assert link.refusal("person.set", PASSPHRASE)["code"] in ("conflict", "forbidden")
            assert link.refusal("person.unlock", {"passphrase": "a guess"})["code"] == "forbidden"
            assert link.refusal("approvals.decide", yes)["code"] == "forbidden"
        assert grove.felled() == []


def test_over_a_restart_questions_stay_and_grants_and_unlocks_die(grove):
    with grove.live(**QUICK) as daemon:
        owner = person(daemon, new=True)
        jerry = Caller(daemon).register("Jerry")
        granted = jerry.post("/trees", {"path": "elm"}).error["details"]["approvalId"]
        decide(owner, approval_id=granted)
        asked = jerry.post("/trees", OAK).error["details"]["approvalId"]
        token = jerry.token
        assert daemon.stop() == 0
        owner.close()
    with grove.live(**QUICK) as daemon, LinkWire(daemon.link_socket).hello() as link:
        assert [view["approvalId"] for view in link.call("approvals.list")] == [asked]
        assert link.call("approvals.show", {"approvalId": granted})["state"] == "expired"
        assert link.refusal("approvals.decide", {"approvalId": asked, "decision": "approved"})["code"] == "forbidden"
        jerry = Caller(daemon, token)
        assert jerry.post("/trees", {"path": "elm"}).status == 202, "the grant died with the daemon"
        with person(daemon) as owner:
            decide(owner, approval_id=asked)
        assert jerry.post("/trees", OAK).json == "felled"
        assert grove.felled() == ["oak"]


# Where it dies, and how often the tree can have been felled by then.
DEATHS = {
    # Queued, in the same turn of the loop: the disk may have it or not.
    "effect.begun:after": 0,
    # The beginning is on disk, and nothing has happened.
    "effect.start:before": 0,
    # It has happened, and nobody was told.
    "effect.finish:before": 1,
    "effect.finish:after": 1,
}


# The last one ends as the first does, behind the effect instead of before it.
@pytest.mark.parametrize(
    "point", [pytest.param(each, marks=pytest.mark.long if each == "effect.finish:after" else ()) for each in DEATHS]
)
def test_a_daemon_that_dies_between_grant_and_answer_says_unknown_and_never_does_it_twice(grove, point):
    with grove.live(point) as daemon:
        owner = person(daemon, new=True)
        jerry = Caller(daemon).register("Jerry")
        wire = post(jerry)
        eventually(lambda: owner.call("approvals.list"), "it asks")
        approval_id = owner.call("approvals.list")[0]["approvalId"]
        owner.request("approvals.decide", {"approvalId": approval_id, "decision": "approved"})
        assert daemon.process.wait(PATIENCE) == -9
        wire.close()
        owner.close()
        token = jerry.token
    felled = grove.felled()
    assert felled == ["oak"] * DEATHS[point]
    with grove.live(**QUICK) as daemon, LinkWire(daemon.link_socket).hello() as link:
        state = link.call("approvals.show", {"approvalId": approval_id})["state"]
        # Behind everything that the start had to record.
        link.call("daemon.gc")
        ended = records(link)
        if point in ("effect.start:before", "effect.finish:before"):
            assert ended == ["approval_required", "begun", "unknown"]
            assert state == "unknown"
        elif state == "expired":
            # The disk never heard that it began: the grant died unspent.
            assert ended == ["approval_required"]
        else:
            assert (ended[-1], state) in (("unknown", "unknown"), ("ok", "done"))
        # Not by itself, and not by the grant that was spent.
        assert Caller(daemon, token).post("/trees", OAK).status == 202
        assert grove.felled() == felled
        assert daemon.stop() == 0
    assert run_command("ledger", "verify", "--state-dir", grove.state).returncode == 0


def test_a_naive_daemon_that_spends_after_the_effect_would_do_it_twice(grove):
    """The control: the same death, in a daemon with a planted bug, leaves a grant that works again."""
    planted = """
from bascule.kernel.consent.desk import Desk
Desk.spend = lambda self, tx, approval_id: self.find(approval_id)
Desk.begin_life = lambda self, tx: 0
"""
    with grove.live("effect.finish:before", bug=planted) as daemon:
        owner = person(daemon, new=True)
        jerry = Caller(daemon).register("Jerry")
        wire = post(jerry)
        eventually(lambda: owner.call("approvals.list"), "it asks")
        owner.request(
            "approvals.decide", {"approvalId": owner.call("approvals.list")[0]["approvalId"], "decision": "approved"}
        )
        assert daemon.process.wait(PATIENCE) == -9
        wire.close()
        owner.close()
        token = jerry.token
    with grove.live(bug=planted, **QUICK) as daemon:
        Caller(daemon, token).post("/trees", OAK)
        assert grove.felled() == ["oak", "oak"]
