"""The games' tools, driven by hand: what they ask, and what a model reads."""

import pytest
from driving import Script

from bascule.doors.exits import Refusal, WrongUsage
from bascule.protocols import desktop_agents, game_methods, workspace_methods
from bascule.protocols.methods import Consent
from bascule.shim.calls import HELD, SLICE_MS, Me, answer
from bascule.shim.games import SHOWN_CHARS, TOOLS

ME = Me(lambda: "Anna", None)
ARENA = {"gameId": "arena", "state": "live", "tools": 3}
LISTED = {"games": [ARENA, {"gameId": "guess", "state": "stopped"}]}


def use(name, arguments, *answers):
    return Script(TOOLS[name](ME, arguments), *answers)


@pytest.mark.req("GAME-DOOR-7")
def test_the_only_running_game_is_meant_when_none_is_named():
    script = use("games_get_state", {}, LISTED, {"gameId": "arena", "state": {}})
    assert script.asked[1].params == {"gameId": "arena"}
    named = use("games_get_state", {"gameId": "guess"}, {"gameId": "guess", "state": {}})
    assert named.methods == ["games.state"]


def test_which_game_is_meant_is_asked_when_it_is_not_clear():
    two = {"games": [ARENA, {"gameId": "guess", "state": "starting"}]}
    with pytest.raises(WrongUsage, match="several games run") as refused:
        use("games_events", {}, two)
    assert refused.value.hint == "give gameId: arena, guess"
    with pytest.raises(WrongUsage, match="no game runs") as refused:
        use("games_events", {}, {"games": [{"gameId": "guess", "state": "stopped"}]})
    assert refused.value.hint == "games_start one of: guess"


def test_a_call_is_never_repeated_and_ends_before_the_client_gives_up():
    arguments = {"gameId": "arena", "tool": "a/b", "timeout": 900}
    script = use("games_call_tool", arguments, {"executed": "yes", "result": None})
    (asked,) = script.asked
    assert not asked.repeat
    assert asked.params["timeoutMs"] == SLICE_MS
    assert asked.params["inlineBytes"] == SHOWN_CHARS
    assert script.result == {"status": "ok", "executed": "yes", "result": None}


def test_how_long_to_wait_for_a_start_is_said_as_in_gabs():
    script = use("games_start", {"gameId": "guess", "timeout": 5}, {"gameId": "guess", "state": "starting"})
    assert script.asked[0].params == {"gameId": "guess", "waitMs": 5_000}
    assert script.result["next"] == "games_status"
    script = use("games_connect", {"gameId": "guess", "timeout": 3600}, ARENA)
    assert script.asked[0].params["waitMs"] == SLICE_MS
    # The control: without it the daemon's own time counts.
    assert use("games_start", {"gameId": "guess"}, ARENA).asked[0].params == {"gameId": "guess"}


def refused(code, **gabp):
    details = {"executed": "no", "gabp": {"code": -32402, "message": "it failed", **gabp}}
    return Refusal(409, {"code": code, "message": "it failed", "details": details})


def test_a_games_error_is_a_result_with_its_data_and_a_large_one_is_cut():
    arguments = {"gameId": "arena", "tool": "a/b"}
    told = use("games_call_tool", arguments, refused("conflict", data={"door": 7})).result
    assert (told["status"], told["executed"], told["error"]["data"]) == ("failed", "no", {"door": 7})
    large = use("games_call_tool", arguments, refused("conflict", data="x" * 2 * SHOWN_CHARS)).result
    assert large["error"] == {"code": -32402, "message": "it failed", "truncated": True}
    blocked = use("games_call_tool", arguments, refused("conflict", data={"status": "blocked_by_attention"})).result
    assert (blocked["status"], blocked["next"]) == ("blocked_by_attention", "games_ack_attention")


def test_a_refusal_of_the_house_stays_one():
    denied = Refusal(403, {"code": "policy_denied", "message": "no"})
    with pytest.raises(Refusal):
        use("games_call_tool", {"gameId": "arena", "tool": "a/b"}, denied)


def test_a_call_that_waits_for_a_person_is_no_failure():
    waits = Refusal(202, {"code": "approval_required", "message": "why", "details": {"approvalId": "apr_1"}})
    script = Script(answer(ME, "games_call_tool", {"gameId": "arena", "tool": "a/b"}), waits, {"unread": 0})
    assert (script.result["status"], script.result["approvalId"]) == ("awaiting_approval", "apr_1")


def test_a_payload_that_is_too_large_is_left_out_of_its_event():
    events = [{"cursor": 1, "channel": "a/b", "payload": "x" * 2 * SHOWN_CHARS}, {"cursor": 2, "channel": "a/b"}]
    page = use("games_events", {"gameId": "arena", "waitMs": 10**9}, {"events": events, "cursor": 2})
    assert page.asked[0].wait_ms == SLICE_MS
    assert [event.get("payload") for event in page.result["events"]] == [None, None]


def test_what_may_be_held_for_a_person_is_known_here():
    rows = (*workspace_methods.METHODS, *game_methods.METHODS, *desktop_agents.METHODS)
    assert {row.name for row in rows if row.consent is Consent.HOLD} == HELD
