"""The Python client: talk to the daemon, or be an agent, from your own program.

    from bascule.client import Client, SyncClient, serve

`Client` is for asyncio, `SyncClient` for scripts, `serve` turns a function into an agent. All of them speak
link over the daemon's unix socket. `verbs` holds what they do as programs without a socket; `connection` and
`blocking` are the two shells that carry them out.

May import the bridges' protocols and rows, `transports`, `wire`, `foundation`; never the daemon's insides.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.client.client import Client
    from bascule.client.desktop import Desktop, SyncDesktop
    from bascule.client.faults import (
        ConnectionLost,
        NotRunning,
        OperationFailed,
        OutcomeUnknown,
        ReplyTimeout,
        TicketCancelled,
    )
    from bascule.client.games import Game, SyncGame
    from bascule.client.messages import Message, SyncMessage
    from bascule.client.serving import ServedAgent, serve
    from bascule.client.spaces import Space, SyncSpace
    from bascule.client.sync import SyncClient
    from bascule.client.verbs import Reply

__all__ = [
    "Client",
    "ConnectionLost",
    "Desktop",
    "Game",
    "Message",
    "NotRunning",
    "OperationFailed",
    "OutcomeUnknown",
    "Reply",
    "ReplyTimeout",
    "ServedAgent",
    "Space",
    "SyncClient",
    "SyncDesktop",
    "SyncGame",
    "SyncMessage",
    "SyncSpace",
    "TicketCancelled",
    "serve",
]

_HOMES = {
    "Client": "client",
    "ConnectionLost": "faults",
    "Desktop": "desktop",
    "Game": "games",
    "Message": "messages",
    "NotRunning": "faults",
    "OperationFailed": "faults",
    "OutcomeUnknown": "faults",
    "Reply": "verbs",
    "ReplyTimeout": "faults",
    "ServedAgent": "serving",
    "Space": "spaces",
    "SyncClient": "sync",
    "SyncDesktop": "desktop",
    "SyncGame": "games",
    "SyncMessage": "messages",
    "SyncSpace": "spaces",
    "TicketCancelled": "faults",
    "serve": "serving",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the command line needs `SyncClient` and must not pay for asyncio."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only who asks for a name pays for it

    return getattr(import_module(f"{__name__}.{home}"), name)
