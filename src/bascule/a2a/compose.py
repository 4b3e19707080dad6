"""Puts A2A together: the door for clients outside, and the client towards agents elsewhere."""

import hashlib
import importlib
from collections.abc import Callable
from typing import cast

from bascule.a2a.incoming import ROUTES, Incoming, is_card
from bascule.a2a.outgoing import Outgoing
from bascule.a2a.peers import Peers, require_sdk
from bascule.a2a.ports import AgentClient
from bascule.a2a.protocol import BEHIND
from bascule.a2a.publishing import Door, Publishing
from bascule.a2a.service import A2a, OpenDoor
from bascule.a2a.settings import A2aSettings
from bascule.a2a.tasks import Tasks
from bascule.daemon.outside_door import OUTSIDE_DOOR, Outside
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.ports import PUBLISHED, REMOTE_MAIL, REMOTES

_DIGEST_CHARS = 32


def make_a2a(kernel: KernelServices, ports: Ports) -> Bridge:
    settings = kernel.config.of(A2aSettings)
    door = Door()
    publishing = Publishing(kernel.store, kernel.clock, ports.need(PUBLISHED), door)
    incoming = Incoming(publishing, Tasks(kernel.gate, kernel.key), door, kernel.clock, kernel.log)
    client = _loaded_once()
    peers = Peers(kernel.store, kernel.clock, client)

    def message_id(ticket_id: str) -> str:
        return hashlib.sha256(kernel.key + b"\0a2a message\0" + ticket_id.encode()).hexdigest()[:_DIGEST_CHARS]

    outgoing = Outgoing(
        kernel.store,
        kernel.journal,
        peers=peers,
        mail=ports.need(REMOTE_MAIL),
        client=client,
        log=kernel.log,
        key=message_id,
        is_stopped=lambda: kernel.gate.halt is not None,
    )
    ports.need(REMOTES).add(outgoing, behind=BEHIND)

    async def open_door() -> OpenDoor | None:
        if settings.port is None:
            return None
        return await ports.need(OUTSIDE_DOOR)(
            Outside(
                listen=settings.a2a_listen,
                port=settings.port,
                url=settings.a2a_url,
                tls=(settings.a2a_tls_cert, settings.a2a_tls_key) if settings.a2a_tls_cert is not None else None,
                routes=ROUTES,
                mount=incoming,
                load=incoming.load,
                client_of=publishing.client_of,
                is_open=is_card,
            ),
            door,
        )

    return A2a(
        publishing=publishing,
        incoming=incoming,
        peers=peers,
        outgoing=outgoing,
        opener=open_door,
    ).bridge()


def _loaded_once() -> Callable[[], AgentClient]:
    """The SDK is imported when something is to be sent: most daemons never do."""
    made: list[AgentClient] = []

    def client() -> AgentClient:
        if not made:
            require_sdk()
            module = importlib.import_module("bascule.a2a.machine.client")
            made.append(cast("AgentClient", module.SdkClient()))
        return made[0]

    return client
