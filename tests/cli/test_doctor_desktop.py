"""What `bascule doctor` says about the desktop: never a failure, always what to do."""

import pytest

from bascule.cli.checks.patient import Mark, Patient
from bascule.desktop.cli import checks as desktop


def patient(tmp_path, **environment):
    return Patient(str(tmp_path), environment=environment)


@pytest.mark.parametrize(
    ("environment", "mark", "expected"),
    [
        ({"DISPLAY": ":1"}, Mark.OK, "X11 at :1"),
        ({"DISPLAY": ":1", "WAYLAND_DISPLAY": "wayland-0", "SWAYSOCK": "/run/sway"}, Mark.OK, "wayland-0: sway"),
        ({"DISPLAY": ":1", "WAYLAND_DISPLAY": "wayland-0"}, Mark.WARN, "no pictures, keys and clicks"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, Mark.WARN, "elements are read"),
        ({"WAYLAND_DISPLAY": "wayland-0", "XDG_CURRENT_DESKTOP": "KDE"}, Mark.WARN, "KWin was not told"),
        ({"WAYLAND_DISPLAY": "wayland-0", "XDG_CURRENT_DESKTOP": "ubuntu:GNOME"}, Mark.WARN, "without our extension"),
        # A terminal that knows of Xwayland alone is in a Wayland session all the same.
        (
            {"DISPLAY": ":0", "XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": "GNOME"},
            Mark.WARN,
            "without our extension",
        ),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "x11", "XDG_CURRENT_DESKTOP": "GNOME"}, Mark.OK, "X11 at :0"),
        ({}, Mark.INFO, "nor DISPLAY is set"),
    ],
)
def test_the_kind_of_screen_decides_what_can_be_seen(tmp_path, monkeypatch, environment, mark, expected):
    monkeypatch.setattr(desktop.sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    verdict = desktop.check_screen(patient(tmp_path, **environment))
    assert verdict.mark is mark
    assert expected in verdict.what
    assert verdict.fix or mark is Mark.OK


def test_the_accessibility_bus_needs_its_program_and_a_session(tmp_path, monkeypatch):
    monkeypatch.setattr(desktop.sys, "platform", "linux")
    monkeypatch.setattr(desktop, "LAUNCHERS", (str(tmp_path / "launcher"),))
    assert "at-spi2-core" in desktop.check_accessibility(patient(tmp_path)).fix
    (tmp_path / "launcher").touch()
    assert "session" in desktop.check_accessibility(patient(tmp_path)).what
    (tmp_path / "bus").touch()
    verdict = desktop.check_accessibility(patient(tmp_path, XDG_RUNTIME_DIR=str(tmp_path)))
    assert verdict.mark is Mark.OK
    assert "--force-renderer-accessibility" in verdict.what
    assert "Firefox" in verdict.what


def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path, monkeypatch):
    monkeypatch.setattr(desktop.sys, "platform", "linux")
    monkeypatch.setattr(desktop, "_PACKAGES", {"no_such_module": "dbus-fast"})
    verdict = desktop.check_packages(patient(tmp_path))
    assert verdict.mark is Mark.INFO
    assert "bascule[desktop]" in verdict.fix


def test_on_a_mac_it_says_that_there_is_no_backend(tmp_path, monkeypatch):
    monkeypatch.setattr(desktop.sys, "platform", "darwin")
    for check in (desktop.check_packages, desktop.check_screen, desktop.check_accessibility):
        assert check(patient(tmp_path)).mark is Mark.INFO


@pytest.mark.parametrize(
    ("status", "mark", "expected"),
    [
        ({"enabled": False}, Mark.INFO, "bascule desktop enable"),
        ({"enabled": True, "display": ":1", "stopKeys": "Ctrl+X"}, Mark.OK, "enabled for :1; Ctrl+X stops it"),
        ({"enabled": True, "stopped": True}, Mark.WARN, "bascule desktop resume"),
        ({"enabled": True, "problem": "it ended"}, Mark.WARN, "its host is not there: it ended"),
        ({}, Mark.INFO, "unknown"),
    ],
)
def test_the_daemon_says_whether_agents_may_use_it(tmp_path, status, mark, expected):
    asked = patient(tmp_path)
    asked.ask = {"desktop.status": status}.get
    verdict = desktop.check_switch(asked)
    assert verdict.mark is mark
    assert expected in f"{verdict.what} {verdict.fix}"
