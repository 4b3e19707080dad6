"""`bascule games` as people use it, against a real daemon and a real game."""

import argparse
import json
import os
import subprocess
import sys

import pytest
from arcade import arcade
from living import run_command
from playground import MOD

from bascule.cli.talk import seconds
from bascule.game.cli import command as cli_games
from bascule.game.cli.command import arguments_in
from bascule.local_client.exits import CONFLICT, NOT_FOUND, UNEXPECTED, USAGE, WrongUsage
from ports import free_port


@pytest.fixture(scope="module")
def hall():
    with arcade() as place:
        place.list_mod(MOD, "arena", "other")
        with place.live() as daemon:
            assert games(place, "start", "arena").stdout == "arena is live\n"
            yield place
            assert daemon.stop() == 0


def games(place, *words):
    return run_command("games", *words, "--state-dir", place.state)


@pytest.mark.req("GAME-DOOR-3")
def test_games_are_listed_with_what_becomes_of_them(hall):
    listed = games(hall).stdout.splitlines()
    assert listed[0].split() == ["GAME", "STATE", "TOOLS", "PID", "BY", "ABOUT"]
    assert [line.split()[:2] for line in listed[1:]] == [["arena", "live"], ["other", "stopped"]]
    assert json.loads(games(hall, "list", "--json").stdout)["games"][0]["startedBy"] == "local"
    assert "noise/a" in games(hall, "show", "arena").stdout


@pytest.mark.req("GAME-DOOR-3")
def test_a_tool_is_found_and_called(hall):
    assert "arena/move" in games(hall, "tools", "arena", "--query", "somewhere").stdout
    assert json.loads(games(hall, "tools", "arena", "arena/move").stdout)["inputSchema"]["required"] == ["to"]
    assert games(hall, "call", "arena", "arena/echo", "value=[1, 2]").stdout == "[\n  1,\n  2\n]\n"
    ran = games(hall, "call", "arena", "arena/move", '{"to": {"x": 1, "y": 2}}', "--json")
    assert json.loads(ran.stdout)["result"] == {"x": 1, "y": 2}


def test_what_a_mod_writes_into_a_list_cannot_look_like_our_notation(monkeypatch, capsys):
    tool = {"name": "x/⟨ESC⟩", "tags": ["⟨LF⟩"], "description": "a\n⟨TAB⟩"}
    monkeypatch.setattr(cli_games, "ask", lambda *_: {"tools": [tool]})
    assert cli_games.list_tools(argparse.Namespace(game="arena", tool=None, query=None, json=False)) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ["x/⟨U+27E8⟩ESC⟩", "⟨U+27E8⟩LF⟩", "a⟨LF⟩⟨U+27E8⟩TAB⟩"]


def test_a_refusal_is_reported_with_its_exit_code(hall):
    wrong = games(hall, "call", "arena", "arena/move")
    assert (wrong.returncode, "arena/move was not called" in wrong.stderr) == (USAGE, True)
    assert games(hall, "call", "arena", "arena/nothing").returncode == NOT_FOUND
    assert games(hall, "call", "other", "arena/echo").returncode == CONFLICT
    failed = games(hall, "call", "arena", "arena/fail", "kind=tool")
    code, message = failed.stderr.splitlines()[:2]
    assert (failed.returncode, message) == (UNEXPECTED, "bascule: the door is locked")
    # What the tool raised, whole: its code and its data.
    assert "GABP error" in code
    assert '"door": 7' in code


def test_what_was_not_set_or_acknowledged_ends_with_an_exit_code(hall):
    assert games(hall, "state", "arena", "score=7").returncode == 0
    refused = games(hall, "state", "arena", "nothing=7")
    assert (refused.returncode, json.loads(refused.stdout)["errors"][0]["field"]) == (UNEXPECTED, "nothing")
    assert games(hall, "attention", "arena", "--ack", "nothing").returncode == UNEXPECTED


def test_events_are_shown_from_a_cursor_on(hall):
    assert games(hall, "events", "arena", "--channel", "noise/*").returncode == 0
    games(hall, "call", "arena", "arena/shout", "channel=noise/b", "times=2")
    shown = games(hall, "events", "arena", "--channel", "noise/b", "--json").stdout.splitlines()
    first, second = (json.loads(line) for line in shown)
    assert (first["payload"]["n"], second["payload"]["n"]) == (0, 1)
    after = games(hall, "events", "arena", "--channel", "noise/b", "--since", str(first["cursor"])).stdout
    assert '"n": 1' in after
    assert '"n": 0' not in after


@pytest.mark.req("GAME-DOOR-3")
def test_events_are_followed_as_they_come(hall):
    games(hall, "events", "arena", "--channel", "noise/*")
    start = json.loads(games(hall, "list", "--json").stdout)["games"][0].get("cursor", 0)
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "games", "events", "arena"]
    options = ["--follow", "--channel", "noise/a", "--since", str(start), "--json", "--state-dir", hall.state]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as follower:
        try:
            for number in range(3):
                games(hall, "call", "arena", "arena/shout", "channel=noise/a", f"size={number}")
                # Each is there before the next one happens.
                assert json.loads(follower.stdout.readline())["payload"]["pad"] == "x" * number
            assert follower.poll() is None
        finally:
            follower.terminate()
    assert games(hall, "events", "nothing", "--follow").returncode == NOT_FOUND


