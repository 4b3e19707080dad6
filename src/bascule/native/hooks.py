"""A hook's bytes as a typed value, for each client: read, or refused with a reason; no I/O, and no exception.

`read()` gives a `Hook` only if its command and paths are what the client will run and write. Everything else is
`Unreadable`, which rules deny: what nobody can read is no empty call.

Claude Code 2.1.327, Codex 0.169.0 and Gemini CLI 0.61.0 were seen to send these. How each of them writes JSON:
Claude Code, Gemini CLI   JSON.stringify: half a surrogate pair as an escape; the shell is given U+FFFD for it
Codex                     serde_json: proper Unicode, at most 128 levels
"""

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from bascule.kernel.policy.zones import SECRET_FILES
from bascule.native.protocol import (
    MAX_COMMAND_CHARS,
    MAX_PATH_CHARS,
    MAX_PATHS,
    MAX_SESSION_CHARS,
    Client,
    EditText,
)
from bascule.native.texts import edits_of, patch_of
from gabp import codec

Kind = Literal["shell", "write", "read", "fetch", "other"]
Moment = Literal[
    "before", "after", "failed", "question", "start", "prompt", "woken", "stop", "stop_failed", "end", "notice", "asks"
]

# A tool's whole output comes with its end; a text that is written comes twice. No call that a model makes is as long.
MAX_INPUT_BYTES = 16 * 1024 * 1024
# No model writes as much in one call: half a million tokens.
MAX_GIVEN_BYTES = 4 * 1024 * 1024
# Of a list: what it is made of costs more to make than a text as long.
MAX_LIST_BYTES = 256 * 1024
# Of all paths together: each is looked at, for links.
MAX_STEPS = 20_000
# Codex's own reader takes 128 levels. JSON of the other two has no limit, and no call of theirs has ten.
MAX_DEPTH = 200
# Halves of surrogate pairs in one input: a model cuts an emoji in two, once.
MAX_HALVES = 10_000
MAX_TITLE_CHARS = 200
# Patterns of a search, and what `{a,b}{c,d}...` in one may become.
MAX_GLOBS = 64

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
# Events about one call of a tool.
_OF_CALLS = frozenset(["before", "after", "failed", "question"])
# Tools that ask the person something.
ASKING_TOOLS = frozenset(["AskUserQuestion", "ExitPlanMode"])


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
    # The client is asked to run it without its own sandbox.
    unsandboxed: bool = False
    # Of a command: what a patch inside it writes.
    paths: tuple[str, ...] = ()
    url: str | None = None
    # What would be written.
    edits: tuple[EditText, ...] = ()
    # Why the client's new sessions will not report, as our hook found when settings changed.
    switched_off: str | None = None

    @property
    def title(self) -> str:
        """What a person recognises the call by."""
        text = self.command if self.command is not None else " ".join((self.tool or "", *self.paths)).strip()
        return _cut(text or self.url or self.tool or self.name) or "a hook"


class Unreadable(msgspec.Struct, frozen=True):
    """Nobody can say what the call does."""

    # What is known beside: the session and its directory, the tool's name. Nothing of what the tool was given.
    hook: Hook
    reason: str

    @property
    def title(self) -> str:
        return _cut(f"{self.hook.tool or self.hook.name or 'a hook'} (not readable: {self.reason})")


class _Refused(Exception):
    """Why a call cannot be read."""


# -- what tools are given -------------------------------------------------------------------------

# Some clients take "true" for true.
_Flag = bool | str | int | None
# A text or a list, looked at once its size is known.
_Later = msgspec.Raw
_NONE = msgspec.Raw(b"null")


class _Shell(msgspec.Struct, rename="camel"):
    command: _Later = _NONE
    dangerously_disable_sandbox: _Flag = None
    # Codex.
    with_escalated_permissions: _Flag = msgspec.field(name="with_escalated_permissions", default=None)
    sandbox_permissions: str | None = msgspec.field(name="sandbox_permissions", default=None)
    # Gemini CLI: another directory than the session's.
    directory: str | None = None
    dir_path: str | None = msgspec.field(name="dir_path", default=None)


