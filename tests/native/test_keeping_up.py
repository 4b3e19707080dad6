"""How `bascule on` keeps the daemon running: with a service manager that is a real process, and without one."""

import os
import tempfile
from pathlib import Path

import pytest

from bascule.cli import service
from bascule.cli.main import main
from bascule.cli.setup.keeping_up import KeepingUp
from bascule.cli.setup.record import Record
from bascule.foundation import paths

# `show-environment` answers where there is a manager of this user; the rest is written down.
MANAGER = """#!/bin/sh
here={here}
echo "$*" >> "$here/told"
[ -e "$here/broken" ] && exit 1
case "$*" in
*is-active*) [ -e "$here/running" ] || exit 3 ;;
*disable*) rm -f "$here/running" ;;
*--now*|*restart*) : > "$here/running" ;;
esac
"""


@pytest.fixture
def place():
    # A unix socket's path must be short; pytest's own folders are not.
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def manager(place, monkeypatch):
    folder = place / "manager"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(MANAGER.format(here=folder))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def keeping(place, *, undo=False):
    state = str(place / "state")
    record = Record(state, paths.native_record(state))
    home = place / "home"
    home.mkdir(exist_ok=True)
    return KeepingUp(state, service.for_platform(home, {"BASCULE_STATE_DIR": state}, "linux"), record, undo=undo)


def tree(home: Path):
    return sorted(str(path.relative_to(home)) for path in home.rglob("*"))


def test_a_service_is_installed_started_and_removed_again_with_its_folders(place, manager):
    on = keeping(place)
    assert "ExecStart=" in on.details()
    assert on.do() is None
    assert (manager / "running").exists()
    assert tree(place / "home")[-1].endswith("bascule.service")
    assert keeping(place).shown() == []
    off = keeping(place, undo=True)
    assert off.shown()
    assert off.do() is None
    assert not (manager / "running").exists()
    assert tree(place / "home") == []


def test_a_service_that_was_there_before_on_stays_after_off(place, manager):
    state = str(place / "state")
    theirs = service.for_platform(place / "home", {"BASCULE_STATE_DIR": state}, "linux")
    service.put_in_force(theirs, state=state)
    assert keeping(place).shown() == []
    assert keeping(place, undo=True).shown() == []
    assert theirs.file.exists()


def test_without_a_manager_the_daemon_is_started_and_it_is_said_that_it_will_not_come_back(place, manager, request):
    (manager / "broken").touch()
    on = keeping(place)
    (line,) = on.shown()
    assert "no service manager here" in line
    request.addfinalizer(lambda: main(["down", "--state-dir", str(place / "state")]))
    assert on.do() is None
    assert service.listens(paths.link_socket(str(place / "state")))
    assert tree(place / "home") == []
    assert keeping(place).shown() == []
