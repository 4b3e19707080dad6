"""A hook's JSON as a typed value, for each client; no I/O, and no input that escapes with an exception.

Claude Code 2.1.325, Codex 0.166.0 and Gemini CLI 0.61.0 were seen to send these. A field that is not there, or is not
what it should be, is nothing: what a client of tomorrow adds or leaves out must not stop anybody's work.
"""

import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from bascule.native.protocol import (
    MAX_COMMAND_CHARS,
    MAX_PATH_CHARS,
    MAX_PATHS,
    MAX_SESSION_CHARS,
    Client,
    EditText,
)
from bascule.native.texts import edits_of, patch_of

Kind = Literal["shell", "write", "read", "fetch", "other"]
Moment = Literal[
    "before", "after", "failed", "question", "start", "prompt", "woken", "stop", "stop_failed", "end", "notice", "asks"
]

# By client: what its events are to us. Those that are not here are signs of life.
_MOMENTS: dict[str, Moment] = {
    "PreToolUse": "before",
    "PostToolUse": "after",
    "PostToolUseFailure": "failed",
    "PermissionRequest": "question",
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "Stop": "stop",
    "Interrupt": "stop",
    "StopFailure": "stop_failed",
    "SessionEnd": "end",
    "Notification": "notice",
    "Elicitation": "asks",
    # Of our own bell: the client goes on after its Stop, and no event of its own says so.
    "Woken": "woken",
    # Gemini CLI.
    "BeforeTool": "before",
    "AfterTool": "after",
    "BeforeAgent": "prompt",
    "AfterAgent": "stop",
}
_KINDS: dict[str, Kind] = {
    # Claude Code.
    "Bash": "shell",
    "Write": "write",
    "Edit": "write",
    "MultiEdit": "write",
    "NotebookEdit": "write",
    "Read": "read",
    "NotebookRead": "read",
    "Glob": "read",
    "Grep": "read",
    "LS": "read",
    "WebFetch": "fetch",
    # Codex.
    "apply_patch": "write",
    "view_image": "read",
    # Gemini CLI.
    "run_shell_command": "shell",
    "write_file": "write",
    "replace": "write",
    "read_file": "read",
    "read_many_files": "read",
    "list_directory": "read",
    "glob": "read",
    "search_file_content": "read",
    "web_fetch": "fetch",
}
# Tools that ask the person something.
ASKING_TOOLS = frozenset(["AskUserQuestion", "ExitPlanMode"])
_PATH_FIELDS = ("file_path", "notebook_path", "absolute_path", "path", "dir_path", "directory")
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+)$", re.MULTILINE)
MAX_TITLE_CHARS = 200


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a client's session."""

    client: Client
    # As the client calls it.
    name: str
    moment: Moment | None
    session: str
    cwd: str | None = None
    # Of a subagent.
    agent: str | None = None
    prompt: str | None = None
    transcript: str | None = None
    # Of a notice: permission_prompt, idle_prompt, ToolPermission.
    about: str | None = None
    tool: str | None = None
    kind: Kind = "other"
    call_id: str | None = None
    command: str | None = None
    paths: tuple[str, ...] = ()
    url: str | None = None
    # What would be written.
    edits: tuple[EditText, ...] = ()
    # Why the client's new sessions will not report, as our hook found when settings changed.
    switched_off: str | None = None
    # The client gave us more than is looked at: nobody can say what the call does.
    too_long: bool = False

    @property
    def title(self) -> str:
        """What a person recognises the call by."""
        text = self.command if self.command is not None else " ".join((self.tool or "", *self.paths)).strip()
        line = " ".join((text or self.url or self.tool or self.name).split())
        return line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"


def read_hook(client: Client, event: Mapping[str, Any]) -> Hook:
    name = _text(event.get("hook_event_name")) or ""
    tool = _text(event.get("tool_name"))
    given = event.get("tool_input")
    arguments: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    kind: Kind = _KINDS.get(tool or "", "other")
    command, paths = _command(kind, arguments), _paths(tool, kind, arguments)
    url = _text(arguments.get("url")) if kind == "fetch" else None
    return Hook(
        client=client,
        name=name[:MAX_SESSION_CHARS],
        moment=_moment(name, tool),
        session=(_text(event.get("session_id")) or "unnamed")[:MAX_SESSION_CHARS],
        cwd=_cwd(event, arguments if client == "gemini" and kind == "shell" else {}),
        agent=_short(event.get("agent_id")),
        prompt=_text(event.get("prompt")),
        transcript=_absolute(event.get("transcript_path")),
        about=_short(event.get("notification_type")) or _short(event.get("message_type")),
        tool=tool[:MAX_SESSION_CHARS] if tool else None,
        kind=kind,
        call_id=_short(event.get("tool_use_id")),
        command=command[:MAX_COMMAND_CHARS] if command is not None else None,
        paths=paths[:MAX_PATHS],
        url=url[:MAX_PATH_CHARS] if url is not None else None,
        edits=edits_of(tool or "", arguments) if kind == "write" else (),
        too_long=len(command or "") > MAX_COMMAND_CHARS or len(paths) > MAX_PATHS or len(url or "") > MAX_PATH_CHARS,
        switched_off=(_text(event.get("switched_off")) or "")[:MAX_TITLE_CHARS] or None,
    )


def _moment(name: str, tool: str | None) -> Moment | None:
    moment = _MOMENTS.get(name)
    return "asks" if moment == "question" and tool in ASKING_TOOLS else moment


def _command(kind: Kind, arguments: Mapping[str, Any]) -> str | None:
    if kind != "shell":
        return None
    command = arguments.get("command")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        command = shlex.join(command)
    return command if isinstance(command, str) else ""


def _paths(tool: str | None, kind: Kind, arguments: Mapping[str, Any]) -> tuple[str, ...]:
    if tool == "apply_patch":
        found = _PATCHED.findall(patch_of(arguments) or "")
    elif kind in ("write", "read"):
        found = [value for name in _PATH_FIELDS if isinstance(value := arguments.get(name), str) and value]
        listed = arguments.get("paths")
        found += [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    else:
        found = []
    return tuple(path for path in found if len(path) <= MAX_PATH_CHARS and "\0" not in path)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _short(value: Any) -> str | None:
    """Names and ids, which are remembered: a forged one must not cost more than a real one."""
    text = _text(value)
    return text[:MAX_SESSION_CHARS] if text is not None else None


def _cwd(event: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Gemini CLI's commands may stand elsewhere, in a directory that is named from the session's."""
    cwd = _absolute(event.get("cwd"))
    named = _text(arguments.get("directory")) or _text(arguments.get("dir_path"))
    return (_absolute(posixpath.join(cwd or "", named)) if named is not None else None) or cwd


def _absolute(value: Any) -> str | None:
    path = _text(value)
    usable = path is not None and path.startswith("/") and len(path) <= MAX_PATH_CHARS and "\0" not in path
    return path if usable else None
