"""`games.toml`: which games there are, and how each is started or reached.

[games.snake]
command = "python3"
args = ["snake.py"]
cwd = "~/games/snake"
transport = "tcp"
"""

import os
import re
import tomllib
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from bascule.game.ports import MAX_UNSENT_BYTES, Address, Discovery, SettingsFile, Transport
from gabp.codec import BadJson, convert
from gabp.envelopes import Mode
from gabp.messages import MAX_RECEIVE_BYTES

# More than anybody plays; a file that names more was made by a mistake.
MAX_GAMES = 1_000
# A kilobyte for each of them.
MAX_SETTINGS_BYTES = 1024 * 1024
# GABS's default: a large game with mods takes minutes to load, and says so here.
DEFAULT_STARTUP_SECONDS = 60.0
# As long as GABS waits for a tool.
DEFAULT_CALL_SECONDS = 30.0
# Time to save; after it the game is killed.
DEFAULT_STOP_SECONDS = 5.0
_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# Ours to set; a game that names them in its file would be told somebody else's.
_RESERVED_ENV: Final = ("GABP_", "GABS_", "BASCULE_", "BRIDGE_")

# A result takes several times its size while it is read; and less than the first would break tools/list.
_ReceiveBytes = Annotated[int, Meta(ge=64 * 1024, le=256 * 1024 * 1024)]
# Two requests of the largest size, so that one that waits does not cost the connection.
_UnsentBytes = Annotated[int, Meta(ge=2 * 1024 * 1024, le=1024 * 1024 * 1024)]
_Seconds = Annotated[float, Meta(gt=0, le=3600)]


class BadSettings(Exception):
    """`games.toml` cannot be used; the message names the game and the key."""


class GameSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str | None = None
    description: str | None = None
    # Without a command the game is not ours to start: it is attached to.
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    transport: Transport = "tcp"
    # For games that are attached to: the port, or the socket's path.
    address: str | None = None
    token_file: str | None = None
    # Or the bridge.json of the program that starts it: read at every attach, for its token changes with every launch.
    bridge_file: str | None = None
    startup_timeout: _Seconds = DEFAULT_STARTUP_SECONDS
    call_timeout: _Seconds = DEFAULT_CALL_SECONDS
    stop_timeout: _Seconds = DEFAULT_STOP_SECONDS
    # The largest message its mod may send; a larger one is skipped, and fails its call.
    max_receive_bytes: _ReceiveBytes = MAX_RECEIVE_BYTES
    # transport.md 7.3: "Buffer size SHOULD be configurable". Of what waits for a mod that does not read.
    max_unsent_bytes: _UnsentBytes = MAX_UNSENT_BYTES
    mode: Literal["compat", "strict"] = "compat"
    discovery: Discovery = "environment"
    # For a game that is drawn in a terminal: without one it ends at its start.
    terminal: bool = False

    @property
    def wire_mode(self) -> Mode:
        return Mode(self.mode)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    games: dict[str, dict[str, Any]] = {}


def parse(text: bytes) -> dict[str, GameSettings]:
    if len(text) > MAX_SETTINGS_BYTES:
        raise BadSettings(f"games.toml is larger than {MAX_SETTINGS_BYTES} bytes")
    try:
        found: Any = tomllib.loads(text.decode())
        tables = convert(found, _File).games
    except UnicodeDecodeError:
        raise BadSettings("games.toml is not UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadSettings(f"games.toml is not valid TOML: {error}") from None
    except BadJson as bad:
        raise BadSettings(f"games.toml: {bad.message}") from None
    if len(tables) > MAX_GAMES:
        raise BadSettings(f"games.toml names {len(tables)} games; at most {MAX_GAMES} are taken")
    games: dict[str, GameSettings] = {}
    for game_id, table in tables.items():
        try:
            games[game_id] = convert(table, GameSettings)
            problem = problem_of(game_id, games[game_id])
        except BadJson as bad:
            problem = bad.message
        if problem is not None:
            raise BadSettings(f"games.toml, games.{game_id[:80]}: {problem}")
    return games


def problem_of(game_id: str, settings: GameSettings) -> str | None:
    if not _ID.fullmatch(game_id):
        return "an id has 1 to 64 small letters, digits, - and _"
    for name, value in settings.env.items():
        if name.startswith(_RESERVED_ENV):
            return f"`env.{name}` is set by Bascule; remove it"
        if not name or "=" in name or "\0" in name + value:
            return f"`env`: {name[:40]!r} is not a valid name of an environment variable"
    if any("\0" in each for each in (settings.command or "", settings.cwd or "", *settings.args)):
        return "a NUL character in `command`, `args` or `cwd`"
    if settings.command is None:
        return _attach_problem(settings)
    if not settings.command:
        return "`command` is empty"
    if settings.address is not None or settings.token_file is not None or settings.bridge_file is not None:
        return "`address`, `token_file` and `bridge_file` are for games without a `command`"
    if settings.transport == "stdio" and (settings.discovery == "file" or settings.terminal):
        what = "have a `terminal`: its stdin and stdout are the connection" if settings.terminal else "be found by file"
        return f"a game on stdio cannot {what}"
    return None


def _attach_problem(settings: GameSettings) -> str | None:
    if settings.transport == "stdio":
        return "a game without a `command` cannot be reached over stdio"
    if settings.bridge_file is not None and (settings.address is not None or settings.token_file is not None):
        return "`bridge_file` says both `address` and `token_file`; leave those out"
    if settings.address is not None:
        problem = address_problem(Address(transport=settings.transport, where=settings.address))
        if problem is not None:
            return problem
    if settings.address is not None and settings.token_file is None:
        return "`address` needs `token_file`: the 0600 file that holds the game's token"
    if settings.address is None and settings.token_file is not None:
        return "`token_file` needs `address`: the port, or the path of the socket"
    return None


def address_problem(address: Address) -> str | None:
    if address.transport == "pipe" and not os.path.isabs(address.where):
        return "`address` must be the absolute path of a socket"
    if address.transport == "tcp" and not _is_port(address.where):
        return "`address` must be a port, as a string"
    return None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536


class LiveSettings:
    """The file as it is now. A broken edit changes nothing: the last good text stays, and the problem is told."""

    def __init__(self, file: SettingsFile) -> None:
        self._file = file
        self._stamp: object = None
        self._games: dict[str, GameSettings] = {}
        self.problem: str | None = None

    def games(self) -> dict[str, GameSettings]:
        """Read again only when the file has changed."""
        try:
            stamp, text = self._file.read()
        except OSError as error:
            self._stamp = None
            self.problem = f"games.toml cannot be read: {error.strerror or error}"
            return self._games
        if stamp != self._stamp or stamp is None:
            self._stamp = stamp
            try:
                self._games = {} if text is None else parse(text)
                self.problem = None
            except BadSettings as bad:
                self.problem = str(bad)
        return self._games
