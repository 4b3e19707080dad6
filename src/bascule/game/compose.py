"""Puts the game bridge together."""

import os
from functools import partial

from bascule.daemon.ports import CONFIG_DIR
from bascule.foundation import paths
from bascule.foundation.backoff import Backoff
from bascule.game.games import Games
from bascule.game.life import Machine
from bascule.game.machine.bridge_file import BridgeJson
from bascule.game.machine.connector import LoopbackConnector
from bascule.game.machine.processes import GameLauncher
from bascule.game.machine.settings_file import TomlFile
from bascule.game.service import GameBridge
from bascule.game.settings import LiveSettings
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.halt import check_not_stopped
from gabp.bridge_file import bridge_file

# Beside the settings. Which games there are is the user's to say: never a workspace's.
GAMES_FILE = "games.toml"
# A game that loads takes seconds to listen; GABS tries as often.
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 1.0


def make_games(kernel: KernelServices, ports: Ports) -> Bridge:
    machine = Machine(
        connector=LoopbackConnector(),
        launcher=GameLauncher(kernel.emergency),
        bridge_file=BridgeJson(bridge_file(paths.home()), kernel.clock, kernel.log),
        clock=kernel.clock,
        log=kernel.log,
        delays=partial(Backoff, _FIRST_DELAY, _LONGEST_DELAY),
        read_token=paths.read_unreachable_file,
        publish=kernel.events.publish,
    )
    settings = LiveSettings(TomlFile(os.path.join(ports.need(CONFIG_DIR), GAMES_FILE)))
    games = Games(settings, machine, check_start=lambda: check_not_stopped(kernel.gate.halt))
    return GameBridge(games=games, store=kernel.store, clock=kernel.clock).bridge()
