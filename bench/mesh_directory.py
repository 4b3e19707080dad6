"""The directory of a large mesh in a process of its own: prints what it costs as JSON.

python bench/mesh_directory.py 1000
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from bascule.foundation.clock import SystemClock
from bascule.kernel.journal import Transaction
from bascule.mesh.cards import DAY_MS, Card, Keys, sign_card, sign_directory
from bascule.mesh.identity import Identity
from bascule.mesh.nodes import Nodes
from bascule.mesh.ports import Board
from bascule.mesh.protocol import Anchor, LifeSign, ListedAgent, Listing
from bascule.mesh.roster import Roster
from bascule.stores.memory import MemoryStore
from processes import environment, memory_bytes

COUNTS = (100, 1_000)
QUICK_COUNTS = (10, 50)
AGENTS = 10
RUN_SECONDS = 120.0
# Found so often, at agents of nodes all over the mesh; the fastest of some repetitions counts.
_FINDS = 500
# Heard of first, in a directory of their own: they fill what making all those keys left free, which would else be what
# the first nodes that count live in.
_WARM_UP = 300
_REPEATS = 5
_MESH = "home"
_OWNER = "me"
_GROUP = "reviewers"

# Microseconds, or bytes for labels that begin with `memory`.
Costs = dict[str, float]


class Other:
    """Another node: what it has on the boards."""

    def __init__(self, number: int, mesh: Keys, clock: SystemClock) -> None:
        self.name = f"node-{number}"
        self.keys = Keys.new()
        sign, box, bus = self.keys.public
        card = Card(
            mesh=_MESH,
            node=self.name,
            sign=sign,
            box=box,
            bus=bus,
            owner=_OWNER,
            owner_name=_OWNER,
            not_after=clock.wall_ms() + 90 * DAY_MS,
        )
        self.card = sign_card(mesh.sign, card)
        agents = [
            # One member of the group in the whole mesh, at the node that is asked last.
            ListedAgent(handle=f"Jerry-{number}-{each}", groups=[_GROUP] if number == each == 0 else [])
            for each in range(AGENTS)
        ]
        self.listing = sign_directory(self.keys.sign, self.name, Listing(agents=agents))
        self.sign = self.make_sign(clock.wall_ms())

    def make_sign(self, started: int) -> bytes:
        sign = LifeSign(life=f"lif_{self.name}", began=Anchor(7, "ab" * 32), started=started, version="1.0")
        return sign_directory(self.keys.sign, self.name, sign)


def measure(count: int) -> Costs:
    clock = SystemClock()
    mesh = Keys.new()
    others = [Other(number, mesh, clock) for number in reversed(range(count))]
    newer = [each.make_sign(clock.wall_ms() + 1) for each in others]
    warm_up = _directory(mesh, clock)
    for number in range(_WARM_UP):
        _receive(*warm_up, Other(number, mesh, clock))
    roster, nodes = _directory(mesh, clock)
    gc.collect()
    before = memory_bytes(os.getpid()) or 0

    def each_other(what: Callable[[Other], object]) -> float:
        began = time.process_time()
        for other in others:
            what(other)
        return (time.process_time() - began) / count * 1e6

    costs = {
        "a card comes, with the keys that follow from it": each_other(lambda each: _learn(roster, nodes, each)),
        "a node's first sign of life": each_other(lambda each: nodes.posted(Board.LIVE, each.name, each.sign, 0)),
        "a list of ten agents": each_other(lambda each: nodes.posted(Board.DIRECTORY, each.name, each.listing, 0)),
    }
    gc.collect()
    memory = ((memory_bytes(os.getpid()) or 0) - before) / count
    costs["a sign of life again"] = min(
        each_other(lambda each: nodes.posted(Board.LIVE, each.name, each.sign, 0)) for _ in range(_REPEATS)
    )
    fresh = dict(zip((each.name for each in others), newer, strict=True))
    costs["a sign of a new life"] = each_other(lambda each: nodes.posted(Board.LIVE, each.name, fresh[each.name], 0))
    for label, target in (
        ("found: `Jerry-7-3@node-7`", "Jerry-{0}-{1}@node-{0}"),
        ("found: `Jerry-7-3`", "Jerry-{0}-{1}"),
        ("found: `reviewers@any`", f"{_GROUP}@any"),
        ("nobody has that name", "Nobody-{0}-{1}"),
    ):
        costs[label] = _finding(nodes, target, count)
    costs["all agents listed, per agent"] = _listing(nodes, count)
    return {**costs, "memory per node": memory}


def _directory(mesh: Keys, clock: SystemClock) -> tuple[Roster, Nodes]:
    key = mesh.public[0]
    roster = Roster(MemoryStore(), clock, lambda: (_MESH, key))
    return roster, Nodes(Identity("here", _OWNER, Keys.new()), roster, clock)


def _learn(roster: Roster, nodes: Nodes, other: Other) -> None:
    roster.learn(Transaction(), other.name, other.card)
    nodes.get(other.name)


def _receive(roster: Roster, nodes: Nodes, other: Other) -> None:
    _learn(roster, nodes, other)
    nodes.posted(Board.LIVE, other.name, other.sign, 0)
    nodes.posted(Board.DIRECTORY, other.name, other.listing, 0)


def _finding(nodes: Nodes, target: str, count: int) -> float:
    targets = [target.format(number * 7 % count, number % AGENTS) for number in range(_FINDS)]
    assert (nodes.find(targets[0]) is None) == ("Nobody" in target)

    def once() -> float:
        began = time.process_time()
        for each in targets:
            nodes.find(each)
        return time.process_time() - began

    return min(once() for _ in range(_REPEATS)) / _FINDS * 1e6


def _listing(nodes: Nodes, count: int) -> float:
    def once() -> float:
        began = time.process_time()
        listed = sum(1 for _ in nodes.agents())
        assert listed == count * AGENTS
        return (time.process_time() - began) / listed

    return min(once() for _ in range(_REPEATS)) * 1e6


def measured_apart(count: int) -> Costs:
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), str(count)],
        env=environment(),
        capture_output=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the directory of {count} nodes: {done.stderr.decode(errors='replace').strip()}")
    costs: Costs = json.loads(done.stdout)
    return costs


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
