"""Stand-ins for what the house meets outside: token files, connections, the anchors file, the quota, evidence."""

from collections.abc import Callable, Sequence

from bascule.desktop.ports import EvidenceGone, Execution, Shown
from bascule.kernel.call import Principal
from bascule.kernel.ledger import Anchor
from bascule.testing.clock import FakeClock


class FakeTokenFiles:
    """`tokens/<handle>.token` as a dict."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self._prepared: dict[str, str] = {}

    def prepare(self, agent_id: str, token: str) -> None:
        self._prepared[token] = agent_id

    def publish(self, agent_id: str, token: str) -> None:
        self._prepared.pop(token, None)
        self.tokens[agent_id] = token

    def settle(self, find: Callable[[str], str | None]) -> None:
        for token, agent_id in list(self._prepared.items()):
            del self._prepared[token]
            if find(token) == agent_id:
                self.tokens[agent_id] = token

    def remove(self, agent_id: str) -> None:
        self.tokens.pop(agent_id, None)


class FakeConnection:
    """A link connection that acts as an agent, or that a person unlocks."""

    peer = "pid 1 uid 1000"

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._unlocked_until = 0.0
        self.dropped = False

    def unlock(self, seconds: float) -> None:
        self._unlocked_until = self._clock.monotonic() + seconds

    def unlocked_for(self) -> float | None:
        left = self._unlocked_until - self._clock.monotonic()
        return left if left > 0 else None


class FakeConnections:
    def __init__(self) -> None:
        self.by_agent: dict[str, list[FakeConnection]] = {}

    def others(self, agent_id: str, connection: object | None) -> int:
        return sum(1 for each in self.by_agent.get(agent_id, ()) if each is not connection)

    def reserve(self, agent_id: str, connection: object | None) -> None:
        """Fake connections are told by `connect` who they are."""

    def drop(self, agent_id: str) -> None:
        for connection in self.by_agent.pop(agent_id, ()):
            connection.dropped = True


class MemoryAnchors:
    """The anchors file as a list."""

    def __init__(self) -> None:
        self.anchors: list[Anchor] = []

    def read(self) -> tuple[list[Anchor], list[str]]:
        return list(self.anchors), []


class FakePolicyFile:
    """`policy.toml` as a string, or None."""

    path = "policy.toml"

    def __init__(self) -> None:
        self.text: str | None = None

    def read(self) -> str | None:
        return self.text


class NoQuota:
    """Everybody may call as often as a test likes."""

    def take(self, principal: Principal) -> None:
        """Never refuses."""


class NoEvidence:
    """A machine on which the desktop host left nothing."""

    def newest(self, _workspaces: Sequence[str], _before: str | None, _limit: int, /) -> list[Execution]:
        return []

    def show(self, _workspaces: Sequence[str], execution_id: str, /) -> Shown:
        raise EvidenceGone(execution_id)

    def picture(self, _workspaces: Sequence[str], _execution_id: str, name: str, /) -> bytes:
        raise EvidenceGone(name)
