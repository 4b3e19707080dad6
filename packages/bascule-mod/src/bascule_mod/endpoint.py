"""Where a mod is to be reached, and with which token: the environment says so, else bridge.json, else nobody."""

import os
import stat
import sys
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from gabp import messages
from gabp.codec import BadJson, decode

Transport = Literal["tcp", "pipe", "stdio"]
# A token, an address and a few names.
MAX_BRIDGE_FILE_BYTES = 16 * 1024


class BadEndpoint(Exception):
    """The launch says something a mod cannot do; the message says which variable or file."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    transport: Transport
    # The port, the path of the socket, nothing for stdio.
    address: str = ""
    token: str
    game_id: str | None = None
    # Where it was found: "environment" or a path.
    source: str = "environment"

    def __repr__(self) -> str:
        return f"Endpoint({self.transport} {self.address!r} from {self.source})"

    @property
    def port(self) -> int:
        # Five digits: int() itself refuses thousands of them, with an error of another kind.
        plain = self.address.isascii() and self.address.isdecimal() and len(self.address) <= 5
        if not plain or int(self.address) > 65535:
            raise BadEndpoint(f"{self.source}: {self.address[:20]!r} is not a valid port")
        return int(self.address)


def from_environment(environment: Mapping[str, str] | None = None) -> Endpoint | None:
    """GABS sets GABP_SERVER_PORT and GABP_TOKEN; our bridge also GABP_TRANSPORT and GABP_ADDRESS."""
    env = os.environ if environment is None else environment
    token = env.get("GABP_TOKEN", "")
    port = env.get("GABP_SERVER_PORT", "")
    transport: Any = env.get("GABP_TRANSPORT", "tcp" if port else "")
    if not token or not transport:
        return None
    if transport not in ("tcp", "pipe", "stdio"):
        raise BadEndpoint(f"GABP_TRANSPORT is {transport[:20]!r}; it can be tcp, pipe or stdio")
    return Endpoint(
        transport=transport,
        address="" if transport == "stdio" else env.get("GABP_ADDRESS") or port,
        token=token,
        game_id=env.get("GABS_GAME_ID"),
    )


def from_bridge_file(path: str, names: Collection[str]) -> Endpoint | None:
    """What the newest launch says; None when there is none, or it is another game's.

    The launch is ours when it started this process or its parent, or names none but a game of these names.
    """
    try:
        text = _read_own_file(path)
    except FileNotFoundError:
        return None
    try:
        found = decode(text)
        transport = found["transport"]["type"]
        address = str(found["transport"].get("address", ""))
        token = found["token"]
        metadata: Any = found.get("metadata", {})
        meant = metadata.get("gameId")
        launched = metadata.get("pid")
    except (BadJson, KeyError, TypeError, AttributeError):
        raise BadEndpoint(f"{path} is not a bridge configuration; remove it, or start the bridge again") from None
    if not isinstance(token, str) or len(token) < messages.MIN_TOKEN_CHARS:
        raise BadEndpoint(f"{path}: its token is shorter than {messages.MIN_TOKEN_CHARS} characters")
    # The file cannot hand over a pipe to a process that already runs.
    is_ours = meant is None or meant in names or launched in (os.getpid(), os.getppid())
    if transport not in ("tcp", "pipe") or not is_ours:
        return None
    return Endpoint(transport=transport, address=address, token=token, game_id=meant, source=path)


def _read_own_file(path: str) -> bytes:
    """transport.md 5.4: only the current user may have access; a file others can write could name their port."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadEndpoint(f"{path} is not a regular file")
        if sys.platform != "win32" and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
            raise BadEndpoint(f"{path} is not yours alone; run: chmod go= '{path}'")
        return os.read(descriptor, MAX_BRIDGE_FILE_BYTES)
    finally:
        os.close(descriptor)


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        # Removed under the game's feet; the answer is nothing rather than something wrong.
        return ""


def observed(environment: Mapping[str, str] | None = None) -> messages.Observed | None:
    """What GABS wants to know of the launch: only when it asks, for it is no part of the protocol."""
    env = os.environ if environment is None else environment
    asked = env.get("GABS_FORWARD_ENV")
    if asked is None:
        return None
    names = [name for name in asked.split(",") if name]
    absent = [name for name in env.get("GABS_ABSENT_ENV", "").split(",") if name]
    return messages.Observed(
        # With the interpreter: GABS compares what follows the program that it started.
        argv=list(sys.orig_argv),
        cwd=_cwd(),
        env_values={name: env[name] for name in names if name in env},
        env_absent=[name for name in dict.fromkeys((*names, *absent)) if name not in env],
    )
