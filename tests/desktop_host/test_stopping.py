"""Abort, the kill switch, and programs that freeze or die: nothing hangs, and no event comes after."""

import json
import os
import signal
import subprocess
import sys

import pytest
from desktop_rig import until
from host_process import Refused, route
from x_recorder import Recorder
from Xlib import X, display

from patience import PATIENCE

ABORTED = "DESKTOP_ABORTED"


def selector(title, role="AXButton"):
    return {"byRole": role, "titleContains": title}


@pytest.fixture
def app(start):
    return start("gtk3")


@pytest.fixture
def seen(desktop):
    with Recorder(desktop.display) as recorder:
        yield recorder


def never(host, app, **more):
    condition = {"selectorExists": selector("Never")}
    return host.later("desktop.waitUntil", **{"route": route(app), "condition": condition, "timeoutMs": 60_000, **more})


def abort(host, name):
    """As soon as the host knows the execution."""

    def attempt():
        try:
            return host.call("desktop.abort", executionId=name)
        except Refused:
            # Not known yet.
            return None

    return until(attempt, "the execution is known")


@pytest.mark.req("DSK-5.9-1")
@pytest.mark.req("DSK-5.9-2")
@pytest.mark.req("DSK-6-7")
def test_abort_ends_a_wait_at_once(host, app):
    # As long as a wait may be.
    waiting = never(host, app, meta=host.meta(timeoutMs=600_000), timeoutMs=600_000)
    aborted = abort(host, waiting.request_id)
    assert aborted["aborted"] is True
    with pytest.raises(Refused) as refused:
        waiting.result()
    assert refused.value.code == ABORTED
    # By the name it was given: the request's own id here, not the execution's.
    assert aborted["executionId"] == waiting.request_id != refused.value.details["executionId"]


@pytest.mark.req("DSK-5.9-4")
def test_what_has_ended_cannot_be_aborted(host, app):
    done = host.call("desktop.find", route=route(app), selector=selector("Press me"))
    with pytest.raises(Refused, match="DESKTOP_INVALID_REQUEST"):
        host.call("desktop.abort", executionId=done["executionId"])


@pytest.mark.req("DSK-5.9-3")
def test_after_an_abort_during_a_long_text_no_event_reaches_the_screen(host, app, seen):
    """Sixteen pieces are pasted one by one; the abort comes among them."""
    text = "0123456789abcdef" * 32_768
    typing = host.later(
        "desktop.typeText",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        target={"selector": selector("Notes", "AXTextArea")},
        text=text,
    )
    until(lambda: seen.count("key down") >= 4, "two pieces are pasted")
    abort(host, typing.request_id)
    before = seen.catch_up()
    with pytest.raises(Refused) as refused:
        typing.result()
    assert refused.value.code == ABORTED
    # Other programs' events could still come; so something is awaited that takes longer than a piece does.
    never_there = {"selectorExists": selector("Never")}
    with pytest.raises(Refused, match="TIMEOUT"):
        host.call("desktop.waitUntil", route=route(app), condition=never_there, timeoutMs=1_000)
    seen.catch_up()
    assert seen.events[before:] == []
    until(lambda: seen.down() == set(), "nothing is held down")
    assert 0 < len(app.state["notes"]) < len(text)


def test_no_event_of_a_request_reaches_the_screen_after_its_timeout(host, app, seen):
    with pytest.raises(Refused) as refused:
        host.call(
            "desktop.hotkey",
            meta=host.meta(timeoutMs=1_500),
            route=route(app),
            confirm={"phrase": "CONFIRM"},
            keys=["ctrl", "shift", "alt", "a"],
            options={"delayMs": 1_000},
        )
    assert refused.value.code == "DESKTOP_TIMEOUT"
    assert refused.value.details["timeoutMs"] == 1_500
    before = seen.catch_up()
    with pytest.raises(Refused, match="TIMEOUT"):
        host.call(
            "desktop.waitUntil", route=route(app), condition={"selectorExists": selector("Never")}, timeoutMs=2_000
        )
    seen.catch_up()
    assert seen.events[before:] == []
    until(lambda: seen.down() == set(), "nothing is held down")
    assert 1 <= seen.count("key down") < 4


def test_a_text_that_is_not_aborted_arrives_whole(host, app, seen):
    """The control of the test above: so many pieces, so many pastes."""
    text = "0123456789abcdef" * 8_192
    target = {"selector": selector("Notes", "AXTextArea")}
    result = host.act("desktop.typeText", route=route(app), target=target, text=text)
    app.until(notes=text)
    assert result["effect"] == "confirmed"
    assert seen.count("key down") == 2 * 4


