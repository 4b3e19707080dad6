"""Sections 1 to 3 and 6 of the contract over a real socket: frames, envelopes, errors, meta, workspaces, peers."""

import datetime as dt
import hashlib
import json
import os
import re
import stat
from pathlib import Path

import pytest
from host_process import Refused, route

BUTTON = {"byRole": "AXButton", "titleContains": "Press me"}


@pytest.fixture(scope="module")
def app(desktop):
    program = desktop.start("gtk3")
    yield program
    program.kill()


@pytest.mark.req("DSK-1-1")
@pytest.mark.req("DSK-1.2-1")
@pytest.mark.req("DSK-3.1-1")
@pytest.mark.req("DSK-3.2-1")
def test_a_request_in_a_frame_gets_one_answer_with_its_id(host):
    wire = host.connect()
    wire.send("desktop.health", {"meta": host.meta()}, "11111111-2222-4333-8444-555555555555")
    answer = wire.read()
    assert answer["id"] == "11111111-2222-4333-8444-555555555555"
    assert set(answer) == {"jsonrpc", "id", "result"}
    wire.close()


@pytest.mark.req("DSK-3.3-1")
@pytest.mark.req("DSK-6-9")
def test_an_error_has_a_code_in_words_a_message_retryable_and_details(host):
    wire = host.connect()
    wire.send("desktop.observe", {"meta": {}}, "x")
    answer = wire.read()
    assert set(answer) == {"jsonrpc", "id", "error"}
    assert set(answer["error"]) == {"code", "message", "retryable", "details"}
    assert answer["error"]["code"] == "DESKTOP_INVALID_REQUEST"
    assert answer["error"]["retryable"] is False
    wire.close()


@pytest.mark.req("DSK-1-2")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{", "cut short"),
        (b"\xff\xfe", "UTF-8"),
        (b"[]", "batches"),
        (b'{"jsonrpc":"1.0","id":1,"method":"desktop.health"}', "1.0"),
        (b'{"jsonrpc":"2.0","id":1,"method":"desktop.nothing","params":{}}', "unknown method"),
        (b'{"jsonrpc":"2.0","id":1,"method":"desktop.health","params":{"meta":{},"more":1}}', "meta"),
        (b'{"jsonrpc":"2.0","id":1,"method":"desktop.health","params":' + b"[" * 100 + b"]" * 100 + b"}", "nested"),
    ],
)
def test_what_is_no_request_is_refused_in_the_contracts_form(host, body, expected):
    wire = host.connect()
    wire.send_raw(body)
    error = wire.read()["error"]
    assert error["code"] == "DESKTOP_INVALID_REQUEST"
    assert expected in error["message"]
    wire.close()


def test_a_broken_frame_is_answered_once_and_ends_the_connection(host):
    wire = host.connect()
    wire.socket.sendall(b"Content-Length: 999999999\r\n\r\n")
    assert "limit" in wire.read()["error"]["message"]
    assert wire.read() is None
    wire.close()


def test_a_notification_does_nothing(host, app):
    """It has no answer in which a refusal could stand."""
    wire = host.connect()
    params = {
        "meta": host.meta(),
        "confirm": {"phrase": "CONFIRM"},
        "route": route(app),
        "target": {"selector": BUTTON},
    }
    wire.send_raw(json.dumps({"jsonrpc": "2.0", "method": "desktop.click", "params": params}).encode())
    host.call("desktop.health", wire=wire)
    assert "pressed" not in app.state
    wire.close()


@pytest.mark.req("DSK-4.1-1")
@pytest.mark.parametrize("missing", ["schemaVersion", "requestId", "workspacePath"])
def test_every_request_has_a_meta_with_its_fields(host, missing):
    meta = host.meta()
    del meta[missing]
    with pytest.raises(Refused, match="INVALID_REQUEST.*" + missing):
        host.call("desktop.health", meta=meta)


