"""What `bascule doctor` says about each client's hooks: there, trusted, obeyed, switched off."""

import json
import os
import sys

import pytest

from bascule.cli.checks.patient import Mark, Patient
from bascule.cli.main import main
from bascule.native.cli import checks

# `codex app-server`: says of each of our hooks what the file `trusted` says.
CODEX = """#!{python}
import json, os, sys
if sys.argv[1:] == ["--version"]:
    print("codex-cli 0.169.0")
    sys.exit()
if sys.argv[1:] != ["app-server"]:
    sys.exit(1)
trusted = os.path.exists({here!r} + "/trusted")
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "hooks/list":
        hooks = [{{"command": "/x/bridge-native --client codex", "eventName": "preToolUse", "key": "k",
                  "trustStatus": "trusted" if trusted else "untrusted", "currentHash": "h"}}]
        result = {{"data": [{{"hooks": hooks}}]}}
    else:
        result = {{}}
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
"""


@pytest.fixture
def home(tmp_path, monkeypatch, capsys):
    """A user with all three clients, each governed, who stands in a project."""
    programs, project = tmp_path / "programs", tmp_path / "project"
    for folder in (programs, project):
        folder.mkdir()
    write_program(programs / "claude", "#!/bin/sh\necho '2.1.327 (Claude Code)'\n")
    write_program(programs / "gemini", "#!/bin/sh\necho 99.0.0\n")
    write_program(programs / "codex", CODEX.format(python=sys.executable, here=str(tmp_path)))
    for name in list(os.environ):
        if name.startswith(("BASCULE_", "CLAUDE", "CODEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.chdir(project)
    assert main(["on", *checks.KNOWN, "--yes", "--no-service", "--state-dir", str(tmp_path / "s")]) == 0
    capsys.readouterr()
    return tmp_path


def write_program(file, text):
    file.write_text(text)
    file.chmod(0o755)


def verdict(home, client):
    patient = Patient(state=str(home / "s"), path=os.environ["PATH"], environment=os.environ)
    return checks.check_of(client)(patient)


def test_a_version_that_was_tried_is_said_to_obey_and_of_a_newer_one_nothing_bad_is_known(home):
    tried = verdict(home, "claude")
    assert tried.mark is Mark.OK
    assert "2.1.327 is known to obey" in tried.what
    newer = verdict(home, "gemini")
    assert newer.mark is Mark.OK
    assert f"99.0.0 is newer than {checks.KNOWN['gemini']}, the last that was tried; nothing is known" in newer.what
    write_program(home / "programs" / "gemini", "#!/bin/sh\necho 0.9.0\n")
    assert "0.9.0 is older than" in verdict(home, "gemini").what


def test_hooks_that_codex_does_not_trust_are_a_warning(home):
    assert verdict(home, "codex").mark is Mark.WARN
    (home / "trusted").touch()
    trusted = verdict(home, "codex")
    assert trusted.mark is Mark.OK
    assert "trusted" in trusted.what


@pytest.mark.parametrize(
    ("client", "file", "text"),
    [
        ("claude", ".claude/settings.json", '{"disableAllHooks": true}'),
        ("claude", ".claude/settings.local.json", '{"disableAllHooks": true}'),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"enabled": false}} // mine'),
        ("gemini", ".gemini/settings.json", '{"hooksConfig": {"disabled": ["bridge-native"]}}'),
    ],
)
def test_a_project_s_file_that_switches_hooks_off_is_named(home, client, file, text):
    (home / "trusted").touch()
    assert verdict(home, client).mark is Mark.OK
    switch = home / "project" / file
    switch.parent.mkdir()
    switch.write_text(text)
    found = verdict(home, client)
    assert found.mark is Mark.WARN
    assert str(switch) in found.what


def test_a_client_that_is_off_or_not_installed_is_said_to_be(home, capsys):
    assert main(["off", "claude", "--yes", "--no-service", "--state-dir", str(home / "s")]) == 0
    assert "`bascule on`" in verdict(home, "claude").what
    (home / "programs" / "claude").unlink()
    assert "not installed" in verdict(home, "claude").what


def test_the_user_s_own_settings_can_switch_hooks_off_too(home):
    settings = home / ".claude" / "settings.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"disableAllHooks": True}))
    assert verdict(home, "claude").mark is Mark.WARN
