"""Broker specification 7.3 and 10: what `bascule setup` writes, used as an agent's client and shell use it."""

import json
import re

import pytest
from spec_peers import SCRIPTS

# Where a shell looks that does not know our commands.
BARE_PATH = "/usr/bin:/bin"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def setup(house, home, tmp_path):
    """`bascule setup` for somebody whose home is empty, in a shell that does not have our commands in PATH."""

    def run(*words: str) -> str:
        # Its record of what it wrote is the user's too, not the shared daemon's.
        where = {"HOME": str(home), "BASCULE_CONFIG_DIR": str(home / "config"), "PATH": BARE_PATH}
        done = house.run(
            str(SCRIPTS / "bascule"), "setup", *words, "--yes", BASCULE_STATE_DIR=str(tmp_path / "state"), **where
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def files(folder) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


@pytest.mark.req("BRK-7.3-1", "BRK-7.3-2")
def test_setup_tells_the_agent_in_claude_md_how_to_get_a_handle_and_how_to_reply(setup, project):
    (project / "CLAUDE.md").write_text("# Our project\n")
    setup("claude", "--project", str(project))
    text = (project / "CLAUDE.md").read_text("utf-8")
    assert text.startswith("# Our project\n")
    for words in ("`register_agent`", "`bridge-register --agent NAME`", "`post_reply`", "`bridge-reply TICKET "):
        assert words in text


@pytest.mark.req("BRK-7.3-1")
def test_the_commands_that_the_instructions_name_do_what_they_say(house, setup, project):
    setup("claude", "--project", str(project))
    lines = (project / "CLAUDE.md").read_text("utf-8").replace("\n ", "").split("`")
    register = next(line for line in lines if line.startswith("bridge-register "))
    reply = next(line for line in lines if line.startswith("bridge-reply "))
    handle = house.new_name()
    assert house.run("/bin/sh", "-c", register.replace("NAME", handle)).returncode == 0
    ticket = house.send(handle)
    assert house.run("/bin/sh", "-c", reply.replace("TICKET", ticket)).returncode == 0
    view = house.get(f"/replies/{ticket}").json
    assert (view["from"], view["payload"]) == (handle, "your answer")


@pytest.mark.req("BRK-10-1", "DEC-BRK-36")
def test_the_entry_agent_bridge_in_mcp_json_starts_a_server_that_reaches_the_daemon(house, setup, project):
    handle = house.new_name()
    setup("claude", "--project", str(project), "--agent", handle)
    servers = json.loads((project / ".mcp.json").read_text("utf-8"))["mcpServers"]
    assert set(servers) == {"agent-bridge"}
    entry = servers["agent-bridge"]
    assert set(entry["env"]) == {"BRIDGE_BROKER_URL", "BRIDGE_DEFAULT_TIMEOUT_MS", "BRIDGE_AGENT_ID"}
    # As Claude Code fills them in where its own environment has none of them.
    unset = {name: re.fullmatch(r"\$\{\w+:-(.*)\}", value)[1] for name, value in entry["env"].items()}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO},
        {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "bascule://transactions/recent"}},
    ]
    # Clients do not know our PATH.
    started = house.run(
        entry["command"],
        *entry["args"],
        stdin="".join(f"{json.dumps(call)}\n" for call in calls),
        PATH=BARE_PATH,
        **unset,
    )
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout.splitlines()[0])["result"]["serverInfo"]["name"]
    assert house.agent_view(handle)["agentId"] == handle


@pytest.mark.req("BRK-10-1", "DEC-BRK-36")
def test_other_servers_in_mcp_json_stay_and_undo_leaves_them_alone(setup, project):
    before = '{"mcpServers": {"other": {"command": "other"}}}\n'
    file = project / ".mcp.json"
    file.write_text(before)
    setup("claude", "--project", str(project))
    assert set(json.loads(file.read_text())["mcpServers"]) == {"other", "agent-bridge"}
    setup("claude", "--project", str(project), "--undo")
    assert json.loads(file.read_text()) == json.loads(before)


@pytest.mark.req("BRK-10-1")
def test_setup_for_a_project_writes_nothing_into_the_home_directory(setup, project, home):
    setup("claude", "--project", str(project))
    assert files(project) == {".mcp.json", "CLAUDE.md", ".claude/settings.json"}
    assert files(home) == set()


@pytest.mark.req("BRK-7.3-3")
def test_the_aliases_register_and_reply_work_in_a_shell_without_our_commands_in_path(house, setup, home):
    handle = house.new_name()
    setup("shell", "bash", "--agent", handle)
    environment = {"HOME": str(home), "PATH": BARE_PATH}

    def typed(line: str) -> None:
        # Not -i: an interactive shell would take the terminal away from whoever runs the tests.
        done = house.run("bash", "-O", "expand_aliases", "-c", f'. "$HOME/.bashrc"\n{line}\n', **environment)
        assert done.returncode == 0, done.stderr

    typed("register --type codex")
    assert house.agent_view(handle)["type"] == "codex"
    ticket = house.send(handle)
    typed(f'reply {ticket} "by alias"')
    assert house.get(f"/replies/{ticket}").json["payload"] == "by alias"


@pytest.mark.req("BRK-7.3-3")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_both_aliases(house, shell):
    done = house.run("bascule", "setup", "shell", shell, "--agent", "Jerry", "--print")
    between = " " if shell == "fish" else "="
    assert f"alias reply{between}'bridge-reply'\n" in done.stdout
    assert f"alias register{between}'bridge-register --agent Jerry'\n" in done.stdout
