"""Consent, policy and ledger over HTTP, at a real daemon: all can be looked at, nothing can be answered there."""

import contextlib
import json

import pytest
from living import eventually, run_command, short_dir
from living_grove import Grove, decide, person
from wires import Caller, Wire, request

from bascule.kernel.consent.states import ApprovalState
from bascule.local_client.exits import NOT_FOUND

OAK = {"path": "oak"}
QUICK = {"approval_hold_ms": 50}


@pytest.fixture(scope="module")
def scene():
    with short_dir() as folder, contextlib.ExitStack() as open_things:
        grove = Grove(folder)
        daemon = open_things.enter_context(grove.live(**QUICK))
        owner = open_things.enter_context(person(daemon, new=True))
        local = Caller(daemon)
        yield daemon, owner, local, local.register("Jerry")


def test_questions_are_listed_and_shown_over_http(scene):
    _, owner, local, jerry = scene
    approval_id = jerry.post("/trees", OAK).error["details"]["approvalId"]
    assert approval_id in [each["approvalId"] for each in local.get("/v1/approvals?limit=1000").json]
    view = local.get(f"/v1/approvals/{approval_id}").json
    assert view == owner.call("approvals.show", {"approvalId": approval_id})
    assert view["blocks"][0]["kind"] == "facts"
    assert view["history"]["asked"] >= 1
    decide(owner, "denied", approval_id)
    assert approval_id not in [each["approvalId"] for each in local.get("/v1/approvals").json]
    assert approval_id in [each["approvalId"] for each in local.get("/v1/approvals?all=true").json]


def test_no_http_caller_is_the_person(scene):
    """The API's doors yield no person: neither the token of the state directory nor an agent's can answer."""
    daemon, owner, local, jerry = scene
    approval_id = jerry.post("/trees", {"path": "ash"}).error["details"]["approvalId"]
    for caller in (local, jerry):
        refused = caller.post(f"/v1/approvals/{approval_id}/decision", {"decision": "approved"})
        assert (refused.status, refused.error["code"]) == (403, "forbidden")
        refused = caller.post("/v1/policy/accept", {"digest": "0"})
        assert (refused.status, refused.error["code"]) == (403, "forbidden")
    with Wire(daemon.http_socket) as wire:
        body = json.dumps({"decision": "approved"}).encode()
        headers = [("Host", "x"), ("Content-Type", "application/json")]
        assert wire.ask("POST", f"/v1/approvals/{approval_id}/decision", headers, body).status in (403, 421)
    assert local.get(f"/v1/approvals/{approval_id}").json["state"] == ApprovalState.PENDING
    # The control: the same answer of the person is taken.
    decide(owner, "denied", approval_id)
    assert local.get(f"/v1/approvals/{approval_id}").json["state"] == ApprovalState.DENIED


@pytest.mark.parametrize(
    "path",
    [
        "/v1/approvals",
        "/v1/policy",
        "/v1/ledger",
        "/v1/ledger/search",
        "/v1/ledger/about/x",
        "/v1/metrics/history",
        "/v1/doctor",
        "/v1/approvals/stream",
        "/v1/ledger/verify/stream",
        "/v1/approvals/apr_x/picture",
    ],
)
def test_agents_look_at_none_of_it(scene, path):
    *_, jerry = scene
    refused = jerry.get(path)
    assert (refused.status, refused.error["code"]) == (403, "forbidden")


def test_a_stream_of_questions_names_them_and_their_answers(scene):
    _, owner, local, jerry = scene
    with local.open("/v1/approvals/stream") as events:
        approval_id = jerry.post("/trees", {"path": "fir"}).error["details"]["approvalId"]
        event = events.event()
        while event["id"] != approval_id:
            event = events.event()
        assert event["event"] == "approval"
        assert event["data"]["state"] == "pending"
        decide(owner, "denied", approval_id)
        event = events.event()
        assert (event["id"], event["data"]["state"]) == (approval_id, "denied")


