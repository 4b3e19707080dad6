"""Profiles: what is known about a program, as data, made from recordings of the real one.

A profile is a TOML file named for the program and the version that was recorded, `bash-5.2.toml`. A new program joins
by one such file in the profiles directory of the user's configuration; nothing else changes. The file says:

    program = ["bash"]          names of the executable, and of the process in a tmux pane
    not_with = '^[^-]|^-c$'     an argument that makes another program of it: a script that bash runs is not a shell
    type = "shell"              what it registers as, unless --type says otherwise

    [bell]
    line = "# {line}"           how the one-line notice is written so that the program leaves it alone

    [ready]                     all that is given must hold before anything is typed
    quiet_ms = 300              nothing was written for this long
    mode = "raw"                it edits its lines itself ("raw"), or leaves that to the terminal ("cooked")
    foreground = true           no other program runs in its terminal
    prompt = "[$#] $"           the line the output stopped in, for programs that write lines
    row = "^> "                 the row the cursor is in, for programs that draw; needs pyte
    cursor = true               the cursor is shown: menus hide it
    title = "^idle"             what the program calls its window

    [enter]
    delay_ms = 50               between the text and its Enter

    [deliver]                   for --deliver payload
    header = false              the payload alone: a shell or a REPL would read our lines as its own

    [answer]                    for --auto-reply
    quiet_ms = 1500
    prompt = "^[^ ]*[$#] "      lines that are the prompt and not the answer
    skip = ["^\\\\s*$"]           further lines that are not
"""

import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from bascule.foundation import paths
from bascule.foundation.text import typeable_line
from bascule.local_client.exits import WrongUsage

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")
# A profile is a page; a file that is larger is something else.
MAX_PROFILE_BYTES = 64 * 1024
# Without a profile: longer than the pauses of a program that draws, shorter than a person's patience.
DEFAULT_QUIET_MS = 1_000
DEFAULT_ENTER_MS = 150
DEFAULT_ANSWER_QUIET_MS = 3_000
# A profile may not make the wrapper wait for ever, nor an Enter come so late that the person types before it.
MAX_QUIET_MS = 600_000
MAX_ENTER_MS = 1_000

_FIELDS: dict[str, tuple[type, ...]] = {
    "program": (list,),
    "not_with": (str,),
    "type": (str,),
    "notes": (str,),
    "bell.line": (str,),
    "ready.quiet_ms": (int,),
    "ready.mode": (str,),
    "ready.foreground": (bool,),
    "ready.prompt": (str,),
    "ready.row": (str,),
    "ready.cursor": (bool,),
    "ready.title": (str,),
    "enter.delay_ms": (int,),
    "deliver.header": (bool,),
    "answer.quiet_ms": (int,),
    "answer.prompt": (str,),
    "answer.skip": (list,),
}


class Profile:
    """One file, read and checked."""

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self._settings = settings
        self.program: tuple[str, ...] = tuple(settings.get("program", ()))
        self.type: str | None = settings.get("type")
        self.bell: str = settings.get("bell.line", "{line}")
        self.quiet_seconds: float = settings.get("ready.quiet_ms", DEFAULT_QUIET_MS) / 1000
        self.mode: str | None = settings.get("ready.mode")
        self.foreground: bool = settings.get("ready.foreground", False)
        self.cursor: bool | None = settings.get("ready.cursor")
        self.enter_seconds: float = settings.get("enter.delay_ms", DEFAULT_ENTER_MS) / 1000
        self.header: bool = settings.get("deliver.header", True)
        self.answer_quiet_seconds: float = settings.get("answer.quiet_ms", DEFAULT_ANSWER_QUIET_MS) / 1000

    def is_about(self, arguments: Sequence[str]) -> bool:
        """Whether the program is the one that was recorded when it is given these."""
        other = self._pattern("not_with")
        return other is None or not any(map(other.search, arguments))

    @cached_property
    def prompt(self) -> re.Pattern[str] | None:
        return self._pattern("ready.prompt")

    @cached_property
    def row(self) -> re.Pattern[str] | None:
        return self._pattern("ready.row")

    @cached_property
    def title(self) -> re.Pattern[str] | None:
        return self._pattern("ready.title")

    @cached_property
    def answer_prompt(self) -> re.Pattern[str] | None:
        return self._pattern("answer.prompt")

    @cached_property
    def answer_skip(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(text) for text in self._settings.get("answer.skip", ()))

    def bell_line(self, text: str) -> str:
        """The notice as this program is to see it: one line, whatever the profile or the text says."""
        return typeable_line(self.bell.replace("{line}", typeable_line(text)))

    def _pattern(self, field: str) -> re.Pattern[str] | None:
        text = self._settings.get(field)
        return re.compile(text) if text else None


