"""What options and environment change: which tools, how the words of others are introduced."""

import subprocess
import sys

import pytest
from fake_link import FakeLink
from raw_client import COMMAND, RawClient

from patience import PATIENCE


def names(client):
    return [tool["name"] for tool in client.request("tools/list")["result"]["tools"]]


def test_without_options_all_tools_are_shown(state):
    with RawClient(state, "--no-start") as client:
        assert len(names(client)) == 22


@pytest.mark.parametrize("how", ["option", "environment"])
def test_only_the_chosen_toolsets_are_shown(state, how):
    options = ("--toolset", "desktop,games") if how == "option" else ()
    variables = {"BRIDGE_TOOLSETS": "desktop,games" if how == "environment" else "agents"}
    with RawClient(state, "--no-start", *options, **variables) as client:
        assert "send_message" not in names(client)
        error = client.request("tools/call", name="send_message", arguments={})["error"]
        assert (error["code"], error["message"]) == (-32602, "there is no tool send_message")


def test_a_handle_that_is_not_to_change_has_no_tool_to_change_it(state):
    with RawClient(state, "--no-start", "--no-rename") as client:
        assert "register_agent" not in names(client)
        assert "error" in client.request("tools/call", name="register_agent", arguments={"agentId": "Tom"})


@pytest.mark.parametrize(
    ("options", "variables", "label"),
    [
        ((), {}, "peer"),
        ((), {"BRIDGE_TRUST_LABEL": "untrusted"}, "untrusted"),
        (("--trust-label", "colleague"), {"BRIDGE_TRUST_LABEL": "untrusted"}, "colleague"),
    ],
)
def test_the_daemon_is_asked_for_the_chosen_label(state, options, variables, label):
    with FakeLink(state) as daemon, RawClient(state, *options, **variables) as client:
        client.initialize()
        assert daemon.wait_for("mcp.open")["trust"] == label


def test_the_daemon_is_asked_for_a_session_as_the_program_was_started(state, tmp_path):
    options = ("--toolset", "agents,games", "--no-rename")
    with (
        FakeLink(state) as daemon,
        RawClient(state, *options, cwd=str(tmp_path), BRIDGE_DEFAULT_TIMEOUT_MS="9000") as client,
    ):
        client.initialize()
        assert daemon.wait_for("mcp.open") == {
            "toolsets": ["agents", "games"],
            "hidden": ["register_agent"],
            "trust": "peer",
            "directory": str(tmp_path),
            "defaultTimeoutMs": 9000,
        }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--toolset", "agents,tools"), b"there is no toolset 'tools'; there are agents, workspace, games, desktop"),
        (("--trust-label", "friend"), b"there is no trust label 'friend'; there are peer, colleague, untrusted"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_list(state, options, expected):
    done = subprocess.run(
        [*COMMAND, "--state-dir", state, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2
    assert expected in done.stderr


def test_help_names_the_choices():
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=True)
    for word in ("--toolset", "agents,workspace,games,desktop", "--trust-label", "colleague", "--no-rename"):
        assert word in done.stdout


def test_the_list_of_tools_is_not_read_before_it_is_needed():
    code = "from bascule.programs.mcp_stdio import command, tools; print(tools._read)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=PATIENCE, check=True
    )
    assert done.stdout.strip() == "{}"