def test_the_policy_is_shown_explained_and_replayed_over_http(scene):
    _, _, local, jerry = scene
    jerry.post("/trees", {"path": "elm"})
    shown = local.get("/v1/policy").json
    assert {"trees-ask", "message"} <= {rule["name"] for rule in shown["rules"]}
    explained = jerry.post("/v1/policy/explain", {"method": "messages.send"}).json
    assert (explained["decision"], explained["rule"]) == ("allow", "message")
    assert local.post("/v1/policy/replay", {}).json["changed"] == []
    changed = local.post("/v1/policy/replay", {"text": 'version = 1\nextends = "standard"\n'}).json["changed"]
    # What asked would be denied without a rule that knows the method.
    assert {(each["method"], each["was"], each["now"]) for each in changed} >= {("tree.cut", "ask", "deny")}
    bad = local.post("/v1/policy/replay", {"text": "version = 2"})
    assert (bad.status, bad.error["code"]) == (400, "invalid_request")


def test_the_ledger_is_read_searched_and_checked_over_http(scene):
    _, _, local, jerry = scene
    jerry.post("/agents/Jerry/send", {"payload": "hello"})
    newest = local.get("/v1/ledger?limit=2").json
    assert len(newest) == 2
    older = local.get(f"/v1/ledger?limit=1&before={newest[0]['seq']}").json
    assert older[0]["seq"] == newest[0]["seq"] - 1
    assert all("Jerry" in json.dumps(each) for each in local.get("/v1/ledger/about/Jerry").json)
    found = local.get("/v1/ledger/search?q=who:Jerry%20method:messages.*&limit=1").json
    assert [each["method"] for each in found["records"]] == ["messages.send"]
    bad = local.get("/v1/ledger/search?q=whom:Jerry")
    assert (bad.status, bad.error["code"]) == (400, "invalid_request")
    assert "who:" in bad.error["hint"]
    checked = local.post("/v1/ledger/verify", {}).json
    assert checked["ok"]
    with local.open("/v1/ledger/verify/stream") as events:
        event = events.event()
        while event["event"] == "progress":
            event = events.event()
        assert event["event"] == "result"
        assert event["data"]["result"]["ok"]
        assert events.event() is None


def test_searching_and_replaying_from_a_terminal(scene):
    daemon, _, _local, jerry = scene
    jerry.post("/agents/Jerry/send", {"payload": "hello"})
    where = ("--state-dir", daemon.state)
    found = run_command("ledger", "search", "who:Jerry", "method:messages.*", "-n", "1", *where)
    assert found.returncode == 0, found.stderr
    assert "messages.send" in found.stdout
    assert run_command("ledger", "search", "who:Nobody", *where).returncode == NOT_FOUND
    replayed = run_command("policy", "replay", "--json", *where)
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)["unreadable"] >= 0
    assert run_command("policy", "replay", "/nonexistent.toml", *where).returncode != 0


def test_whether_a_person_is_set_is_said_over_http(scene):
    _, _, local, _ = scene
    assert local.get("/v1/person").json == {"set": True}


def test_numbers_of_the_last_minutes_come_with_time(scene):
    _, _, local, _ = scene

    def measured():
        shown = local.get("/v1/metrics/history").json
        calls = [each for each in shown["series"]["callsPerSecond"] if each]
        return shown if calls else None

    shown = eventually(measured, "calls of a second")
    assert shown["stepMs"] == 1_000
    assert next(each for each in reversed(shown["series"]["rssMb"]) if each is not None) > 10
    day = local.get("/v1/metrics/history?window=24h").json
    assert day["stepMs"] == 60_000
    assert len(day["series"]["rssMb"]) == 1_440
    assert local.get("/v1/metrics/history?window=1y").status == 400


def test_the_doctor_examines_the_machine_of_this_daemon(scene):
    daemon, _, local, _ = scene
    report = local.get("/v1/doctor").json
    checks = {each["name"]: each for each in report["checks"]}
    assert checks["daemon"]["state"] == "ok"
    assert str(daemon.process.pid) in checks["daemon"]["text"]
    assert checks["state directory"]["text"].startswith(daemon.state)
    # Within seconds the same examination answers.
    assert local.get("/v1/doctor").json["at"] == report["at"]


def test_many_who_ask_for_the_doctor_at_once_share_one(scene):
    daemon, _, local, _ = scene
    head = [*local.headers]
    with contextlib.ExitStack() as open_wires:
        wires = [open_wires.enter_context(Wire(daemon.tcp)) for _ in range(5)]
        for wire in wires:
            wire.send(request("GET", "/v1/doctor", head))
        # One who leaves does not end it for the others.
        wires[0].close()
        assert len({wire.answer().json["at"] for wire in wires[1:]}) == 1
