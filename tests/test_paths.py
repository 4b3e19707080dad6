"""Which home directory counts, and that everything of ours is found from that one."""

import os
import pwd
import subprocess
import sys
import tempfile

import pytest

from bascule.foundation import paths
from gabp.bridge_file import NoHome, bridge_file
from patience import PATIENCE

PASSWD_HOME = pwd.getpwuid(os.getuid()).pw_dir


@pytest.fixture
def other_users_directory(tmp_path):
    """Root owns `/`; anyone else does not."""
    if os.getuid() != 0:
        return "/"
    os.chown(tmp_path, 12_345, 12_345)
    return os.fspath(tmp_path)


def test_everything_of_ours_is_found_from_home(tmp_path, monkeypatch):
    for name in ("BASCULE_STATE_DIR", "BASCULE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", f"{tmp_path}/")
    monkeypatch.setattr(sys, "platform", "linux")
    assert paths.home() == str(tmp_path)
    assert paths.state_dir() == f"{tmp_path}/.local/state/bascule"
    assert paths.config_dir() == f"{tmp_path}/.config/bascule"
    assert bridge_file() == bridge_file(paths.home()) == f"{tmp_path}/.config/gabp/bridge.json"
    assert paths.expand("~/games") == f"{tmp_path}/games"
    assert paths.expand("~") == str(tmp_path)


@pytest.mark.parametrize("named", [None, "", "home", "/nowhere/at/all", "/\udcff", __file__])
def test_a_home_that_is_not_a_directory_by_its_full_path_does_not_count(named, monkeypatch):
    if named is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", named)
    assert paths.home() == PASSWD_HOME
    assert bridge_file() == bridge_file(PASSWD_HOME)
    assert paths.expand("~/games") == f"{PASSWD_HOME}/games"


def test_a_home_of_another_user_does_not_count(other_users_directory, monkeypatch):
    # What `sudo -E` leaves in the environment: files of root's must not appear in there.
    monkeypatch.setenv("HOME", other_users_directory)
    assert paths.home() == PASSWD_HOME
    assert bridge_file() == bridge_file(PASSWD_HOME)


def test_a_user_without_a_passwd_entry_has_home_or_is_told_to_set_it(tmp_path, monkeypatch):
    def no_entry(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert paths.home() == os.fspath(tmp_path)
    monkeypatch.delenv("HOME")
    with pytest.raises(paths.UnsafePlace, match=r"has no passwd entry and .*; set HOME"):
        paths.home()
    with pytest.raises(NoHome, match=r"has no passwd entry and .*; set HOME"):
        bridge_file()


# As sitecustomize: the user of this process has no passwd entry.
NAMELESS = """
import pwd
def getpwuid(uid): raise KeyError(uid)
pwd.getpwuid = getpwuid
"""


@pytest.mark.parametrize(
    "command",
    [
        ("bascule.cli.start", "status"),
        ("bascule.cli.start", "mcp"),
        ("bascule.programs.helpers.commands", "bridge_send", "Ada", "hello"),
    ],
    ids=["bascule", "shim", "helper"],
)
def test_without_any_home_every_program_says_what_to_do(tmp_path, command):
    (tmp_path / "sitecustomize.py").write_text(NAMELESS)
    module, *words = command
    start = f"import sys; sys.argv = ['x', *{words!r}]; import {module} as found; sys.exit(found.main())"
    if module.endswith("commands"):
        start = start.replace(f"*{words!r}", f"*{words[1:]!r}").replace("main", words[0])
    done = subprocess.run(
        [sys.executable, "-c", start],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "; set HOME to one" in done.stderr


def test_a_daemon_is_found_by_programs_that_know_only_home():
    def bascule(*words):
        environment = {"HOME": home, "PATH": os.environ["PATH"], "BASCULE_MCP": "off"}
        command = [sys.executable, "-P", "-m", "bascule.cli.start", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)

    with tempfile.TemporaryDirectory(prefix="home") as home:
        started = bascule("up", "-d", "--port", "0")
        try:
            assert started.returncode == 0, started.stderr
            assert f"{home}/.local/state/bascule/link.sock" in bascule("status").stdout
        finally:
            stopped = bascule("down")
        assert stopped.returncode == 0, stopped.stderr
