"""The table of tools: what each says and costs in tokens. `make check` says when the shipped lists are stale."""

import json

import pytest
from pricing import tokens_in

from bascule.bridge_list import methods_of
from bascule.foundation.errors import InvalidRequest
from bascule.kernel.tool import READS, Retry
from bascule.local_client.exits import WrongUsage
from bascule.programs.mcp_stdio import tools
from bascule.surfaces.mcp.calling import call_tool
from bascule.surfaces.mcp.tools import shipped_tools, tools_of, toolsets_of

TOOLS = tools_of(toolsets_of())
BY_NAME = {tool.name: tool for tool in TOOLS}
LISTED = shipped_tools()["tools"]
# What a session of an agent may cost before it has said a word; a hundred of it are for asking the person.
MAX_TOKENS = 1_600


def test_the_agents_tools_cost_at_most_1600_tokens():
    listed = {"tools": tools.visible(["agents"])}
    assert len(listed["tools"]) == 12
    assert tokens_in(json.dumps(listed, separators=(",", ":"))) <= MAX_TOKENS


@pytest.mark.req("GAME-DOOR-5")
def test_the_games_tools_cost_at_most_2000_tokens_and_are_shown_to_who_asks_for_them():
    listed = {"tools": tools.visible(["games"])}
    assert len(listed["tools"]) == 18
    assert tokens_in(json.dumps(listed, separators=(",", ":"))) <= 2_000
    assert "games" not in tools.by_default()


@pytest.mark.req("GAME-DOOR-4")
def test_the_names_that_users_of_gabs_know_are_all_there():
    known = (
        "list show start stop kill status connect tool_names tool_detail tools call_tool get_attention ack_attention"
    )
    assert {f"games_{name}" for name in known.split()} <= set(tools.toolsets()["games"]["tools"])


def test_every_tool_calls_methods_that_exist():
    known = {row.name for row in methods_of()}
    for tool in TOOLS:
        assert set(tool.uses) <= known, tool.name


def test_what_only_reads_may_be_repeated():
    """The control: what acts may not, unless its id keeps it from acting twice."""
    for tool in TOOLS:
        assert (tool.hints is READS) <= (tool.retry is Retry.READ), tool.name
        if tool.hints.get("destructiveHint"):
            assert tool.retry is Retry.NEVER, tool.name


def flat(schema):
    return [schema, *(found for value in _values(schema) for found in flat(value))]


def _values(schema):
    if isinstance(schema, dict):
        return list(schema.values())
    return schema if isinstance(schema, list) else []


def test_input_schemas_are_flat():
    for tool in LISTED:
        for part in flat(tool["inputSchema"]):
            if isinstance(part, dict):
                assert not {"$ref", "$defs", "anyOf", "oneOf"} & set(part), tool["name"]
                assert part.get("type") != "null"


@pytest.mark.parametrize("tool", LISTED, ids=lambda tool: tool["name"])
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


# -- toolsets -------------------------------------------------------------------------------------


def test_a_toolset_shows_its_tools_and_no_others():
    names = tools.toolsets()["agents"]["tools"]
    assert tools.visible(tools.toolsets()) == LISTED
    assert tools.visible(["agents"]) == [tool for tool in LISTED if tool["name"] in names]
    assert all(tool["name"] not in names for tool in tools.visible(["workspace", "desktop", "games"]))


def test_a_tool_is_meant_by_its_name_or_by_the_one_with_a_dot_that_gabs_takes():
    assert tools.name_of("games.tool_names", ["games"], ()) == "games_tool_names"
    assert tools.name_of("send_message", ["agents"], ()) == "send_message"
    for name, toolsets, hidden in (
        ("send.message", ["agents"], ()),
        ("games.list", ["agents"], ()),
        ("register_agent", ["agents"], ["register_agent"]),
        (7, ["agents"], ()),
    ):
        assert tools.name_of(name, toolsets, hidden) is None


def test_a_hidden_tool_is_not_shown():
    names = [tool["name"] for tool in tools.visible(["agents"], ["register_agent"])]
    assert "register_agent" not in names
    assert len(names) == 11


def test_toolsets_are_read_from_a_list_of_names():
    assert tools.toolsets_in("agents, workspace,agents") == ("agents", "workspace")


@pytest.mark.parametrize("text", ["agent", "agents,all", ",", " "])
def test_an_unknown_toolset_is_refused_with_the_list(text):
    with pytest.raises(WrongUsage, match="there are agents, workspace, games, desktop"):
        tools.toolsets_in(text)


# -- arguments ------------------------------------------------------------------------------------


def refusal_of(name, arguments):
    with pytest.raises(InvalidRequest) as refused:
        call_tool(None, BY_NAME[name], arguments).send(None)
    return refused.value.message


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("send_message", {"agentId": "J"}, "send_message: missing required field `payload`"),
        ("send_message", {"agentId": "J", "payload": 1}, "`payload`: expected `str`, got `int`"),
        ("send_message", {"agentId": "J", "payload": "x", "timeoutMs": 0}, "`timeoutMs`: expected `int` >= 1"),
        (
            "send_message",
            {"agentId": "J", "payload": "x", "timeoutMs": True},
            "`timeoutMs`: expected `int`, got `bool`",
        ),
        ("send_message", {"agentId": "J", "payload": "x", "timeout": 1}, "unknown field `timeout`; there are: agentId"),
        ("list_agents", {"status": "asleep"}, "`status`: invalid enum value 'asleep'"),
        ("co_workers", {"type": "x"}, "unknown field `type`"),
        ("broadcast_message", {"payload": "x", "agentIds": "A"}, "`agentIds`: expected `array`, got `str`"),
        ("broadcast_message", {"payload": "x", "agentIds": ["A", 1]}, "`agentIds[1]`: expected `str`, got `int`"),
        ("wait_for_message", [], "expected `object`, got `array`"),
        ("wait_for_message", {"waitMs": -1}, "`waitMs`: expected `int` >= 0"),
        ("edit_file", {"path": "a", "edits": [{"oldContent": "x"}]}, "missing required field `newContent`"),
    ],
)
def test_wrong_arguments_are_named_in_words(name, arguments, expected):
    assert expected in refusal_of(name, arguments)
