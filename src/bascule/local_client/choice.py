"""Which broker a command talks to, and whose token it shows there.

Tokens that lie in the state directory are for the daemon of that directory, and go through its unix sockets alone,
where the kernel names the owner of the other end. `BRIDGE_BROKER_URL` changes nothing about that: when it is the
address of this daemon (as `bridge-wrap` sets it), the socket is used. Any other address is a broker of somebody else's
making. It must be on loopback, so that a project file which sets the variable cannot send anything off the machine; it
is shown `BRIDGE_AGENT_TOKEN` and no other token; and before anything is sent the kernel or a certificate has said whose
it is.
"""

from __future__ import annotations

import os
import socket

from bascule.foundation import paths
from bascule.local_client.exits import DoorError, NoIdentity, WrongUsage
from bascule.local_client.http import Door, call, unix_address
from bascule.local_client.values import agent_id, decode

# Host as written -> address dialled. `localhost` is not looked up: a hosts file could say anything.
LOOPBACK = {
    "127.0.0.1": (socket.AF_INET, "127.0.0.1"),
    "localhost": (socket.AF_INET, "127.0.0.1"),
    "::1": (socket.AF_INET6, "::1"),
}
_PORTS = {"http": 80, "https": 443}
MAX_PORT = 0xFFFF


def find_door(state: str) -> Door:
    url = os.environ.get("BRIDGE_BROKER_URL")
    if not url:
        return own_door(state)
    door = _loopback(url)
    if _is_own(state, door):
        return own_door(state)
    door.bearer = environment_token()
    return door


def own_door(state: str) -> Door:
    """The daemon of this state directory."""
    return Door(socket.AF_UNIX, unix_address(paths.http_socket(state)), state=state)


def _is_own(state: str, door: Door) -> bool:
    """Whether the address, or the token that would be shown there, is that of the daemon of this directory."""
    if _noted_target(state) == (door.address, door.tls is not None):
        return True
    # The daemon may have stopped, or have another port since `bridge-wrap` wrote the address down.
    handle, token = environment_handle(), environment_token()
    return handle is not None and token is not None and _stored_token(state, handle) == token


def _noted_target(state: str) -> tuple[object, bool] | None:
    """Address, and whether it speaks TLS, as a daemon writes it into its lock; None after it has stopped."""
    try:
        note = decode(paths.read_private_file(paths.lock_file(state)))
        door = _loopback(note["doors"]["tcp"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, paths.UnsafePlace, WrongUsage):
        return None
    return door.address, door.tls is not None


def _loopback(url: str) -> Door:
    scheme, _, rest = url.partition("://")
    rest = rest.rstrip("/")
    if rest.startswith("["):
        name, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = rest.partition(":")
    number = _port(port) if port else _PORTS.get(scheme)
    if scheme not in _PORTS or name not in LOOPBACK or number is None:
        raise WrongUsage(
            f"BRIDGE_BROKER_URL is {url!r}: only http:// and https:// with 127.0.0.1:PORT, localhost:PORT or "
            "[::1]:PORT are accepted, because tokens are sent there",
            "unset it to use the daemon's own socket",
        )
    family, numeric = LOOPBACK[name]
    return Door(family, (numeric, number), rest, tls=name if scheme == "https" else None)


def _port(text: str) -> int | None:
    # `isdigit` alone is true of `²`, and of digits that would go into the Host header as they are.
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if 0 < number <= MAX_PORT else None


def stored_token(door: Door, handle: str) -> str | None:
    """What the daemon wrote when the handle was registered; none for a broker that is not the daemon of our files."""
    return None if door.state is None else _stored_token(door.state, handle)


def _stored_token(state: str, handle: str) -> str | None:
    return _read_token(paths.token_file(state, handle))


def _read_token(path: str) -> str | None:
    try:
        token = paths.read_private_file(path).strip()
    except FileNotFoundError:
        return None
    except PermissionError as fault:
        raise NoIdentity(f"cannot read the token in {path}: {fault.strerror}") from None
    except paths.UnsafePlace as fault:
        raise NoIdentity(str(fault)) from None
    # It goes into a header line; anything but visible ASCII would end that line early.
    if not token.isascii() or not token.isprintable() or " " in token:
        raise NoIdentity(f"{path} does not hold a token", "remove it and register again with `bridge-register`")
    return token or None


def environment_token() -> str | None:
    token = os.environ.get("BRIDGE_AGENT_TOKEN")
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise NoIdentity("BRIDGE_AGENT_TOKEN does not hold a token")
    return token or None


def environment_handle() -> str | None:
    handle = os.environ.get("BRIDGE_AGENT_ID")
    return agent_id(handle) if handle else None


def token_of(door: Door, handle: str) -> str:
    """The token to act as `handle`, or how to get one."""
    token = stored_token(door, handle) or environment_token()
    if token is None:
        raise NoIdentity(
            f"there is no token of {handle} here, so this command cannot act as {handle}",
            f"register it with `bridge-register --agent {handle}`, or set BRIDGE_AGENT_TOKEN",
        )
    return token


def chosen_token(door: Door, named: str | None) -> str | None:
    """`--agent`, then `BRIDGE_AGENT_TOKEN`, then `BRIDGE_AGENT_ID`; None when nobody was named.

    Another broker need not know tokens at all: there it is `BRIDGE_AGENT_TOKEN` or none.
    """
    if door.state is None:
        return environment_token()
    if named:
        return token_of(door, named)
    token = environment_token()
    if token:
        return token
    handle = environment_handle()
    return token_of(door, handle) if handle else None


def inbox_owner(door: Door, named: str | None) -> tuple[str, str | None]:
    """Whose inbox is meant, and the token that opens it."""
    token = chosen_token(door, named)
    handle = named or environment_handle() or (handle_of_token(door, token) if token else None)
    if handle is None:
        raise WrongUsage("which agent? Pass --agent NAME or set BRIDGE_AGENT_ID")
    return handle, token


def handle_of_token(door: Door, token: str) -> str:
    """Ask the daemon whose token it is."""
    principal = str(call(door, "GET", "/status", token=token).get("principal", ""))
    kind, _, handle = principal.partition(":")
    if kind != "agent" or not handle:
        raise DoorError("the daemon does not take this token for an agent's", "name the agent with --agent")
    return handle
