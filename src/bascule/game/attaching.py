"""Games that others start: where they listen and with which token, as the user or another bridge's file says it."""

import re
from typing import Any

import msgspec

from bascule.foundation.errors import InvalidRequest
from bascule.game.ports import Address
from bascule.game.protocol import AttachParams
from bascule.game.settings import GameSettings, address_problem, problem_of
from gabp.codec import BadJson, convert, decode

# Shorter ones can be guessed; strict mods want 32.
MIN_TOKEN_CHARS = 16
# Four times what we make ourselves; a file that holds more is something else.
MAX_TOKEN_CHARS = 256
# Hex, base64, UUIDs, JWTs: one word.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class BadFile(Exception):
    """A token file or bridge.json that cannot be used; the message says why, and nothing of what is in it."""


class _Transport(msgspec.Struct, frozen=True):
    type: str
    address: str = ""


class _Spec(msgspec.Struct, frozen=True):
    """transport.md 5.2."""

    token: str
    transport: _Transport


class _Gabs(msgspec.Struct, frozen=True):
    """What GABS writes to ~/.gabs/<gameId>/bridge.json."""

    token: str
    port: int


def attached_settings(params: AttachParams) -> GameSettings:
    if (params.bridge_file is None) is (params.token_file is None):
        raise InvalidRequest(
            "say where the game listens: `bridgeFile`, or `address` and `tokenFile`",
            hint="bascule games attach GAME --bridge-json FILE, or --port PORT --token-file FILE",
        )
    settings = GameSettings(
        transport=params.transport,
        address=params.address,
        token_file=params.token_file,
        bridge_file=params.bridge_file,
        mode=params.mode,
    )
    problem = problem_of(params.game_id, settings)
    if problem is not None:
        raise InvalidRequest(problem)
    return settings


def read_token(text: str) -> str:
    """The file's one word. Whatever else is private in a home directory is not sent to a port that somebody named."""
    token = text.strip()
    if not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise BadFile(f"it holds no token: one word of {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} characters, nothing else")
    return token


def read_bridge_file(text: str) -> tuple[str, Address]:
    try:
        found: Any = decode(text.encode())
        if isinstance(found, dict) and "transport" not in found:
            gabs = convert(found, _Gabs)
            return read_token(gabs.token), _address("tcp", str(gabs.port))
        spec = convert(found, _Spec)
    except BadJson as bad:
        raise BadFile(f"it is not a valid bridge.json: {bad.message}") from None
    return read_token(spec.token), _address(spec.transport.type, spec.transport.address)


def _address(transport: str, where: str) -> Address:
    if transport not in ("tcp", "pipe"):
        raise BadFile("the game it tells of is on stdio, which only who starts it can speak")
    address = Address(transport="tcp" if transport == "tcp" else "pipe", where=where)
    problem = address_problem(address)
    if problem is not None:
        raise BadFile(problem)
    return address