class _Files(msgspec.Struct):
    """Of tools that write or read: a field is looked at only for tools that have it."""

    file_path: str | None = None
    absolute_path: str | None = None
    notebook_path: str | None = None
    path: str | None = None
    dir_path: str | None = None
    paths: _Later = _NONE
    include: _Later = _NONE
    include_pattern: _Later = _NONE
    glob: _Later = _NONE
    pattern: str | None = None
    # The text that is written.
    content: str | None = None
    new_source: str | None = None
    old_string: str | None = None
    new_string: str | None = None
    edits: _Later = _NONE
    replace_all: _Flag = None
    allow_multiple: _Flag = None
    expected_replacements: int | float | str | None = None
    edit_mode: str | None = None
    cell_number: int | float | str | None = None
    cell_id: str | None = None
    # Codex's patch.
    command: _Later = _NONE
    input: _Later = _NONE
    patch: _Later = _NONE
    # A page.
    url: str | None = None
    prompt: str | None = None


_shell = codec.decoder(_Shell, max_depth=MAX_DEPTH)
_files = codec.decoder(_Files, max_depth=MAX_DEPTH)
_words = codec.decoder(str | list[str] | None)
_edits = codec.decoder(list[dict[str, str | int | float | bool | None]] | None, max_values=codec.MAX_VALUES)


class _Tool(NamedTuple):
    kind: Kind
    # Of these the first that is there.
    path: tuple[str, ...] = ()
    # Without a path it works in the directory of its session.
    has_default: bool = False
    # Lists of paths and patterns whose files' text is read.
    globs: tuple[str, ...] = ()
    # It always writes this.
    fixed: str | None = None


_TOOLS: dict[str, _Tool] = {
    # Claude Code.
    "Bash": _Tool("shell"),
    "Monitor": _Tool("shell"),
    "Write": _Tool("write", ("file_path",)),
    "Edit": _Tool("write", ("file_path",)),
    "MultiEdit": _Tool("write", ("file_path",)),
    "NotebookEdit": _Tool("write", ("notebook_path",)),
    "Read": _Tool("read", ("file_path",)),
    "NotebookRead": _Tool("read", ("notebook_path",)),
    "Glob": _Tool("read", ("path",), has_default=True),
    "Grep": _Tool("read", ("path",), has_default=True, globs=("glob",)),
    "LS": _Tool("read", ("path",), has_default=True),
    "WebFetch": _Tool("fetch"),
    # Codex.
    "apply_patch": _Tool("write"),
    "shell": _Tool("shell"),
    "local_shell": _Tool("shell"),
    "exec_command": _Tool("shell"),
    "view_image": _Tool("read", ("path",)),
    # Gemini CLI.
    "run_shell_command": _Tool("shell"),
    "write_file": _Tool("write", ("file_path",)),
    "replace": _Tool("write", ("file_path",)),
    # Into the memory that all its sessions read.
    "save_memory": _Tool("write", fixed="~/.gemini/GEMINI.md"),
    "read_file": _Tool("read", ("absolute_path", "file_path", "path")),
    "read_many_files": _Tool("read", has_default=True, globs=("paths", "include")),
    "list_directory": _Tool("read", ("dir_path", "path"), has_default=True),
    "glob": _Tool("read", ("dir_path", "path"), has_default=True),
    "search_file_content": _Tool("read", ("dir_path", "path"), has_default=True, globs=("include", "include_pattern")),
    "grep_search": _Tool("read", ("dir_path", "path"), has_default=True, globs=("include", "include_pattern")),
    "web_fetch": _Tool("fetch"),
}
_OTHER = _Tool("other")


class _Event(msgspec.Struct):
    hook_event_name: _Later = _NONE
    session_id: _Later = _NONE
    cwd: _Later = _NONE
    tool_name: _Later = _NONE
    tool_use_id: _Later = _NONE
    agent_id: _Later = _NONE
    prompt: _Later = _NONE
    transcript_path: _Later = _NONE
    notification_type: _Later = _NONE
    message_type: _Later = _NONE
    switched_off: _Later = _NONE
    # An object; its text from the hidden tool, which a client fills in as text.
    tool_input: msgspec.Raw = msgspec.Raw(b"")


