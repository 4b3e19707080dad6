"""`bascule on` and `off`: everything that governs a client, shown first, and out again byte by byte."""

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from bascule.cli.main import main
from bascule.cli.setup import skill
from patience import PATIENCE
from terminal import on_a_terminal

BASCULE = str(Path(sys.executable).parent / "bascule")
HOOKS = {"claude": ".claude/settings.json", "codex": ".codex/hooks.json", "gemini": ".gemini/settings.json"}
SERVERS = {"claude": ".claude.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json"}
SKILLS = {client: f".{client}/skills/bascule/SKILL.md" for client in HOOKS}
BEFORE = {"claude": "PreToolUse", "codex": "PreToolUse", "gemini": "BeforeTool"}
# An empty file, a byte order mark, space where nothing is.
ODD = ["", " \n", "\ufeff{ }", "{\n\n}\n\n"]
TABS = (
    '{\n\t"theme": "dark",\n\t"hooks": {\n\t\t"Stop": [{"hooks": [{"type": "command", "command": "mine"}]}]\n\t}\n}\n'
)
# As people and clients leave them: one line, tabs, no last newline, servers of others, a status line of one's own.
TEXTS = [
    None,
    "{}\n",
    TABS,
    '{"hooks": {}}',
    '{"a":1,"mcpServers":{"other":{"command":"x"}},"statusLine":{"type":"command","command":"mine"},"enabledPlugins":{}}',
    '{ "mcpServers" : { } ,\r\n  "z": [ 1,\r\n 2 ] }\r\n',
    *ODD,
]
COMMENTED = '// mine\n{\n  /* why */ "theme": "dark", // dark\n  "hooks": { /* none */ }\n}\n'
TOML = '# mine\nmodel = "x"   # odd   spacing\n\n[mcp_servers.other]\ncommand = "y"\n\n# the end\n'


def switch(home, *words, check=True, path="/usr/bin:/bin"):
    """The command, in this process: each of these tests runs it several times."""
    alone = [] if words[0] == "setup" else ["--no-service"]
    out, err = io.StringIO(), io.StringIO()
    # Without any client's program: nothing is asked of one.
    environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8"}
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main([*words, *alone, "--yes", "--home", str(home), "--state-dir", str(home / "s")])
    assert not check or code == 0, err.getvalue()
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def hooks_of(file, event):
    return [handler for group in json.loads(file.read_text("utf-8-sig"))["hooks"][event] for handler in group["hooks"]]


def is_ours(handler):
    return "bridge-native" in json.dumps(handler) or handler.get("tool") == "native_hook"


def tree(home):
    """Every file and directory of a home with its mode and bytes; what Bascule keeps for itself left out."""
    return {
        str(path.relative_to(home)): (stat.S_IMODE(path.lstat().st_mode), path.is_dir() or path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.relative_to(home).parts[0] != "s"
    }


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())


@pytest.mark.parametrize("client", HOOKS)
@pytest.mark.parametrize("text", TEXTS)
def test_off_leaves_what_was_there_before_on(tmp_path, client, text):
    if text is not None:
        for name in {HOOKS[client], SERVERS[client]}:
            write(tmp_path / name, TOML if name.endswith(".toml") else text)
        (tmp_path / HOOKS[client]).chmod(0o600)
    was = tree(tmp_path)
    switch(tmp_path, "on", client)
    assert any(is_ours(each) for each in hooks_of(tmp_path / HOOKS[client], BEFORE[client]))
    assert "agent-bridge" in (tmp_path / SERVERS[client]).read_text()
    assert (tmp_path / SKILLS[client]).read_text() == skill.TEXT
    switch(tmp_path, "on", client, "--closed")
    switch(tmp_path, "off", client)
    assert tree(tmp_path) == was


def test_comments_in_gemini_cli_s_settings_survive(tmp_path):
    write(tmp_path / HOOKS["gemini"], COMMENTED)
    switch(tmp_path, "on", "gemini")
    assert "agent-bridge" in (tmp_path / HOOKS["gemini"]).read_text()
    switch(tmp_path, "off", "gemini")
    assert (tmp_path / HOOKS["gemini"]).read_text() == COMMENTED


def test_all_clients_at_once_go_on_and_off_and_a_second_time_nothing_changes(tmp_path):
    switch(tmp_path, "on", *HOOKS)
    was = tree(tmp_path)
    again = switch(tmp_path, "on", *HOOKS)
    assert again.stdout == "nothing to change\n"
    assert tree(tmp_path) == was
    switch(tmp_path, "off")
    assert tree(tmp_path) == {}
    assert switch(tmp_path, "off").stdout == "nothing to change\n"