@pytest.mark.req("GAME-DOOR-3")
def test_a_game_that_is_not_in_games_toml_is_attached_to_by_hand(hall, tmp_path):
    mod = tmp_path / "mod.py"
    mod.write_text(MOD)
    token = "0123456789abcdef" * 4
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    port = str(free_port())
    # What GABS writes beside the game that it starts.
    (tmp_path / "bridge.json").write_text(json.dumps({"port": int(port), "token": token, "gameId": "x"}))
    own = {"GABP_SERVER_PORT": port, "GABP_TOKEN": token}
    with subprocess.Popen([sys.executable, str(mod)], env=os.environ | own) as game:
        try:
            by_port = games(hall, "attach", "visitor", "--port", port, "--token-file", str(tmp_path / "token"))
            assert by_port.stdout == "visitor is live\n", by_port.stderr
            asked = games(hall, "call", "visitor", "arena/echo", "value=1")
            assert "First use of a tool" in asked.stderr
            assert games(hall, "stop", "visitor").stdout == "visitor is stopped\n"
            (tmp_path / "bridge.json").chmod(0o666)
            open_file = games(hall, "attach", "visitor", "--bridge-json", str(tmp_path / "bridge.json"))
            assert (open_file.returncode, "open to other users" in open_file.stdout) == (UNEXPECTED, True)
            (tmp_path / "bridge.json").chmod(0o600)
            by_file = games(hall, "attach", "visitor", "--bridge-json", str(tmp_path / "bridge.json"))
            assert by_file.stdout == "visitor is live\n", by_file.stderr
            assert games(hall, "stop", "visitor").returncode == 0
            assert game.poll() is None
        finally:
            game.kill()
    assert games(hall, "attach", "visitor", "--port", port).returncode == USAGE


@pytest.mark.req("GAME-DOOR-3")
def test_a_game_is_stopped_and_killed(hall):
    assert games(hall, "start", "other").returncode == 0
    assert games(hall, "kill", "other").stdout == "other is stopped\n"
    assert games(hall, "attach", "other").returncode == CONFLICT
    assert games(hall, "start", "nothing").returncode == NOT_FOUND


def test_resources_state_and_attention_have_verbs(hall):
    listed = games(hall, "resources", "arena")
    assert listed.returncode == 0, listed.stderr
    state = games(hall, "state", "arena")
    assert state.returncode == 0, state.stderr
    assert games(hall, "attention", "arena").stdout == "nothing wants attention\n"
    games(hall, "events", "arena", "--channel", "noise/a")
    left = games(hall, "unsubscribe", "arena", "noise/a")
    assert (left.returncode, left.stdout.startswith("still heard:")) == (0, True), left.stderr


def test_a_value_stays_text_where_the_tool_wants_text(hall):
    games(hall, "events", "arena", "--channel", "noise/*")
    # `channel` is text: 7 is a name that does not exist, not a number that does not fit.
    wrong = games(hall, "call", "arena", "arena/shout", "channel=7")
    assert "must be a string" not in wrong.stderr
    assert arguments_in(["code=007", "n=7", 'quoted="7"'], frozenset({"code", "quoted"})) == {
        "code": "007",
        "n": 7,
        "quoted": "7",
    }


def test_arguments_are_names_and_values_or_one_object():
    assert arguments_in(["x=3", "name=Ada", "on=true", "text=a=b"]) == {
        "x": 3,
        "name": "Ada",
        "on": True,
        "text": "a=b",
    }
    assert arguments_in(['{"x": [1]}']) == {"x": [1]}
    for wrong in (["x"], ["=3"], ["{x: 3}"]):
        with pytest.raises(WrongUsage):
            arguments_in(wrong)


def test_an_error_of_a_tool_is_json_where_json_is_asked_for(hall):
    failed = games(hall, "call", "arena", "arena/nothing", "--json")
    assert failed.returncode != 0
    error = json.loads(failed.stdout)["error"]
    assert error["message"]
    assert error["message"] in failed.stderr


def test_a_call_without_a_tool_is_told_what_is_missing_and_nothing_more(hall):
    done = games(hall, "call", "arena")
    assert done.returncode == 2
    assert done.stderr.endswith("error: the following arguments are required: TOOL\n")


def test_the_hint_about_wrong_arguments_names_what_is_printed(hall):
    done = games(hall, "call", "arena", "arena/move", "to=1")
    assert "GABP error -32602, data {" in done.stderr
    assert done.stderr.endswith("the error's data has the tool's inputSchema\n")


def test_a_game_id_that_cannot_be_one_is_refused_without_the_end_of_its_pattern(hall):
    done = games(hall, "show", "Bad Name!")
    assert done.stderr == "bascule: `gameId`: expected `str` of the form `[a-z0-9][a-z0-9_-]{0,63}`\n"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "x", "1e300"])
def test_a_timeout_that_is_none_is_refused_with_a_sentence(text):
    with pytest.raises(argparse.ArgumentTypeError, match="not a number of seconds above zero"):
        seconds(text)
