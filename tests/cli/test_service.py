"""`bascule service` against a service manager that is a real process and writes down what it was told."""

import argparse
import contextlib
import os
import plistlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bascule.cli import service
from bascule.foundation import paths
from patience import PATIENCE

# Answers like the real ones: `is-active` and `print` tell the state, start and stop change it.
MANAGER = """#!/bin/sh
here={here}
echo "$(basename "$0") $*" >> "$here/told"
[ -e "$here/broken" ] && {{ echo "Failed to connect to bus" >&2; exit 1; }}
case "$*" in
*is-active*|print*) [ -e "$here/running" ] || exit 3 ;;
*--now*|*restart*|bootstrap*) : > "$here/running" ;;
esac
case "$*" in
*disable*--now*|bootout*) rm -f "$here/running" ;;
esac
"""
UNIT = Path(".config/systemd/user/bascule.service")
PLIST = Path("Library/LaunchAgents/bascule.daemon.plist")


class Machine:
    """A home, a state directory and the service manager's memory."""

    def __init__(self, root: Path, platform: str) -> None:
        self.home = root / "home"
        self.state = root / "state"
        self.memory = root / "manager"
        self.platform = platform
        for folder in (self.home, self.state, self.memory):
            folder.mkdir()

    def call(self, action: str, *flags: str) -> int:
        parser = argparse.ArgumentParser()
        service.add_parser(parser.add_subparsers())
        args = parser.parse_args(["service", action, *flags])
        assert args.run is service.main
        return service.main(args, home=self.home, platform=self.platform)

    def commands_run(self) -> list[str]:
        """What the manager was told since the last look, questions left out."""
        file = self.memory / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in lines if "is-active" not in line and " print " not in line]


@pytest.fixture
def root():
    # A unix socket's path must be short; pytest's own folders are not.
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def machine(root, monkeypatch, request):
    made = Machine(root, getattr(request, "param", "linux"))
    programs = root / "programs"
    programs.mkdir()
    for name in ("systemctl", "launchctl"):
        program = programs / name
        program.write_text(MANAGER.format(here=made.memory))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("BASCULE_STATE_DIR", str(made.state))
    monkeypatch.delenv("BASCULE_CONFIG_DIR", raising=False)
    return made


on_both = pytest.mark.parametrize("machine", ["linux", "darwin"], indirect=True)


def test_installing_writes_the_unit_shows_it_and_starts_it(machine, capsys):
    assert machine.call("install") == 0
    unit = machine.home / UNIT
    printed = capsys.readouterr().out
    assert unit.read_text() in printed
    assert str(unit) in printed
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert machine.commands_run() == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now bascule.service",
    ]


def test_the_unit_starts_this_python_in_the_same_state_directory(machine):
    machine.call("install")
    lines = (machine.home / UNIT).read_text().splitlines()
    assert f"ExecStart={sys.executable} -P -m bascule.cli.start up --log json" in lines
    assert f"Environment=BASCULE_STATE_DIR={machine.state}" in lines
    assert {"Type=exec", "Restart=on-failure", "NoNewPrivileges=yes", "UMask=0077"} <= set(lines)


def test_a_state_directory_given_on_the_command_line_reaches_the_service(machine):
    args = argparse.Namespace(action="install", print_only=False, state_dir=str(machine.state / "other"))
    assert service.main(args, home=machine.home, platform="linux") == 0
    assert f"Environment=BASCULE_STATE_DIR={machine.state}/other\n" in (machine.home / UNIT).read_text()


@on_both
def test_installing_again_changes_nothing_and_does_not_restart(machine, capsys):
    machine.call("install")
    machine.commands_run()
    file = machine.home / (UNIT if machine.platform == "linux" else PLIST)
    before = file.stat()
    assert machine.call("install") == 0
    assert file.stat().st_ino == before.st_ino
    assert "nothing has changed" in capsys.readouterr().out
    assert not [line for line in machine.commands_run() if "restart" in line or "boot" in line]


@on_both
def test_a_changed_file_restarts_the_running_service(machine):
    machine.call("install")
    machine.commands_run()
    file = machine.home / (UNIT if machine.platform == "linux" else PLIST)
    file.write_text("of an older version")
    assert machine.call("install") == 0
    assert (
        machine.commands_run()[-1]
        == {
            "linux": "systemctl --user restart bascule.service",
            "darwin": f"launchctl bootstrap gui/{os.getuid()} {file}",
        }[machine.platform]
    )
    assert file.read_text() != "of an older version"


@on_both
def test_printing_changes_nothing(machine, capsys):
    assert machine.call("install", "--print") == 0
    assert capsys.readouterr().out.startswith(("# Written by", "<?xml"))
    assert list(machine.home.iterdir()) == []
    assert machine.commands_run() == []