_event = codec.decoder(_Event, max_depth=MAX_DEPTH)
_text_of = codec.decoder(str)


def read(client: Client, raw: bytes) -> Hook | Unreadable:
    """What a hook was given, byte for byte."""
    try:
        event: _Event = _decoded(_event, _without_halves(raw))
    except _Refused as refused:
        return Unreadable(Hook(client=client, name="unreadable", moment=None, session="unnamed"), str(refused))
    hook = _envelope(client, event)
    # An event of tomorrow about a tool is one about a call.
    if hook.moment not in _OF_CALLS and (hook.moment is not None or hook.tool is None):
        return hook
    try:
        return _call(hook, event)
    except _Refused as refused:
        return Unreadable(hook, str(refused))


def _decoded(decoder: codec.Decoder[Any], data: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(data)
    except codec.BadJson as error:
        raise _Refused(error.message) from None


def _listed(decoder: codec.Decoder[Any], data: msgspec.Raw) -> Any:
    given = bytes(data)
    if given[:1] == b"[" and len(given) > MAX_LIST_BYTES:
        raise _Refused(f"a list of it has more than {MAX_LIST_BYTES} bytes")
    return _decoded(decoder, given)


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# A lone half becomes U+FFFD, as Node gives it to a shell and to the file system.
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


def _without_halves(data: bytes) -> bytes:
    if len(data) > MAX_INPUT_BYTES:
        raise _Refused(f"it has more than {MAX_INPUT_BYTES} bytes")
    if _SURROGATE.search(data) is None:
        return data
    if b"\0" in data:
        raise _Refused("it has a NUL, which JSON does not have")
    # Escaped backslashes step aside, so that each backslash left begins an escape.
    bare = data.replace(b"\\\\", b"\0\0")
    bare, count = _HALF.subn(rb"\\ufffd", bare, MAX_HALVES)
    if count == MAX_HALVES:
        raise _Refused(f"it has {MAX_HALVES} halves of surrogate pairs")
    return bare.replace(b"\0\0", b"\\\\")


def _envelope(client: Client, event: _Event) -> Hook:
    """A field that is not there, or is not what it should be, is nothing: no version of a client may stop its user."""
    name, tool = _text(event.hook_event_name) or "", _text(event.tool_name)
    return Hook(
        client=client,
        name=name[:MAX_SESSION_CHARS],
        moment=_moment(name, tool),
        session=(_text(event.session_id) or "unnamed")[:MAX_SESSION_CHARS],
        cwd=_absolute(_text(event.cwd)),
        agent=_short(event.agent_id),
        prompt=_text(event.prompt),
        transcript=_absolute(_text(event.transcript_path)),
        about=_short(event.notification_type) or _short(event.message_type),
        tool=tool[:MAX_SESSION_CHARS] if tool else None,
        kind=_TOOLS.get(tool or "", _OTHER).kind,
        call_id=_short(event.tool_use_id),
        switched_off=(_text(event.switched_off) or "")[:MAX_TITLE_CHARS] or None,
    )


def _moment(name: str, tool: str | None) -> Moment | None:
    moment = _MOMENTS.get(name)
    return "asks" if moment == "question" and tool in ASKING_TOOLS else moment


def _call(hook: Hook, event: _Event) -> Hook:
    if hook.tool is None:
        raise _Refused("it names no tool")
    if bytes(event.cwd) != bytes(_NONE) and hook.cwd is None:
        raise _Refused("its cwd is not an absolute path that could be opened")
    if hook.kind == "other":
        return hook
    given = bytes(event.tool_input)
    if not given:
        raise _Refused("what the tool is given did not come, or is too long to be passed on")
    if len(given) > MAX_GIVEN_BYTES:
        raise _Refused(f"what the tool is given has more than {MAX_GIVEN_BYTES} bytes")
    if given[:1] == b'"':
        given = _without_halves(_decoded(_text_of, given).encode())
    if hook.kind == "shell":
        return _shell_call(hook, _decoded(_shell, given))
    fields = {
        name: _listed(_edits if name == "edits" else _words, value) if isinstance(value, msgspec.Raw) else value
        for name, value in msgspec.structs.asdict(_decoded(_files, given)).items()
    }
    if hook.kind == "fetch":
        return _fetch_call(hook, fields)
    return _file_call(hook, _TOOLS[hook.tool], fields)


def _shell_call(hook: Hook, given: _Shell) -> Hook:
    command = _listed(_words, given.command)
    if isinstance(command, list) and command and hook.client == "codex":
        command = shlex.join(command)
    if not isinstance(command, str):
        raise _Refused("its command is not a text")
    if len(command) > MAX_COMMAND_CHARS:
        raise _Refused(f"its command has more than {MAX_COMMAND_CHARS} characters")
    if "\0" in command:
        raise _Refused("its command has a NUL, which no command can hold")
    cwd = hook.cwd
    if hook.client == "gemini" and (named := given.directory or given.dir_path):
        cwd = _absolute(posixpath.join(cwd or "", named))
        if cwd is None:
            raise _Refused("its directory is not a path that could be opened")
    escalated = given.sandbox_permissions not in (None, "", "use_default")
    return msgspec.structs.replace(
        hook,
        command=command,
        cwd=cwd,
        unsandboxed=_is_on(given.dangerously_disable_sandbox) or _is_on(given.with_escalated_permissions) or escalated,
        paths=_checked(_patched(command)) if _PATCHES.search(command) else (),
    )


def _is_on(flag: _Flag) -> bool:
    return flag not in (None, False, 0, "", "false")


def _fetch_call(hook: Hook, fields: Mapping[str, Any]) -> Hook:
    # Gemini CLI's addresses stand in a prompt.
    url = fields["url"] if hook.client == "claude" else fields["url"] or fields["prompt"]
    if url is None:
        raise _Refused("it has no url")
    if len(url) > MAX_PATH_CHARS:
        raise _Refused(f"its url has more than {MAX_PATH_CHARS} characters")
    return msgspec.structs.replace(hook, url=url)


def _file_call(hook: Hook, tool: _Tool, fields: Mapping[str, Any]) -> Hook:
    arguments = {name: value for name, value in fields.items() if value is not None}
    if hook.tool == "apply_patch":
        found = _patched(patch_of(arguments) or "")
        if not found:
            raise _Refused("its patch names no file")
    else:
        found = [tool.fixed] if tool.fixed is not None else _named(tool, arguments)
    return msgspec.structs.replace(
        hook, paths=_checked(found), edits=edits_of(hook.tool or "", arguments) if hook.kind == "write" else ()
    )


def _named(tool: _Tool, arguments: Mapping[str, Any]) -> list[str]:
    path = next((arguments[name] for name in tool.path if arguments.get(name)), None)
    if path is None and not tool.has_default:
        raise _Refused(f"it has no {tool.path[0]}")
    found = [] if path is None else [path]
    # Claude Code leaves out blanks around a path.
    found += [bare for each in found if (bare := each.strip(_BLANK + "\ufeff")) != each and bare]
    for name in tool.globs:
        listed = arguments.get(name, ())
        for glob in _globs([listed] if isinstance(listed, str) else listed):
            found.append(posixpath.join(path or "", glob))
    return found


def _checked(paths: list[str]) -> tuple[str, ...]:
    if sum(path.count("/") for path in paths) > MAX_STEPS:
        raise _Refused(f"its paths have more than {MAX_STEPS} steps")
    if len(paths) > MAX_PATHS:
        raise _Refused(f"it names more than {MAX_PATHS} files")
    for path in paths:
        if len(path) > MAX_PATH_CHARS:
            raise _Refused(f"a path of it has more than {MAX_PATH_CHARS} characters")
        if "\0" in path:
            raise _Refused("a path of it has a NUL, which no path can hold")
    return tuple(dict.fromkeys(paths))


# -- Codex's patches ------------------------------------------------------------------------------

_HEADER = re.compile(r"\*\*\* (?:Add File|Update File|Delete File|Move to): ")
# What Rust's `str::trim` leaves out (Unicode's White_Space).
_BLANK = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
_PATCHES = re.compile(r"apply_?patch")


def _patched(text: str) -> list[str]:
    """Codex trims a line before it compares it with its headers, wherever it stands in the patch."""
    found, at = [], 0
    while (header := _HEADER.search(text, at)) is not None:
        begin = text.rfind("\n", at, header.start()) + 1 or at
        at = text.find("\n", header.end()) + 1 or len(text)
        if not text[begin : header.start()].strip(_BLANK):
            found.append(text[header.end() : at].rstrip(_BLANK))
        if len(found) > MAX_PATHS:
            break
    return found


# -- globs of searches ----------------------------------------------------------------------------

_PATTERN = re.compile(r"[*?\[{]")
_BRACES = re.compile(r"\{([^{}]*)\}")
# One name for each pattern of files with secrets.
_SECRET_NAMES = tuple(
    (f"{glob.removesuffix('/**')}/x" if glob.endswith("/**") else glob).replace("*", "x").lstrip("/")
    for glob in SECRET_FILES
)


def _globs(listed: list[str]) -> Iterator[str]:
    """Files that are searched by name: as they are written, and names with secrets that the patterns stand for."""
    if any(len(text) > MAX_PATH_CHARS for text in listed):
        raise _Refused(f"a glob of it has more than {MAX_PATH_CHARS} characters")
    patterns = 0
    for each in (word for text in listed for word in _apart(text)):
        if not each or each.startswith("!"):
            continue
        if _PATTERN.search(each) is None:
            yield each
            continue
        made = _unbraced(each)
        patterns += len(made)
        if patterns > MAX_GLOBS:
            raise _Refused(f"it names more than {MAX_GLOBS} patterns")
        for glob in made:
            yield glob
            last = glob.rpartition("/")[2]
            # `*` and `*.*` name nothing; `.e*` does.
            if set(last) <= set("*?.") and not last.startswith("."):
                continue
            for name in _SECRET_NAMES:
                if fnmatch.fnmatchcase(name, glob) or fnmatch.fnmatchcase(name.rpartition("/")[2], last):
                    yield name


def _apart(text: str) -> list[str]:
    """Apart at blanks and commas that stand in no braces."""
    words, depth = [""], 0
    for char in text:
        depth = max(0, depth + (char == "{") - (char == "}"))
        if depth == 0 and (char == "," or char.isspace()):
            words.append("")
        else:
            words[-1] += char
    return words


def _unbraced(glob: str) -> list[str]:
    """Each that it stands for: the innermost braces first."""
    made, done = [glob], []
    while made:
        each = made.pop()
        inside = _BRACES.search(each)
        if inside is None:
            done.append(each)
        else:
            made += [f"{each[: inside.start()]}{choice}{each[inside.end() :]}" for choice in inside[1].split(",")]
        if len(made) + len(done) > MAX_GLOBS:
            raise _Refused(f"its glob stands for more than {MAX_GLOBS} names")
    return done


# -- small things ---------------------------------------------------------------------------------


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text(value: msgspec.Raw) -> str | None:
    """A text that is not empty; what else stands there is not even read, for it may be megabytes of numbers."""
    given = bytes(value)
    return (_decoded(_text_of, given) or None) if given[:1] == b'"' else None


def _short(value: msgspec.Raw) -> str | None:
    """Names and ids, which are remembered: a forged one must not cost more than a real one."""
    text = _text(value)
    return text[:MAX_SESSION_CHARS] if text is not None else None


def _absolute(path: str | None) -> str | None:
    usable = path is not None and path.startswith("/") and len(path) <= MAX_PATH_CHARS and "\0" not in path
    return path if usable else None
