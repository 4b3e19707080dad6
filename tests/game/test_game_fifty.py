"""Fifty games on one daemon, over all transports: all of them live, all of them served, none of them left."""

import os

import pytest
from arcade import arcade
from playground import is_alive
from wires import LinkWire

from patience import PATIENCE

GAMES = 50
# As many at a time as a small machine has a use for.
AT_ONCE = 4
TINY = """
from bascule_mod import Mod
mod = Mod("tiny")
mod.tool(lambda n: n, name="tiny/echo")
mod.serve()
"""


@pytest.mark.req("GAME-LIFE-11")
def test_fifty_games_on_one_daemon():
    names = [f"game{number}" for number in range(GAMES)]
    with arcade() as place:
        text = []
        for number, name in enumerate(names):
            place.list_mod(TINY, name, transport=("stdio", "tcp", "pipe")[number % 3])
            text.append(place.toml.read_text())
        place.toml.write_text("\n".join(text))
        with place.live() as daemon, LinkWire(daemon.link_socket, 4 * PATIENCE).hello() as wire:
            pids = []
            for first in range(0, GAMES, AT_ONCE):
                asked = [
                    wire.request("games.start", {"gameId": name, "waitMs": 60_000})
                    for name in names[first : first + AT_ONCE]
                ]
                pids += [wire.answer(number)["result"]["pid"] for number in asked]
            listed = wire.call("games.list")["games"]
            assert [each["state"] for each in listed] == ["live"] * GAMES
            calls = [
                (number, wire.request("games.call", {"gameId": name, "tool": "tiny/echo", "arguments": {"n": number}}))
                for _ in range(4)
                for number, name in enumerate(names)
            ]
            assert [wire.answer(id_)["result"]["result"] for _, id_ in calls] == [number for number, _ in calls]
            # One that is gone takes no other with it.
            wire.call("games.kill", {"gameId": names[0]})
            assert [each["state"] for each in wire.call("games.list")["games"]].count("live") == GAMES - 1
            assert all(map(is_alive, pids[1:]))
            # Its pipes or socket, its keeper, and the daemon's own.
            assert len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < 4 * GAMES + 100
            daemon.process.terminate()
            assert daemon.process.wait(PATIENCE) == 0
    assert not any(map(is_alive, pids))
