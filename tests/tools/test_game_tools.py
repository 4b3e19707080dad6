"""The games' tools, driven by hand: what they ask, and what a model reads."""

import pytest
from driving import BY_NAME, Script, refusal

from bascule.foundation.errors import Conflict, InvalidRequest, PolicyDenied
from bascule.game.tools import SHOWN_CHARS
from bascule.kernel.tool import Retry
from bascule.programs.mcp_stdio.mcp import SLICE_MS
from gabp.errors import ErrorCode

ARENA = {"gameId": "arena", "state": "live", "tools": 3}
GUESS = {"gameId": "guess", "state": "stopped"}
LISTED = {"games": [ARENA, GUESS]}


def use(name, arguments, *answers):
    return Script(name, arguments, *answers)


@pytest.mark.req("GAME-DOOR-7")
def test_the_only_running_game_is_meant_when_none_is_named():
    script = use("games_get_state", {}, LISTED, {"gameId": "arena", "state": {}})
    assert script.asked[1].params == {"gameId": "arena"}
    named = use("games_get_state", {"gameId": "guess"}, {"gameId": "guess", "state": {}})
    assert named.methods == ["games.state"]


def test_a_call_without_a_clear_game_asks_which_one():
    two = {"games": [ARENA, {"gameId": "guess", "state": "starting"}]}
    with pytest.raises(InvalidRequest, match="several games run") as refused:
        use("games_events", {}, two)
    assert refused.value.hint == "give gameId: arena, guess"
    with pytest.raises(InvalidRequest, match="no game runs") as refused:
        use("games_events", {}, {"games": [{"gameId": "guess", "state": "stopped"}]})
    assert refused.value.hint == "games_start one of: guess"


@pytest.mark.parametrize("tool", ["shop_arena_move", "shop.arena.move", "shop/buy"])
def test_a_tool_that_names_its_game_is_called_in_it_while_several_run(tool):
    two = {"games": [ARENA, {"gameId": "shop", "state": "live"}]}
    script = use("games_call_tool", {"tool": tool}, two, {"executed": "yes", "result": 1})
    assert script.asked[1].params["gameId"] == "shop"
    detail = use("games_tool_detail", {"tool": tool}, two, {"inputSchema": {}})
    assert detail.asked[1].params["gameId"] == "shop"


@pytest.mark.parametrize("tool", ["shopping/buy", "shop", "a_b/x"])
def test_a_tool_that_names_no_game_or_two_is_asked_about(tool):
    running = [{"gameId": name, "state": "live"} for name in ("shop", "a", "a_b")]
    with pytest.raises(InvalidRequest, match="several games run"):
        use("games_call_tool", {"tool": tool}, {"games": running})


def test_a_game_that_runs_already_is_no_failure_for_who_starts_it():
    already = refusal("conflict", "arena is live already")
    result = use("games_start", {"gameId": "arena"}, already, ARENA).result
    assert (result["state"], result["next"], result["note"]) == ("live", "games_tool_names", "it ran already")
    # The controls: one that does not run was refused for another reason, and a game that is reached is not started.
    with pytest.raises(Conflict, match="as many as may"):
        use("games_start", {"gameId": "guess"}, refusal("conflict", "50 games run already, as many as may"), GUESS)
    with pytest.raises(Conflict, match="not running"):
        use("games_connect", {"gameId": "guess"}, refusal("conflict", "guess is not running"))


def test_a_call_is_never_repeated_and_ends_before_the_client_gives_up():
    arguments = {"gameId": "arena", "tool": "a/b", "timeout": 900}
    script = use("games_call_tool", arguments, {"executed": "yes", "result": None})
    (asked,) = script.asked
    assert BY_NAME["games_call_tool"].retry is Retry.NEVER
    assert asked.params["timeoutMs"] == SLICE_MS
    assert asked.params["inlineBytes"] == SHOWN_CHARS
    assert script.result.pop("note") == "waits at most 45 s, not 900"
    assert script.result == {"status": "ok", "executed": "yes", "result": None}
    # The control: what fits is waited for, and there is nothing to say.
    script = use("games_call_tool", {**arguments, "timeout": 45}, {"executed": "yes", "result": None})
    assert (script.asked[0].params["timeoutMs"], "note" in script.result) == (SLICE_MS, False)


def test_the_wait_for_a_start_is_given_as_in_gabs():
    script = use("games_start", {"gameId": "guess", "timeout": 5}, {"gameId": "guess", "state": "starting"})
    assert script.asked[0].params == {"gameId": "guess", "waitMs": 5_000}
    assert script.result["next"] == "games_status"
    script = use("games_connect", {"gameId": "guess", "timeout": 3600}, ARENA)
    assert script.asked[0].params["waitMs"] == SLICE_MS
    assert script.result["note"] == "waits at most 45 s, not 3600"
    # The control: without it the daemon's own time counts.
    assert use("games_start", {"gameId": "guess"}, ARENA).asked[0].params == {"gameId": "guess"}