@on_both
def test_uninstalling_stops_the_service_and_removes_the_file(machine):
    machine.call("install")
    machine.commands_run()
    assert machine.call("uninstall") == 0
    assert not (machine.home / UNIT).exists()
    assert not (machine.home / PLIST).exists()
    assert not (machine.memory / "running").exists()
    commands_run = machine.commands_run()
    assert machine.call("uninstall") == 0
    assert machine.commands_run() == []
    assert commands_run[0] in (
        "systemctl --user disable --now bascule.service",
        f"launchctl bootout gui/{os.getuid()}/bascule.daemon",
    )


@on_both
def test_status_tells_not_installed_running_and_stopped_apart(machine, capsys):
    assert machine.call("status") == 3
    machine.call("install")
    assert machine.call("status") == 0
    (machine.memory / "running").unlink()
    assert machine.call("status") == 1
    assert "bascule service install" in capsys.readouterr().out


def test_status_says_when_the_file_is_of_another_version(machine, capsys):
    machine.call("install")
    (machine.home / UNIT).write_text("of an older version")
    machine.call("status")
    assert "differs" in capsys.readouterr().out


def test_without_a_service_manager_the_file_is_written_and_the_commands_are_shown(machine, capsys):
    (machine.memory / "broken").touch()
    assert machine.call("install") == 1
    assert (machine.home / UNIT).exists()
    printed = capsys.readouterr().err
    assert "Failed to connect to bus" in printed
    assert "  systemctl --user daemon-reload\n  systemctl --user enable --now bascule.service\n" in printed


def test_a_missing_systemctl_is_named(machine, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(machine.home))
    assert machine.call("install") == 1
    assert "systemctl is not on PATH" in capsys.readouterr().err


def test_a_daemon_started_by_hand_is_not_fought_over(machine, capsys):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as daemon:
        daemon.bind(str(machine.state / "link.sock"))
        daemon.listen()
        assert machine.call("install") == 0
    assert machine.commands_run()[-1] == "systemctl --user enable bascule.service"
    assert "bascule down && bascule service install" in capsys.readouterr().out


@pytest.mark.parametrize("machine", ["darwin"], indirect=True)
def test_the_launchd_agent_is_a_plist_that_starts_the_daemon(machine):
    assert machine.call("install") == 0
    agent = plistlib.loads((machine.home / PLIST).read_bytes())
    assert agent["ProgramArguments"][1:] == ["-P", "-m", "bascule.cli.start", "up", "--log", "json"]
    assert agent["EnvironmentVariables"] == {"BASCULE_STATE_DIR": str(machine.state)}
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert machine.commands_run() == [f"launchctl bootstrap gui/{os.getuid()} {machine.home / PLIST}"]


@pytest.mark.parametrize("machine", ["win32"], indirect=True)
def test_an_unknown_platform_is_told_what_works_there(machine, capsys):
    assert machine.call("install") == 1
    assert "bascule up -d" in capsys.readouterr().err


def test_a_path_that_a_unit_cannot_hold_is_refused(machine, monkeypatch, capsys):
    monkeypatch.setenv("BASCULE_STATE_DIR", f"{machine.state}\nExecStartPre=evil")
    assert machine.call("install") == 1
    assert not (machine.home / UNIT).exists()
    assert "control characters" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ['quo"te', "it's", "back\\slash"])
def test_a_program_that_systemd_would_refuse_is_refused_by_name(machine, folder):
    with pytest.raises(service.CannotInstall, match="install elsewhere"):
        service.systemd(machine.home, {}, f"/opt/{folder}/python")


@pytest.mark.parametrize("folder", ["plain", "with space", "100%h", "$HOME", "ünï"])
def test_systemd_reads_a_path_in_the_unit_as_we_meant_it(machine, folder):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert os.environ.get("CI") != "true", "tools/setup.sh installs systemd for this test"
        pytest.skip("systemd-analyze is not on this machine")

    def complaints(python: Path) -> str:
        unit = machine.home / "bascule.service"
        unit.write_text(service.systemd(machine.home, {"BASCULE_STATE_DIR": str(python)}, str(python)).text)
        done = subprocess.run(
            [analyze, "verify", "--user", "--man=no", str(unit)],
            env={**os.environ, "XDG_RUNTIME_DIR": str(machine.home), "HOME": str(machine.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return "" if done.returncode == 0 else done.stdout

    python = machine.home / folder / "python"
    # It names the program it looks for, so a wrong quoting would be seen: once absent, once there.
    assert f"{python} is not executable" in complaints(python)
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert complaints(python) == ""


@pytest.mark.parametrize("machine", ["linux", "darwin"], indirect=True)
def test_a_home_that_the_manager_does_not_know_is_named_in_the_file(machine, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(machine.home))
    assert machine.call("install", "--print") == 0
    printed = capsys.readouterr().out
    assert "HOME" in printed
    assert str(machine.home) in printed
    monkeypatch.setenv("HOME", paths.passwd_home())
    assert machine.call("install", "--print") == 0
    assert "HOME" not in capsys.readouterr().out
