"""The example games, played: by an agent over the bridge, by a person's keys, and headless."""

import asyncio
import base64
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playground import on_loop, playground

from bascule.game.settings import parse
from gabp import messages
from gabp.codec import decode
from gabp.errors import ErrorCode, GameError
from patience import PATIENCE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def burrow(monkeypatch):
    """The module, with no window anywhere."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    monkeypatch.syspath_prepend(str(EXAMPLES / "burrow"))
    return importlib.import_module("burrow")


def settings(**more: str) -> str:
    """As the documented command makes it: in a checkout whose Python has bascule."""
    (documented,) = re.findall(r"^\$ (sed .*) > ", (EXAMPLES.parent / "docs" / "games.md").read_text(), re.MULTILINE)
    command = documented.replace("$PWD/.venv/bin/python", sys.executable)
    made = subprocess.run(["sh", "-c", command], cwd=EXAMPLES.parent, capture_output=True, text=True, check=True)
    text = made.stdout
    for key, value in more.items():
        assert key in text
        text = text.replace(key, value)
    return text


def test_the_example_settings_are_good():
    assert parse((EXAMPLES / "games.toml").read_bytes()).keys() == {"burrow", "guess"}


# -- guess ------------------------------------------------------------------------------------------


def test_the_terminal_game_has_ten_lines_of_code():
    lines = [line for line in (EXAMPLES / "guess" / "guess.py").read_text().splitlines() if line.strip()]
    assert len(lines) - 1 <= 10, "the docstring at the top is not counted"


@pytest.mark.req("GAME-SDK-7")
@on_loop
async def test_an_agent_wins_the_terminal_game(tmp_path):
    async with playground(tmp_path) as ground:
        ground.toml.write_text(settings())
        assert (await ground.games.start("guess")).state == "live"
        guess = ground.games.find("guess")
        low, high = 1, 100
        for _ in range(7):
            middle = (low + high) // 2
            answer = decode(await guess.call_tool("me", "guess/number", {"is_it": middle}))
            if answer == "correct":
                break
            low, high = (middle + 1, high) if answer == "higher" else (low, middle - 1)
        assert answer == "correct"


def test_a_person_wins_the_terminal_game():
    done = subprocess.run(
        [sys.executable, EXAMPLES / "guess" / "guess.py"],
        input="".join(f"{number}\n" for number in range(1, 101)),
        env={key: value for key, value in os.environ.items() if not key.startswith("GABP")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "correct" in done.stdout
    assert "EOFError" in done.stderr


# -- burrow -----------------------------------------------------------------------------------------


@pytest.mark.req("GAME-SDK-7")
@on_loop
async def test_an_agent_plays_burrow_to_the_end(tmp_path):
    async with playground(tmp_path) as ground:
        ground.toml.write_text(
            settings(
                **{'["burrow.py"]': '["burrow.py", "--seed", "5", "--fps", "1000"]\nenv = {SDL_VIDEODRIVER="dummy"}'}
            )
        )
        status = await ground.games.start("burrow")
        assert status.state == "live", status.problem
        burrow = ground.games.find("burrow")
        assert await burrow.subscribe("me", ["gem/found", "cave/left", "mole/hurt"]) == []

        async def call(tool: str, **arguments: object) -> dict:
            async with asyncio.timeout(PATIENCE):
                return decode(await burrow.call_tool("me", f"burrow/{tool}", arguments))

        view = await call("look")
        assert view["map"].count("*") == len(view["gems"]) == 6
        # Two lives may be lost on the way; a bat's flight is chance.
        for _ in range(40):
            if view["won"]:
                break
            targets = view["gems"] or [view["door"]]
            mole = view["mole"]
            near = min(targets, key=lambda spot: abs(spot[0] - mole[0]) + abs(spot[1] - mole[1]))
            try:
                view = await call("walk_to", x=near[0], y=near[1])
            except GameError as error:
                if error.data and error.data.get("status") == "blocked_by_attention":
                    view = await call("restart")
                else:
                    view = await call("look")
        assert view["won"]
        found = burrow.events.page(0, ("gem/found", "cave/left"), 100).events
        assert found[-1].channel == "cave/left"
        assert len(found) >= 7
        picture = await burrow.read_resource("me", "gabp://game/screenshot")
        assert base64.b64decode(picture.content).startswith(b"\x89PNG")
        text = await burrow.read_resource("me", "gabp://game/map")
        assert "@" in text.content
        state = await burrow.get_state("me", messages.StateGetParams())
        assert state.state["score"] >= 110
        with pytest.raises(GameError) as caught:
            await call("move", direction="north")
        assert caught.value.code == ErrorCode.INVALID_PARAMS


def test_a_person_plays_burrow_with_the_arrow_keys(burrow):
    import pygame

    game = burrow.Burrow(seed=5)
    pygame.display.init()
    surface = pygame.display.set_mode((200, 200))
    # Where a way leads first; then by the keys that a person would press.
    way = game.cave.path(game.cave.gems()[0])
    keys = {name: key for key, name in burrow.KEYS.items()}
    game.cave.bats.clear()
    for step in way:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=keys[step]))
    game.frame(surface)
    assert game.cave.score >= 10
    assert len(game.cave.gems()) < 6
    pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))
    game.frame(surface)
    assert not game.running
    pygame.quit()


@pytest.mark.req("GAME-SDK-6")
def test_the_game_runs_alone_without_any_bridge(burrow, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    game = burrow.Burrow(seed=1)
    game.run(max_frames=3)
    assert game.frames == 3
    assert game.mod.bridges == 0


def test_when_no_life_is_left_moves_are_held_back_until_the_restart(burrow):
    game = burrow.Burrow(seed=1)
    for _ in range(3):
        game.cave.mole = next(iter(game.cave.bats))
        game.cave._meet()
    game._report_state()
    assert game.mod.attention.blocking.summary.startswith("the mole has no life left")
    game.restart()
    assert game.mod.attention.current is None
    assert game.cave.lives == 3


@pytest.mark.parametrize("seed", range(10))
def test_every_cave_can_be_won(burrow, seed):
    cave = importlib.import_module("cave").Cave(level=1 + seed % 9, seed=seed)
    cave.bats.clear()
    while cave.gems():
        for step in cave.path(cave.gems()[0]):
            assert cave.move(step)
    for step in cave.path(cave.door()):
        assert cave.move(step)
    assert cave.won


def test_the_game_in_the_documentation_is_the_one_that_runs():
    code = (EXAMPLES / "guess" / "guess.py").read_text().partition('"""\n\n')[2]
    page = (EXAMPLES.parent / "docs" / "mods.md").read_text()
    assert f"```python\n{code}```" in page
