"""Puts the game bridge together: `compose`, for games."""

import os
from functools import partial

from bascule import places
from bascule.adapters.games.bridge_file import BridgeJson
from bascule.adapters.games.connector import LoopbackConnector
from bascule.adapters.games.processes import GameLauncher
from bascule.adapters.games.settings_file import TomlFile
from bascule.audit.ports import JournalStore, Log
from bascule.bridges.game.games import Games
from bascule.bridges.game.life import Machine
from bascule.bridges.game.service import GameBridge
from bascule.bridges.game.settings import LiveSettings
from bascule.clock import Clock
from bascule.transports.backoff import delays

# Beside the settings. Which games there are is the user's to say: never a workspace's.
GAMES_FILE = "games.toml"
# A game that loads takes seconds to listen; GABS tries as often.
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 1.0


def make_games(config_dir: str, store: JournalStore, clock: Clock, log: Log) -> GameBridge:
    machine = Machine(
        connector=LoopbackConnector(),
        launcher=GameLauncher(),
        bridge_file=BridgeJson(places.bridge_file(), clock, log),
        clock=clock,
        log=log,
        delays=partial(delays, _FIRST_DELAY, _LONGEST_DELAY),
        read_token=places.read_unreachable_file,
    )
    return GameBridge(
        games=Games(LiveSettings(TomlFile(os.path.join(config_dir, GAMES_FILE))), machine),
        store=store,
        clock=clock,
    )
