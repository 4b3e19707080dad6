"""`bascule games import`: the games of GABS, as tables of games.toml.

What GABS starts by a path or a command is started by us the same way. What it starts through a shop (Steam, Epic) it
goes on starting: such a game is attached to, by the bridge.json that GABS writes at every launch.
"""

import argparse
import json
import os
import re
from typing import Any

from bascule.cli.talk import add_json
from bascule.foundation import paths
from bascule.foundation.text import one_line
from bascule.game.compose import GAMES_FILE
from bascule.game.settings import BadSettings, parse
from bascule.local_client.exits import OK, UNEXPECTED, WrongUsage
from bascule.programs.helpers.terminal import say, show
from gabp.codec import BadJson, decode

DEFAULT_FILE = "~/.gabs/config.json"
# GABS itself reads no larger file line by line.
MAX_FILE_BYTES = 10 * 1024 * 1024
_STARTED = ("DirectPath", "CustomCommand")
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9_-]+")
# Ours to set, and refused in games.toml.
_RESERVED = ("GABP_", "GABS_", "BASCULE_", "BRIDGE_")


def options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("file", metavar="FILE", nargs="?", default=DEFAULT_FILE, help=f"default: {DEFAULT_FILE}")
    verb.add_argument("--write", action="store_true", help="add them to games.toml; without it they are only shown")
    add_json(verb, below=True)


def run(args: argparse.Namespace) -> int:
    games = _games_in(os.path.expanduser(args.file))
    target = os.path.join(paths.config_dir(), GAMES_FILE)
    known = _text(target)
    try:
        have = set(parse(known.encode())) if known.strip() else set()
    except BadSettings as bad:
        raise WrongUsage(str(bad), f"mend {target} first") from None
    tables = []
    for name, game in games.items():
        game_id = _NOT_IN_AN_ID.sub("-", name.lower()).strip("-_")[:64]
        if not game_id or game_id in have:
            say(f"{one_line(name)}: games.toml has it already" if game_id else f"{one_line(name)}: no usable id")
            continue
        have.add(game_id)
        tables.append(_table(game_id, name, game if isinstance(game, dict) else {}))
    text = "\n".join(tables)
    if not args.write:
        show(text.rstrip())
        return OK
    whole = f"{known.rstrip()}\n\n{text}" if known.strip() else text
    try:
        parse(whole.encode())
    except BadSettings as bad:
        say(f"nothing was written: {bad}")
        return UNEXPECTED
    paths.make_private_dir(os.path.dirname(target))
    paths.write_private_file(target, whole)
    show(f"{len(tables)} games were added to {target}")
    return OK


def _games_in(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        found = decode(data) if len(data) <= MAX_FILE_BYTES else None
    except OSError as fault:
        raise WrongUsage(f"{path} cannot be read: {fault.strerror}", "name the config.json of GABS") from None
    except BadJson as bad:
        raise WrongUsage(f"{path}: {bad.message}") from None
    games = found.get("games") if isinstance(found, dict) else None
    if not isinstance(games, dict):
        raise WrongUsage(f"{path} does not name games", "name the config.json of GABS")
    return games


def _table(game_id: str, name: str, game: dict[str, Any]) -> str:
    lines = [f"[games.{json.dumps(game_id)}]"]
    for ours, theirs in (("name", "name"), ("description", "description")):
        if isinstance(game.get(theirs), str) and game[theirs]:
            lines.append(f"{ours} = {_toml(game[theirs])}")
    mode, target = game.get("launchMode", "DirectPath"), game.get("target")
    if mode in _STARTED and isinstance(target, str) and target:
        arguments = [each for each in _list(game.get("args")) if isinstance(each, str)]
        lines.append(f"command = {_toml(target)}")
        if arguments:
            lines.append(f"args = [{', '.join(map(_toml, arguments))}]")
        if isinstance(game.get("workingDir"), str) and game["workingDir"]:
            lines.append(f"cwd = {_toml(game['workingDir'])}")
        env = game.get("env")
        pairs = {key: value for key, value in (env if isinstance(env, dict) else {}).items() if isinstance(value, str)}
        kept = [f"{_toml(key)} = {_toml(value)}" for key, value in pairs.items() if not key.startswith(_RESERVED)]
        if kept:
            lines.append(f"env = {{ {', '.join(kept)} }}")
    else:
        lines.append(f"# GABS starts it ({one_line(str(mode))}); `bascule games attach {game_id}` reaches it then.")
        lines.append(f"bridge_file = {_toml(f'~/.gabs/{name}/bridge.json')}")
    left = [key for key in ("profiles", "launchInputs", "unsetEnv", "lifecycle", "stopProcessName") if game.get(key)]
    if left:
        lines.append(f"# Not taken over: {', '.join(left)}.")
    return "\n".join([*lines, ""])


def _toml(text: str) -> str:
    # A JSON string is a TOML string, but for the one control character that TOML wants escaped and JSON does not.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as fault:
        raise WrongUsage(f"{path} cannot be read: {fault}") from None
