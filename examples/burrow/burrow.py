"""Burrow: a small pygame game that a person plays with the arrow keys and an agent with tools, both at once.

    python burrow.py            a window, for people
    SDL_VIDEODRIVER=dummy ...   no window, for agents and tests

Everything an agent calls runs in `mod.poll`, between two frames, on the thread that draws them.
"""

import argparse
import io
from collections.abc import Generator
from typing import Annotated, Literal

import msgspec
import pygame
from cave import HEIGHT, WIDTH, Cave, Spot, Tile

from bascule_mod import Context, Mod, ToolError

CELL = 24
FRAMES_PER_SECOND = 60
# The world moves ten times a second, whatever the frame rate is.
FRAMES_PER_TICK = 6
COLOURS = {
    Tile.OPEN: "#1d1a16",
    Tile.EARTH: "#6b4a2b",
    Tile.ROCK: "#4a4a52",
    Tile.GEM: "#1d1a16",
    Tile.DOOR: "#2f5d3a",
}
KEYS = {pygame.K_UP: "up", pygame.K_DOWN: "down", pygame.K_LEFT: "left", pygame.K_RIGHT: "right"}

Direction = Literal["up", "down", "left", "right"]
X = Annotated[int, msgspec.Meta(ge=0, lt=WIDTH)]
Y = Annotated[int, msgspec.Meta(ge=0, lt=HEIGHT)]


class View(msgspec.Struct):
    """What an agent needs to decide."""

    mole: Spot
    gems: list[Spot]
    door: Spot
    door_open: bool
    bats: list[Spot]
    score: int
    lives: int
    level: int
    won: bool
    map: str