NOTHING_KNOWN = Profile("unknown", {})


def read(path: str) -> Profile:
    import tomllib  # noqa: PLC0415 - 8 ms that a program without a profile does not pay

    name = os.path.basename(path).removesuffix(".toml")
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_PROFILE_BYTES + 1)
        if len(data) > MAX_PROFILE_BYTES:
            raise WrongUsage(f"profile {path} is larger than {MAX_PROFILE_BYTES} bytes")
        settings = _flat(tomllib.loads(data.decode("utf-8")), path)
    except OSError as fault:
        raise WrongUsage(f"profile {path} cannot be read: {fault.strerror}") from None
    except ValueError as fault:
        raise WrongUsage(f"profile {path} is not TOML: {fault}") from None
    _check(settings, path)
    return Profile(name, settings)


def _flat(tables: dict[str, Any], path: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name, value in tables.items():
        fields = (
            {f"{name}.{field}": each for field, each in value.items()} if isinstance(value, dict) else {name: value}
        )
        for field, each in fields.items():
            kinds = _FIELDS.get(field)
            if kinds is None:
                raise WrongUsage(f"profile {path}: {field!r} is not a field", f"there are: {', '.join(_FIELDS)}")
            # A bool is an int to Python, not to a user who writes `quiet_ms = true`.
            if not isinstance(each, kinds) or (isinstance(each, bool) and bool not in kinds):
                raise WrongUsage(f"profile {path}: {field} is {each!r}, not a {kinds[0].__name__}")
            settings[field] = each
    return settings


def _check(settings: dict[str, Any], path: str) -> None:
    for field, most in (
        ("ready.quiet_ms", MAX_QUIET_MS),
        ("answer.quiet_ms", MAX_QUIET_MS),
        ("enter.delay_ms", MAX_ENTER_MS),
    ):
        if not 0 <= settings.get(field, 0) <= most:
            raise WrongUsage(f"profile {path}: {field} is {settings[field]}; it may be 0 to {most}")
    if settings.get("ready.mode") not in (None, "raw", "cooked"):
        raise WrongUsage(f'profile {path}: ready.mode is {settings["ready.mode"]!r}, not "raw" or "cooked"')
    if "bell.line" in settings and "{line}" not in settings["bell.line"]:
        raise WrongUsage(f"profile {path}: bell.line does not contain {{line}}")
    texts = [
        settings.get("not_with"),
        settings.get("ready.prompt"),
        settings.get("ready.row"),
        settings.get("ready.title"),
        settings.get("answer.prompt"),
        *settings.get("answer.skip", ()),
    ]
    for text in texts:
        try:
            re.compile(text or "")
        except (re.error, TypeError) as fault:
            raise WrongUsage(f"profile {path}: {text!r} is not a pattern: {fault}") from None
    if not all(isinstance(name, str) and name for name in settings.get("program", ())):
        raise WrongUsage(f"profile {path}: program is a list of names")


def directories() -> tuple[str, ...]:
    """Where profiles are looked for, the person's own first."""
    return os.path.join(paths.config_dir(), "profiles"), HERE


def _files() -> list[str]:
    found: list[str] = []
    for directory in directories():
        try:
            names = sorted(os.listdir(directory), key=_by_version, reverse=True)
        except OSError:
            continue
        found += [os.path.join(directory, name) for name in names if name.endswith(".toml")]
    return found


def _by_version(name: str) -> list[tuple[int, str]]:
    """`codex-0.10` is newer than `codex-0.9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def choose(named: str | None, command: Sequence[str], type_: str | None = None) -> Profile:
    """`--profile NAME` (or a file), else by the program's name, else by its type; the newest version of several."""
    if named and (os.sep in named or named.endswith(".toml")):
        return read(named)
    wanted = (named,) if named else tuple(filter(None, (os.path.basename(command[0]), type_)))
    files = {path: os.path.basename(path).removesuffix(".toml") for path in _files()}
    for word in wanted:
        # By name first: reading all of them costs a start more than everything else here.
        by_name = [path for path, name in files.items() if word == name or _program_of(word) == _program_of(name)]
        for path in by_name or files:
            profile = read(path)
            if (by_name or word in profile.program) and (named or profile.is_about(command[1:])):
                return profile
    if named:
        known = sorted({os.path.basename(path).removesuffix(".toml") for path in _files()})
        raise WrongUsage(f"there is no profile {named!r}", f"there are: {', '.join(known)}; or name a file")
    return NOTHING_KNOWN


def _program_of(name: str) -> str:
    """`bash-5.2` is about bash, and so is `bash`; `python3.11` is python."""
    return re.sub(r"-?\d[\d.]*\Z", "", name)
