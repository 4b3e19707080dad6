"""The kill switch, a host that is killed and clients that leave: by real keys, real signals, real sockets."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from desktop_rig import until
from wires import Wire, request
from x_recorder import Recorder

from bascule.desktop.protocol import STOP_CHORDS
from patience import PATIENCE

# Four keys, a second apart: long enough to come in between.
SLOW_KEYS = {"keys": ["ctrl", "shift", "alt", "a"], "options": {"delayMs": 1_000}}


def route(program):
    return {"app": {"pid": program.pid}}


def button(title):
    return {"selector": {"byRole": "AXButton", "titleContains": title}}


@pytest.fixture
def app(start):
    return start("gtk3")


@pytest.fixture
def pressing(own_house, app):
    """An agent presses keys, slowly; the person said yes. Its answer, once there is one."""
    with Recorder(own_house.desktop.display) as seen, ThreadPoolExecutor(1) as pool:
        keys = {"route": route(app), **SLOW_KEYS}
        own_house.decide(own_house.asks("hotkey", **keys))
        answer = pool.submit(own_house.call, "hotkey", **keys)
        until(lambda: seen.count("key down"), "the first key is down")
        yield answer, seen


def test_a_stop_ends_what_goes_on_and_outlives_daemon_and_host(own_house, app, pressing):
    answer, seen = pressing
    assert own_house.person.call("desktop.stop") == {"stopped": True, "aborted": 1}
    pressed = seen.count("key down")
    answered = answer.result(PATIENCE)
    assert answered.error["details"]["desktop"]["code"] == "DESKTOP_ABORTED"
    until(lambda: seen.down() == set(), "nothing is held down")
    own_house.restart(clean=False)
    click = {"route": route(app), "target": button("Press me")}
    agent = own_house.register("Other")
    refused = own_house.call("click", agent=agent, **click)
    assert refused.status == 409
    assert refused.error["details"]["desktop"]["code"] == "DESKTOP_HOST_STOPPED"
    assert seen.count("key down") == pressed
    own_house.person.call("desktop.resume")
    own_house.person.call("desktop.click", click)
    app.until(pressed=1)


def test_the_keys_stop_everything_and_the_daemon_knows(own_house, pressing):
    answer, _ = pressing
    keys = STOP_CHORDS[0].lower().replace("escape", "Escape")
    subprocess.run(["xdotool", "key", keys], env=own_house.desktop.environment, check=True)
    until(lambda: own_house.person.call("desktop.status")["stopped"], "the daemon hears of it")
    assert answer.result(PATIENCE).error["details"]["desktop"]["code"] == "DESKTOP_ABORTED"
    (record,) = own_house.person.call("ledger.show", {"what": "desktop.stop"})
    assert (record["principal"], record["details"]) == ("daemon", {"by": STOP_CHORDS[0]})


def test_a_host_that_is_killed_during_an_act_leaves_it_unknown_and_comes_back(own_house, pressing):
    answer, _ = pressing
    os.kill(own_house.person.call("desktop.status")["pid"], signal.SIGKILL)
    answered = answer.result(PATIENCE)
    assert answered.status == 502
    assert answered.error["details"]["executed"] == "unknown"
    assert [each["outcome"] for each in own_house.records("hotkey")][-2:] == ["begun", "unknown"]
    health = until(lambda: (found := own_house.agent.get("/v1/desktop/health")).status == 200 and found, "another host")
    assert health.json["permissions"]["accessibility"] == "granted"


def test_a_client_that_leaves_its_wait_ends_it_and_only_ones_own_can_be_aborted(own_house, app):
    house = own_house
    house.approved("observe", route=route(app), options={"includeScreenshot": False, "includeAxTree": False})
    wait = {"route": route(app), "condition": {"selectorExists": {"byRole": "AXButton", "titleContains": "Never"}}}

    def calls():
        return house.local.gauge("bascule_desktop_calls")

    with Wire(house.daemon.tcp, PATIENCE) as wire:
        headers = [*house.agent.headers, ("Content-Type", "application/json")]
        body = b'{"requestId": "left", "route": {"app": {"pid": %d}}, "condition": ' % app.pid
        body += b'{"selectorExists": {"byRole": "AXButton", "titleContains": "Never"}}}'
        wire.send(request("POST", "/v1/desktop/waitUntil", headers, body))
        until(lambda: calls() == 1, "the wait is held")
    until(lambda: calls() == 0, "it ended with its client")
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(house.call, "waitUntil", requestId="mine", **wait)
        until(lambda: calls() == 1, "the wait is held")
        other = house.register("Other")
        assert house.call("abort", agent=other, executionId="mine").status == 400
        assert calls() == 1
        until(lambda: house.call("abort", executionId="mine").status == 200, "the host knows it")
        assert held.result(PATIENCE).error["details"]["desktop"]["code"] == "DESKTOP_ABORTED"


def test_the_host_ends_with_the_daemon(own_house, app):
    own_house.person.call("desktop.find", {"route": route(app), "selector": {"byRole": "AXButton"}})
    pid = own_house.person.call("desktop.status")["pid"]
    own_house.restart()
    assert not os.path.exists(f"/proc/{pid}")
    # Enabled as before, with the same session.
    own_house.person.call("desktop.find", {"route": route(app), "selector": {"byRole": "AXButton"}})
    pid = own_house.person.call("desktop.status")["pid"]
    own_house.restart(clean=False)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "it does not outlive a daemon that is killed")
