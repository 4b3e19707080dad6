"""The configuration of our nats-server: who may log in, and what each may do. No I/O.

The server reads a superset of JSON.
"""

from typing import Any, NamedTuple

from bascule.mesh import cards
from bascule.mesh.machine import layout, nkeys
from bascule.mesh.machine.layout import Permissions

# The largest letter: a message of ours with room to spare. The server's own default is half of it.
MAX_PAYLOAD = 2 * 1024 * 1024
# How long the node that holds the mesh key may take to answer who wants to join.
ANSWER_SECONDS = 60
# Every node of the largest mesh, and as many again that are just connecting. Each costs the server some tens of KB.
MAX_CONNECTIONS = 10_000
# Of one connection: a daemon has seven. The server keeps each in memory, whoever asks for it.
MAX_SUBSCRIPTIONS = 64
# Enough to see what went wrong last week; so many files of so many bytes.
LOG_BYTES = 1024 * 1024
LOG_FILES = 3


class HubFiles(NamedTuple):
    certificate: str
    key: str
    store: str
    log: str
    pid: str


def user(bus_key: str) -> str:
    """Of a key as it stands in a card."""
    return nkeys.user_text(cards.bytes_of(bus_key))


def entry(bus_key: str, permissions: Permissions) -> dict[str, Any]:
    allowed: dict[str, Any] = {
        "publish": {"allow": permissions.publish},
        "subscribe": {"allow": permissions.subscribe},
    }
    if permissions.answer:
        allowed["allow_responses"] = {"max": 1, "expires": f"{ANSWER_SECONDS}s"}
    return {"nkey": user(bus_key), "permissions": allowed}


def users(authority: str, admitted: dict[str, str], invited: list[str]) -> list[dict[str, Any]]:
    """`admitted`: bus keys by node."""
    out = []
    # The server does not start with a user that is listed twice. Whose key it is has it: ours is the first.
    known: set[str] = set()
    for node, bus_key in sorted(admitted.items(), key=lambda each: (each[0] != authority, each)):
        allow = layout.authority_permissions if node == authority else layout.node_permissions
        if bus_key not in known:
            out.append(entry(bus_key, allow(node)))
            known.add(bus_key)
    # A key that was admitted is no longer only invited.
    out += [entry(key, layout.invited_permissions(user(key))) for key in sorted(set(invited) - known)]
    return out


def config(host: str, port: int, files: HubFiles, max_store: int, logins: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "host": host,
        "port": port,
        "server_name": "bascule-hub",
        "pid_file": files.pid,
        "log_file": files.log,
        "logfile_size_limit": LOG_BYTES,
        "logfile_max_num": LOG_FILES,
        "max_payload": MAX_PAYLOAD,
        "max_connections": MAX_CONNECTIONS,
        "max_subscriptions": MAX_SUBSCRIPTIONS,
        "tls": {
            "cert_file": files.certificate,
            "key_file": files.key,
            "min_version": "1.3",
            "timeout": 10,
            # Certificate first: who joins compares it before it says anything, and nothing is ever sent in the clear.
            "handshake_first": True,
        },
        # No promise rests on what is stored there: a letter leaves its outbox when the other daemon has it.
        "jetstream": {"store_dir": files.store, "max_file_store": max_store, "max_memory_store": 64 * 1024 * 1024},
        "authorization": {"timeout": 10, "users": logins},
    }
