"""One table of a TOML text: added, changed, removed, with every other line as it stands.

Codex rewrites its file too, and a person writes comments into it. So only the table's own lines are touched, and
the result is parsed beside the old text: if anything but the table differs, nothing is written.
"""

import json
import re
import tomllib
from typing import Any

_HEADER = re.compile(r"^[ \t]*\[")
_KEY = re.compile(r"^[ \t]*(?:\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+))[ \t]*=")


class BadToml(Exception):
    """Not TOML, or not in a form that can be edited safely."""


def parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BadToml(str(fault)) from None


def table(text: str, path: tuple[str, ...]) -> dict[str, Any] | None:
    value: Any = parse(text)
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else None


def set_table(text: str, path: tuple[str, ...], values: dict[str, str | list[str]]) -> str:
    """The table with these values; other keys in it stay."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    start = _header_line(lines, path)
    if start is None:
        if table(text, path) is not None:
            raise BadToml(f"{'.'.join(path)} is not written as a [{'.'.join(path)}] table")
        rows = [f"[{'.'.join(path)}]", *(f"{key} = {_literal(value)}" for key, value in values.items())]
        gap = "" if not text else newline if text.endswith("\n") else newline * 2
        return _checked(text, text + gap + newline.join(rows) + newline, path)
    end = _end(lines, start)
    for key, value in values.items():
        wanted = f"{key} = {_literal(value)}{newline}"
        place = next((n for n in range(start + 1, end) if _name(lines[n]) == key), None)
        if place is None:
            lines.insert(start + 1, wanted)
            end += 1
        else:
            until = _value_end(lines, place, end)
            end -= until - place - 1
            lines[place:until] = [wanted]
    return _checked(text, "".join(lines), path)


def remove_table(text: str, path: tuple[str, ...]) -> str:
    """Without the table and the tables inside it."""
    lines = text.splitlines(keepends=True)
    while (start := _header_line(lines, path, below=True)) is not None:
        end = _end(lines, start)
        # The empty line that set it apart from what stands before goes with it.
        if start and not lines[start - 1].strip():
            start -= 1
        del lines[start:end]
    return _checked(text, "".join(lines), path)


def _checked(old: str, new: str, path: tuple[str, ...]) -> str:
    if _without(parse(old), path) != _without(parse(new), path):
        raise BadToml("the table cannot be edited without changing something else in the file")
    return new


def _without(value: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    name, *rest = path
    inner = value.get(name)
    if not isinstance(inner, dict):
        return value
    kept = _without(inner, tuple(rest)) if rest else {}
    return {**{key: each for key, each in value.items() if key != name}, **({name: kept} if kept else {})}


def _header_line(lines: list[str], path: tuple[str, ...], *, below: bool = False) -> int | None:
    steps = r"[ \t]*\.[ \t]*".join(f"(?:{re.escape(step)}|\"{re.escape(step)}\"|'{re.escape(step)}')" for step in path)
    rest = r"(?:[ \t]*\.[^\]]*)?" if below else ""
    header = re.compile(rf"^[ \t]*\[\[?[ \t]*{steps}{rest}[ \t]*\]\]?[ \t]*(?:#.*)?$")
    return next((number for number, line in enumerate(lines) if header.match(line.rstrip("\r\n"))), None)


def _end(lines: list[str], start: int) -> int:
    """Behind the table's last line; comments and empty lines before the next table are the next table's."""
    end = next((n for n in range(start + 1, len(lines)) if _HEADER.match(lines[n])), len(lines))
    while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
        end -= 1
    return end


def _name(line: str) -> str | None:
    found = _KEY.match(line)
    return next(group for group in found.groups() if group is not None) if found else None


def _value_end(lines: list[str], start: int, end: int) -> int:
    """A list may go on over several lines: as far as it takes to be one."""
    for until in range(start + 1, end + 1):
        try:
            tomllib.loads("".join(lines[start:until]))
        except tomllib.TOMLDecodeError:
            continue
        return until
    raise BadToml(f"the value in line {start + 1} has no end")


def _literal(value: str | list[str]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    # TOML's basic strings have JSON's escapes; DEL is the one control JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