@pytest.mark.req("DSK-5.7-3")
def test_an_abort_between_two_keys_releases_the_one_that_is_down(host, app, seen):
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["ctrl", "shift", "alt", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") == 1, "the first key is down")
    abort(host, pressing.request_id)
    with pytest.raises(Refused, match=ABORTED):
        pressing.result()
    until(lambda: seen.down() == set(), "nothing is held down")
    assert seen.count("key down") == 1


def test_a_client_that_goes_away_takes_its_keys_with_it(host, app, seen):
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["ctrl", "shift", "alt", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") == 1, "the first key is down")
    pressing.wire.socket.shutdown(2)
    until(lambda: seen.count("key up") == 1, "it is released")
    assert pressing.answer() is None
    until(lambda: seen.down() == set(), "nothing is held down")


def test_another_process_cannot_abort(host, app):
    waiting = never(host, app)
    script = (
        "import json,os,sys; sys.path[:0] = sys.argv[1], os.path.dirname(sys.argv[1]); from host_process import Wire\n"
        "wire = Wire(sys.argv[2]); wire.send('desktop.abort', json.loads(sys.argv[3])); print(json.dumps(wire.read()))"
    )
    params = json.dumps({"meta": host.meta(), "executionId": waiting.request_id})
    command = [sys.executable, "-c", script, os.path.dirname(__file__), host.socket_path, params]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer["error"]["code"] == "DESKTOP_INVALID_REQUEST"
    assert not waiting.done
    abort(host, waiting.request_id)
    waiting.answer()


def test_the_kill_switch_aborts_everything_and_takes_no_input_until_it_is_resumed(start_host, app, seen):
    host = start_host()
    token = host.issue("desktop.hotkey", {"keys": ["a"]})["token"]
    waiting = never(host, app)
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["ctrl", "shift", "alt", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") == 1, "the first key is down")
    assert host.call("desktop.stop")["aborted"] == 2
    for each in (waiting, pressing):
        with pytest.raises(Refused, match=ABORTED):
            each.result()
    until(lambda: seen.down() == set(), "nothing is held down")
    with pytest.raises(Refused, match="DESKTOP_CONFIRM_REQUIRED"):
        host.call("desktop.hotkey", confirm={"token": token}, keys=["a"])
    with pytest.raises(Refused, match="DESKTOP_HOST_STOPPED"):
        host.act("desktop.click", route=route(app), target={"selector": selector("Press me")})
    assert host.call("desktop.health")["stopped"] is True
    assert host.call("desktop.doctor")["issues"] == ["Input was stopped"]
    host.act("desktop.resume")
    host.act("desktop.click", route=route(app), target={"selector": selector("Press me")})
    app.until(pressed=1)


def test_a_signal_is_a_kill_switch_too(start_host, app, seen):
    host = start_host()
    waiting = never(host, app)
    until(lambda: not waiting.done and host.call("desktop.windows"), "the wait is under way")
    host.process.send_signal(signal.SIGUSR1)
    with pytest.raises(Refused, match=ABORTED):
        waiting.result()


def test_the_chord_stops_everything_whatever_is_in_front(start_host, app, seen):
    """Pressed by another program, while we hold keys ourselves."""
    host = start_host(stop_keys=True)
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["super", "b", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") == 1, "the first key is down")
    subprocess.run(
        ["xdotool", "key", "ctrl+alt+shift+Escape"], env=host.desktop.environment, check=True, timeout=PATIENCE
    )
    with pytest.raises(Refused, match=ABORTED):
        pressing.result()
    assert host.call("desktop.health")["stopped"] is True
    until(lambda: seen.down() == set(), "all keys are up")


def test_where_the_chord_is_taken_another_one_stops_everything(start_host, app, desktop):
    first = start_host(stop_keys=True)
    assert first.call("desktop.health")["stopKeys"] == "Ctrl+Alt+Shift+Escape"
    second = start_host(stop_keys=True)
    assert second.call("desktop.health")["stopKeys"] == "Ctrl+Alt+Shift+F12"
    assert second.call("desktop.doctor")["issues"] == []
    wire = second.connect()
    second.call("desktop.health", wire=wire)
    subprocess.run(["xdotool", "key", "ctrl+alt+shift+F12"], env=desktop.environment, check=True, timeout=PATIENCE)
    assert (wire.notifications or [wire.read_any()])[0]["method"] == "desktop.stopped"
    wire.close()
    third = start_host(stop_keys=True)
    assert third.call("desktop.health")["stopKeys"] is None
    assert "belong to another program" in third.call("desktop.doctor")["issues"][0]


def test_the_chord_is_heard_while_a_menu_has_the_keyboard(start_host, app, desktop):
    """No grab of anybody else's is served meanwhile: a menu, a screen locker, a game."""
    other = display.Display(desktop.display)
    host = start_host(stop_keys=True)
    wire = host.connect()
    host.call("desktop.health", wire=wire)
    root = other.screen().root
    taken = until(
        lambda: root.grab_keyboard(True, X.GrabModeAsync, X.GrabModeAsync, X.CurrentTime) == X.GrabSuccess, "the grab"
    )
    assert taken
    for way in ("keydown", "keyup"):
        # Held until it is heard, as a person would.
        keys = [word for key in ("ctrl", "alt", "shift", "Escape") for word in (way, key)]
        subprocess.run(["xdotool", *keys], env=desktop.environment, check=True, timeout=PATIENCE)
        if way == "keydown":
            assert wire.read_any()["method"] == "desktop.stopped"
    assert host.call("desktop.health", wire=wire)["stopped"] is True
    # Once, although both ways tell of it.
    assert wire.notifications == []
    wire.close()
    other.ungrab_keyboard(X.CurrentTime)
    other.close()


def test_other_keys_together_are_not_the_chord(start_host, app, desktop):
    host = start_host(stop_keys=True)
    for keys in ("ctrl+alt+Escape", "ctrl+shift+Escape", "ctrl+alt+shift+a", "Escape"):
        subprocess.run(["xdotool", "key", keys], env=desktop.environment, check=True, timeout=PATIENCE)
    assert host.call("desktop.health")["stopped"] is False
    subprocess.run(["xdotool", "key", "ctrl+alt+shift+Escape"], env=desktop.environment, check=True, timeout=PATIENCE)
    until(lambda: host.call("desktop.health")["stopped"], "the chord is heard")


def test_a_host_lets_go_of_the_keys_that_a_killed_one_left_down(start_host, app, seen):
    host = start_host()
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["ctrl", "shift", "alt", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") >= 1, "a key is down")
    host.process.kill()
    host.process.wait()
    pressing.answer()
    # The control: the server keeps it.
    assert seen.down() != set()
    start_host()
    until(lambda: seen.down() == set(), "it is let go")


def test_a_host_that_is_ended_leaves_no_key_down(start_host, app, seen):
    host = start_host()
    pressing = host.later(
        "desktop.hotkey",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        keys=["ctrl", "shift", "alt", "a"],
        options={"delayMs": 1_000},
    )
    until(lambda: seen.count("key down") == 1, "the first key is down")
    host.close()
    pressing.answer()
    until(lambda: seen.down() == set(), "nothing is held down")
    assert host.process.returncode == 0


# -- programs that freeze or die --


@pytest.mark.req("DSK-6-6")
def test_a_frozen_program_hangs_nothing(host, start):
    frozen, lively = start("gtk3"), start("gtk3")
    os.kill(frozen.pid, signal.SIGSTOP)
    observing = host.later("desktop.observe", route=route(frozen))
    # Others are answered meanwhile, well before the frozen one's time is over.
    host.call("desktop.find", route=route(lively), selector=selector("Press me"))
    assert not observing.done
    with pytest.raises(Refused) as refused:
        observing.result()
    assert refused.value.code == "DESKTOP_TIMEOUT"
    assert refused.value.error["retryable"] is True
    with pytest.raises(Refused, match="DESKTOP_TIMEOUT"):
        host.act("desktop.click", route=route(frozen), target={"selector": selector("Press me")})
    os.kill(frozen.pid, signal.SIGCONT)
    host.act("desktop.click", route=route(frozen), target={"selector": selector("Press me")})
    frozen.until(pressed=1)


def test_a_program_that_freezes_after_it_was_found_gives_a_clear_error(host, start):
    app = start("gtk3")
    button = host.call("desktop.find", route=route(app), selector=selector("Press me"))["elementRefs"][0]
    os.kill(app.pid, signal.SIGSTOP)
    with pytest.raises(Refused) as refused:
        host.act("desktop.click", target={"elementRef": button})
    assert refused.value.code == "DESKTOP_TIMEOUT"
    assert refused.value.details["reason"] == "unresponsive"
    os.kill(app.pid, signal.SIGCONT)


@pytest.mark.req("DSK-5.5-6")
@pytest.mark.req("DSK-6-8")
def test_a_program_that_dies_while_it_is_clicked_gives_a_clear_answer(host, start):
    app = start("gtk3")
    answer = host.later(
        "desktop.click",
        route=route(app),
        confirm={"phrase": "CONFIRM"},
        target={"selector": selector("Die")},
    ).answer()
    # It may answer before it dies; then its end is what was seen.
    error = answer.get("error", {"code": "DESKTOP_INTERNAL_ERROR", "details": {"reason": "appGone"}})
    assert error["code"] == "DESKTOP_INTERNAL_ERROR"
    assert error["details"]["reason"] == "appGone"
    assert answer.get("result", {}).get("effect", "confirmed") == "confirmed"
    assert app.process.wait(PATIENCE) == 3
