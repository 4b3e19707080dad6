"""The other nodes: whose cards are good, who is alive, which agents each has."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from bascule.foundation.clock import Clock
from bascule.foundation.errors import NotFound, Unavailable
from bascule.kernel.ports import RemoteAgent
from bascule.mesh.cards import BadCard, Card, is_box_key, read_directory
from bascule.mesh.envelope import Pair
from bascule.mesh.identity import Identity
from bascule.mesh.ports import MAX_VALUE_BYTES, Board
from bascule.mesh.protocol import LIFE_SIGN, LISTING, LifeSign, ListedAgent

# How often a node says that it is alive, and how long it counts as reachable after that: three missed ones.
LIFE_SIGN_SECONDS = 30.0
REACHABLE_SECONDS = 90.0
# Behind an `@`: whichever node has a free member.
ANY = "any"
# Values that may come before their cards: a mesh's worth, and as much as the boards hold.
MAX_EARLY = 10_000
MAX_EARLY_BYTES = 32 * 1024 * 1024
# A sentence that lists names stays a sentence.
_NAMED = 10


class Node:
    """What this life of the daemon knows of another node."""

    def __init__(self, card: Card, pair: Pair, *, own: bool) -> None:
        self.card = card
        self.pair = pair
        # Its owner is ours.
        self.own = own
        # Monotonic; in the past while nothing was heard.
        self.reachable_until = float("-inf")
        self.seen_wall = 0
        self.life_sign: LifeSign | None = None
        # As it was read; the next one is mostly the same, and its signature was checked then.
        self.life_sign_data = b""
        self.agents: dict[str, ListedAgent] = {}


class Cards(Protocol):
    """The cards of the mesh, kept over restarts."""

    def card(self, node: str) -> Card | None:
        """None when there is none that counts now: unknown, revoked, over."""

    def all(self) -> Iterable[Card]:
        """Also those that do not count."""

    def revocations(self) -> tuple[int, bytes]:
        """The newest list of revoked cards: its number, and as it was signed. 0: there is none."""


class Nodes:
    def __init__(self, identity: Identity, cards: Cards, clock: Clock) -> None:
        self._identity = identity
        self._cards = cards
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        # By handle and by group: names of nodes that list it. Most are of one node, so a tuple is small enough.
        self._having: dict[str, tuple[str, ...]] = {}
        self._with_group: dict[str, tuple[str, ...]] = {}
        # What came before the card that it is checked with.
        self._early: dict[tuple[Board, str], tuple[bytes, int]] = {}
        self._early_bytes = 0
        # Called with a node that is reachable again, or that began a new life, or says that its life began later.
        self.on_alive: Callable[[Node], None] = lambda _node: None
        # Whether somebody of a group of this machine is free.
        self.has_free_member: Callable[[str], bool] = lambda _group: False
        # Called when a sign of life with our own name came.
        self.on_ourselves: Callable[[LifeSign], None] = lambda _sign: None
        # Called when another daemon with our keys has stopped, with the life because of which it did.
        self.on_twin_stopped: Callable[[str], None] = lambda _life: None

    def get(self, name: str) -> Node | None:
        card = self._cards.card(name)
        if card is None or name == self._identity.node:
            return None
        node = self._nodes.get(name)
        if node is None or node.card.sign != card.sign:
            if not is_box_key(card.box):
                return None
            if node is not None:
                self._list(node, {})
            node = self._nodes[name] = Node(
                card, self._identity.pair_with(card), own=card.owner == self._identity.owner
            )
        return node

    def last_key(self, name: str) -> str:
        """The key that its letters were last checked with: its card may have ended since one was opened."""
        node = self._nodes.get(name) or self.get(name)
        if node is None:
            raise Unavailable(f"{name} has no card that counts", hint="`bascule node list` shows who has")
        return node.card.sign

    def all(self) -> Iterator[Node]:
        """Those whose cards count."""
        for card in list(self._cards.all()):
            node = self.get(card.node)
            if node is not None:
                yield node

    def card_changed(self, name: str) -> None:
        """A card came: what was said before it can be checked now."""
        for board in (Board.LIVE, Board.DIRECTORY):
            early = self._take_early(board, name)
            if early is not None:
                self.posted(board, name, *early)

    def is_reachable(self, node: Node) -> bool:
        return self._clock.monotonic() < node.reachable_until

    # -- from the boards --

    def posted(self, board: Board, key: str, value: bytes | None, age_ms: int) -> None:
        """Everything here was written by somebody; nothing counts that its signature does not fit."""
        if value is not None and len(value) > MAX_VALUE_BYTES[board]:
            return
        try:
            if key == self._identity.node:
                if value is not None:
                    self._see_ourselves(board, value)
            elif (node := self.get(key)) is None:
                self._take_early(board, key)
                if value is not None:
                    self._keep_early(board, key, value, age_ms)
            elif board is Board.LIVE:
                self._live(node, value, age_ms)
            else:
                self._listed(node, value)
        except BadCard:
            # Somebody writes under another's key, or an older version did. Nothing follows from it.
            return

    def _keep_early(self, board: Board, key: str, value: bytes, age_ms: int) -> None:
        if len(self._early) < MAX_EARLY and self._early_bytes + len(value) <= MAX_EARLY_BYTES:
            self._early[board, key] = (value, age_ms)
            self._early_bytes += len(value)

    def _take_early(self, board: Board, key: str) -> tuple[bytes, int] | None:
        early = self._early.pop((board, key), None)
        self._early_bytes -= len(early[0]) if early is not None else 0
        return early

    def _live(self, node: Node, value: bytes | None, age_ms: int) -> None:
        if value is None:
            # It said good-bye, or its last sign is too old.
            node.reachable_until = float("-inf")
            return
        known = node.life_sign if value == node.life_sign_data else None
        sign = known or read_directory(node.card.sign, node.card.node, value, LIFE_SIGN)
        before = node.life_sign
        is_same = before is not None and (before.life, before.started) == (sign.life, sign.started)
        was = self.is_reachable(node) and is_same
        node.life_sign, node.life_sign_data = sign, value
        node.seen_wall = self._clock.wall_ms() - age_ms
        node.reachable_until = self._clock.monotonic() + REACHABLE_SECONDS - age_ms / 1000
        if not was and self.is_reachable(node):
            self.on_alive(node)

    def note_letter(self, node: Node) -> None:
        """A letter of it came directly: it is there."""
        now = self._clock.monotonic()
        was = now < node.reachable_until
        node.reachable_until = now + REACHABLE_SECONDS
        node.seen_wall = self._clock.wall_ms()
        if not was:
            self.on_alive(node)

    def _listed(self, node: Node, value: bytes | None) -> None:
        listing = None if value is None else read_directory(node.card.sign, node.card.node, value, LISTING)
        self._list(node, {each.handle: each for each in listing.agents} if listing is not None else {})

    def _list(self, node: Node, agents: dict[str, ListedAgent]) -> None:
        name, old = node.card.node, node.agents
        node.agents = agents
        _index(self._having, name, set(old), set(agents))
        _index(self._with_group, name, _groups(old), _groups(agents))

    def _see_ourselves(self, board: Board, value: bytes) -> None:
        key, name = self._identity.keys.public[0], self._identity.node
        if board is Board.LIVE:
            self.on_ourselves(read_directory(key, name, value, LIFE_SIGN))
        elif twin := read_directory(key, name, value, LISTING).twin:
            self.on_twin_stopped(twin)

    # -- the directory --

    def agents(self) -> Iterator[RemoteAgent]:
        for node in self.all():
            for agent in node.agents.values():
                yield self._agent(node, agent.handle, agent)

    def find(self, target: str) -> RemoteAgent | None:
        handle, at, name = target.partition("@")
        if not at:
            return self._find_own(handle)
        if name == ANY:
            return self._find_group(handle)
        if name == self._identity.node:
            return _here(handle)
        node = self.get(name)
        if node is None:
            names = ", ".join(sorted(each.card.node for each in self.all())[:_NAMED]) or "none"
            raise NotFound(
                "agent not registered",
                hint=f"no machine of the mesh is called {name}; there are: {names} (`bascule node list`)",
                details={"agentId": target},
            )
        if handle not in node.agents and _members(node, handle):
            return self._group(node, handle)
        return self._agent(node, handle, node.agents.get(handle))

    def _find_own(self, handle: str) -> RemoteAgent | None:
        """A bare handle means an agent of one's own machines, and never one of another person's: nobody can catch
        messages by taking a name."""
        having = [node for node in self._those(self._having.get(handle, ())) if handle in node.agents]
        own = [node for node in having if node.own]
        if len(own) == 1:
            return self._agent(own[0], handle, own[0].agents[handle])
        if having:
            names = ", ".join(sorted(f"{handle}@{node.card.node}" for node in having)[:_NAMED])
            raise NotFound(
                "agent not registered",
                hint=f"there is none of this name here; say which one is meant: {names}",
                details={"agentId": handle},
            )
        return None

    def _find_group(self, group: str) -> RemoteAgent:
        if self.has_free_member(group):
            return _here(group)
        nodes = self._having_group(group)
        if not nodes:
            raise NotFound(
                "agent not registered",
                hint=f"no machine of the mesh has a group {group}",
                details={"agentId": f"{group}@{ANY}"},
            )
        online = any(self._group(node, group).status == "online" for node in nodes)
        return RemoteAgent(f"{group}@{ANY}", "group", "online" if online else "offline", self._clock.wall_ms())

    def candidates(self, group: str) -> list[str]:
        """Nodes with a member of this group, those with a free one first, and among them our owner's: any node may say
        that it has the group."""
        with_group = self._having_group(group)
        ranked = sorted(with_group, key=lambda node: (not self._has_free(node, group), not node.own))
        return [node.card.node for node in ranked]

    def _having_group(self, group: str) -> list[Node]:
        nodes = self._those(self._with_group.get(group, ()))
        return [node for node in nodes if _members(node, group)]

    def _those(self, names: Iterable[str]) -> Iterator[Node]:
        """Those of them whose cards count; one that has new keys since has not listed anything yet."""
        return (node for name in names if (node := self.get(name)) is not None)

    def _has_free(self, node: Node, group: str) -> bool:
        return self.is_reachable(node) and node.life_sign is not None and bool(node.life_sign.free.get(group))

    def _group(self, node: Node, group: str) -> RemoteAgent:
        status = "online" if any(agent.online for agent in _members(node, group)) else "offline"
        name = f"{group}@{node.card.node}"
        return RemoteAgent(name, "group", status if self.is_reachable(node) else "unreachable", node.seen_wall)

    def _agent(self, node: Node, handle: str, listed: ListedAgent | None) -> RemoteAgent:
        if not self.is_reachable(node):
            status = "unreachable"
        elif listed is None:
            status = "unknown"
        else:
            status = "online" if listed.online else "offline"
        metadata = {"machine": node.card.node, "owner": node.card.owner_name or node.card.owner}
        return RemoteAgent(
            f"{handle}@{node.card.node}",
            listed.type if listed is not None else "agent",
            status,
            node.seen_wall,
            tuple(listed.groups) if listed is not None else (),
            metadata,
        )


def _members(node: Node, group: str) -> list[ListedAgent]:
    return [agent for agent in node.agents.values() if group in agent.groups]


def _groups(agents: dict[str, ListedAgent]) -> set[str]:
    return {group for agent in agents.values() for group in agent.groups}


def _index(index: dict[str, tuple[str, ...]], name: str, old: set[str], new: set[str]) -> None:
    for key in old - new:
        left = tuple(each for each in index[key] if each != name)
        if left:
            index[key] = left
        else:
            del index[key]
    for key in new - old:
        index[key] = (*index.get(key, ()), name)


def _here(handle: str) -> RemoteAgent:
    """An agent or group of this machine, by its full name: the broker knows it without the machine's."""
    return RemoteAgent(handle, "agent", "online", 0)
