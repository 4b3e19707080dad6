"""The rules of Burrow, without a screen: dig for gems, keep away from bats, leave by the door.

A cave is a grid. The mole digs through earth (`:`), walks on open ground (` `), is stopped by rock (`#`). Bats (`b`)
fly along open ground and hurt. When every gem (`*`) is found the door (`E`) opens.
"""

import random
from collections import deque
from collections.abc import Iterator
from enum import StrEnum

WIDTH, HEIGHT = 24, 14
GEMS, BATS, LIVES = 6, 3, 3
# Of a bat, in game ticks: slower than a mole that hurries.
BAT_TICKS = 3

Spot = tuple[int, int]
STEPS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


class Tile(StrEnum):
    OPEN = " "
    EARTH = ":"
    ROCK = "#"
    GEM = "*"
    DOOR = "E"


class Cave:
    """`happened` collects what is worth telling; whoever shows the game empties it."""

    def __init__(self, level: int = 1, *, seed: int | None = None) -> None:
        self.level = level
        self.score = 0
        self.lives = LIVES
        self.won = False
        self.ticks = 0
        self.happened: list[tuple[str, dict[str, object]]] = []
        self._chance = random.Random(seed)
        self.mole: Spot = (1, 1)
        self.bats: dict[Spot, Spot] = {}
        self.tiles: dict[Spot, Tile] = {}
        while not self._fill():
            # Drawn again until everything can be reached.
            pass

    def _fill(self) -> bool:
        chance = self._chance
        inside = [(x, y) for x in range(1, WIDTH - 1) for y in range(1, HEIGHT - 1)]
        self.tiles = {(x, y): Tile.ROCK for x in range(WIDTH) for y in range(HEIGHT)}
        for spot in inside:
            self.tiles[spot] = chance.choices((Tile.EARTH, Tile.OPEN, Tile.ROCK), (6, 3, 2))[0]
        self.mole = (1, 1)
        self.tiles[self.mole] = Tile.OPEN
        special = chance.sample([spot for spot in inside if spot != self.mole], GEMS + 1)
        for spot in special[:-1]:
            self.tiles[spot] = Tile.GEM
        self.tiles[special[-1]] = Tile.DOOR
        far = [s for s in inside if self.tiles[s] is Tile.OPEN and abs(s[0] - 1) + abs(s[1] - 1) > 6]
        bats = min(BATS + self.level - 1, len(far))
        self.bats = {spot: chance.choice(list(STEPS.values())) for spot in chance.sample(far, bats)}
        return all(self.path(spot) for spot in special)

    # -- what there is --

    @property
    def over(self) -> bool:
        return self.won or self.lives <= 0

    def gems(self) -> list[Spot]:
        return [spot for spot, tile in self.tiles.items() if tile is Tile.GEM]

    def door(self) -> Spot:
        return next(spot for spot, tile in self.tiles.items() if tile is Tile.DOOR)

    def map(self) -> str:
        """As a person sees it: `@` is the mole."""
        rows: list[list[str]] = [[self.tiles[x, y] for x in range(WIDTH)] for y in range(HEIGHT)]
        for x, y in self.bats:
            rows[y][x] = "b"
        x, y = self.mole
        rows[y][x] = "@"
        return "\n".join("".join(row) for row in rows)

    def path(self, to: Spot) -> list[str]:
        """The shortest way there by open ground and earth; empty when there is none, or it is here."""
        came: dict[Spot, tuple[Spot, str]] = {}
        todo = deque([self.mole])
        while todo and to not in came:
            here = todo.popleft()
            for name, spot in _around(here):
                if spot not in came and spot != self.mole and self._leads_on(spot, to):
                    came[spot] = (here, name)
                    todo.append(spot)
        way: list[str] = []
        spot = to
        while spot in came:
            spot, name = came[spot]
            way.append(name)
        return way[::-1]

    def _leads_on(self, spot: Spot, to: Spot) -> bool:
        tile = self.tiles.get(spot, Tile.ROCK)
        # Behind the door there is no more cave.
        return tile is not Tile.ROCK and (tile is not Tile.DOOR or spot == to)

    # -- what happens --

    def move(self, direction: str) -> bool:
        """One step; False when something is in the way."""
        if self.over:
            return False
        step = STEPS[direction]
        spot = (self.mole[0] + step[0], self.mole[1] + step[1])
        tile = self.tiles.get(spot, Tile.ROCK)
        if tile is Tile.ROCK or (tile is Tile.DOOR and self.gems()):
            return False
        self.mole = spot
        if tile is Tile.GEM:
            self.score += 10
            self.tiles[spot] = Tile.OPEN
            self._publish("gem/found", at=spot, left=len(self.gems()), score=self.score)
        elif tile is Tile.DOOR:
            self.won = True
            self.score += 50
            self._publish("cave/left", score=self.score)
        else:
            self.tiles[spot] = Tile.OPEN
        self._meet()
        return True

    def tick(self) -> None:
        """Time passes: bats fly."""
        if self.over:
            return
        self.ticks += 1
        if self.ticks % BAT_TICKS == 0:
            self.bats = dict(self._flown(spot, step) for spot, step in self.bats.items())
            self._meet()

    def _flown(self, spot: Spot, step: Spot) -> tuple[Spot, Spot]:
        ahead = (spot[0] + step[0], spot[1] + step[1])
        if self.tiles.get(ahead) is Tile.OPEN:
            return ahead, step
        return spot, self._chance.choice(list(STEPS.values()))

    def _meet(self) -> None:
        if self.mole in self.bats and not self.over:
            self.lives -= 1
            self.mole = (1, 1)
            self._publish("mole/hurt", lives=self.lives)

    def _publish(self, channel: str, **payload: object) -> None:
        self.happened.append((channel, payload))


def _around(spot: Spot) -> Iterator[tuple[str, Spot]]:
    for name, (x, y) in STEPS.items():
        yield name, (spot[0] + x, spot[1] + y)
