"""`games.toml`: what it may say, what it may not, and edits while games run."""

import re

import pytest
from playground import on_loop, playground

from bascule.game.machine.settings_file import TomlFile
from bascule.game.settings import BadSettings, LiveSettings, parse


@pytest.mark.req("GAME-LIFE-1")
@on_loop
async def test_the_file_is_read_again_when_it_changes_and_a_broken_edit_changes_nothing(tmp_path):
    async with playground(tmp_path) as ground:
        assert ground.games.list() == []
        ground.write("one")
        assert [each.game_id for each in ground.games.list()] == ["one"]
        ground.write("one", "two")
        assert [each.game_id for each in ground.games.list()] == ["one", "two"]
        ground.toml.write_text("[games.one\n")
        assert [each.game_id for each in ground.games.list()] == ["one", "two"]
        assert "games.toml is not valid TOML" in ground.games.settings_problem
        ground.write("two")
        await ground.games.start("two")
        ground.toml.write_text("")
        # It runs, so it can still be stopped.
        assert [each.game_id for each in ground.games.list()] == ["two"]
        await ground.games.stop("two")
        assert ground.games.list() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[games.X]\ncommand='x'", "an id has 1 to 64"),
        ("[games.x]\ncommand=''", "`command` is empty"),
        ("[games.x]\ncommand='x'\ncomand='y'", "games.x: unknown field `comand`; there are: name, "),
        ("[games.x]\ncommand='x'\nenv={GABP_TOKEN='x'}", "`env.GABP_TOKEN` is set by Bascule"),
        ("[games.x]\ncommand='x'\nenv={'a=b'='x'}", "is not a valid name of an environment variable"),
        ("[games.x]\ncommand='x'\ntransport='udp'", "transport"),
        ("[games.x]\ncommand='x'\nstartup_timeout=0", "startup_timeout"),
        ("[games.x]\ncommand='x'\nstartup_timeout='1'", "startup_timeout"),
        ("[games.x]\ntransport='stdio'", "cannot be reached over stdio"),
        ("[games.x]\ncommand='x'\ntransport='stdio'\ndiscovery='file'", "cannot be found by file"),
        ("[games.x]\ncommand='x'\ntransport='stdio'\nterminal=true", "cannot have a `terminal`"),
        ("[games.x]\naddress='99999'\ntoken_file='x'", "must be a port"),
        ("[games.x]\naddress='80'", "needs `token_file`"),
        ("[games.x]\ntransport='pipe'\naddress='x'\ntoken_file='x'", "absolute path"),
        ("[games.x]\ncommand='x'\naddress='80'", "for games without a `command`"),
        ('[games.x]\ncommand="a\\u0000b"', "NUL"),
        ("[game.x]\ncommand='x'", "unknown field `game`"),
        ("games = 5", "games"),
        ("\x00", "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_a_setting_that_cannot_be_is_named(text, words):
    with pytest.raises(BadSettings, match=re.escape(words)):
        parse(text.encode())


def test_the_smallest_settings_are_a_command():
    (settings,) = parse(b"[games.x]\ncommand = 'x'\n").values()
    assert (settings.transport, settings.mode, settings.startup_timeout) == ("tcp", "compat", 60)


def test_a_games_toml_that_cannot_be_read_leaves_the_last_good_one_in_force(tmp_path):
    file = tmp_path / "games.toml"
    file.write_text("[games.chess]\ncommand = 'x'\n")
    settings = LiveSettings(TomlFile(str(file)))
    assert list(settings.games()) == ["chess"]
    file.unlink()
    file.mkdir()
    assert list(settings.games()) == ["chess"]
    assert settings.problem == "games.toml cannot be read: Is a directory"
    file.rmdir()
    file.write_text("[games.go]\ncommand = 'x'\n")
    assert list(settings.games()) == ["go"]
    assert settings.problem is None
