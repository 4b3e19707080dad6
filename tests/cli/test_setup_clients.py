"""`bascule setup claude | codex | gemini`: what is written where, once, and back again."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from setup_places import HOOKS, SERVERS, WORDS

from bascule.cli import paste
from bascule.cli.main import main
from bascule.cli.setup import clients
from bascule.local_client import exits

HOOK_EVENTS = ["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"]


def server(machine, client):
    text = machine.read(SERVERS[client])
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["agent-bridge"]
    return json.loads(text)["mcpServers"]["agent-bridge"]


def handlers(machine, client):
    """Event -> our handlers, from the file the client reads."""
    hooks = json.loads(machine.read(HOOKS[client]))["hooks"]
    return {event: [each for group in groups for each in group["hooks"]] for event, groups in hooks.items()}


# -- what is written --


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_the_server_is_this_installation_by_its_full_path(machine, client):
    machine.setup(client, "--yes")
    entry = server(machine, client)
    assert (entry["command"], entry["args"]) == (paste.command(), ["mcp"])
    assert os.path.isabs(entry["command"])


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_a_handle_goes_into_the_servers_arguments(machine, client):
    machine.setup(client, "--yes", "--agent", "Jerry")
    assert server(machine, client)["args"] == ["mcp", "--agent", "Jerry"]
    machine.setup(client, "--yes", "--agent", "Spock")
    assert server(machine, client)["args"] == ["mcp", "--agent", "Spock"]


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_sets_of_tools_go_into_the_servers_arguments(machine, client):
    machine.setup(client, "--yes", "--toolset", "agents, desktop")
    assert server(machine, client)["args"] == ["mcp", "--toolset", "agents,desktop"]
    assert "there is no toolset 'screens'" in machine.setup(client, "--toolset", "screens", expect=exits.USAGE)


def test_codex_passes_our_variables_through(machine):
    machine.setup("codex", "--yes")
    assert server(machine, "codex")["env_vars"] == [
        *("BRIDGE_AGENT_ID", "BRIDGE_WRAPPED", "BRIDGE_AGENT_TOKEN"),
        *("BRIDGE_BROKER_URL", "BRIDGE_BROKER_CA", "BASCULE_STATE_DIR"),
    ]


def test_codex_is_spared_its_own_questions_only_when_asked_for(machine):
    assert "--allow-tools" in machine.setup("codex", "--yes")
    assert "default_tools_approval_mode" not in server(machine, "codex")
    machine.setup("codex", "--yes", "--allow-tools")
    assert server(machine, "codex")["default_tools_approval_mode"] == "approve"


def test_claude_code_may_fetch_and_answer_unasked_only_when_asked_for(machine):
    assert "--allow-tools" in machine.setup("claude", "--yes")
    assert "permissions" not in json.loads(machine.read(HOOKS["claude"]))
    machine.setup("claude", "--yes", "--allow-tools")
    allowed = ["mcp__agent-bridge__wait_for_message", "mcp__agent-bridge__post_reply"]
    assert json.loads(machine.read(HOOKS["claude"]))["permissions"]["allow"] == allowed
    assert "nothing to change" in machine.setup("claude", "--yes", "--allow-tools")


def test_rules_and_hooks_of_claude_code_are_written_at_once_and_taken_out_again(machine):
    machine.setup("claude", "--yes", "--allow-tools")
    assert set(json.loads(machine.read(HOOKS["claude"]))) == {"permissions", "hooks"}
    machine.setup("claude", "--yes", "--undo")
    assert not (machine.home / HOOKS["claude"]).exists()


def test_gemini_folder_trust_is_named(machine):
    assert "folderTrust" in machine.setup("gemini", "--yes")


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_an_agent_is_told_how_to_answer_and_from_whom_messages_come(machine, client):
    machine.setup(client, "--yes")
    text = machine.read(WORDS[client])
    assert text.count("bascule:begin") == text.count("bascule:end") == 1
    for word in ("bridge-register --agent", "bridge-reply", "post_reply", "wait_for_message", "not from your user"):
        assert word in text


def test_claude_code_is_rung_in_the_background_and_told_in_passing(machine):
    machine.setup("claude", "--yes")
    found = handlers(machine, "claude")
    assert list(found) == HOOK_EVENTS
    for event in ("SessionStart", "Stop"):
        (bell,) = found[event]
        assert bell["command"].endswith(f"/bridge-wait --hook claude --event {event}")
        assert os.path.exists(bell["command"].split()[0])
        # A bell waits for a day; a notice must not hold the agent up, nor start a program at every call.
        assert (bell["type"], bell["asyncRewake"], bell["timeout"]) == ("command", True, 86400)
    for event in ("UserPromptSubmit", "PostToolUse"):
        (notice,) = found[event]
        assert (notice["type"], notice["tool"], notice["timeout"]) == ("mcp_tool", "bell_hook", 5)


def fake_codex(machine, monkeypatch, version="0.160.1", queue=0):
    program = machine.write("bin/codex", f'#!/bin/sh\n[ "$1" = queue ] && exit {queue}\necho codex-cli {version}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")


def test_codex_gets_notices_and_a_bell_for_its_queue(machine, monkeypatch):
    fake_codex(machine, monkeypatch)
    out = machine.setup("codex", "--yes")
    found = handlers(machine, "codex")
    assert list(found) == HOOK_EVENTS
    notice, bell = found["Stop"]
    assert "async" not in notice
    assert notice["timeout"] == 5
    assert bell["async"] is True
    assert bell["command"].endswith("--hook codex --event Stop --queue")
    assert "type /hooks in Codex" in out
    assert "is not woken" not in out


@pytest.mark.parametrize(("version", "kind"), [("0.165.9", "command"), ("0.166.0", "mcp_tool")])
def test_codex_is_told_in_passing_by_a_tool_only_where_it_knows_such_hooks(machine, monkeypatch, version, kind):
    """One kind of hook that Codex does not know loses the whole file."""
    fake_codex(machine, monkeypatch, version)
    machine.setup("codex", "--yes")
    found = handlers(machine, "codex")
    assert {found[event][0]["type"] for event in ("UserPromptSubmit", "PostToolUse")} == {kind}
    assert {found[event][0]["type"] for event in ("SessionStart", "Stop")} == {"command"}


@pytest.mark.parametrize(
    ("version", "queue", "why"),
    [
        ("0.147.0", 0, "codex 0.147.0 has no asynchronous hooks"),
        ("0.149.2", 2, "codex 0.149.2 has no `codex queue`"),
        ("dev", 0, "`codex --version` does not say its version"),
    ],
)
def test_a_codex_without_a_queue_gets_no_bell_and_says_why(machine, monkeypatch, version, queue, why):
    fake_codex(machine, monkeypatch, version, queue)
    out = machine.setup("codex", "--yes")
    assert len(handlers(machine, "codex")["Stop"]) == 1
    assert f"An idle Codex is not woken: {why}" in " ".join(out.split())


def test_a_codex_that_is_not_there_is_set_up_all_the_same(machine):
    assert "there is no `codex` in PATH" in machine.setup("codex", "--yes")


def test_a_codex_that_loses_its_queue_loses_the_bell(machine, monkeypatch):
    fake_codex(machine, monkeypatch)
    machine.setup("codex", "--yes")
    fake_codex(machine, monkeypatch, "0.147.0")
    machine.setup("codex", "--yes")
    assert len(handlers(machine, "codex")["Stop"]) == 1


def test_hooks_in_the_other_place_are_mentioned(machine):
    machine.write(".codex/config.toml", '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "x"\n')
    assert "has [hooks] too" in machine.setup("codex", "--yes")


def test_gemini_has_no_bell_and_says_so(machine):
    assert "No hooks for Gemini CLI" in machine.setup("gemini", "--yes")
    assert "hooks" not in json.loads(machine.read(SERVERS["gemini"]))


@pytest.mark.parametrize("client", HOOKS)
def test_hooks_and_instructions_can_be_left_out(machine, client):
    machine.setup(client, "--yes", "--no-hooks", "--no-instructions")
    assert set(machine.files()) <= {SERVERS[client], ".codex"}


def test_a_state_directory_goes_wherever_it_is_needed(machine):
    folder = str(machine.home / "my state")
    machine.setup("claude", "--yes", "--state-dir", folder)
    assert server(machine, "claude")["args"] == ["mcp", "--state-dir", folder]
    assert handlers(machine, "claude")["Stop"][0]["command"].endswith(f"--event Stop --state-dir '{folder}'")


@pytest.mark.parametrize("variable", ["CLAUDE_CONFIG_DIR", "CODEX_HOME"])
def test_a_client_that_lives_elsewhere_is_found(machine, monkeypatch, variable):
    elsewhere = machine.home / "elsewhere"
    monkeypatch.setenv(variable, str(elsewhere))
    machine.setup("claude" if "CLAUDE" in variable else "codex", "--yes")
    names = {"CLAUDE.md", "settings.json", ".claude.json"} if "CLAUDE" in variable else None
    assert {file.name for file in elsewhere.iterdir()} == (names or {"AGENTS.md", "config.toml", "hooks.json"})


# -- a project --


def test_a_project_whose_server_may_not_be_approved_is_told_by_a_program(machine):
    machine.setup("claude", "--yes", "--project", str(machine.home))
    assert {handler["type"] for (handler,) in handlers(machine, "claude").values()} == {"command"}


@pytest.mark.parametrize(
    ("client", "files"),
    [
        ("claude", {".mcp.json", "CLAUDE.md", ".claude", ".claude/settings.json"}),
        ("codex", {".codex", ".codex/config.toml", "AGENTS.md", ".codex/hooks.json"}),
        ("gemini", {".gemini", ".gemini/settings.json", "GEMINI.md"}),
    ],
)
def test_a_project_has_its_own_files(machine, monkeypatch, client, files):
    project = machine.home / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "very-secret")
    out = machine.setup(client, "--yes", "--project")
    assert {name.removeprefix("project/") for name in machine.files()} - {"project"} == files
    assert "think before you commit" in out
    # A name of a variable may stand in a project's file; what it holds may not.
    assert not any(b"very-secret" in text for text in machine.files().values())
    machine.setup(client, "--yes", "--project", str(project), "--undo")
    assert set(machine.files()) == {"project"}


def test_a_project_must_be_there(machine):
    assert "is not a directory" in machine.setup("claude", "--project", "/nonexistent", expect=exits.USAGE)


def test_a_project_and_the_user_are_two_things(machine, capsys):
    with pytest.raises(SystemExit):
        main(["setup", "claude", "--user", "--project", "."])
    capsys.readouterr()


# -- once, and back --


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_the_second_time_there_is_nothing_to_change(machine, client):
    machine.setup(client, "--yes")
    before = machine.files()
    assert machine.setup(client) == "nothing to change\n"
    assert machine.files() == before


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_undo_of_what_was_not_there_leaves_nothing(machine, client):
    machine.setup(client, "--yes")
    machine.setup(client, "--yes", "--undo")
    assert machine.files() == {}
    assert machine.setup(client, "--undo") == "nothing to change\n"


EXISTING = {
    ".claude.json": '{"numStartups":7,"oauthAccount":{"accessToken":"s3cr3t"},"mcpServers":{}}',
    ".claude/settings.json": json.dumps(
        {
            "permissions": {"allow": ["Bash(ls)"]},
            "hooks": {
                "Stop": [{"matcher": "", "hooks": [{"type": "command", "command": "say done"}]}],
                "PreToolUse": [],
            },
        },
        indent=4,
    ),
    ".claude/CLAUDE.md": "# Mine\r\n\r\nBe brief.\r\n",
    ".codex/config.toml": '# mine\nmodel = "x"\n\n[mcp_servers.docs]\ncommand = "npx"   # fast\n',
    ".codex/hooks.json": '{\n\t"hooks": {\n\t\t"Stop": [{"hooks": [{"type":"command","command":"x"}]}]\n\t}\n}',
    ".codex/AGENTS.md": "no newline at the end",
    ".gemini/settings.json": '{\n  // dark\n  "theme": "x" // mine\n}\n',
    ".gemini/GEMINI.md": "",
}


@pytest.mark.parametrize("client", clients.CLIENTS)
def test_undo_gives_every_byte_back(machine, client):
    for path, text in EXISTING.items():
        machine.write(path, text)
    before = machine.files()
    machine.setup(client, "--yes")
    assert machine.files() != before
    machine.setup(client, "--yes", "--undo")
    # An instructions file that did not end its last line has one line break more.
    after = machine.files()
    after[".codex/AGENTS.md"] = after[".codex/AGENTS.md"].removesuffix(b"\n")
    assert after == before


def test_other_peoples_hooks_stay_beside_ours(machine):
    machine.write(".claude/settings.json", EXISTING[".claude/settings.json"])
    machine.setup("claude", "--yes")
    settings = json.loads(machine.read(".claude/settings.json"))
    assert settings["permissions"] == {"allow": ["Bash(ls)"]}
    assert settings["hooks"]["PreToolUse"] == []
    theirs, ours = settings["hooks"]["Stop"]
    assert theirs["hooks"] == [{"type": "command", "command": "say done"}]
    assert "bridge-wait" in ours["hooks"][0]["command"]


def test_a_hook_of_an_older_installation_is_replaced_where_it_stands(machine):
    machine.setup("claude", "--yes")
    text = machine.read(".claude/settings.json")
    old = text.replace(str(Path(paste.command()).parent), "/old/bin").replace("86400", "600")
    machine.write(".claude/settings.json", old)
    machine.setup("claude", "--yes")
    assert machine.read(".claude/settings.json") == text


def test_a_server_of_an_older_installation_keeps_what_was_added_to_it(machine):
    machine.write(
        ".claude.json",
        '{"mcpServers": {"agent-bridge": {"type": "stdio", "command": "/old/bascule", "env": {"A": "1"}}}}',
    )
    machine.setup("claude", "--yes", "--no-hooks", "--no-instructions")
    entry = server(machine, "claude")
    assert entry == {"type": "stdio", "command": paste.command(), "env": {"A": "1"}, "args": ["mcp"]}


def test_undo_leaves_what_somebody_put_there_meanwhile(machine):
    machine.setup("claude", "--yes")
    settings = json.loads(machine.read(".claude.json"))
    settings["mcpServers"]["other"] = {"command": "x"}
    machine.write(".claude.json", json.dumps(settings, indent=2))
    machine.write(".claude/CLAUDE.md", machine.read(".claude/CLAUDE.md") + "\nMine.\n")
    machine.setup("claude", "--yes", "--undo")
    assert json.loads(machine.read(".claude.json")) == {"mcpServers": {"other": {"command": "x"}}}
    assert machine.read(".claude/CLAUDE.md").strip() == "Mine."
