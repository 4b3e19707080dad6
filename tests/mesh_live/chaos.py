"""What can go wrong in a fleet, at random, each put right again; nodes and servers independently of each other."""

import random
import time

from fleet import Fleet, Proxies

# Of a daemon: each offer is another ticket, so what comes again is done again.
NO_DEDUP = """
import os
import bascule.mesh.copies as copies
copies.Copies.id_of = lambda self, node, ticket: "msh_" + os.urandom(8).hex()
"""

# A daemon asks a server of which it hears nothing every 10 s whether it is there, and gives it up after 20 to 30 s.
UNTIL_NOTICED = 40.0
# Of all freezes of a server.
LONG_FREEZES = 0.15


class Chaos:
    def __init__(self, ships: Fleet, proxies: Proxies, *, long_freezes: bool = False) -> None:
        self._long_freezes = long_freezes
        self._ships = ships
        self._proxies = proxies
        self._began = time.monotonic()
        self.log: list[str] = []
        self.failed: list[str] = []

    def go_on(self, kind: str, chances: random.Random, end: float) -> None:
        """One thing after the other until then, with pauses before and in between."""
        act = self._to_node if kind == "nodes" else self._to_server
        try:
            while time.monotonic() < end:
                time.sleep(chances.random())
                act(chances, chances.choice([0.0, 0.5, 1.5, 3.0]))
        except Exception as error:  # noqa: BLE001 - it is shown by whoever waits for the end
            self.failed.append(f"{kind}: {type(error).__name__}: {error}")

    def _note(self, what: str, pause: float) -> None:
        self.log.append(f"{time.monotonic() - self._began:7.2f} s: {what}, for {pause:g} s")

    def _to_node(self, chances: random.Random, pause: float) -> None:
        node = chances.choice(self._ships.nodes)
        what = chances.choice(["is killed", "is killed", "is frozen", "is cut off from NATS"])
        self._note(f"{node.name} {what}", pause)
        match what:
            case "is killed":
                node.kill()
                time.sleep(pause)
                node.start()
            case "is frozen":
                node.freeze()
                time.sleep(pause)
                node.thaw()
            case _:
                self._proxies.cut(node.name)
                time.sleep(pause)
                self._proxies.heal(node.name)

    def _frozen_for(self, chances: random.Random, pause: float) -> float:
        """Mostly less than it takes to notice: then what was under way comes all at once. In a run that is long enough
        now and then more, so that daemons go to another server."""
        return UNTIL_NOTICED if self._long_freezes and chances.random() < LONG_FREEZES else 2 * pause

    def _to_server(self, chances: random.Random, pause: float) -> None:
        index = chances.randrange(len(self._ships.servers))
        server = self._ships.servers[index]
        what = chances.choice(["is killed", "is frozen", "is wiped", "and all others are wiped", "is cut off"])
        self._note(f"server {index} {what}", pause)
        match what:
            case "is killed" | "is wiped":
                server.kill()
                if what == "is wiped":
                    server.wipe()
                time.sleep(pause)
                server.start()
            case "is frozen":
                server.freeze()
                time.sleep(self._frozen_for(chances, pause))
                server.thaw()
            case "is cut off":
                self._ships.routes.cut(index)
                time.sleep(pause)
                self._ships.routes.heal(index)
            case _:
                self._ships.wipe()
