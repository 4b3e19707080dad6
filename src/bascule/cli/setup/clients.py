"""Which files each client reads, and what goes into them.

Claude Code  https://code.claude.com/docs/en/mcp, /hooks, /settings
Codex        https://developers.openai.com/codex/mcp, /hooks; codex-rs/config/src/{mcp_types,hook_config}.rs
Gemini CLI   https://geminicli.com/docs/tools/mcp-server
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from bascule.broker.protocol import DEFAULT_TIMEOUT_MS
from bascule.cli.setup import toml_text
from bascule.cli.setup.planning import BELL_TOOL, SERVER, Planner, SetupRequest
from bascule.programs.helpers.hook import BELL_TIMEOUT_SECONDS

# A hook that answers at once takes 60 ms; a client that waits longer waits for a machine that is out of breath.
NOTICE_TIMEOUT_SECONDS = 5
# "Hooks can now run commands asynchronously": release 0.148.0. Older ones leave such a hook out and say so.
CODEX_ASYNC = (0, 148, 0)
# The oldest that was seen to run hooks of the kind `mcp_tool`: one kind that it does not know loses the whole file.
CODEX_TOOL_HOOKS = (0, 166, 0)
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


def claude(planner: Planner) -> None:
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
    planner.settings_in_json(
        os.path.join(folder, "settings.json"),
        {
            "SessionStart": [_handler(request, "claude", "SessionStart", **bell)],
            "UserPromptSubmit": [_notice(request, "claude", "UserPromptSubmit")],
            "PostToolUse": [_notice(request, "claude", "PostToolUse")],
            "Stop": [_handler(request, "claude", "Stop", **bell)],
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


def codex(planner: Planner) -> None:
    request = planner.request
    folder = request.folder(".codex", "CODEX_HOME")
    config = os.path.join(folder, "config.toml")
    planner.server_in_toml(config)
    planner.instructions(os.path.join(request.project or folder, "AGENTS.md"))
    events = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop")
    # At the beginning the server may not be there, and at the end of a turn the answer is another one.
    by_tool = events[1:3] if request.hooks and codex_runs_tools(request.environment) else ()
    hooks = {event: [_notice(request, "codex", event, by_tool=event in by_tool)] for event in events}
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


def gemini(planner: Planner) -> None:
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


CLIENTS: dict[str, Callable[[Planner], None]] = {"claude": claude, "codex": codex, "gemini": gemini}


def codex_can_queue(environment: Mapping[str, str]) -> str | None:
    """Why this Codex cannot be rung through its own queue; None when it can."""
    program = shutil.which("codex", path=environment.get("PATH"))
    if program is None:
        return "there is no `codex` in PATH"
    version = _version(program, environment)
    if version is None:
        return "`codex --version` does not say its version"
    name = ".".join(map(str, version))
    if version < CODEX_ASYNC:
        return f"codex {name} has no asynchronous hooks (0.148.0 has)"
    if _probe(program, "queue --help", environment) is None:
        return f"codex {name} has no `codex queue`"
    return None


def codex_runs_tools(environment: Mapping[str, str]) -> bool:
    """Whether a hook may be a tool of an MCP server."""
    program = shutil.which("codex", path=environment.get("PATH"))
    version = _version(program, environment) if program is not None else None
    return version is not None and version >= CODEX_TOOL_HOOKS


def _version(program: str, environment: Mapping[str, str]) -> tuple[int, ...] | None:
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", _probe(program, "--version", environment) or "")
    return tuple(map(int, found.groups())) if found is not None else None


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


def _notice(request: SetupRequest, client: str, event: str, *, by_tool: bool = True) -> dict[str, Any]:
    """By a tool of the session's own server: 1 ms where a program takes 90. A project's server may not be approved."""
    if request.project is not None or not by_tool:
        return _handler(request, client, event, timeout=NOTICE_TIMEOUT_SECONDS)
    # To Codex a name that the event does not have is a hook that failed.
    whose = {"agent": "${agent_id}"} if client == "claude" else {"client": client}
    given = {"event": "${hook_event_name}", **whose}
    return {
        "type": "mcp_tool",
        "server": SERVER,
        "tool": BELL_TOOL,
        "input": given,
        "timeout": NOTICE_TIMEOUT_SECONDS,
    }


def _handler(request: SetupRequest, client: str, event: str, *words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "command", "command": request.hook_command(client, event, *words), **fields}


def _has_toml_hooks(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            hooks = toml_text.parse(file.read()).get("hooks")
    except (OSError, UnicodeDecodeError, toml_text.BadToml):
        return False
    return isinstance(hooks, dict) and any(isinstance(groups, list) for groups in hooks.values())
