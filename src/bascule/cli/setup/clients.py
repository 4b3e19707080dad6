"""Which files each client reads, and what goes into them.

Claude Code  https://code.claude.com/docs/en/mcp, /hooks, /settings
Codex        https://developers.openai.com/codex/mcp, /hooks; codex-rs/config/src/{mcp_types,hook_config}.rs
Gemini CLI   https://geminicli.com/docs/tools/mcp-server
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bascule.broker.protocol import DEFAULT_TIMEOUT_MS
from bascule.cli.paste import PASSED_VARIABLES
from bascule.cli.setup import blocks, texts, toml_text
from bascule.cli.setup.changes import CannotChange, Change, Edit
from bascule.cli.setup.json_text import JsonText
from bascule.cli.setup.record import Entry, Record
from bascule.programs.helpers.hook import BELL_TIMEOUT_SECONDS

# The broker spec's name for the server (10).
SERVER = "agent-bridge"
# A hook that answers at once takes 60 ms; a client that waits longer waits for a machine that is out of breath.
NOTICE_TIMEOUT_SECONDS = 5
# "Hooks can now run commands asynchronously": release 0.148.0. Older ones leave such a hook out and say so.
CODEX_ASYNC = (0, 148, 0)
PROBE_SECONDS = 20
# Broker spec, 10: what an entry of .mcp.json is to provide. Claude Code fills in what its own environment has; an empty
# one counts as not set.
PROJECT_VARIABLES = {
    "BRIDGE_BROKER_URL": "${BRIDGE_BROKER_URL:-}",
    "BRIDGE_DEFAULT_TIMEOUT_MS": f"${{BRIDGE_DEFAULT_TIMEOUT_MS:-{DEFAULT_TIMEOUT_MS}}}",
    "BRIDGE_AGENT_ID": "${BRIDGE_AGENT_ID:-}",
}
# What a bell asks a model to call.
CLAUDE_ALLOWED = tuple(f"mcp__{SERVER}__{tool}" for tool in ("wait_for_message", "post_reply"))


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

    def __init__(self, apply: Callable[[JsonText], None], made: Entry | None, *, comments: bool = False) -> None:
        self._apply = apply
        self._made_before = made
        self._comments = comments
        self.made: list[list[str]] = []

    def __call__(self, text: str) -> str | None:
        document = JsonText(text, comments=self._comments)
        self._apply(document)
        before = self._made_before
        for path in reversed(before.paths if before else []):
            document.prune(*path)
        self.made = document.made
        if before and before.file and document.is_empty:
            return None
        return document.text if document.changed else text


class Planner:
    """Collects the changes of one client; `undo` turns each of them round."""

    def __init__(self, request: SetupRequest, client: str, record: Record, *, undo: bool) -> None:
        self.request = request
        self.client = client
        self.plan = Plan()
        self._record = record
        self._undo = undo

    def server_in_json(
        self, path: str, *, mode: int = 0o644, comments: bool = False, env: Mapping[str, str] | None = None
    ) -> None:
        entry: dict[str, Any] = {"command": self.request.bascule, "args": self.request.server_arguments}
        if env is not None:
            entry["env"] = dict(env)
        self._piece(path, {"mcpServers": {SERVER: entry}})

        def apply(document: JsonText) -> None:
            known = document.get("mcpServers", SERVER)
            if self._undo:
                if _is_ours(known):
                    document.remove("mcpServers", SERVER)
                return
            _refuse_stranger(path, known)
            for name, value in entry.items():
                if not isinstance(known, dict) or known.get(name) != value:
                    document.set(value, "mcpServers", SERVER, name)

        self._json(path, apply, mode=mode, comments=comments)

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
            if self._undo:
                rest = toml_text.remove_table(text, where) if _is_ours(known) else text
                return rest if rest.strip() or not self._made(path).file else None
            _refuse_stranger(path, known)
            missing = {name: value for name, value in values.items() if (known or {}).get(name) != value}
            return toml_text.set_table(text, where, missing) if missing else text

        self._change(path, edit, mode=0o600)

    def instructions(self, path: str) -> None:
        if not self.request.instructions and not self._undo:
            return
        block = texts.instructions(self.client)
        self.plan.pieces.append((path, block))

        def edit(text: str) -> str | None:
            if not self._undo:
                return blocks.set_block(text, block)
            rest = blocks.remove_block(text)
            return rest if rest.strip() or not self._made(path).file else None

        self._change(path, edit)

    def settings_in_json(
        self, path: str, hooks: dict[str, list[dict[str, Any]]], allowed: tuple[str, ...] = ()
    ) -> None:
        """`{"hooks": {EVENT: [{"hooks": [HANDLER]}]}}`, both clients have the same form; and the tools that
        Claude Code uses without asking, `{"permissions": {"allow": [RULE]}}`. One change: they share a file."""
        hooks = hooks if self.request.hooks else {}
        rules = allowed if self.request.allow_tools else ()
        if not hooks and not rules and not self._undo:
            return
        shown: dict[str, Any] = {"permissions": {"allow": list(rules)}} if rules else {}
        if hooks:
            shown["hooks"] = {event: [{"hooks": handlers}] for event, handlers in hooks.items()}
        self._piece(path, shown)

        def apply(document: JsonText) -> None:
            if self._undo:
                _remove_rules(document, allowed)
            else:
                _add_rules(document, rules)
            for event in document.get("hooks") or {} if self._undo else hooks:
                _set_handlers(document, self.client, event, [] if self._undo else hooks[event])

        self._json(path, apply)

    # -- inside --

    def _json(self, path: str, apply: Callable[[JsonText], None], *, mode: int = 0o644, comments: bool = False) -> None:
        self._change(path, JsonEdit(apply, self._made(path) if self._undo else None, comments=comments), mode=mode)

    def _change(self, path: str, edit: Edit, *, mode: int = 0o644) -> None:
        if self._undo and not os.path.exists(path):
            return
        change = Change(path=path, edit=edit, mode=mode)
        if change.is_needed:
            self.plan.changes.append(change)

    def _made(self, path: str) -> Entry:
        return self._record.of(os.path.realpath(path))

    def _piece(self, path: str, value: Any) -> None:
        self.plan.pieces.append((path, json.dumps(value, indent=2, ensure_ascii=False) + "\n"))


def claude(planner: Planner) -> Plan:
    request = planner.request
    folder = request.folder(".claude", "CLAUDE_CONFIG_DIR")
    if request.project is not None:
        planner.server_in_json(os.path.join(request.project, ".mcp.json"), env=PROJECT_VARIABLES)
    else:
        beside = folder if request.environment.get("CLAUDE_CONFIG_DIR") else request.home
        # Claude Code keeps its sign-in there: nobody else reads it.
        planner.server_in_json(os.path.join(beside, ".claude.json"), mode=0o600)
    planner.instructions(os.path.join(request.project or folder, "CLAUDE.md"))
    bell = {"asyncRewake": True, "timeout": BELL_TIMEOUT_SECONDS}
    notice = {"timeout": NOTICE_TIMEOUT_SECONDS}
    planner.settings_in_json(
        os.path.join(folder, "settings.json"),
        {
            event: [_handler(request, "claude", event, **fields)]
            for event, fields in {
                "SessionStart": bell,
                "UserPromptSubmit": notice,
                "PostToolUse": notice,
                "Stop": bell,
            }.items()
        },
        CLAUDE_ALLOWED,
    )
    planner.plan.notes.append(
        "Claude Code reads MCP servers when it starts: begin a new session, and approve `agent-bridge` when it asks."
        if request.project is not None
        else "Claude Code reads MCP servers when it starts: begin a new session."
    )
    if request.hooks and not request.allow_tools:
        planner.plan.notes.append(
            "A woken Claude Code asks you before it fetches and answers a message, and the sender waits meanwhile: "
            "`bascule setup claude --allow-tools` lets it use wait_for_message and post_reply without asking."
        )
    return planner.plan


def codex(planner: Planner) -> Plan:
    request = planner.request
    folder = request.folder(".codex", "CODEX_HOME")
    config = os.path.join(folder, "config.toml")
    planner.server_in_toml(config)
    planner.instructions(os.path.join(request.project or folder, "AGENTS.md"))
    events = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop")
    hooks = {event: [_handler(request, "codex", event, timeout=NOTICE_TIMEOUT_SECONDS)] for event in events}
    queue = codex_can_queue(request.environment) if request.hooks else None
    if queue is None:
        # `async` lets it wait beside the session; Codex ends it with the session.
        fields: dict[str, Any] = {"async": True, "timeout": BELL_TIMEOUT_SECONDS}
        hooks["Stop"].append(_handler(request, "codex", "Stop", "--queue", **fields))
    planner.settings_in_json(os.path.join(folder, "hooks.json"), hooks)
    notes = planner.plan.notes
    if not request.allow_tools:
        notes.append(
            "Codex asks you before each of our tools that changes something, and `codex exec`, which cannot ask, "
            "refuses them: `bascule setup codex --allow-tools` sets `default_tools_approval_mode`. Bascule's policy "
            "and questions stay."
        )
    if request.hooks:
        notes.append("Codex runs a new hook only after you have looked at it: type /hooks in Codex and trust ours.")
        if queue is not None:
            notes.append(f"An idle Codex is not woken: {queue}. Messages are announced when a turn begins or ends.")
        else:
            notes.append("An idle Codex is woken from its first turn on; before that it has no session to wake.")
        if _has_toml_hooks(config):
            notes.append(f"{config} has [hooks] too; Codex runs both and warns that it would rather have one place.")
    if request.project is not None:
        notes.append("Codex reads a project's .codex directory only when the project is trusted.")
    return planner.plan


def gemini(planner: Planner) -> Plan:
    request = planner.request
    folder = request.folder(".gemini")
    planner.server_in_json(os.path.join(folder, "settings.json"), comments=True)
    planner.instructions(os.path.join(request.project or folder, "GEMINI.md"))
    planner.plan.notes.append(
        "Where Gemini CLI's folder trust is on (security.folderTrust), it starts no MCP server in a folder that you "
        "have not trusted: answer its question there, or type /permissions."
    )
    if request.hooks:
        planner.plan.notes.append(
            "No hooks for Gemini CLI: it has none that wakes an idle agent. "
            "It hears of messages with its next agent-bridge call, or from `bridge-wait` in another terminal."
        )
    return planner.plan


CLIENTS: dict[str, Callable[[Planner], Plan]] = {"claude": claude, "codex": codex, "gemini": gemini}


def codex_can_queue(environment: Mapping[str, str]) -> str | None:
    """Why this Codex cannot be rung through its own queue; None when it can."""
    program = shutil.which("codex", path=environment.get("PATH"))
    if program is None:
        return "there is no `codex` in PATH"
    output = _probe(program, "--version", environment)
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", output or "")
    if version is None:
        return "`codex --version` does not say its version"
    if tuple(map(int, version.groups())) < CODEX_ASYNC:
        return f"codex {version[0]} has no asynchronous hooks (0.148.0 has)"
    if _probe(program, "queue --help", environment) is None:
        return f"codex {version[0]} has no `codex queue`"
    return None


def _probe(program: str, words: str, environment: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own codex, asked for its version and its help
            [program, *words.split()],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _handler(request: SetupRequest, client: str, event: str, *words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": request.hook_command(client, event, *words), **fields}


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


def _is_our_handler(handler: Any, client: str) -> bool:
    words = handler.get("command") if isinstance(handler, dict) else None
    return isinstance(words, str) and "bridge-wait" in words and f"--hook {client} " in words


def _purpose(handler: dict[str, Any]) -> str:
    """Two of ours may stand at one event: the notice and the queue."""
    return "queue" if " --queue" in handler["command"] else "notice"


def _is_ours(entry: Any) -> bool:
    command = entry.get("command") if isinstance(entry, dict) else None
    return isinstance(command, str) and os.path.basename(command) == "bascule"


def _refuse_stranger(path: str, entry: Any) -> None:
    if entry is not None and not _is_ours(entry):
        raise CannotChange(
            f"{path} has a server called {SERVER} already, and it is not Bascule's",
            "rename or remove that entry, then run this again",
        )


def _has_toml_hooks(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            hooks = toml_text.parse(file.read()).get("hooks")
    except (OSError, UnicodeDecodeError, toml_text.BadToml):
        return False
    return isinstance(hooks, dict) and any(isinstance(groups, list) for groups in hooks.values())
