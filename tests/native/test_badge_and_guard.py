"""The line under Claude Code's prompt, and what happens when somebody takes our hooks out of its settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bascule.foundation import paths
from native_scene import BRIDGE_NATIVE, Scene
from patience import PATIENCE

BADGE = [sys.executable, "-I", "-m", "bascule.cli.start", "badge"]
OURS = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "/x/bridge-native --client claude"}]}]}}


def badge(state_dir, session):
    done = subprocess.run(
        [*BADGE, "--state-dir", str(state_dir)],
        input=json.dumps({"session_id": session, "model": {}}), capture_output=True, text=True, check=True,
        timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def test_the_badge_says_what_is_known_of_this_session(scene):
    assert badge(scene.daemon.state_dir, scene.session) == "bascule: observe, 0 calls\n"
    scene.run("true")
    scene.wire.call("native.mode", {"client": "claude", "mode": "warn"})
    assert badge(scene.daemon.state_dir, scene.session) == "bascule: warn, 1 call\n"


def test_the_badge_the_sessions_and_the_report_count_calls_without_an_undo(start_daemon, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    scene = Scene(start_daemon(None, env={"HOME": str(home)}), home)
    try:
        # No project, so no undo.
        note = scene.run("npm test")["note"]
        scene.run("ls")
        assert badge(scene.daemon.state_dir, scene.session) == "bascule: observe, 2 calls, 1 without undo\n"
        assert f"its last change: {note}"[:80] in bascule(scene, "sessions")
        assert "1 calls went on without an undo" in bascule(scene, "native", "report")
    finally:
        scene.close()


def bascule(scene, *words):
    done = subprocess.run(
        [*BADGE[:-1], *words, "--state-dir", scene.daemon.state_dir],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    return done.stdout


def test_the_badge_of_a_session_whose_hooks_do_not_run_says_so(scene):
    assert badge(scene.daemon.state_dir, "another") == "bascule: this session does not report\n"
    assert badge(scene.daemon.state_dir, "../daemon") == "bascule: this session does not report\n"


def test_the_badge_without_a_daemon_says_so(tmp_path):
    assert badge(tmp_path / "nowhere", "s") == "bascule: the daemon is down\n"


# -- settings that change under a session ---------------------------------------------------------


@pytest.fixture
def settings(scene):
    """The user's settings with our hooks, as `bascule on` remembers that it made them."""
    file = scene.root.parent / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(OURS))
    record = json.dumps({str(file): {"parts": ["badge"]}})
    Path(paths.native_record(scene.daemon.state_dir)).write_text(record)
    return file


def config_changed(scene, path):
    """What Claude Code does when it sees a file change: the hook's answer."""
    event = scene.event("ConfigChange", source="user_settings", file_path=str(path))
    done = subprocess.run(
        [BRIDGE_NATIVE, "--client", "claude", "--state-dir", scene.daemon.state_dir],
        input=json.dumps(event), capture_output=True, text=True, check=True, timeout=PATIENCE,
        env={**os.environ, "HOME": str(scene.root.parent)},
    )  # fmt: skip
    return json.loads(done.stdout) if done.stdout else {}


def seen(scene):
    session = scene.wire.call("sessions.show", {"client": "claude", "session": scene.session})
    records = scene.wire.call("ledger.tail", {"limit": 100})
    return session, [each for each in records if each.get("details", {}).get("record") == "switched_off"]


def test_hooks_that_are_taken_out_are_kept_for_the_open_session_and_it_is_said(scene, settings):
    settings.write_text("{}")
    answer = config_changed(scene, settings)
    assert answer["decision"] == "block"
    assert "taken out of" in answer["reason"]
    session, records = seen(scene)
    assert str(settings) in session["notice"]
    # What the file is called is the person's business: the ledger has a digest.
    assert len(records) == 1
    assert str(settings) not in json.dumps(records)
    # The change says nothing about what the session does.
    assert session["evidence"] == "SessionStart"
    assert badge(scene.daemon.state_dir, scene.session) == ("bascule: observe, hooks switched off for new sessions\n")


def test_a_project_that_disables_all_hooks_is_named(scene, settings):
    project = scene.root / ".claude" / "settings.json"
    project.parent.mkdir()
    project.write_text('{"disableAllHooks": true}')
    assert config_changed(scene, project)["decision"] == "block"
    assert str(project) in seen(scene)[0]["notice"]


def test_a_change_that_takes_nothing_away_and_our_own_off_are_not_in_the_way(scene, settings):
    settings.write_text(json.dumps({**OURS, "theme": "dark"}))
    assert config_changed(scene, settings) == {}
    settings.write_text("{}")
    assert config_changed(scene, settings)
    assert "notice" in seen(scene)[0]
    # Back again.
    settings.write_text(json.dumps(OURS))
    assert config_changed(scene, settings) == {}
    assert "notice" not in seen(scene)[0]
    Path(paths.native_record(scene.daemon.state_dir)).unlink()
    settings.write_text("{}")
    assert config_changed(scene, settings) == {}
    assert "notice" not in seen(scene)[0]
