"""Confirmation (contract 4.2, 5.10) and attacks on it. What counts is the program's own state."""

import json
import os
import subprocess
import sys
import time
import uuid

import pytest
from host_process import Refused, route

REQUIRED = "DESKTOP_CONFIRM_REQUIRED"
BUTTON = {"byRole": "AXButton", "titleContains": "Press me"}
CONTROL = ("desktop.click", "desktop.typeText", "desktop.hotkey")


@pytest.fixture(scope="module")
def app(desktop):
    program = desktop.start("gtk3")
    yield program
    program.kill()


def click_params(app):
    return {"route": route(app), "target": {"selector": BUTTON}}


def params_of(method, app):
    more = {"desktop.typeText": {"text": "hello"}, "desktop.hotkey": {"keys": ["enter"]}}
    return {"route": route(app), **more[method]} if method in more else click_params(app)


@pytest.mark.req("DSK-0-3")
@pytest.mark.req("DSK-4.2-1")
@pytest.mark.req("DSK-4.2-7")
@pytest.mark.req("DSK-5.5-3")
@pytest.mark.req("DSK-5.6-5")
@pytest.mark.req("DSK-6-4")
@pytest.mark.parametrize("method", CONTROL)
@pytest.mark.parametrize("confirm", [None, {}, {"phrase": "yes"}, {"phrase": "CONFIRM:other"}, {"phrase": "confirm"}])
def test_without_a_confirmation_nothing_is_done(host, app, method, confirm):
    before = app.state
    more = {} if confirm is None else {"confirm": confirm}
    with pytest.raises(Refused, match=REQUIRED):
        host.call(method, **params_of(method, app), **more)
    assert app.state == before


def test_every_method_that_acts_needs_a_confirmation(host, app):
    """Also those the contract does not have; the list is the host's own."""
    methods = host.call("desktop.health")["extensions"]["methods"]
    reading = {"desktop.windows", "desktop.listModals", "desktop.resolve", "desktop.stop"}
    more = {"direction": "down", "to": {"selector": BUTTON}, "value": 1}
    wanted = {"desktop.scroll": ("direction",), "desktop.drag": ("to",), "desktop.setValue": ("value",)}
    for method in sorted(set(methods) - reading):
        params = (
            {}
            if method in ("desktop.focusWindow", "desktop.dismissModal", "desktop.resume")
            else {"target": {"selector": BUTTON}}
        )
        params |= {name: more[name] for name in wanted.get(method, ())}
        with pytest.raises(Refused, match=REQUIRED):
            host.call(method, **params)


@pytest.mark.req("DSK-4.2-8")
def test_reading_needs_no_confirmation(host, app):
    host.call("desktop.find", route=route(app), selector=BUTTON)
    host.call("desktop.waitUntil", route=route(app), condition={"selectorExists": BUTTON}, timeoutMs=5000)
    with pytest.raises(Refused, match="INVALID_REQUEST"):
        host.call("desktop.abort", executionId="none")


@pytest.mark.req("DSK-4.2-6")
@pytest.mark.parametrize("form", ["CONFIRM", "CONFIRM:{}"])
def test_the_phrase_confirms_with_or_without_the_request_id(host, app, form):
    before = app.state.get("pressed", 0)
    meta = host.meta()
    confirm = {"phrase": form.format(meta["requestId"]), "approvedAt": "2026-02-09T12:00:00Z", "approver": "user"}
    assert host.call("desktop.click", meta=meta, confirm=confirm, **click_params(app))["clicked"] is True
    app.until(pressed=before + 1)


@pytest.mark.req("DSK-5.10-1")
@pytest.mark.req("DSK-5.10-2")
@pytest.mark.req("DSK-5.10-3")
@pytest.mark.req("DSK-5.10-4")
def test_an_issued_token_is_a_uuid_bound_to_method_params_and_peer(host, app):
    issued = host.issue("desktop.click", click_params(app))
    assert uuid.UUID(issued["token"]).version == 4
    assert issued["scope"]["method"] == "desktop.click"
    assert len(issued["scope"]["paramsDigest"]) == 16
    assert issued["peer"] == host.call("desktop.health")["peer"]
    # The same whatever the order of the keys.
    turned = dict(reversed(click_params(app).items()))
    assert host.issue("desktop.click", turned)["scope"] == issued["scope"]


@pytest.mark.req("DSK-5.10-5")
@pytest.mark.req("DSK-4.2-5")
def test_a_token_is_good_once(host, app):
    before = app.state.get("pressed", 0)
    token = host.issue("desktop.click", click_params(app))["token"]
    assert host.call("desktop.click", confirm={"token": token}, **click_params(app))["clicked"] is True
    app.until(pressed=before + 1)
    with pytest.raises(Refused, match=REQUIRED):
        host.call("desktop.click", confirm={"token": token}, **click_params(app))
    assert app.state["pressed"] == before + 1


@pytest.mark.req("DSK-4.2-2")
def test_a_wrong_token_is_not_saved_by_a_right_phrase(host, app):
    before = app.state
    confirm = {"token": str(uuid.uuid4()), "phrase": "CONFIRM"}
    with pytest.raises(Refused, match=REQUIRED):
        host.call("desktop.click", confirm=confirm, **click_params(app))
    assert app.state == before


