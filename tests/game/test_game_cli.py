"""`bascule games` as people use it, against a real daemon and a real game."""

import json

import pytest
from arcade import arcade
from living import run_command
from playground import MOD

from bascule.cli.games import arguments_in
from bascule.doors.exits import CONFLICT, NOT_FOUND, UNEXPECTED, USAGE, WrongUsage


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


def test_games_are_listed_with_what_becomes_of_them(hall):
    listed = games(hall).stdout.splitlines()
    assert listed[0].split() == ["GAME", "STATE", "TOOLS", "PID", "BY", "ABOUT"]
    assert [line.split()[:2] for line in listed[1:]] == [["arena", "live"], ["other", "stopped"]]
    assert json.loads(games(hall, "list", "--json").stdout)["games"][0]["startedBy"] == "local"
    assert "noise/a" in games(hall, "show", "arena").stdout


def test_a_tool_is_found_and_called(hall):
    assert "arena/move" in games(hall, "tools", "arena", "--query", "somewhere").stdout
    assert json.loads(games(hall, "tools", "arena", "arena/move").stdout)["inputSchema"]["required"] == ["to"]
    assert games(hall, "call", "arena", "arena/echo", "value=[1, 2]").stdout == "[\n  1,\n  2\n]\n"
    told = games(hall, "call", "arena", "arena/move", '{"to": {"x": 1, "y": 2}}', "--json")
    assert json.loads(told.stdout)["result"] == {"x": 1, "y": 2}


def test_a_refusal_is_told_with_its_exit_code(hall):
    wrong = games(hall, "call", "arena", "arena/move")
    assert (wrong.returncode, "arena/move was not called" in wrong.stderr) == (USAGE, True)
    assert games(hall, "call", "arena", "arena/nothing").returncode == NOT_FOUND
    assert games(hall, "call", "other", "arena/echo").returncode == CONFLICT
    failed = games(hall, "call", "arena", "arena/fail", "kind=tool")
    assert (failed.returncode, failed.stderr.splitlines()[0]) == (UNEXPECTED, "bascule: the door is locked")


def test_events_are_shown_from_a_cursor_on(hall):
    assert games(hall, "events", "arena", "--channel", "noise/*").returncode == 0
    games(hall, "call", "arena", "arena/shout", "channel=noise/b", "times=2")
    shown = games(hall, "events", "arena", "--channel", "noise/b", "--json").stdout.splitlines()
    first, second = (json.loads(line) for line in shown)
    assert (first["payload"]["n"], second["payload"]["n"]) == (0, 1)
    after = games(hall, "events", "arena", "--channel", "noise/b", "--since", str(first["cursor"])).stdout
    assert '"n": 1' in after
    assert '"n": 0' not in after


def test_a_game_is_stopped_and_killed(hall):
    assert games(hall, "start", "other").returncode == 0
    assert games(hall, "kill", "other").stdout == "other is stopped\n"
    assert games(hall, "attach", "other").returncode == CONFLICT
    assert games(hall, "start", "nothing").returncode == NOT_FOUND


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
