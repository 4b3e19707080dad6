"""`bascule on` and `off`: hooks in a client's own settings, and out again byte by byte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")
FILES = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
BEFORE = {"claude": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool"}
THEIRS = (
    '{\n\t"theme": "dark",\n\t"hooks": {\n\t\t"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]\n\t}\n}\n'
)


def switch(home, *words, check=True):
    return subprocess.run(
        [BASCULE, *words, "--yes", "--home", str(home), "--state-dir", str(home / "s")],
        check=check, capture_output=True, text=True, timeout=PATIENCE,
        # Without any client's program: nothing is asked of one.
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
    )  # fmt: skip


def hooks_of(file, event):
    return [handler for group in json.loads(file.read_text())["hooks"][event] for handler in group["hooks"]]


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("text", [None, "{}\n", THEIRS, '{"hooks": {}}'])
def test_off_leaves_what_was_there_before_on(tmp_path, client, text):
    file = tmp_path / FILES[client]
    if text is not None:
        file.parent.mkdir(parents=True)
        file.write_text(text)
    switch(tmp_path, "on", client)
    assert any("bridge-native" in json.dumps(each) for each in hooks_of(file, BEFORE[client]))
    switch(tmp_path, "on", client, "--closed")
    switch(tmp_path, "off", client)
    assert (file.read_text() if file.exists() else None) == text
    assert text is not None or not file.parent.exists()


@pytest.mark.parametrize("client", FILES)
def test_a_second_on_changes_nothing(tmp_path, client):
    switch(tmp_path, "on", client)
    was = (tmp_path / FILES[client]).read_bytes()
    assert "nothing to change" in switch(tmp_path, "on", client).stdout
    assert (tmp_path / FILES[client]).read_bytes() == was


def test_only_kinds_of_handlers_that_a_client_knows_are_written(tmp_path):
    """One that Codex does not know loses the whole file."""
    for client in FILES:
        switch(tmp_path, "on", client)
    kinds = {
        client: {
            handler["type"]
            for event in json.loads((tmp_path / name).read_text())["hooks"]
            for handler in hooks_of(tmp_path / name, event)
        }
        for client, name in FILES.items()
    }
    assert kinds == {"claude": {"command"}, "codex": {"command"}, "gemini": {"command"}}


def test_claude_code_uses_our_server_only_where_it_is_connected_and_the_user_did_not_close_it(tmp_path):
    file = tmp_path / FILES["claude"]
    switch(tmp_path, "setup", "claude")
    switch(tmp_path, "on", "claude")
    by_event = {
        event: hooks_of(file, event)[-1]["type"] for event in ("PreToolUse", "PostToolUse", "SessionStart", "Stop")
    }
    assert by_event == {
        "PreToolUse": "mcp_tool",
        "PostToolUse": "mcp_tool",
        "SessionStart": "command",
        "Stop": "command",
    }
    switch(tmp_path, "on", "claude", "--closed")
    closed = hooks_of(file, "PreToolUse")[-1]
    assert (closed["type"], closed["onFailure"]) == ("command", "block")
    assert "onFailure" not in hooks_of(file, "UserPromptSubmit")[-1]


def test_a_failure_to_ask_codex_is_said_and_not_hidden(tmp_path):
    assert "type /hooks in Codex" in switch(tmp_path, "on", "codex").stdout


def test_a_client_that_we_do_not_know_is_refused(tmp_path):
    done = switch(tmp_path, "on", "emacs", check=False)
    assert done.returncode == 2
    assert "emacs is not one of" in done.stderr
    assert os.listdir(tmp_path) == []
