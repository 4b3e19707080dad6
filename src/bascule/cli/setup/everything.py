"""All that `bascule on` puts into the files of one client: server, bells, hooks, skill, badge; and `off` takes out."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping

from bascule.cli.setup import codex_trust
from bascule.cli.setup.clients import CLIENTS
from bascule.cli.setup.json_text import JsonText
from bascule.cli.setup.native_hooks import add_hooks, settings_file
from bascule.cli.setup.planning import Planner, SetupRequest
from bascule.cli.setup.skill import add_skill

# How Codex's trust is remembered among the parts of its settings.
TRUSTED = "trusted:"
# Where clients put themselves without changing PATH.
_BESIDE_PATH = {"claude": (".claude/local/claude", ".local/bin/claude"), "codex": (), "gemini": ()}


def is_there(client: str, request: SetupRequest) -> bool:
    """Whether this client is installed, or was used here."""
    known = [os.path.join(request.home, each) for each in _BESIDE_PATH[client]]
    return (
        shutil.which(client, path=request.environment.get("PATH")) is not None
        or any(os.access(each, os.X_OK) for each in known)
        or os.path.isdir(folder_of(request, client))
    )


def folder_of(request: SetupRequest, client: str) -> str:
    return os.path.dirname(settings_file(request, client))


def add_everything(planner: Planner, program: str, *, closed: bool) -> None:
    folder = folder_of(planner.request, planner.client)
    CLIENTS[planner.client](planner)
    # They are about `bascule setup`.
    planner.plan.notes.clear()
    add_hooks(planner, program, closed=closed)
    add_skill(planner, folder)
    match planner.client:
        case "claude":
            _add_badge(planner)
        case "codex" if planner.undo:
            _forget_trust(planner, os.path.join(folder, "config.toml"))


def _add_badge(planner: Planner) -> None:
    """Only where there is no status line yet: it has room for one program."""
    request = planner.request
    path = settings_file(request, "claude")
    # Not by its script, which costs half as much again: this is run after every turn.
    words = [sys.executable, "-I", "-m", "bascule.cli.start", "badge"]
    words += ["--state-dir", request.state_dir] if request.state_dir else []
    wanted = {"type": "command", "command": shlex.join(words)}

    def apply(document: JsonText) -> None:
        known = document.get("statusLine")
        if not planner.is_ours(path, "badge", present=known is not None):
            return
        if not planner.undo:
            if known != wanted:
                document.set(wanted, "statusLine")
        elif isinstance(known, Mapping) and "bascule.cli.start badge" in str(known.get("command")):
            document.remove("statusLine")

    planner.json(path, apply)


def _forget_trust(planner: Planner, config: str) -> None:
    keys = [part.removeprefix(TRUSTED) for part in planner.made(config).parts if part.startswith(TRUSTED)]
    if not keys:
        return

    def edit(text: str) -> str | None:
        rest = codex_trust.forget(text, keys)
        return rest if rest.strip() or not planner.made(config).file else None

    planner.text(config, edit, mode=0o600)
