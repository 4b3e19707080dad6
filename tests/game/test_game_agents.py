"""Games as agents have them: a real daemon, real games, calls over MCP, link and HTTP."""

import json

import pytest
from arcade import Player, arcade, person
from playground import MOD, is_alive
from wires import Caller, LinkWire


@pytest.fixture(scope="module")
def played():
    """One daemon with the examples and the game of everything, for all tests that leave it as it was."""
    with arcade() as place:
        place.list_mod(MOD, "arena")
        arena = place.toml.read_text()
        place.list_examples()
        place.toml.write_text(f"{place.toml.read_text()}\n{arena}\n")
        with place.live(quick=True) as daemon, Player(place, "Anna") as anna:
            place.daemon = daemon
            place.anna = anna
            assert anna.use("games_start", gameId="arena")["state"] == "live"
            yield place
            assert daemon.stop() == 0


@pytest.mark.req("GAME-SDK-7")
def test_an_agent_wins_the_terminal_game_over_mcp(played):
    anna = played.anna
    assert {"burrow", "guess"} <= {each["gameId"] for each in anna.use("games_list")["games"]}
    started = anna.use("games_start", gameId="guess")
    assert (started["state"], started["next"]) == ("live", "games_tool_names")
    assert anna.use("games_tool_names", gameId="guess")["tools"] == ["guess/number"]
    schema = anna.use("games_tool_detail", gameId="guess", tool="guess/number")["inputSchema"]
    assert schema["required"] == ["is_it"]
    low, high = 1, 100
    for _ in range(7):
        middle = (low + high) // 2
        result = anna.use("games_call_tool", gameId="guess", tool="guess/number", arguments={"is_it": middle})
        assert (result["status"], result["executed"]) == ("ok", "yes")
        if result["result"] == "correct":
            break
        low, high = (middle + 1, high) if result["result"] == "higher" else (low, middle - 1)
    assert result["result"] == "correct"
    pid = anna.use("games_status", gameId="guess")["games"][0]["pid"]
    assert is_alive(pid)
    assert anna.use("games_stop", gameId="guess")["state"] == "stopped"
    assert not is_alive(pid)


@pytest.mark.req("GAME-READ-1", "GAME-SDK-7")
def test_burrow_is_played_without_a_window_and_its_events_and_map_are_read(played):
    anna = played.anna
    assert anna.use("games_start", gameId="burrow")["state"] == "live"
    look = anna.use("games_call_tool", gameId="burrow", tool="burrow/look")
    assert look["executed"] == "yes"
    listed = anna.use("games_resources", gameId="burrow")["resources"]
    assert "gabp://game/map" in {each["uri"] for each in listed}
    map_read = anna.use("games_read_resource", gameId="burrow", uri="gabp://game/map")
    assert "\n" in map_read["content"]
    assert anna.use("games_get_state", gameId="burrow")["state"]
    page = anna.use("games_events", gameId="burrow", waitMs=0)
    assert page["cursor"] >= 0
    assert anna.use("games_stop", gameId="burrow")["state"] == "stopped"


@pytest.mark.req("GAME-DOOR-7")
def test_the_only_game_that_runs_need_not_be_named(played):
    anna = played.anna
    assert anna.use("games_call_tool", tool="arena/echo", arguments={"value": 7})["result"] == 7
    assert "arena/move" in anna.use("games_tool_names", query="somewhere")["tools"]
    page = anna.use("games_tools", prefix="arena/", limit=2)
    assert (len(page["tools"]), page["nextCursor"]) == (2, page["tools"][-1]["name"])
    assert "schemaHash" not in page["tools"][0]
    found = anna.use("games_tools", prefix="arena/move")["tools"][0]
    assert found["parameters"] == ["to", "style?"]
    following = anna.use("games_tool_names", prefix="arena/", cursor=page["nextCursor"])["tools"]
    assert not {each["name"] for each in page["tools"]} & set(following)


@pytest.mark.req("GAME-CALL-4", "GAME-DOOR-1")
def test_big_integers_and_the_games_own_error_with_its_data_come_through(played):
    anna = played.anna
    huge = 2**70 + 1
    assert anna.use("games_call_tool", tool="arena/echo", arguments={"value": huge})["result"] == huge
    failed = anna.failure("games_call_tool", tool="arena/fail", arguments={"kind": "tool"})
    assert (failed["status"], failed["executed"]) == ("failed", "yes")
    assert failed["error"]["message"] == "the door is locked"
    assert failed["error"]["data"] == {"door": 7, "huge": 2**70}
    with LinkWire(played.daemon.link_socket).hello() as wire:
        refused = wire.refusal("games.call", {"gameId": "arena", "tool": "arena/fail", "arguments": {"kind": "tool"}})
    assert refused["code"] == "peer_failed"
    assert refused["details"]["gabp"]["data"]["door"] == 7
    over_http = Caller(played.daemon).post(
        "/v1/games/arena/call", {"tool": "arena/fail", "arguments": {"kind": "tool"}}
    )
    assert (over_http.status, over_http.error["code"]) == (502, "peer_failed")