@pytest.mark.parametrize("client", HOOKS)
def test_what_the_person_changed_meanwhile_stays(tmp_path, client):
    """They add a hook and a server of their own, a key, and a sentence to the skill."""
    switch(tmp_path, "on", client)
    file = tmp_path / HOOKS[client]
    settings = json.loads(file.read_text())
    mine = {"hooks": [{"type": "command", "command": "mine"}]}
    settings["hooks"][BEFORE[client]].insert(0, mine)
    settings["mine"] = True
    file.write_text(json.dumps(settings, indent=4))
    written = tmp_path / SKILLS[client]
    written.write_text(written.read_text() + "Mine.\n")
    if client == "codex":
        config = tmp_path / SERVERS[client]
        config.write_text(f'model = "mine"\n{config.read_text()}\n[mcp_servers.mine]\ncommand = "m"\n')
    out = switch(tmp_path, "off", client).stdout
    assert json.loads(file.read_text()) == {"hooks": {BEFORE[client]: [mine]}, "mine": True}
    assert written.read_text().endswith("Mine.\n")
    assert "is left alone" in out
    if client == "codex":
        assert config.read_text() == 'model = "mine"\n\n[mcp_servers.mine]\ncommand = "m"\n'


@pytest.mark.parametrize("client", HOOKS)
def test_what_setup_had_put_there_before_stays_after_off(tmp_path, client):
    switch(tmp_path, "setup", client)
    was = tree(tmp_path)
    switch(tmp_path, "on", client)
    assert tree(tmp_path) != was
    switch(tmp_path, "off", client)
    assert tree(tmp_path) == was


