"""A wrapped Codex starts its MCP servers itself, and they are the wrapper's agent; where not, the person hears it."""

import os

import pytest

from bascule.cli.paste import PASSED_VARIABLES
from bascule.programs.wrap import codex_servers


@pytest.fixture
def codex(tmp_path):
    """A program that says which options it has."""

    def make(help_text):
        path = tmp_path / "codex"
        path.write_text(f"#!/bin/sh\necho '{help_text}'\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_a_codex_that_shares_a_background_server_is_started_without_it(codex):
    program = codex("      --no-daemon  Run without the shared background server")
    assert codex_servers.alone([program, "resume"], os.environ) == [program, "--no-daemon", "resume"]


@pytest.mark.parametrize("chosen", ["--no-daemon", "--remote", "--remote=ws://127.0.0.1:1"])
def test_what_the_person_chose_stays(codex, chosen):
    program = codex("--no-daemon")
    assert codex_servers.alone([program, chosen], os.environ) == [program, chosen]


def test_an_older_codex_that_shares_nothing_is_started_as_it_is(codex):
    program = codex("--sandbox")
    assert codex_servers.alone([program], os.environ) == [program]
    assert codex_servers.alone(["/nonexistent/codex"], os.environ) == ["/nonexistent/codex"]


def passes(tmp_path, text):
    (tmp_path / "config.toml").write_text(text)
    return codex_servers.passes_identity({"CODEX_HOME": str(tmp_path)})


def test_the_settings_must_name_the_variables_that_say_who_it_is(tmp_path):
    named = ", ".join(f'"{name}"' for name in PASSED_VARIABLES)
    assert passes(tmp_path, f"[mcp_servers.agent-bridge]\ncommand = 'bascule'\nenv_vars = [{named}]\n")
    for text in (
        "[mcp_servers.agent-bridge]\ncommand = 'bascule'\nenv_vars = ['BRIDGE_AGENT_ID']\n",
        "[mcp_servers.agent-bridge]\ncommand = 'bascule'\n",
        "[mcp_servers.other]\ncommand = 'x'\n",
        "mcp_servers = 7\n",
        "not toml [",
        "",
    ):
        assert not passes(tmp_path, text)
    assert not codex_servers.passes_identity({"HOME": str(tmp_path / "none")})
