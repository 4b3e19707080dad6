"""What the host's doctor mends by itself, and what it says about programs that cannot be read."""

import subprocess

import pytest
from desktop_rig import Desktop, until
from host_process import HostProcess, route

from bascule.programs.desktop_host.linux import programs

STATUS = ("org.a11y.Bus", "/org/a11y/bus", "org.freedesktop.DBus.Properties")


def is_enabled(desktop):
    name, path, interface = STATUS
    command = ["dbus-send", "--session", "--print-reply", f"--dest={name}", path, f"{interface}.Get"]
    arguments = ["string:org.a11y.Status", "string:IsEnabled"]
    done = subprocess.run([*command, *arguments], env=desktop.environment, capture_output=True, text=True, check=True)
    return "boolean true" in done.stdout


def notes(host, **more):
    return host.call("desktop.doctor", **more)["notes"]


@pytest.fixture
def fresh(tmp_path):
    """A desktop on which nobody has asked for accessibility yet."""
    desktop = Desktop()
    desktop.set_accessibility(on=False)
    yield desktop
    desktop.close()


def test_the_host_turns_accessibility_on_and_leaves_it_as_it_was(fresh, tmp_path):
    before = fresh.start("qt6")
    assert not is_enabled(fresh)
    host = HostProcess(fresh, tmp_path)
    try:
        assert is_enabled(fresh)
        # Qt looked when it started, and not again; a program that starts now is read.
        note = until(lambda: notes(host, programs=True), "the program is spoken of")
        assert [
            each for each in note if f"process {before.pid}" in each and "Qt 6" in each and "start it again" in each
        ]
        after = fresh.start("qt6")
        selector = {"titleContains": "Press me"}
        assert host.call("desktop.find", route=route(after), selector=selector)["matched"]
        assert not [each for each in notes(host, programs=True) if f"process {after.pid}" in each]
    finally:
        host.close()
    assert not is_enabled(fresh)


def test_programs_are_spoken_of_only_when_asked_for(host, desktop):
    silent = desktop.start("gtk3", env={"NO_AT_BRIDGE": "1"})
    try:
        assert notes(host) == []
        (note,) = [each for each in notes(host, programs=True) if f"process {silent.pid}" in each]
        assert note.endswith("started with NO_AT_BRIDGE=1: start it without that")
        # It is no fault of the host.
        assert host.call("desktop.doctor", programs=True)["healthy"] is True
        seen = host.call("desktop.observe", route=route(silent))
        assert seen["partial"] == ["inaccessible"]
    finally:
        silent.kill()


def process(tmp_path, cmdline=b"", environ=b"", maps=b""):
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    for name, data in (("cmdline", cmdline), ("environ", environ), ("maps", maps)):
        (folder / name).write_bytes(data)
    return {"proc": str(tmp_path / "proc")}


@pytest.mark.parametrize(
    ("files", "on_bus", "expected"),
    [
        ({}, True, None),
        ({}, False, "not on the accessibility bus"),
        ({"maps": b"7f00 /usr/lib/libQt6Core.so.6\n"}, False, "start it again"),
        ({"maps": b"7f00 /usr/lib/libQt6Core.so.6\n"}, True, None),
        ({"maps": b"7f00 /usr/lib/firefox/libxul.so\n"}, False, "made with Firefox"),
        ({"environ": b"A=1\0GTK_A11Y=none\0"}, False, "GTK_A11Y=none"),
        ({"environ": b"NO_AT_BRIDGE=0\0GTK_A11Y=atspi\0"}, False, "not on the accessibility bus"),
    ],
)
def test_the_reason_a_program_cannot_be_read_comes_from_its_process(tmp_path, files, on_bus, expected):
    note = programs.why_unreadable(7, "/usr/bin/thing", on_bus=on_bus, **process(tmp_path, **files))
    assert note is None if expected is None else expected in note


@pytest.mark.parametrize(
    ("cmdline", "fine"),
    [
        (b"app\0", False),
        (b"app\0--force-renderer-accessibility\0", True),
        (b"app\0--force-renderer-accessibility=complete\0", True),
        (b"app\0--force-renderer-accessibility-not\0", False),
    ],
)
def test_a_program_made_with_chromium_is_told_its_flag_whatever_it_is_called(tmp_path, cmdline, fine):
    (tmp_path / "chrome_100_percent.pak").touch()
    where = process(tmp_path, cmdline=cmdline)
    note = programs.why_unreadable(7, str(tmp_path / "any-name"), on_bus=True, **where)
    assert note is None if fine else "--force-renderer-accessibility" in note


def test_what_to_do_about_a_silent_bus_depends_on_what_is_there(monkeypatch, tmp_path):
    assert "DBUS_SESSION_BUS_ADDRESS" in programs.bus_remedy(None)
    monkeypatch.setattr(programs, "LAUNCHERS", (str(tmp_path / "none"),))
    assert "install at-spi2-core" in programs.bus_remedy("unix:path=/run/bus")
    monkeypatch.setattr(programs, "LAUNCHERS", (str(tmp_path),))
    assert "log in again" in programs.bus_remedy("unix:path=/run/bus")
