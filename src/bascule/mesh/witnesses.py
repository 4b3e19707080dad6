"""What other machines hold of our ledger: a cut end shows, even where the anchors beside it were cut as well."""

from bascule.foundation.deferred import Deferred
from bascule.foundation.timers import Timers
from bascule.mesh.engine import Engine
from bascule.mesh.protocol import Hello
from bascule.mesh.rows import PeerAnchor, PeerAnchors

# A node that is there answers within milliseconds.
WAIT_MS = 5_000


class Witnesses:
    """One question to every node that is reachable; answered when all have answered, or the time is over."""

    def __init__(self, engine: Engine, timers: Timers) -> None:
        self._engine = engine
        self._timers = timers
        self._open: list[_Asked] = []
        engine.on_hello.append(self._on_hello)

    def ask(self) -> Deferred[PeerAnchors]:
        nodes = list(self._engine.nodes.all())
        away = sorted(node.card.node for node in nodes if not self._engine.nodes.is_reachable(node))
        asked = _Asked({node.card.node for node in nodes} - set(away), away)
        self._open.append(asked)
        asked.add_done_callback(self._open.remove)
        if asked.missing:
            self._timers.after_ms(WAIT_MS, asked.finish)
        else:
            asked.finish(0.0)
        for name in list(asked.missing):
            self._engine.hello(name, answer=True)
        return asked

    def _on_hello(self, name: str, hello: Hello) -> None:
        for asked in list(self._open):
            asked.answered(name, hello)


class _Asked(Deferred[PeerAnchors]):
    def __init__(self, missing: set[str], away: list[str]) -> None:
        self.missing = missing
        self._away = away
        self._anchors: list[PeerAnchor] = []

    def answered(self, name: str, hello: Hello) -> None:
        if name not in self.missing:
            return
        self.missing.discard(name)
        held = [*hello.ends, hello.yours] if hello.yours is not None else hello.ends
        self._anchors += [PeerAnchor(node=name, seq=each.seq, head=each.head) for each in held]
        if not self.missing:
            self.finish(0.0)

    def finish(self, _now: float) -> None:
        if not self.done():
            self.set_result(PeerAnchors(anchors=self._anchors, silent=sorted({*self._away, *self.missing})))
