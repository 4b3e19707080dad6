"""What is to be written into the files of one client: collected, then made one change per file.

`bascule setup` puts its entries in and takes them out by name. `bascule on` shares those files: what stands there
already stays, and `bascule off` takes out what `on` has put in and nothing else.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bascule.cli.paste import PASSED_VARIABLES
from bascule.cli.setup import blocks, texts, toml_text
from bascule.cli.setup.changes import CannotChange, Change, Edit, digest, with_line_endings
from bascule.cli.setup.json_text import JsonText
from bascule.cli.setup.record import Entry, Record

# The broker spec's name for the server (10).
SERVER = "agent-bridge"
# A tool of the session's own server that hooks call and no model sees.
BELL_TOOL = "bell_hook"

Apply = Callable[[JsonText], None]


@dataclass(frozen=True, kw_only=True)
class SetupRequest:
    """What the user asked for."""

    # The programs of this installation, with their full paths.
    bascule: str
    bridge_wait: str
    home: str
    # None: for the user, everywhere.
    project: str | None = None
    agent: str | None = None
    # None named: what `bascule mcp` shows by itself.
    toolsets: tuple[str, ...] = ()
    state_dir: str | None = None
    hooks: bool = True
    instructions: bool = True
    # The client's own questions before it uses our tools: left out. Bascule's policy decides as before.
    allow_tools: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def server_arguments(self) -> list[str]:
        named = ["--agent", self.agent] if self.agent else []
        chosen = ["--toolset", ",".join(self.toolsets)] if self.toolsets else []
        return ["mcp", *named, *chosen, *self._elsewhere]

    def hook_command(self, client: str, event: str, *more: str) -> str:
        return shlex.join([self.bridge_wait, "--hook", client, "--event", event, *more, *self._elsewhere])

    @property
    def _elsewhere(self) -> list[str]:
        return ["--state-dir", self.state_dir] if self.state_dir else []

    def folder(self, name: str, variable: str | None = None) -> str:
        """The client's directory: in the project, where its variable says, or at home."""
        if self.project is not None:
            return os.path.join(self.project, name)
        chosen = self.environment.get(variable) if variable else None
        return os.path.abspath(chosen) if chosen else os.path.join(self.home, name)


@dataclass(kw_only=True)
class Plan:
    """What is to be written where, and what a reader should know."""

    changes: list[Change] = field(default_factory=list)
    # For --print: where, and the piece that belongs there.
    pieces: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class JsonEdit:
    """An edit of a JSON file. Undoing, it also takes away what was made around the entries."""

    def __init__(self, applies: list[Apply], made: Entry | None, *, comments: bool = False) -> None:
        self._applies = applies
        self._made_before = made
        self._comments = comments
        self.made: list[list[str]] = []
        self.back: list[tuple[int, int, str]] = []

    def __call__(self, text: str) -> str | None:
        before = self._made_before
        if before and before.back and before.after == digest(text):
            for start, end, old in before.back:
                text = text[:start] + old + text[end:]
            return None if before.file else text
        document = JsonText(text, comments=self._comments)
        for apply in self._applies:
            apply(document)
        for path in reversed(before.paths if before else []):
            document.prune(*path)
        self.made, self.back = document.made, document.back
        if before and before.file and document.is_empty:
            return None
        return document.text if document.changed else text


class TextEdit:
    """Edits of one text, in turn. Undoing, the lines get the endings that they had."""

    def __init__(self, edits: list[Edit], made: Entry | None) -> None:
        self._edits = edits
        self._endings = made.endings if made is not None else []

    def __call__(self, text: str) -> str | None:
        new: str | None = text
        for edit in self._edits:
            new = edit(new or "")
        return with_line_endings(new, self._endings) if new and self._endings else new


@dataclass(kw_only=True)
class _File:
    mode: int
    comments: bool = False
    applies: list[Apply] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    # What of ours `on` has put in, by name.
    parts: list[str] = field(default_factory=list)