def bascule(home, *words, typed=None):
    """The command in a process of its own; with `typed`, on a terminal."""
    words = [*words, "--no-service", "--home", str(home), "--state-dir", str(home / "s")]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    if typed is not None:
        return on_a_terminal(*words, typed=[("Do this?", each) for each in typed], environment=environment)
    return subprocess.run(
        [BASCULE, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=environment,
    )  # fmt: skip


def test_what_would_be_written_is_one_line_a_file_and_without_a_yes_nothing_is(tmp_path):
    done = bascule(tmp_path, "on", "claude")
    assert done.returncode == 2
    assert [line.split(" (")[0] for line in done.stdout.splitlines()] == [
        f"- make {tmp_path / name}" for name in (SERVERS["claude"], HOOKS["claude"], SKILLS["claude"])
    ]
    assert "pass --yes" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_line_is_shown_by_print_and_nothing_is_written(tmp_path):
    done = bascule(tmp_path, "on", "claude", "--print")
    assert done.returncode == 0
    for name in (HOOKS["claude"], SERVERS["claude"], SKILLS["claude"]):
        assert f"+++ {tmp_path / name}" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_line_is_shown_at_the_question_to_a_person_who_types_d(tmp_path):
    code, shown = bascule(tmp_path, "on", "claude", typed=["d", "n"])
    first, _, rest = shown.partition("Do this?")
    assert "+++" not in first
    for name in (HOOKS["claude"], SERVERS["claude"], SKILLS["claude"]):
        assert f"+++ {tmp_path / name}" in rest
    assert code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("broken", HOOKS)
def test_a_settings_file_that_cannot_be_read_leaves_out_its_client_alone(tmp_path, broken):
    write(tmp_path / HOOKS[broken], '{"a": 1,}')
    for command in ("on", "off"):
        done = switch(tmp_path, command, *HOOKS, check=False)
        assert done.returncode == 1
        assert f"{broken} is left out: {tmp_path / HOOKS[broken]} is left as it is" in done.stderr
        assert f"bascule {command} {broken}" in done.stderr
        assert (tmp_path / HOOKS[broken]).read_text() == '{"a": 1,}'
        here = {each for each in HOOKS if (tmp_path / SKILLS[each]).exists()}
        assert here == (set(HOOKS) - {broken} if command == "on" else set())
    assert set(tree(tmp_path)) == {str(Path(HOOKS[broken]).parent), HOOKS[broken]}


@pytest.mark.parametrize("broken", HOOKS)
def test_a_settings_file_that_cannot_be_written_leaves_out_its_client_alone(tmp_path, broken):
    """As where the settings are links into a file system that is read-only."""
    path = tmp_path / HOOKS[broken]
    path.parent.mkdir()
    path.symlink_to("/proc/none/settings.json")
    done = switch(tmp_path, "on", *HOOKS, check=False)
    assert done.returncode == 1
    assert f"{broken} is left out: {path} cannot be written" in done.stderr
    others = set(HOOKS) - {broken}
    assert {each for each in HOOKS if (tmp_path / HOOKS[each]).exists()} == others
    assert f"New sessions of {', '.join(each for each in HOOKS if each in others)} report what they do" in done.stdout
    # The control: once it can be written that client is all that is missing.
    path.unlink()
    switch(tmp_path, "on", broken)
    assert {each for each in HOOKS if (tmp_path / HOOKS[each]).exists()} == set(HOOKS)


@pytest.mark.parametrize(
    "text",
    ['a = 1\r\nb = 2\n[c]\nd = "e"', 'a = 1\nb = 2\r\n[c]\nd = "e"\r\n', 'a = 1\nb = 2\n[c]\nd = "e"', "a = 1"],
)
@pytest.mark.parametrize("rewritten", [False, True])
def test_off_gives_lines_the_endings_back_that_codex_took_when_it_rewrote_its_file(tmp_path, text, rewritten):
    """Its writer knows line feeds alone, and ends the last line with one."""
    config = tmp_path / SERVERS["codex"]
    write(config, text)
    switch(tmp_path, "on", "codex")
    theirs = ""
    if rewritten:
        theirs = '[projects."/tmp/x"]\ntrust_level = "trusted"\n'
        lines = config.read_bytes().decode().replace("\r\n", "\n").rstrip("\n")
        config.write_bytes(f"{lines}\n\n{theirs}".encode())
    switch(tmp_path, "off", "codex")
    left = config.read_bytes().decode()
    if not rewritten:
        assert left == text
    else:
        # Their own table stays behind ours, so the last line has an ending now.
        own, _, rest = left.partition("[projects.")
        assert own.rstrip("\n") == text.rstrip("\n")
        assert rest == theirs.removeprefix("[projects.")


def test_only_kinds_of_handlers_that_a_client_knows_are_written(tmp_path):
    """One that Codex does not know loses the whole file."""
    switch(tmp_path, "on", *HOOKS)
    kinds = {
        client: {
            handler["type"]
            for event in json.loads((tmp_path / name).read_text())["hooks"]
            for handler in hooks_of(tmp_path / name, event)
        }
        for client, name in HOOKS.items()
    }
    assert kinds == {"claude": {"command", "mcp_tool"}, "codex": {"command"}, "gemini": {"command"}}


def test_claude_code_is_asked_through_its_own_server_unless_the_user_closed_it(tmp_path):
    file = tmp_path / HOOKS["claude"]

    def kinds():
        found = {event: [each for each in hooks_of(file, event) if is_ours(each)] for event in by_tool | by_program}
        return {event: handlers[0]["type"] for event, handlers in found.items()}

    by_tool = dict.fromkeys(("PreToolUse", "PostToolUse", "UserPromptSubmit"), "mcp_tool")
    by_program = dict.fromkeys(("SessionStart", "Stop", "ConfigChange"), "command")
    switch(tmp_path, "on", "claude")
    assert kinds() == by_tool | by_program
    switch(tmp_path, "on", "claude", "--closed")
    assert set(kinds().values()) == {"command"}
    (closed,) = (each for each in hooks_of(file, "PreToolUse") if is_ours(each))
    assert closed["onFailure"] == "block"
    assert not any("onFailure" in each for each in hooks_of(file, "UserPromptSubmit"))


def test_a_status_line_of_the_user_stays(tmp_path):
    mine = {"type": "command", "command": "mine"}
    write(tmp_path / HOOKS["claude"], json.dumps({"statusLine": mine}))
    switch(tmp_path, "on", "claude")
    assert json.loads((tmp_path / HOOKS["claude"]).read_text())["statusLine"] == mine


def test_without_a_name_the_clients_that_are_installed_are_meant(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "gemini").write_text("#!/bin/sh\n")
    (programs / "gemini").chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    none = switch(home, "on", check=False)
    assert none.returncode == 2
    assert "no client is installed here" in none.stderr
    switch(home, "on", path=f"{programs}:/usr/bin:/bin")
    assert sorted(each.name for each in home.iterdir()) == [".gemini", "s"]


def test_a_failure_to_ask_codex_is_said_and_not_hidden(tmp_path):
    assert "type /hooks in Codex" in switch(tmp_path, "on", "codex").stdout


def test_a_client_that_we_do_not_know_is_refused(tmp_path):
    done = switch(tmp_path, "on", "emacs", check=False)
    assert done.returncode == 2
    assert "emacs is not one of" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_server_of_somebody_else_by_our_name_is_left_alone_and_nothing_is_written(tmp_path):
    stranger = '{"mcpServers": {"agent-bridge": {"command": "theirs"}}}'
    write(tmp_path / SERVERS["claude"], stranger)
    done = switch(tmp_path, "on", "claude", check=False)
    assert done.returncode != 0
    assert "it is not Bascule's" in done.stderr
    assert tree(tmp_path) == {".claude.json": (0o644, stranger.encode())}
