"""A2A behind its method rows: puts the parts together."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from bascule.a2a import rows
from bascule.a2a.declared import A2aDeclared
from bascule.a2a.incoming import Incoming
from bascule.a2a.outgoing import Outgoing
from bascule.a2a.peers import Peers
from bascule.a2a.publishing import Publishing
from bascule.kernel.bridge import Bridge, Gauge


class OpenDoor(Protocol):
    async def stop(self) -> None: ...


# Opens the door and says where; None where it is off.
Opener = Callable[[], Awaitable[OpenDoor | None]]


class A2a:
    def __init__(
        self,
        *,
        publishing: Publishing,
        incoming: Incoming,
        peers: Peers,
        outgoing: Outgoing,
        opener: Opener,
    ) -> None:
        self.publishing = publishing
        self.incoming = incoming
        self.peers = peers
        self.outgoing = outgoing
        self._opener = opener
        self._open_door: OpenDoor | None = None

    def bridge(self) -> Bridge:
        return Bridge(
            declared=A2aDeclared(),
            service=self,
            methods=[
                rows.A2A_PUBLISH.bind(self.publishing.publish),
                rows.A2A_UNPUBLISH.bind(self.publishing.unpublish),
                rows.A2A_PUBLISHED.bind(self.publishing.list_published),
                rows.A2A_ADD_TOKEN.bind(self.publishing.add_token),
                rows.A2A_REVOKE_TOKEN.bind(self.publishing.revoke_token),
                rows.A2A_TOKENS.bind(self.publishing.list_tokens),
                rows.A2A_ADD_AGENT.bind(self.peers.add),
                rows.A2A_REMOVE_AGENT.bind(self.outgoing.remove_agent),
                rows.A2A_AGENTS.bind(self.outgoing.list_agents),
            ],
            gauges=[
                Gauge("bascule_a2a_requests", "Requests of clients beyond A2A under way.", self.incoming.count),
                Gauge("bascule_a2a_letters", "Messages to agents beyond A2A not answered yet.", self.outgoing.count),
            ],
            open=self.open,
            resume=self.outgoing.resume,
            end=self.end,
            close=self.close,
        )

    async def open(self) -> None:
        self.outgoing.start()
        self._open_door = await self._opener()

    def end(self) -> None:
        self.incoming.end()

    async def close(self) -> None:
        if self._open_door is not None:
            await self._open_door.stop()
        await self.incoming.close()
        await self.outgoing.close()
