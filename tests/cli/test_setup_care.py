"""`bascule setup` looks before it writes, and leaves alone what it does not understand."""

import json
import os
import pty
import stat
import subprocess
import sys

import pytest
from setup_places import HOOKS, SERVERS, WORDS

from bascule.cli.setup import changes, clients
from bascule.local_client import exits
from patience import PATIENCE

# -- looking first --


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_without_yes_and_without_a_terminal_nothing_is_written(machine, client):
    out = machine.setup(client, expect=exits.USAGE)
    assert "+++" in out
    assert "pass --yes" in out
    assert machine.files() == {}


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_print_shows_the_pieces_and_writes_nothing(machine, client):
    out = machine.setup(client, "--print")
    for path in (SERVERS[client], WORDS[client], *([HOOKS[client]] if client in HOOKS else [])):
        assert f"# {machine.home / path}\n" in out
    assert "agent-bridge" in out
    assert machine.files() == {}


def test_the_difference_shows_little_of_what_is_around(machine):
    secret = '{"primaryApiKey":"' + "k" * 500 + '","mcpServers":{"a":{"command":"x"}}}'
    machine.write(".claude.json", secret)
    out = machine.setup("claude", expect=exits.USAGE)
    assert max(map(len, out.splitlines())) <= changes.MAX_LINE_CHARS + 10


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_it_asks(machine, answer, written):
    primary, secondary = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "bascule.cli.start", "setup", "gemini"],
        stdin=secondary,
        stdout=secondary,
        stderr=subprocess.STDOUT,
        env={name: os.environ[name] for name in ("HOME", "PATH", "BASCULE_STATE_DIR")},
    )
    os.close(secondary)
    os.write(primary, answer.encode())
    output = b""
    try:
        while piece := os.read(primary, 65536):
            output += piece
    except OSError:
        # Linux says so when the other side is closed.
        pass
    os.close(primary)
    assert process.wait(timeout=PATIENCE) == (0 if written else 1)
    assert b"Write this? [y/N]" in output
    assert output.index(b"+++") < output.index(b"[y/N]")
    assert bool(machine.files()) is written


# -- with care --


@pytest.mark.parametrize(
    ("client", "path", "text", "what"),
    [
        ("claude", ".claude.json", '{"a": 1,}', "line 1"),
        ("claude", ".claude/settings.json", "[]", "does not hold an object"),
        ("claude", ".claude/settings.json", '{"hooks": []}', "`hooks` is not an object"),
        ("claude", ".claude/settings.json", '{"hooks": {"Stop": 1}}', "is not a list"),
        ("claude", ".claude/settings.json", '{"a": 1} // x', "a comment"),
        ("claude", ".claude/CLAUDE.md", "<!-- bascule:begin -->\n", "do not match"),
        ("codex", ".codex/config.toml", "a = ", "config.toml is left as it is"),
        ("codex", ".codex/config.toml", 'mcp_servers.agent-bridge.command = "/x/bascule"\n', "is not written as a"),
        ("codex", ".codex/hooks.json", "{", "ends too early"),
        ("gemini", ".gemini/settings.json", "{'a': 1}", "line 1"),
        ("gemini", ".gemini/settings.json", '{"mcpServers": 3}', "not an object"),
    ],
)
def test_a_broken_file_is_refused_and_nothing_is_written(machine, client, path, text, what):
    machine.write(path, text)
    before = machine.files()
    out = machine.setup(client, "--yes", expect=1)
    assert what in out
    assert str(machine.home / path) in out
    assert machine.files() == before


def test_a_file_that_is_not_text_is_refused(machine):
    (machine.home / ".claude.json").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in machine.setup("claude", "--yes", expect=1)


def test_a_directory_in_the_place_of_a_file_is_refused(machine):
    (machine.home / ".claude.json").mkdir()
    assert "is not a file" in machine.setup("claude", "--yes", expect=1)


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_a_server_of_that_name_that_is_not_ours_is_left_alone(machine, client):
    if client == "codex":
        machine.write(SERVERS[client], '[mcp_servers.agent-bridge]\ncommand = "node"\n')
    else:
        machine.write(SERVERS[client], '{"mcpServers": {"agent-bridge": {"command": "node"}}}')
    before = machine.files()
    assert "it is not Bascule's" in machine.setup(client, "--yes", expect=1)
    machine.setup(client, "--yes", "--undo")
    assert machine.files() == before


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_a_file_keeps_its_mode(machine, mode):
    file = machine.write(".claude.json", "{}")
    file.chmod(mode)
    machine.setup("claude", "--yes")
    assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_new_file_with_a_sign_in_is_for_its_owner_only(machine):
    machine.setup("claude", "--yes")
    assert stat.S_IMODE((machine.home / ".claude.json").stat().st_mode) == 0o600


def test_a_link_is_followed_and_stays_a_link(machine):
    kept = machine.write("dotfiles/settings.json", "{}\n")
    link = machine.home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(kept)
    machine.setup("claude", "--yes")
    assert link.is_symlink()
    assert "hooks" in json.loads(kept.read_text())
    machine.setup("claude", "--yes", "--undo")
    assert link.is_symlink()
    assert kept.read_text() == "{}\n"


def test_a_link_to_nowhere_gets_its_file(machine):
    link = machine.home / ".claude.json"
    link.symlink_to("later.json")
    machine.setup("claude", "--yes")
    assert link.is_symlink()
    assert (machine.home / "later.json").exists()


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path):
    file = tmp_path / "a"
    file.write_text("old\n")
    change = changes.Change(path=str(file), edit=lambda text: text + "ours\n")
    file.write_text("somebody else's\n")
    with pytest.raises(changes.CannotChange, match="changed by somebody else"):
        change.write()
    assert file.read_text() == "somebody else's\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path):
    file = tmp_path / "a"
    change = changes.Change(path=str(file), edit=lambda _: "ours\n")
    file.write_text("somebody else's\n")
    with pytest.raises(changes.CannotChange):
        change.write()
    assert file.read_text() == "somebody else's\n"


def test_a_write_that_fails_leaves_the_file_and_no_litter(tmp_path, monkeypatch):
    file = tmp_path / "a"
    file.write_text("old\n")
    change = changes.Change(path=str(file), edit=lambda _: "new\n")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(changes.CannotChange, match="No space left on device"):
        change.write()
    assert file.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_lost_record_costs_only_tidiness(machine):
    machine.setup("claude", "--yes")
    (machine.home / "state" / "setup.json").write_text("{")
    machine.setup("claude", "--yes", "--undo")
    assert json.loads(machine.read(".claude.json")) == {"mcpServers": {}}


def test_a_wrong_handle_is_refused_before_anything_is_read(machine):
    assert "is not a handle" in machine.setup("claude", "--agent", "a b", expect=exits.USAGE)
