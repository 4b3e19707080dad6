"""Hooks that report what a client's own tools do: which file, which events, and what stands there.

Only kinds of handlers that a client knows: one that Codex does not know loses the whole file.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Any

from bascule.cli.setup.clients import codex_runs_tools
from bascule.cli.setup.json_text import BadJson, JsonText
from bascule.cli.setup.planning import SERVER, Planner, SetupRequest

PROGRAM = "bridge-native"
# A call waits for the tree before it, in the largest project half a minute.
TIMEOUT_SECONDS = 60
# At a dialog a hook waits for a person, as long as their question lives at the desk; the dialog stays usable.
DIALOG_SECONDS = 16 * 60
# Codex waits no longer for a hook at these, whatever it is told; unless told it waits one second.
CODEX_ENDING_SECONDS = 3
# Claude Code: tools that change, fetch or read. Listing is left alone: each hook costs time, and names are no secrets.
_CLAUDE_TOOLS = "Bash|Monitor|Write|Edit|MultiEdit|NotebookEdit|Read|Grep|WebFetch"
_CLAUDE = {
    "PreToolUse": _CLAUDE_TOOLS,
    "PostToolUse": _CLAUDE_TOOLS,
    "PostToolUseFailure": _CLAUDE_TOOLS,
    "PermissionRequest": None,
    "SessionStart": None,
    "UserPromptSubmit": None,
    "Notification": None,
    "Stop": None,
    "StopFailure": None,
    "SessionEnd": None,
    "ConfigChange": None,
}
_CODEX = dict.fromkeys(
    (
        "PreToolUse",
        "PostToolUse",
        "PermissionRequest",
        "SessionStart",
        "UserPromptSubmit",
        "Stop",
        "Interrupt",
        "SessionEnd",
    )
)
_GEMINI = dict.fromkeys(
    ("BeforeTool", "AfterTool", "SessionStart", "SessionEnd", "BeforeAgent", "AfterAgent", "Notification")
)
EVENTS: dict[str, Mapping[str, str | None]] = {"claude": _CLAUDE, "codex": _CODEX, "gemini": _GEMINI}


def settings_file(request: SetupRequest, client: str) -> str:
    match client:
        case "claude":
            return os.path.join(request.folder(".claude", "CLAUDE_CONFIG_DIR"), "settings.json")
        case "codex":
            return os.path.join(request.folder(".codex", "CODEX_HOME"), "hooks.json")
        case _:
            return os.path.join(request.folder(".gemini"), "settings.json")


# Claude Code and Codex call the hidden tool of their session's own MCP server at these events: no program has to be
# started. At the beginning and the end of a session the server may not be there.
_THROUGH_MCP = frozenset(
    [
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PermissionRequest",
        "UserPromptSubmit",
        "Notification",
        "Interrupt",
    ]
)
_EVERY = {"event": "${hook_event_name}", "session": "${session_id}", "cwd": "${cwd}"}
_TOOL = {"tool": "${tool_name}", "input": "${tool_input}"}
_CALL = _TOOL | {"id": "${tool_use_id}"}
_PROMPT = {"prompt": "${prompt}"}
# Claude Code leaves out what an event does not have.
_CLAUDE_INPUT = _EVERY | _CALL | _PROMPT | {"agent": "${agent_id}", "about": "${notification_type}"}
# To Codex a name that an event does not have is a hook that failed, so its subagents cannot be told apart here.
_CODEX_INPUT: dict[str, dict[str, str]] = {
    "PreToolUse": _CALL,
    "PostToolUse": _CALL,
    "PermissionRequest": _TOOL,
    "UserPromptSubmit": _PROMPT,
    "Interrupt": {},
}


def mcp_handler(client: str, event: str) -> dict[str, Any]:
    given = _CLAUDE_INPUT if client == "claude" else _EVERY | _CODEX_INPUT[event]
    return {
        "type": "mcp_tool",
        "server": SERVER,
        "tool": "native_hook",
        "input": {"client": client, **given},
        "timeout": _timeout(event),
    }


def _timeout(event: str) -> int:
    if event == "Interrupt":
        return CODEX_ENDING_SECONDS
    return DIALOG_SECONDS if event == "PermissionRequest" else TIMEOUT_SECONDS


def handler(client: str, program: str, arguments: list[str], event: str) -> dict[str, Any]:
    match client:
        case "claude":
            fields: dict[str, Any] = {
                "type": "command",
                "command": program,
                "args": arguments,
                "timeout": _timeout(event),
            }
            if "--closed" in arguments and event == "PreToolUse":
                # A hook that cannot be started refuses the call, too. At other events that would lock the user out.
                fields["onFailure"] = "block"
            return fields
        case "codex":
            seconds = CODEX_ENDING_SECONDS if event in ("Interrupt", "SessionEnd") else TIMEOUT_SECONDS
            return {"type": "command", "command": shlex.join([program, *arguments]), "timeout": seconds}
        case _:
            words = shlex.join([program, *arguments])
            return {"type": "command", "name": PROGRAM, "command": words, "timeout": TIMEOUT_SECONDS * 1000}


def add_hooks(planner: Planner, program: str, *, closed: bool) -> None:
    request, client, undo = planner.request, planner.client, planner.undo
    arguments = ["--client", client, *(["--closed"] if closed else [])]
    if request.state_dir:
        arguments += ["--state-dir", request.state_dir]
    # With --closed a call is refused when nobody answers; a tool of MCP cannot say that.
    knows = client == "claude" or (client == "codex" and codex_runs_tools(request.environment))
    through_mcp = _THROUGH_MCP if knows and not closed else frozenset()

    def apply(document: JsonText) -> None:
        known = document.get("hooks")
        for event in list(known) if undo and isinstance(known, dict) else [] if undo else EVENTS[client]:
            made = mcp_handler(client, event) if event in through_mcp else handler(client, program, arguments, event)
            _set_group(document, event, None if undo else _group(client, event, made))

    planner.json(settings_file(request, client), apply, comments=client == "gemini")


def installed(client: str, request: SetupRequest) -> bool:
    """Whether hooks of ours stand in the user's settings of a client."""
    try:
        with open(settings_file(request, client), encoding="utf-8") as file:
            known = JsonText(file.read(), comments=client == "gemini").get("hooks")
    except (OSError, ValueError, BadJson):
        return False
    groups = [each for listed in known.values() if isinstance(listed, list) for each in listed] if known else []
    return any(_is_ours(group) for group in groups)


def _group(client: str, event: str, made: dict[str, Any]) -> dict[str, Any]:
    matcher = EVENTS[client][event]
    return {**({"matcher": matcher} if matcher else {}), "hooks": [made]}


def _set_group(document: JsonText, event: str, wanted: dict[str, Any] | None) -> None:
    """One group of ours per event, in its old place."""
    groups = document.get("hooks", event)
    places = [number for number, each in enumerate(groups) if _is_ours(each)] if isinstance(groups, list) else []
    for number in reversed(places):
        if wanted is None or number != places[0]:
            document.remove("hooks", event, number)
        elif groups[number] != wanted:
            document.replace(wanted, "hooks", event, number)
    if wanted is not None and not places:
        document.append(wanted, "hooks", event)


def _is_ours(group: Any) -> bool:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return isinstance(hooks, list) and bool(hooks) and all(_is_our_handler(each) for each in hooks)


def _is_our_handler(handler: Any) -> bool:
    if not isinstance(handler, dict):
        return False
    if handler.get("type") == "mcp_tool":
        return handler.get("server") == SERVER and handler.get("tool") == "native_hook"
    command = handler.get("command")
    return isinstance(command, str) and PROGRAM in command
