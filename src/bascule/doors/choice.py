"""Which door a command goes through, and whose token it carries.

A token is sent only to our own socket or to a loopback address, whatever `BRIDGE_BROKER_URL` says: a project
file that sets the variable must not be able to send tokens off the machine. `peers` asks who listens there before
anything is sent.
"""

from __future__ import annotations

import os
import socket

from bascule import places
from bascule.doors.exits import DoorError, NoIdentity, WrongUsage
from bascule.doors.http import Door, call, unix_address
from bascule.doors.values import agent_id

# Host as written -> address dialled. `localhost` is not looked up: a hosts file could say anything.
LOOPBACK = {
    "127.0.0.1": (socket.AF_INET, "127.0.0.1"),
    "localhost": (socket.AF_INET, "127.0.0.1"),
    "::1": (socket.AF_INET6, "::1"),
}
_HTTP_PORT = 80


def find_door(state: str) -> Door:
    url = os.environ.get("BRIDGE_BROKER_URL")
    if not url:
        return Door(socket.AF_UNIX, unix_address(places.http_socket(state)), "localhost")
    family, address, host = _loopback(url)
    return Door(family, address, host, local_token(state))


def _loopback(url: str) -> tuple[int, tuple[str, int], str]:
    scheme, _, rest = url.partition("://")
    rest = rest.rstrip("/")
    if rest.startswith("["):
        name, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = rest.partition(":")
    if scheme != "http" or name not in LOOPBACK or not (port.isdigit() or not port) or len(port) > 5:
        raise WrongUsage(
            f"BRIDGE_BROKER_URL is {url!r}: only http://127.0.0.1:PORT, http://localhost:PORT and "
            "http://[::1]:PORT are accepted, because tokens are sent there",
            "unset it to use the daemon's own socket",
        )
    number = int(port) if port else _HTTP_PORT
    family, numeric = LOOPBACK[name]
    return family, (numeric, number), rest


def local_token(state: str) -> str | None:
    """The bearer for TCP; none when the daemon runs with `--auth off` or keeps its state elsewhere."""
    return _read_token(places.local_token_file(state))


def stored_token(state: str, handle: str) -> str | None:
    """What the daemon wrote when the handle was registered."""
    return _read_token(places.token_file(state, handle))


def _read_token(path: str) -> str | None:
    try:
        token = places.read_private_file(path).strip()
    except FileNotFoundError:
        return None
    except PermissionError as fault:
        raise NoIdentity(f"cannot read the token in {path}: {fault.strerror}") from None
    except places.UnsafePlace as fault:
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


def token_of(state: str, handle: str) -> str:
    """The token to act as `handle`, or how to get one."""
    token = stored_token(state, handle) or environment_token()
    if token is None:
        raise NoIdentity(
            f"there is no token of {handle} here, so this command cannot act as {handle}",
            f"register it with `bridge-register --agent {handle}`, or set BRIDGE_AGENT_TOKEN",
        )
    return token


def chosen_token(state: str, named: str | None) -> str | None:
    """`--agent`, then `BRIDGE_AGENT_TOKEN`, then `BRIDGE_AGENT_ID`; None when nobody was named."""
    if named:
        return token_of(state, named)
    token = environment_token()
    if token:
        return token
    handle = environment_handle()
    return token_of(state, handle) if handle else None


def handle_of_token(door: Door, token: str) -> str:
    """Ask the daemon whose token it is."""
    principal = str(call(door, "GET", "/status", token=token).get("principal", ""))
    kind, _, handle = principal.partition(":")
    if kind != "agent" or not handle:
        raise DoorError("the daemon does not take this token for an agent's", "name the agent with --agent")
    return handle
