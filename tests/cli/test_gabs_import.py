"""`bascule games import`: the games of GABS as tables of games.toml."""

import argparse
import json
import tomllib

import pytest

from bascule.foundation import paths
from bascule.game.cli import gabs_import
from bascule.game.settings import parse
from bascule.local_client.exits import WrongUsage

GABS = {
    "version": "1.0",
    "games": {
        "Snake": {
            "id": "Snake",
            "name": 'Snake "II"',
            "description": "grows",
            "launchMode": "DirectPath",
            "target": "/games/snake",
            "args": ["--fast", "a b"],
            "workingDir": "/games",
            "env": {"LEVEL": "3", "GABP_TOKEN": "x", "N": 7},
            "profiles": {"test": {}},
        },
        "rimworld": {"id": "rimworld", "name": "RimWorld", "launchMode": "SteamAppId", "target": "294100"},
    },
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "config_dir", lambda: str(tmp_path / "config"))
    (tmp_path / "config.json").write_text(json.dumps(GABS))
    return tmp_path


def run(home, capsys, *, write=False, file="config.json"):
    code = gabs_import.run(argparse.Namespace(file=str(home / file), write=write, json=False))
    return code, capsys.readouterr()


def test_the_games_are_shown_as_games_toml_takes_them(home, capsys):
    code, output = run(home, capsys)
    assert code == 0
    games = tomllib.loads(output.out)["games"]
    assert games["snake"] == {
        "name": 'Snake "II"',
        "description": "grows",
        "command": "/games/snake",
        "args": ["--fast", "a b"],
        "cwd": "/games",
        "env": {"LEVEL": "3"},
    }
    # Steam starts it: it is reached by what GABS writes down at every launch.
    assert games["rimworld"] == {"name": "RimWorld", "bridge_file": "~/.gabs/rimworld/bridge.json"}
    assert "Not taken over: profiles" in output.out
    assert set(parse(output.out.encode())) == {"snake", "rimworld"}
    assert not (home / "config").exists()


def test_games_of_gabs_are_added_once_and_known_ones_stay(home, capsys):
    target = home / "config" / "games.toml"
    target.parent.mkdir(mode=0o700)
    target.write_text('[games.snake]\ncommand = "mine"\n')
    assert run(home, capsys, write=True)[0] == 0
    games = parse(target.read_bytes())
    assert (games["snake"].command, set(games)) == ("mine", {"snake", "rimworld"})
    _, output = run(home, capsys, write=True)
    assert "has it already" in output.err
    assert target.read_text().count("[games.") == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"games": 7}', '{"games": {"a": 1, "a": 2'])
def test_what_is_not_the_file_of_gabs_is_refused(home, capsys, text):
    (home / "config.json").write_text(text)
    with pytest.raises(WrongUsage):
        run(home, capsys)
    with pytest.raises(WrongUsage, match="cannot be read"):
        run(home, capsys, file="nothing")


def test_odd_values_do_not_break_the_file(home, capsys):
    odd = {
        "games": {"A/B": 7, "": {}, "c": {"target": "x\x7f\n\"'", "args": "no", "env": [], "launchMode": "DirectPath"}}
    }
    (home / "config.json").write_text(json.dumps(odd))
    _, output = run(home, capsys)
    assert parse(output.out.encode())["c"].command == "x\x7f\n\"'"