class Planner:
    """Collects what goes into the files of one client; `undo` turns each of it round.

    `shares`: what stands there already is not ours to change, nor to take out.
    """

    def __init__(self, request: SetupRequest, client: str, record: Record, *, undo: bool, shares: bool = False) -> None:
        self.request = request
        self.client = client
        self.undo = undo
        self.plan = Plan()
        self._record = record
        self._shares = shares
        self._files: dict[str, _File] = {}

    def finish(self) -> Plan:
        for path, file in self._files.items():
            made = self.made(path) if self.undo else None
            edit: Edit = TextEdit(file.edits, made)
            if file.applies:
                edit = JsonEdit(file.applies, made, comments=file.comments)
            change = Change(path=path, edit=edit, mode=file.mode)
            change.made.parts = file.parts
            if change.is_needed:
                self.plan.changes.append(change)
        self._files = {}
        return self.plan

    def json(self, path: str, apply: Apply, *, mode: int = 0o644, comments: bool = False) -> None:
        if (file := self._file(path, mode)) is not None:
            file.comments = comments
            file.applies.append(apply)

    def text(self, path: str, edit: Edit, *, mode: int = 0o644) -> None:
        if (file := self._file(path, mode)) is not None:
            file.edits.append(edit)

    def made(self, path: str) -> Entry:
        return self._record.of(os.path.realpath(path))

    def is_ours(self, path: str, part: str, *, present: bool) -> bool:
        """Whether this part of the file may be written, or taken out."""
        if not self._shares:
            return True
        mine = part in self.made(path).parts
        if self.undo or (present and not mine):
            return mine
        if not mine:
            self._files[path].parts.append(part)
        return True

    # -- what both commands write --

    def server_in_json(
        self, path: str, *, mode: int = 0o644, comments: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        entry: dict[str, Any] = {"command": self.request.bascule, "args": self.request.server_arguments}
        if env is not None:
            entry["env"] = dict(env)
        self._piece(path, {"mcpServers": {SERVER: entry}})

        def apply(document: JsonText) -> None:
            known = document.get("mcpServers", SERVER)
            if not self.undo:
                _refuse_stranger(path, known)
            if not self.is_ours(path, "server", present=known is not None):
                return
            if self.undo:
                if is_our_server(known):
                    document.remove("mcpServers", SERVER)
                return
            for name, value in entry.items():
                if not isinstance(known, dict) or known.get(name) != value:
                    document.set(value, "mcpServers", SERVER, name)

        self.json(path, apply, mode=mode, comments=comments)

    def server_in_toml(self, path: str) -> None:
        values: dict[str, str | list[str]] = {
            "command": self.request.bascule,
            "args": self.request.server_arguments,
            "env_vars": PASSED_VARIABLES,
            **({"default_tools_approval_mode": "approve"} if self.request.allow_tools else {}),
        }
        where = ("mcp_servers", SERVER)
        self.plan.pieces.append((path, toml_text.set_table("", where, values)))

        def edit(text: str) -> str | None:
            known = toml_text.table(text, where)
            if not self.undo:
                _refuse_stranger(path, known)
            if not self.is_ours(path, "server", present=known is not None):
                return text
            if self.undo:
                rest = toml_text.remove_table(text, where) if is_our_server(known) else text
                return rest if rest.strip() or not self.made(path).file else None
            missing = {name: value for name, value in values.items() if (known or {}).get(name) != value}
            return toml_text.set_table(text, where, missing) if missing else text

        self.text(path, edit, mode=0o600)

    def instructions(self, path: str) -> None:
        if not self.request.instructions and (self._shares or not self.undo):
            return
        block = texts.instructions(self.client)
        self.plan.pieces.append((path, block))

        def edit(text: str) -> str | None:
            if not self.undo:
                return blocks.set_block(text, block)
            rest = blocks.remove_block(text)
            return rest if rest.strip() or not self.made(path).file else None

        self.text(path, edit)

    def settings_in_json(
        self, path: str, hooks: dict[str, list[dict[str, Any]]], allowed: tuple[str, ...] = ()
    ) -> None:
        """`{"hooks": {EVENT: [{"hooks": [HANDLER]}]}}`, both clients have the same form; and the tools that
        Claude Code uses without asking, `{"permissions": {"allow": [RULE]}}`. One change: they share a file."""
        hooks = hooks if self.request.hooks else {}
        rules = allowed if self.request.allow_tools else ()
        if not hooks and not rules and not self.undo:
            return
        shown: dict[str, Any] = {"permissions": {"allow": list(rules)}} if rules else {}
        if hooks:
            shown["hooks"] = {event: [{"hooks": handlers}] for event, handlers in hooks.items()}
        self._piece(path, shown)

        def apply(document: JsonText) -> None:
            known = document.get("hooks")
            known = known if isinstance(known, dict) else {}
            present = any(_rings(groups, self.client) for groups in known.values())
            if not self.is_ours(path, "bells", present=present):
                return
            if self.undo:
                _remove_rules(document, allowed)
            else:
                _add_rules(document, rules)
            for event in known if self.undo else hooks:
                _set_handlers(document, self.client, event, [] if self.undo else hooks[event])

        self.json(path, apply)

    # -- inside --

    def _file(self, path: str, mode: int) -> _File | None:
        """None: there is nothing to take out of a file that is not there."""
        if self.undo and not os.path.exists(path):
            return None
        return self._files.setdefault(path, _File(mode=mode))

    def _piece(self, path: str, value: Any) -> None:
        self.plan.pieces.append((path, json.dumps(value, indent=2, ensure_ascii=False) + "\n"))


def is_our_server(entry: Any) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    return isinstance(command, str) and os.path.basename(command) == "bascule"


def _add_rules(document: JsonText, rules: tuple[str, ...]) -> None:
    known = document.get("permissions", "allow")
    for rule in rules:
        if not isinstance(known, list) or rule not in known:
            document.append(rule, "permissions", "allow")


def _remove_rules(document: JsonText, rules: tuple[str, ...]) -> None:
    known = document.get("permissions", "allow")
    places = [place for place, each in enumerate(known) if each in rules] if isinstance(known, list) else []
    for place in reversed(places):
        document.remove("permissions", "allow", place)


def _set_handlers(document: JsonText, client: str, event: str, wanted: list[dict[str, Any]]) -> None:
    """Our handlers at this event as wanted, in their old places; what is missing in a group of its own."""
    left = {_purpose(handler): handler for handler in wanted}
    groups = document.get("hooks", event)
    for number in reversed(range(len(groups) if isinstance(groups, list) else 0)):
        hooks = groups[number].get("hooks") if isinstance(groups[number], dict) else None
        handlers: list[Any] = hooks if isinstance(hooks, list) else []
        ours = [place for place, each in enumerate(handlers) if _is_our_handler(each, client)]
        for place in reversed(ours):
            handler = left.pop(_purpose(handlers[place]), None)
            if handler is None:
                document.remove("hooks", event, number, "hooks", place)
            elif handler != handlers[place]:
                document.replace(handler, "hooks", event, number, "hooks", place)
        if ours and not document.get("hooks", event, number, "hooks"):
            document.remove("hooks", event, number)
    if left:
        document.append({"hooks": list(left.values())}, "hooks", event)


def _rings(groups: Any, client: str) -> bool:
    found = [each.get("hooks") for each in groups if isinstance(each, dict)] if isinstance(groups, list) else []
    return any(_is_our_handler(each, client) for handlers in found if isinstance(handlers, list) for each in handlers)


def _is_our_handler(handler: Any, client: str) -> bool:
    if not isinstance(handler, dict):
        return False
    if handler.get("type") == "mcp_tool":
        return handler.get("server") == SERVER and handler.get("tool") == BELL_TOOL
    words = handler.get("command")
    return isinstance(words, str) and "bridge-wait" in words and f"--hook {client} " in words


def _purpose(handler: dict[str, Any]) -> str:
    """Two of ours may stand at one event: the notice and the queue."""
    return "queue" if " --queue" in handler.get("command", "") else "notice"


def _refuse_stranger(path: str, entry: Any) -> None:
    if entry is not None and not is_our_server(entry):
        raise CannotChange(
            f"{path} has a server called {SERVER} already, and it is not Bascule's",
            "rename or remove that entry, then run this again",
        )
