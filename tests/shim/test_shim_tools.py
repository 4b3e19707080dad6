"""The table of tools: one source, one file, and a price in tokens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pricing import tokens_in

from bascule.doors.exits import WrongUsage
from bascule.protocols import broker_methods, game_methods
from bascule.protocols import tools as rows
from bascule.shim import calls, desktop, games, tools, workspace

ROOT = Path(__file__).parent.parent.parent
# What a session of an agent may cost before it has said a word.
MAX_TOKENS = 1_500


def test_the_file_is_made_from_the_rows():
    done = subprocess.run([sys.executable, ROOT / "tools" / "gen_tools.py", "--check"], timeout=60, check=False)
    assert done.returncode == 0
    assert rows.table() == {"tools": tools.TOOLS, "toolsets": tools.SETS, "methods": tools.METHODS}
    assert rows.TOOLSETS == tools.TOOLSETS


def test_the_agents_tools_cost_at_most_1500_tokens():
    listed = {"tools": tools.visible(["agents"])}
    assert len(listed["tools"]) == 11
    assert tokens_in(json.dumps(listed, separators=(",", ":"))) <= MAX_TOKENS


@pytest.mark.req("GAME-DOOR-5")
def test_the_games_tools_cost_at_most_2000_tokens_and_are_shown_to_who_asks_for_them():
    listed = {"tools": tools.visible(["games"])}
    assert len(listed["tools"]) == 18
    assert tokens_in(json.dumps(listed, separators=(",", ":"))) <= 2_000
    assert "games" not in tools.DEFAULT_TOOLSETS


@pytest.mark.req("GAME-DOOR-4")
def test_the_names_that_users_of_gabs_know_are_all_there():
    known = (
        "list show start stop kill status connect tool_names tool_detail tools call_tool get_attention ack_attention"
    )
    assert {f"games_{name}" for name in known.split()} <= set(tools.SETS["games"])


def test_every_tool_is_carried_out_by_code_or_by_a_method_of_the_house():
    known = {row.name for row in (*broker_methods.METHODS, *game_methods.METHODS)}
    coded = set(calls.TOOLS) | set(workspace.TOOLS) | set(desktop.TOOLS) | set(games.TOOLS)
    for row in rows.TOOLS:
        assert (row.name in coded) != (row.method in known), row.name
    assert coded <= set(tools.BY_NAME)


@pytest.mark.parametrize("tool", tools.TOOLS, ids=lambda tool: tool["name"])
def test_every_tool_says_what_it_takes_and_gives_and_what_it_may_do(tool):
    assert tool["title"]
    assert 20 < len(tool["description"]) < 300
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= set(schema["properties"])
    assert tool["inputSchema"]["additionalProperties"] is False
    # A daemon of tomorrow may say more.
    assert "additionalProperties" not in tool["outputSchema"]
    assert tool["annotations"]["openWorldHint"] is False
    if not tool["annotations"].get("readOnlyHint"):
        assert {"destructiveHint", "idempotentHint"} & set(tool["annotations"])


def test_the_table_is_not_read_before_it_is_needed():
    code = "from bascule.shim import command, tools; print(tools._table)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert done.stdout.strip() == "{}"


def test_an_unknown_name_of_the_module_is_an_error():
    with pytest.raises(AttributeError, match="has no attribute 'TOOL'"):
        _ = tools.TOOL


# -- toolsets -------------------------------------------------------------------------------------


def test_a_toolset_shows_its_tools_and_no_others():
    assert tools.visible() == tools.TOOLS
    assert tools.visible(["agents"]) == [tool for tool in tools.TOOLS if tool["name"] in tools.SETS["agents"]]
    assert all(tool["name"] not in tools.SETS["agents"] for tool in tools.visible(["workspace", "desktop", "games"]))


def test_a_hidden_tool_is_not_shown():
    names = [tool["name"] for tool in tools.visible(["agents"], ["register_agent"])]
    assert "register_agent" not in names
    assert len(names) == 10


def test_toolsets_are_read_from_a_list_of_names():
    assert tools.toolsets_in("agents, workspace,agents") == ("agents", "workspace")


@pytest.mark.parametrize("text", ["agent", "agents,all", ",", " "])
def test_an_unknown_toolset_is_refused_with_the_list(text):
    with pytest.raises(WrongUsage, match="there are agents, workspace, desktop, games"):
        tools.toolsets_in(text)


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("send_message", {"agentId": "J"}, "payload is missing"),
        ("send_message", {"agentId": "J", "payload": 1}, "must be of type string"),
        ("send_message", {"agentId": "J", "payload": "x", "timeoutMs": 0}, "must be 1 or more"),
        ("send_message", {"agentId": "J", "payload": "x", "timeoutMs": True}, "must be of type integer"),
        ("send_message", {"agentId": "J", "payload": "x", "timeout": 1}, "no argument timeout; it takes agentId"),
        ("list_agents", {"status": "asleep"}, "online, offline"),
        ("co_workers", {"type": "x"}, "no argument type; it takes none"),
        ("broadcast_message", {"payload": "x", "agentIds": "A"}, "must be of type array"),
        ("broadcast_message", {"payload": "x", "agentIds": ["A", 1]}, "agentIds must be of type string"),
        ("wait_for_message", [], "must be an object"),
        ("wait_for_message", {"waitMs": -1}, "must be 0 or more"),
    ],
)
def test_wrong_arguments_are_named_in_words(name, arguments, said):
    assert said in tools.fault_in(name, arguments)


def test_right_arguments_have_no_fault():
    assert tools.fault_in("post_reply", {"ticketId": "t", "payload": None, "metadata": {}}) is None
    assert tools.fault_in("broadcast_message", {"payload": "x", "agentIds": ["A", "B"]}) is None
    assert tools.fault_in("wait_for_message", {}) is None
