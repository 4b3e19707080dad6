"""Aliases and completions: one script per shell, and the line that loads it."""

import argparse
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from bascule.cli.setup import blocks, completion
from bascule.cli.setup.changes import CannotChange, Change, Edit
from bascule.cli.setup.planning import Plan
from bascule.cli.setup.record import Record

_FIRST = "# Aliases and completions of Bascule, written by `bascule setup shell`: it writes them anew.\n"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the shells look."""

    home: str
    config: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def script(self, shell: str) -> str:
        if shell == "fish":
            # Read by itself when fish starts.
            config = self.environment.get("XDG_CONFIG_HOME") or os.path.join(self.home, ".config")
            return os.path.join(config, "fish", "conf.d", "bascule.fish")
        return os.path.join(self.config, f"completion.{shell}")

    def start_file(self, shell: str) -> str | None:
        match shell:
            case "bash":
                return os.path.join(self.home, ".bashrc")
            case "zsh":
                return os.path.join(self.environment.get("ZDOTDIR") or self.home, ".zshrc")
        return None


def parsers() -> list[argparse.ArgumentParser]:
    from bascule.cli import bridgectl, main
    from bascule.programs.helpers import native, recv, register, reply, send, wait
    from bascule.programs.wrap import command as wrap

    helpers = [module.build_parser() for module in (register, reply, recv, send, wait, native, wrap)]
    return [main.build_parser(), bridgectl._parser(), *helpers]  # noqa: SLF001 - one house; its own main uses it


def script(shell: str, folder: str, handle: str | None) -> str:
    """The whole script. `folder` is where our programs are, if PATH does not lead to them."""
    lines = [_FIRST]
    for alias, program in completion.ALIASES.items():
        known = shutil.which(program) or program
        words = program if shutil.which(program) else os.path.join(folder, os.path.basename(known))
        if handle and alias == "register":
            words += f" --agent {handle}"
        quoted = "'" + words.replace("'", "\\'" if shell == "fish" else "'\\''") + "'"
        lines.append(f"alias {alias} {quoted}\n" if shell == "fish" else f"alias {alias}={quoted}\n")
    return "".join(lines) + "\n" + completion.script(shell, parsers())


def plan(shell: str, text: str, place: Place, record: Record, *, undo: bool) -> Plan:
    made = Plan()
    path = place.script(shell)
    _add(made, path, _whole(path, None if undo else text), undo=undo)
    start = place.start_file(shell)
    if start is not None:
        quoted = "'" + path.replace("'", "'\\''") + "'"
        block = f"# {blocks.BEGIN} (bascule setup shell)\n[ -r {quoted} ] && . {quoted}\n# {blocks.END}\n"
        created = record.of(os.path.realpath(start)).file

        def edit(old: str) -> str | None:
            if not undo:
                return blocks.set_block(old, block)
            rest = blocks.remove_block(old)
            return rest if rest.strip() or not created else None

        _add(made, start, edit, undo=undo)
    made.notes.append(f"Open a new {shell}, or: source {start or path}")
    return made


def _whole(path: str, text: str | None) -> Edit:
    def edit(old: str) -> str | None:
        if old and not old.startswith(_FIRST):
            raise CannotChange(f"{path} is not Bascule's", "move it away, then run this again")
        return text

    return edit


def _add(plan: Plan, path: str, edit: Edit, *, undo: bool) -> None:
    if undo and not os.path.exists(path):
        return
    change = Change(path=path, edit=edit)
    if change.is_needed:
        plan.changes.append(change)