@pytest.mark.req("DSK-4.1-2")
def test_the_timeout_may_be_left_out(host):
    meta = host.meta()
    del meta["timeoutMs"]
    assert host.call("desktop.health", meta=meta)


@pytest.mark.req("DSK-7-1")
def test_another_schema_version_is_refused_and_the_spoken_one_is_named(host):
    with pytest.raises(Refused) as refused:
        host.call("desktop.health", meta=host.meta(schemaVersion=2))
    assert refused.value.code == "DESKTOP_INVALID_REQUEST"
    assert refused.value.details == {"supported": [1]}


# -- 2.1: the workspace --

FORBIDDEN = "DESKTOP_WORKSPACE_FORBIDDEN"
METHODS_OF_ALL_KINDS = ("desktop.health", "desktop.doctor", "desktop.observe", "desktop.find", "desktop.click")


@pytest.mark.req("DSK-2.1-2")
@pytest.mark.req("DSK-2.1-3")
@pytest.mark.req("DSK-6-3")
@pytest.mark.parametrize("method", METHODS_OF_ALL_KINDS)
def test_a_workspace_outside_the_root_is_refused_by_every_method(host, tmp_path, method):
    params = {"selector": BUTTON} if method == "desktop.find" else {}
    if method == "desktop.click":
        params = {"target": {"selector": BUTTON}, "confirm": {"phrase": "CONFIRM"}}
    with pytest.raises(Refused) as refused:
        host.call(method, meta=host.meta(workspacePath=str(tmp_path)), **params)
    assert refused.value.code == FORBIDDEN


@pytest.mark.req("DSK-2.1-2")
def test_a_directory_whose_name_only_begins_like_the_root_is_refused(host):
    """A comparison of texts would let it in."""
    beside = Path(str(host.root) + "-evil")
    beside.mkdir(exist_ok=True)
    assert str(beside).startswith(str(host.root))
    with pytest.raises(Refused, match=FORBIDDEN):
        host.call("desktop.health", meta=host.meta(workspacePath=str(beside)))


@pytest.mark.parametrize("path", ["relative", "", "/nowhere/at/all", "\0"])
def test_a_path_that_is_no_directory_of_the_root_is_refused(host, path):
    with pytest.raises(Refused, match=r"FORBIDDEN|INVALID_REQUEST"):
        host.call("desktop.health", meta=host.meta(workspacePath=path))


@pytest.mark.req("DSK-2.1-2")
def test_a_link_that_leads_out_of_the_root_is_refused_and_one_that_stays_is_resolved(host, tmp_path, app):
    out = host.root / "out"
    out.unlink(missing_ok=True)
    out.symlink_to(tmp_path)
    with pytest.raises(Refused, match=FORBIDDEN):
        host.call("desktop.health", meta=host.meta(workspacePath=str(out)))
    inside = host.root / "inside"
    inside.unlink(missing_ok=True)
    inside.symlink_to(host.workspace)
    result = host.call("desktop.observe", meta=host.meta(workspacePath=str(inside)), route=route(app))
    assert result["evidence"]["dir"].startswith(str(host.workspace) + "/")


def test_evidence_never_follows_a_link_planted_in_the_workspace(host, tmp_path, app):
    (host.workspace / "artifacts").symlink_to(tmp_path)
    with pytest.raises(Refused, match=FORBIDDEN):
        host.call("desktop.observe", route=route(app))
    assert list(tmp_path.iterdir()) == []


def test_without_room_for_evidence_nothing_is_done(host, app):
    """The picture of before is on disk before the click."""
    (host.workspace / "artifacts").write_text("in the way")
    before = app.state.get("pressed", 0)
    with pytest.raises(Refused, match=FORBIDDEN):
        host.act("desktop.click", route=route(app), target={"selector": BUTTON})
    assert app.state.get("pressed", 0) == before


# -- 2.2: the folders --