class Burrow:
    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed
        self.cave = Cave(seed=seed)
        self.running = True
        self.mod = Mod("burrow", version="1.0")
        self.frames = 0
        self._offer()

    # -- for agents --

    def _offer(self) -> None:
        mod = self.mod
        mod.tool(self.look, read_only=True)
        mod.tool(self.move)
        mod.tool(self.walk_to)
        mod.tool(self.wait_for_bats, tags=("observation",))
        mod.tool(self.restart, destructive=True, tags=("lifecycle",))
        for channel in ("gem/found", "mole/hurt", "cave/left"):
            mod.channel(channel)
        mod.resource("gabp://game/map", mime_type="text/plain", description="The cave as text")(self.map)
        mod.resource("gabp://game/screenshot", mime_type="image/png", description="What a person sees")(self.screenshot)
        mod.state("score")(lambda: self.cave.score)
        mod.state("lives")(lambda: self.cave.lives)
        mod.state("level")(lambda: self.cave.level).setter(self._set_level)

    def _set_level(self, value: Annotated[int, msgspec.Meta(ge=1, le=9)]) -> None:
        self.cave = Cave(value, seed=self.seed)

    def look(self) -> View:
        """See the cave: where the mole, the gems, the bats and the door are."""
        cave = self.cave
        gems = cave.gems()
        return View(
            mole=cave.mole,
            gems=gems,
            door=cave.door(),
            door_open=not gems,
            bats=list(cave.bats),
            score=cave.score,
            lives=cave.lives,
            level=cave.level,
            won=cave.won,
            map=cave.map(),
        )

    def move(self, direction: Direction, steps: Annotated[int, msgspec.Meta(ge=1, le=30)] = 1) -> View:
        """Dig or walk in one direction.

        Args:
            direction: where to
            steps: how far; it ends at the first rock
        """
        for step in range(steps):
            if not self.cave.move(direction):
                if step == 0:
                    raise ToolError(f"something is in the way {direction}", {"mole": self.cave.mole})
                break
        return self.look()

    def walk_to(self, x: X, y: Y, context: Context) -> Generator[None, None, View]:
        """Walk to a spot by the shortest way, one step per tick of the game; bats go on flying meanwhile."""
        total = len(self.cave.path((x, y)))
        lives = self.cave.lives
        if not total and self.cave.mole != (x, y):
            raise ToolError("there is no way there", {"mole": self.cave.mole})
        while self.cave.mole != (x, y) and not self.cave.over:
            way = self.cave.path((x, y))
            if not way or not self.cave.move(way[0]):
                raise ToolError("the way is closed", {"mole": self.cave.mole})
            if self.cave.lives < lives:
                raise ToolError("a bat hurt the mole on the way", {"lives": self.cave.lives})
            context.progress(total - len(way) + 1, total)
            yield from self._until_tick()
        return self.look()

    def wait_for_bats(self, ticks: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3) -> Generator[None, None, View]:
        """Let time pass, a tenth of a second per tick."""
        for _ in range(ticks):
            yield from self._until_tick()
        return self.look()

    def restart(self, level: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1) -> View:
        """Begin anew; what was played is lost."""
        self.cave = Cave(level, seed=self.seed)
        for item in iter(lambda: self.mod.attention.current, None):
            self.mod.attention.clear(item.attention_id)
        return self.look()

    def _until_tick(self) -> Generator[None, None, None]:
        now = self.frames // FRAMES_PER_TICK
        while self.frames // FRAMES_PER_TICK == now:
            yield

    def map(self) -> str:
        return self.cave.map()

    def screenshot(self) -> bytes:
        data = io.BytesIO()
        pygame.image.save(pygame.display.get_surface(), data, "burrow.png")
        return data.getvalue()

    def _report_state(self) -> None:
        happened, self.cave.happened = self.cave.happened, []
        for channel, payload in happened:
            self.mod.emit(channel, payload)
            if channel == "mole/hurt" and not payload["lives"]:
                self.mod.attention.open(
                    "the mole has no life left; call burrow/restart", severity="error", blocking=True
                )

    # -- for people --

    def key(self, key: int) -> None:
        if key in KEYS:
            self.cave.move(KEYS[key])
        elif key == pygame.K_r:
            self.restart()
        elif key == pygame.K_ESCAPE:
            self.running = False

    def draw(self, surface: pygame.Surface) -> None:
        for (x, y), tile in self.cave.tiles.items():
            pygame.draw.rect(surface, COLOURS[tile], (x * CELL, y * CELL, CELL - 1, CELL - 1))
            if tile is Tile.GEM:
                pygame.draw.circle(surface, "#46c8e0", _centre((x, y)), CELL // 4)
        for bat in self.cave.bats:
            pygame.draw.circle(surface, "#b04a8c", _centre(bat), CELL // 3)
        pygame.draw.circle(surface, "#e8d27a", _centre(self.cave.mole), CELL // 3)

    def frame(self, surface: pygame.Surface) -> None:
        for event in pygame.event.get():
            if event.type == pygame.QUIT:
                self.running = False
            elif event.type == pygame.KEYDOWN:
                self.key(event.key)
        self.frames += 1
        if self.frames % FRAMES_PER_TICK == 0:
            self.cave.tick()
        self.mod.poll(budget_ms=2)
        self._report_state()
        self.draw(surface)
        cave = self.cave
        pygame.display.set_caption(f"Burrow   score {cave.score}   lives {cave.lives}   gems {len(cave.gems())}")
        pygame.display.flip()

    def run(self, max_frames: int | None = None, fps: int = FRAMES_PER_SECOND) -> None:
        pygame.display.init()
        surface = pygame.display.set_mode((WIDTH * CELL, HEIGHT * CELL))
        clock = pygame.time.Clock()
        with self.mod.running():
            while self.running and (max_frames is None or self.frames < max_frames):
                self.frame(surface)
                clock.tick(fps)
        pygame.quit()


def _centre(spot: Spot) -> tuple[int, int]:
    return spot[0] * CELL + CELL // 2, spot[1] * CELL + CELL // 2


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Dig for gems, keep away from bats, leave by the door.")
    options.add_argument("--seed", type=int, help="the same cave every time")
    options.add_argument("--fps", type=int, default=FRAMES_PER_SECOND, help="more is faster, for agents in a hurry")
    chosen = options.parse_args()
    Burrow(chosen.seed).run(fps=chosen.fps)