@pytest.mark.req("GAME-CALL-2")
def test_wrong_arguments_are_reported_with_the_schema_and_nothing_is_executed(played):
    failed = played.anna.failure("games_call_tool", tool="arena/move", arguments={"to": {"x": "left"}})
    assert (failed["status"], failed["executed"]) == ("failed", "no")
    assert "arena/move was not called" in failed["error"]["message"]
    assert failed["error"]["data"]["inputSchema"]["properties"]["to"]
    unknown = played.anna.failure("games_call_tool", tool="arena/mov", arguments={})
    assert "did you mean arena/move" in unknown["error"]["message"]


@pytest.mark.req("GAME-CALL-1")
def test_calls_run_side_by_side_and_a_slow_one_holds_up_nobody(played):
    anna = played.anna
    slow = anna.begin("games_call_tool", tool="arena/forever", timeout=1)
    many = [anna.begin("games_call_tool", tool="arena/echo", arguments={"value": n}) for n in range(20)]
    assert [anna.finish(number)["result"] for number in many] == list(range(20))
    answer = anna.answer_to(slow)["result"]
    assert answer["isError"]
    over = answer["structuredContent"]
    assert (over["status"], over["executed"]) == ("failed", "unknown")
    assert "may have run" in over["error"]["message"]


@pytest.mark.req("GAME-CALL-7", "DEC-GABP-8")
@pytest.mark.parametrize("door", ["mcp", "link", "a lost connection"])
def test_a_call_whose_caller_withdraws_it_is_cancelled_in_the_game(played, door):
    anna = played.anna
    anna.use("games_events", gameId="arena", channels=["walk/*"])
    start = anna.use("games_status", gameId="arena")["games"][0].get("cursor", 0)

    def events_on(channel):
        return anna.use("games_events", gameId="arena", channels=[channel], since=start, waitMs=10_000)["events"]

    with LinkWire(played.daemon.link_socket).hello() as wire:
        if door == "mcp":
            number = anna.begin("games_call_tool", gameId="arena", tool="arena/forever", timeout=45)
        else:
            number = wire.request("games.call", {"gameId": "arena", "tool": "arena/forever"})
        assert events_on("walk/began")
        if door == "mcp":
            anna.notify("notifications/cancelled", requestId=number, reason="enough")
        elif door == "link":
            wire.notify("$/cancel", {"id": number})
            assert wire.answer(number)["error"]["message"] == "cancelled"
    assert [each["payload"] for each in events_on("walk/ended")] == [True]
    with person(played.daemon) as owner:
        last = owner.call("ledger.show", {"what": "games.call", "limit": 1000})[-1]
    assert (last["outcome"], last["details"]["executed"]) == ("cancelled", "unknown")


@pytest.mark.req("GAME-EVENT-1")
def test_an_event_is_waited_for_and_read_on_from_its_cursor(played):
    anna = played.anna
    start = anna.use("games_events", gameId="arena", channels=["noise/*"])["cursor"]
    waiting = anna.begin("games_events", gameId="arena", channels=["noise/*"], since=start, waitMs=20_000)
    anna.use("games_call_tool", tool="arena/shout", arguments={"channel": "noise/a"})
    page = anna.finish(waiting)
    assert [(each["channel"], each["payload"]["n"]) for each in page["events"]] == [("noise/a", 0)]
    assert anna.use("games_events", gameId="arena", channels=["noise/*"], since=page["cursor"])["events"] == []
    over_http = Caller(played.daemon).get(f"/v1/games/arena/events?since={start}&channels=noise/a,noise/b")
    assert [each["channel"] for each in over_http.json["events"]] == ["noise/a"]


