"""The agents elsewhere that can be asked, each with the card that a person saw when it was added."""

import asyncio
from collections.abc import Callable
from importlib.util import find_spec

from bascule.a2a.cards import WELL_KNOWN, BadCard, card_url, read_card
from bascule.a2a.ports import AgentClient, EndUnknown, NotSent, Refused
from bascule.a2a.protocol import BEHIND, AddParams, PeerView
from bascule.a2a.records import Peer
from bascule.a2a.settings import INSTALL
from bascule.foundation import paths
from bascule.foundation.agreement import is_agent_id
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import Conflict, InvalidRequest, NotFound, PeerFailed, Unavailable
from bascule.foundation.paths import UnsafePlace
from bascule.foundation.text import one_line
from bascule.kernel.call import Call
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.journal import Table
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.ports import RemoteAgent

# Each is a line in a list that agents read.
MAX_PEERS = 100
# A card that was looked at so long ago is looked at again before the next message.
CARD_SECONDS = 60.0
_MAX_REASON_CHARS = 300
_NO_TOKEN_LETTERS = frozenset("\r\n\0 ")


class Peers:
    def __init__(self, store: JournalStore, clock: Clock, client: Callable[[], AgentClient]) -> None:
        """`client` imports the SDK when it is first asked for."""
        self._clock = clock
        self._client = client
        self.table: Table[Peer] = Table("outside_agents", Peer)
        self.table.rows.update(store.load("outside_agents", Peer))
        # What happened last, within this life: when a card was found as pinned, and what is wrong.
        self._checked: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        # Called with the name of an agent that was added again.
        self.on_added: list[Callable[[str], None]] = []

    # -- methods --

    async def add(self, call: Call, params: AddParams, effect: RecordedEffect) -> PeerView:
        name = params.name
        require_sdk()
        if not is_agent_id(name):
            raise InvalidRequest(f"{name} cannot be the name of an agent", hint="choose another")
        if name not in self.table.rows and len(self.table.rows) >= MAX_PEERS:
            raise Conflict(f"{MAX_PEERS} agents are listed", hint="`bascule a2a remove` takes one off the list")
        url = card_url(params.url)
        token = await asyncio.to_thread(read_token, params.token_file)
        try:
            data = await self._client().fetch_card(url, token)
        except (NotSent, EndUnknown, Refused) as error:
            raise PeerFailed(
                f"no agent card from {url}: {one_line(str(error), _MAX_REASON_CHARS)}",
                hint=f"check the address; the card is at {WELL_KNOWN} below it",
            ) from None
        chosen = read_card(data, url)
        peer = Peer(
            url=url,
            card=chosen.text,
            digest=chosen.digest,
            title=chosen.title,
            description=chosen.description,
            skills=chosen.skills,
            endpoint=chosen.endpoint,
            protocol=chosen.protocol,
            binding=chosen.binding,
            once=chosen.once,
            token_file=params.token_file,
            at=self._clock.wall_ms(),
        )
        effect.details |= {"url": url, "digest": chosen.digest}
        effect.changes.append(lambda tx: tx.put(self.table, name, peer))
        effect.changes.append(lambda tx: tx.after.append(lambda: self._added(name)))
        return self.view(name, peer, 0)

    def find(self, target: str) -> RemoteAgent:
        name = target.rpartition("@")[0]
        peer = self.table.rows.get(name)
        if peer is None:
            there = ", ".join(f"{each}@{BEHIND}" for each in sorted(self.table.rows)) or "nobody yet"
            raise NotFound(
                "agent not registered",
                hint=f"beyond A2A there is {there}; `bascule a2a add {name} URL` adds one",
                details={"agentId": target},
            )
        if peer.changed:
            raise Conflict(
                f"the agent card of {target} is another one than was added",
                hint=f"the user of this machine looks at it and adds it again: bascule a2a add {name} {peer.url}",
                details={"agentId": target},
            )
        require_sdk()
        return self.agent(name, peer)

    def agent(self, name: str, peer: Peer) -> RemoteAgent:
        return RemoteAgent(
            agent_id=f"{name}@{BEHIND}",
            type=BEHIND,
            status=self.status(name, peer),
            seen_at=peer.at,
            metadata={"title": peer.title, "description": peer.description, "skills": peer.skills},
        )

    def status(self, name: str, peer: Peer) -> str:
        if peer.changed:
            return "offline"
        return "unreachable" if name in self._problems else "online"

    def view(self, name: str, peer: Peer, count: int) -> PeerView:
        return PeerView(
            agent_id=f"{name}@{BEHIND}",
            url=peer.url,
            digest=peer.digest,
            title=peer.title,
            description=peer.description,
            skills=peer.skills,
            protocol=peer.protocol,
            binding=peer.binding,
            status=self.status(name, peer),
            since=rfc3339(peer.at),
            token_file=peer.token_file,
            open=count,
            problem="its card changed: add it again" if peer.changed else self._problems.get(name),
        )

    # -- before a message is sent --

    async def is_as_added(self, name: str, peer: Peer, token: str | None) -> bool:
        """Whether its card is the one that was added. Raises `NotSent` when that cannot be found out."""
        now = self._clock.monotonic()
        if now - self._checked.get(name, -CARD_SECONDS) < CARD_SECONDS:
            return True
        try:
            found = read_card(await self._client().fetch_card(peer.url, token), peer.url)
        except (EndUnknown, Refused, BadCard) as error:
            raise NotSent(f"its card cannot be read: {error}") from None
        if found.digest != peer.digest:
            return False
        self._checked[name] = now
        return True

    def reached(self, name: str, problem: str | None) -> None:
        if problem is None:
            self._problems.pop(name, None)
        else:
            self._problems[name] = one_line(problem, _MAX_REASON_CHARS)

    def forget(self, name: str) -> None:
        self._problems.pop(name, None)
        self._checked.pop(name, None)

    def _added(self, name: str) -> None:
        self.forget(name)
        self._checked[name] = self._clock.monotonic()
        for callback in self.on_added:
            callback(name)


def require_sdk() -> None:
    if find_spec("a2a") is None:
        raise Unavailable("the a2a-sdk is not installed", hint=INSTALL)


def read_token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = paths.read_private_file(paths.expand(path)).strip()
    except (OSError, UnsafePlace) as error:
        raise InvalidRequest(f"the token file cannot be used: {error}", hint="a 0600 file of yours") from None
    if not token or not token.isascii() or not token.isprintable() or not _NO_TOKEN_LETTERS.isdisjoint(token):
        raise InvalidRequest(f"{path} holds no token", hint="one line, without spaces")
    return token