def refused(house_code, /, **gabp):
    details = {"executed": "no", "gabp": {"code": -32402, "message": "it failed", **gabp}}
    return refusal(house_code, "it failed", details=details)


def test_a_games_error_is_a_result_with_its_data_and_a_large_one_is_cut():
    arguments = {"gameId": "arena", "tool": "a/b"}
    result = use("games_call_tool", arguments, refused("conflict", data={"door": 7})).result
    assert (result["status"], result["executed"], result["error"]["data"]) == ("failed", "no", {"door": 7})
    large = use("games_call_tool", arguments, refused("conflict", data="x" * 2 * SHOWN_CHARS)).result
    assert large["error"] == {"code": -32402, "message": "it failed", "truncated": True}
    blocked = use("games_call_tool", arguments, refused("conflict", data={"status": "blocked_by_attention"})).result
    assert (blocked["status"], blocked["next"]) == ("blocked_by_attention", "games_ack_attention")
    # For MCP these are failures; a call that ran is none.
    assert all(each.failed for each in (result, large, blocked))
    assert not use("games_call_tool", arguments, {"executed": "yes", "result": 1}).result.failed


def test_a_refusal_of_the_house_stays_one():
    with pytest.raises(PolicyDenied):
        use("games_call_tool", {"gameId": "arena", "tool": "a/b"}, refusal("policy_denied"))


def test_a_call_that_waits_for_a_person_is_no_failure():
    waits = refusal("approval_required", "why", details={"approvalId": "apr_1"})
    script = Script("games_call_tool", {"gameId": "arena", "tool": "a/b"}, waits, {"unread": 0}, whole=True)
    assert (script.result["status"], script.result["approvalId"]) == ("awaiting_approval", "apr_1")


def test_a_payload_that_is_too_large_is_left_out_of_its_event():
    events = [{"cursor": 1, "channel": "a/b", "payload": "x" * 2 * SHOWN_CHARS}, {"cursor": 2, "channel": "a/b"}]
    page = use("games_events", {"gameId": "arena", "waitMs": 10**9}, {"events": events, "cursor": 2})
    assert page.asked[0].wait_ms == SLICE_MS
    assert [event.get("payload") for event in page.result["events"]] == [None, None]


# -- as users of GABS write --


NOT_FOUND = {"code": int(ErrorCode.TOOL_NOT_FOUND)}
TOOLS_PAGE = {"tools": [{"name": "inventory/get"}, {"name": "a/b_c"}, {"name": "a_b/c"}], "total": 3}


@pytest.mark.parametrize("name", ["arena_inventory_get", "inventory_get", "inventory.get"])
def test_a_tool_is_found_by_the_name_that_gabs_makes_of_it(name):
    arguments = {"gameId": "arena", "tool": name}
    done = {"executed": "yes", "result": 7}
    script = use("games_call_tool", arguments, refused("conflict", **NOT_FOUND), TOOLS_PAGE, done)
    assert script.methods == ["games.call", "games.tools", "games.call"]
    assert script.asked[2].params["tool"] == "inventory/get"
    assert (script.result["result"], script.result["note"]) == (7, f"{name} is inventory/get here")
    detail = {"name": "inventory/get", "inputSchema": {}}
    shown = use("games_tool_detail", arguments, refused("conflict", **NOT_FOUND), TOOLS_PAGE, detail)
    assert shown.asked[2].params["tool"] == "inventory/get"


@pytest.mark.parametrize("name", ["arena_a_b_c", "inventory_got"])
def test_a_name_that_means_two_tools_or_none_is_not_guessed(name):
    script = use("games_call_tool", {"gameId": "arena", "tool": name}, refused("conflict", **NOT_FOUND), TOOLS_PAGE)
    assert (script.methods, script.result.failed) == (["games.call", "games.tools"], True)


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("games_start", {"profile": "test", "launchInputs": {"a": 1}, "resetEndpoint": True}),
        ("games_connect", {"forceTakeover": True}),
    ],
)
def test_arguments_that_only_gabs_knows_are_taken_with_a_note(tool, more):
    script = Script(tool, {"gameId": "arena", **more}, ARENA, {}, whole=True)
    assert script.asked[0].params == {"gameId": "arena"}
    assert script.result["note"].startswith(", ".join(more))
    brief = Script("games_tool_names", {"gameId": "arena", "brief": True}, TOOLS_PAGE, {}, whole=True)
    assert brief.result["note"].startswith("brief: ")


def test_an_argument_that_nobody_knows_is_refused():
    with pytest.raises(InvalidRequest, match="profil"):
        Script("games_start", {"gameId": "arena", "profil": "test"}, ARENA, whole=True)
