"""A Wayland session with Xwayland, under a real compositor: what cannot be done there is said, not pretended."""

import pytest
from host_process import HostProcess, Refused, route
from wayland_rig import WaylandDesktop


@pytest.fixture(scope="module")
def wayland():
    desktop = WaylandDesktop()
    yield desktop
    desktop.close()


@pytest.fixture(scope="module")
def x11_app(wayland):
    program = wayland.start("gtk3", title="an X11 window")
    yield program
    program.kill()


@pytest.fixture
def wayland_host(wayland, tmp_path):
    host = HostProcess(wayland, tmp_path, stop_keys=True)
    yield host
    host.close()


def issues(host):
    found = host.call("desktop.doctor", programs=True)
    assert len(found["issues"]) == len(found["remedies"])
    assert found["healthy"] is (not found["issues"])
    return found["issues"]


def test_a_screen_that_only_shows_black_counts_as_denied(wayland_host, x11_app):
    assert wayland_host.call("desktop.health")["permissions"] == {
        "accessibility": "granted",
        "screenRecording": "denied",
    }
    assert [each for each in issues(wayland_host) if "Screen Recording" in each and "Xwayland" in each]


def test_a_black_picture_is_neither_evidence_nor_an_answer(wayland_host, x11_app):
    with pytest.raises(Refused, match="shows it no pixels") as refused:
        wayland_host.call("desktop.observe", route=route(x11_app))
    assert refused.value.code == "DESKTOP_PERMISSION_MISSING"
    # Without a picture beforehand nothing is done.
    with pytest.raises(Refused, match="shows it no pixels"):
        wayland_host.act("desktop.click", route=route(x11_app), target={"selector": {"titleContains": "Press me"}})
    assert x11_app.state.get("pressed", 0) == 0
    # What needs no picture goes on: elements are read as anywhere.
    options = {"includeScreenshot": False, "snapshot": True}
    assert "Press me" in wayland_host.call("desktop.observe", route=route(x11_app), options=options)["snapshot"]


def test_stop_keys_that_only_x11_windows_hear_are_an_issue_and_not_promised(wayland_host):
    assert wayland_host.call("desktop.health")["stopKeys"] is None
    assert [each for each in issues(wayland_host) if "only while an X11 window has the focus" in each]


def test_no_x11_window_is_in_front_while_a_wayland_window_has_the_focus(wayland, wayland_host, x11_app):
    native = wayland.start_native("a Wayland window")
    try:
        windows = wayland_host.call("desktop.windows")["windows"]
        assert [(each["title"], each["active"]) for each in windows] == [(x11_app.title, False)]
        # A call without a route means the window in front: there is none that this host could use.
        with pytest.raises(Refused) as refused:
            wayland_host.call("desktop.find", selector={"titleContains": "Press me"})
        assert refused.value.code == "DESKTOP_ELEMENT_NOT_FOUND"
    finally:
        native.kill()


@pytest.mark.parametrize("lost", ["DISPLAY", "DBUS_SESSION_BUS_ADDRESS"])
def test_the_doctor_answers_without_a_display_or_a_bus(wayland, tmp_path, lost):
    host = HostProcess(wayland, tmp_path, env={lost: ""})
    try:
        assert issues(host)
    finally:
        host.close()