@pytest.mark.req("DSK-2.2-1")
@pytest.mark.req("DSK-2.2-2")
@pytest.mark.req("DSK-2.2-3")
@pytest.mark.req("DSK-0-2")
def test_evidence_lies_by_day_and_execution_and_says_what_it_is(host, app):
    result = host.call("desktop.observe", route=route(app))
    folder = host.evidence(result)
    today = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d")
    assert result["evidence"]["dir"] == f"{host.workspace}/artifacts/desktop/{today}/{result['executionId']}/"
    assert {each.name for each in folder.iterdir()} == {"observe.png", "ax.json", "trace.jsonl", "result.json"}
    assert (folder / "observe.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "ax.json").read_text())["window"] == app.title
    steps = [json.loads(line)["step"] for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert steps == ["route", "tree", "picture"]
    for each in folder.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_the_index_names_each_execution_with_the_digest_of_its_result(host, app):
    result = host.call("desktop.observe", route=route(app))
    with pytest.raises(Refused):
        host.call("desktop.observe", route={"window": {"titlePattern": "no such window"}})
    lines = [json.loads(line) for line in (host.workspace / "artifacts/desktop/index.ndjson").read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["ok", "DESKTOP_ELEMENT_NOT_FOUND"]
    body = (host.evidence(result) / "result.json").read_bytes()
    assert lines[0]["result"] == hashlib.sha256(body).hexdigest()
    files = json.loads(body)["files"]
    for name, digest in files.items():
        assert hashlib.sha256((host.evidence(result) / name).read_bytes()).hexdigest() == digest
    assert set(files) == {"observe.png", "ax.json", "trace.jsonl"}


# -- 5.1, 5.2: health and doctor --


@pytest.mark.req("DSK-5.1-1")
@pytest.mark.req("DSK-5.1-2")
@pytest.mark.req("DSK-7-2")
def test_health_has_every_field_of_the_contract(host):
    health = host.call("desktop.health")
    assert re.fullmatch(r"\d+\.\d+\.\d+", health["hostVersion"])
    assert health["macos"] is None
    assert health["platform"].startswith("linux")
    assert health["permissions"] == {"accessibility": "granted", "screenRecording": "granted"}
    assert health["bridge"] == {"schemaVersion": 1}
    assert health["peer"]["pid"] == os.getpid()
    assert re.fullmatch(r"[0-9a-f]{8}", health["peer"]["auditTokenDigest"])
    assert "desktop.scroll" in health["extensions"]["methods"]


@pytest.mark.req("DSK-5.2-1")
def test_doctor_has_every_field_of_the_contract(host):
    doctor = host.call("desktop.doctor")
    assert doctor["permissions"] == {
        "accessibility": {"granted": True, "required": True, "purpose": "AX observe/find/action"},
        "screenRecording": {"granted": True, "required": True, "purpose": "Screenshot capture"},
    }
    assert doctor["issues"] == []
    assert doctor["healthy"] is True
    assert doctor["peer"]["pid"] == os.getpid()


@pytest.mark.req("DSK-5.2-2")
@pytest.mark.req("DSK-6-2")
@pytest.mark.req("DSK-0-1")
def test_without_a_display_or_a_bus_doctor_says_so_and_nothing_is_done(start_host):
    host = start_host(env={"DISPLAY": "", "DBUS_SESSION_BUS_ADDRESS": "", "XDG_RUNTIME_DIR": "/nowhere"})
    doctor = host.call("desktop.doctor")
    assert doctor["healthy"] is False
    assert [issue.partition(":")[0] for issue in doctor["issues"]] == [
        "Accessibility permission denied",
        "Screen Recording permission denied",
    ]
    assert len(doctor["remedies"]) == 2
    assert host.call("desktop.health")["permissions"] == {"accessibility": "denied", "screenRecording": "denied"}
    with pytest.raises(Refused, match="DESKTOP_PERMISSION_MISSING"):
        host.call("desktop.observe")


def test_the_digest_of_a_peer_is_the_same_on_another_connection(host):
    first = host.call("desktop.health")["peer"]
    wire = host.connect()
    assert host.call("desktop.health", wire=wire)["peer"] == first
    wire.close()