@pytest.mark.req("GAME-EVENT-2", "GAME-DOOR-1")
def test_events_are_streamed_over_http_from_a_cursor_on(played):
    anna = played.anna
    start = anna.use("games_events", gameId="arena", channels=["noise/*"])["cursor"]
    anna.use("games_call_tool", gameId="arena", tool="arena/shout", arguments={"channel": "noise/a", "times": 2})
    with Caller(played.daemon).open(f"/v1/games/arena/stream?since={start}&channels=noise/*") as events:
        first, second = events.event(), events.event()
        assert [first["event"], first["data"]["payload"]["n"], second["data"]["payload"]["n"]] == ["game", 0, 1]
        assert first["id"] == str(first["data"]["cursor"])
        anna.use("games_call_tool", gameId="arena", tool="arena/shout", arguments={"channel": "noise/b"})
        assert events.event()["data"]["channel"] == "noise/b"
    assert Caller(played.daemon).get("/v1/games/nothing/stream").status == 404


@pytest.mark.req("GAME-EVENT-5")
def test_an_agent_with_too_many_streams_is_refused_and_a_revoked_one_gets_no_more_events(played):
    with LinkWire(played.daemon.link_socket).hello() as wire:
        opened = [wire.request("games.stream", {"gameId": "arena"}) for _ in range(65)]
        answers = [wire.answer(number) for number in opened]
        assert all("error" not in each for each in answers[:64])
        assert answers[64]["error"]["data"]["code"] == "overloaded"
    otto = Caller(played.daemon).register("Otto-2")
    with person(played.daemon) as owner, otto.open("/v1/games/arena/stream") as events:
        owner.call("agents.revoke", {"agentId": "Otto-2"})
        assert events.event() is None
    # The control: closing gave the places back.
    with LinkWire(played.daemon.link_socket).hello() as wire:
        assert "error" not in wire.answer(wire.request("games.stream", {"gameId": "arena"}))


@pytest.mark.req("GAME-CALL-5")
def test_a_large_result_is_a_resource_that_is_read_piece_by_piece(played):
    anna = played.anna
    result = anna.use("games_call_tool", tool="arena/large", arguments={"size": 20_000})
    assert (result["next"], "result" in result) == ("games_read_resource", False)
    text, offset = "", 0
    while offset is not None:
        piece = anna.use("games_read_resource", gameId="arena", uri=result["resource"]["uri"], offset=offset)
        text += piece["content"]
        offset = piece.get("nextOffset")
    assert json.loads(text) == "\u00e9" * 20_000


@pytest.mark.req("GAME-READ-2")
def test_state_is_set_and_got(played):
    anna = played.anna
    assert anna.use("games_set_state", gameId="arena", updates={"score": 5})["applied"] == {"score": 5}
    assert anna.use("games_get_state", gameId="arena", components=["score"])["state"] == {"score": 5}
    wrong = anna.use("games_set_state", gameId="arena", updates={"score": -1})
    assert wrong["errors"][0]["message"] == "a score is never negative"


@pytest.mark.req("GAME-READ-3", "GAME-CALL-3", "GAME-TRUST-7")
def test_blocking_attention_is_recorded_as_not_executed_until_it_is_acknowledged(played):
    anna = played.anna
    alarm = anna.use("games_call_tool", tool="arena/alarm")["result"]
    blocked = anna.failure("games_call_tool", tool="arena/count", arguments={"key": "never"})
    assert (blocked["status"], blocked["executed"]) == ("blocked_by_attention", "no")
    assert anna.use("games_get_attention", gameId="arena")["attention"]["attentionId"] == alarm
    assert anna.use("games_ack_attention", gameId="arena", attentionId=alarm)["acknowledged"]
    assert anna.use("games_call_tool", tool="arena/count", arguments={"key": "once"})["executed"] == "yes"
    assert played.runs() == ["once"]
    with person(played.daemon) as owner:
        last = owner.call("ledger.show", {"what": "games.call", "limit": 1000})
    ends = [
        (record["outcome"], record["details"].get("executed"))
        for record in last
        if record["details"].get("tool") == "arena/count" and record["outcome"] != "begun"
    ]
    assert ends == [("conflict", "no"), ("ok", "yes")]
    # Words of the game are not in the ledger.
    assert "reactor" not in json.dumps(last)


@pytest.mark.req("GAME-TRUST-5")
def test_another_agent_may_play_along_but_asks_before_it_stops_the_game(played):
    with Player(played, "Otto") as otto:
        assert otto.use("games_call_tool", gameId="arena", tool="arena/echo", arguments={"value": 1})["result"] == 1
        for tool in ("games_stop", "games_kill"):
            held = otto.use(tool, gameId="arena")
            assert held["status"] == "awaiting_approval"
            assert "Another agent started this game" in held["reason"]
    assert played.anna.use("games_status", gameId="arena")["games"][0]["state"] == "live"