@pytest.mark.req("DSK-4.2-3")
def test_a_token_is_for_its_params_its_route_and_options_among_them(host, app):
    before = app.state
    params = {"route": route(app), "text": "hello", "options": {"clearBefore": False}}
    token = host.issue("desktop.typeText", params)["token"]
    others = (
        params | {"text": "hello!"},
        params | {"route": {}},
        params | {"route": {"window": {"titlePattern": ".*"}}},
        params | {"options": {"clearBefore": True}},
        {name: value for name, value in params.items() if name != "options"},
        params | {"target": {"selector": BUTTON}},
    )
    for other in others:
        with pytest.raises(Refused, match="other parameters"):
            host.call("desktop.typeText", confirm={"token": token}, **other)
    with pytest.raises(Refused, match=r"token is for desktop\.typeText"):
        host.call("desktop.click", confirm={"token": token}, **click_params(app))
    assert app.state == before


def test_a_token_is_for_its_workspace(host, app):
    token = host.issue("desktop.click", click_params(app))["token"]
    host.new_workspace()
    with pytest.raises(Refused, match="another workspace"):
        host.call("desktop.click", confirm={"token": token}, **click_params(app))


@pytest.mark.req("DSK-4.2-4")
def test_a_token_ends_when_its_time_is_over(host, app):
    before = app.state
    token = host.issue("desktop.click", click_params(app), ttlMs=50)["token"]
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        host.call("desktop.health")
    with pytest.raises(Refused, match="expired"):
        host.call("desktop.click", confirm={"token": token}, **click_params(app))
    assert app.state == before


STEAL = """
import json, os, sys
sys.path[:0] = {tests!r}, os.path.dirname({tests!r})
from host_process import Wire
wire = Wire({socket!r})
wire.send("desktop.click", json.loads(sys.argv[1]))
print(json.dumps(wire.read()))
"""


@pytest.mark.req("DSK-4.2-3")
def test_a_token_of_one_process_is_nothing_in_another(host, app):
    before = app.state
    token = host.issue("desktop.click", click_params(app))["token"]
    params = {"meta": host.meta(), "confirm": {"token": token}, **click_params(app)}
    script = STEAL.format(tests=os.path.dirname(__file__), socket=host.socket_path)
    stolen = subprocess.run([sys.executable, "-c", script, json.dumps(params)], capture_output=True, check=True)
    error = json.loads(stolen.stdout)["error"]
    assert error["code"] == REQUIRED
    assert "another process" in error["message"]
    assert app.state == before
    # The attempt took nothing from its owner.
    assert host.call("desktop.click", confirm={"token": token}, **click_params(app))["clicked"]


def test_of_a_thousand_concurrent_uses_of_a_token_one_wins(host, app):
    before = app.state.get("pressed", 0)
    token = host.issue("desktop.click", click_params(app))["token"]
    wires = [host.connect() for _ in range(20)]
    for _ in range(50):
        for wire in wires:
            wire.send("desktop.click", {"meta": host.meta(), "confirm": {"token": token}, **click_params(app)})
    answers = [wire.read() for wire in wires for _ in range(50)]
    assert sum("result" in each for each in answers) == 1
    # So many may be open on a connection; whatever was refused was refused before it could act.
    assert {each["error"]["code"] for each in answers if "error" in each} <= {REQUIRED, "DESKTOP_HOST_NOT_READY"}
    app.until(pressed=before + 1)
    for wire in wires:
        wire.close()


def test_two_texts_for_one_key_are_refused_where_a_digest_is_taken(host, app):
    """Otherwise what was signed and what is done could be read differently."""
    wire = host.connect()
    meta = json.dumps(host.meta())
    params = f'{{"meta":{meta},"confirm":{{"phrase":"CONFIRM"}},"text":"a","text":"b"}}'
    wire.send_raw(b'{"jsonrpc":"2.0","id":"1","method":"desktop.typeText","params":%b}' % params.encode())
    assert "duplicate key" in wire.read()["error"]["message"]
    wire.close()


@pytest.mark.parametrize(
    "intent",
    [
        {"method": "desktop.observe", "params": {}},
        {"method": "desktop.nothing", "params": {}},
        {"method": "desktop.click", "params": {}},
        {"method": "desktop.click", "params": {"target": {}, "more": 1}},
    ],
)
def test_no_token_is_issued_for_what_would_be_refused(host, intent):
    with pytest.raises(Refused, match="INVALID_REQUEST"):
        host.call("desktop.confirm.issue", intent=intent)


def test_unused_tokens_are_limited(start_host, app):
    host = start_host()
    for _ in range(256):
        host.issue("desktop.click", click_params(app))
    with pytest.raises(Refused, match="256 unused tokens"):
        host.issue("desktop.click", click_params(app))


def test_a_token_does_not_survive_the_host(start_host, app):
    first = start_host()
    token = first.issue("desktop.click", click_params(app))["token"]
    first.close()
    second = start_host()
    with pytest.raises(Refused, match=REQUIRED):
        second.call("desktop.click", confirm={"token": token}, **click_params(app))


def test_the_phrase_can_be_turned_off(start_host, app):
    host = start_host("--no-phrase")
    before = app.state.get("pressed", 0)
    with pytest.raises(Refused, match="tokens only"):
        host.act("desktop.click", **click_params(app))
    token = host.issue("desktop.click", click_params(app))["token"]
    host.call("desktop.click", confirm={"token": token}, **click_params(app))
    app.until(pressed=before + 1)
