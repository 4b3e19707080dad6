"""`bascule blame`: which agent wrote each line of a file, in which session, by which call."""

import argparse
import os
import re
import sys
from datetime import datetime
from typing import Any, NamedTuple

from bascule.cli.talk import add_json, add_state_dir, connect
from bascule.client.sync import SyncClient
from bascule.foundation.errors import Conflict, NotFound
from bascule.foundation.text import one_line, short_id, visible
from bascule.local_client.exits import WrongUsage
from bascule.programs.helpers.terminal import show, show_json

MAX_TITLE_CHARS = 200
# The first is what an editor takes for a line that nobody has committed.
_NO_COMMIT = {"nobody known": "0" * 40, "before": "0" * 39 + "1", "not known": "0" * 39 + "2"}
_BY = {
    "before": "before Bascule",
    "nobody known": "nobody known",
    "not known": "not known",
}
_MEANS = {
    "before": "it is older than every call that Bascule knows of here",
    "nobody known": "it came while no agent was at work: from a person, or a program that Bascule does not see",
    "not known": "an older version of this file is not held: it was too large, or shut",
}
# Of a name, as git has them; other bytes are octal.
_ESCAPES = {
    **{ord(letter): f"\\{letter}" for letter in '"\\'},
    **{code: f"\\{letter}" for code, letter in zip(b"\a\b\t\n\v\f\r", "abtnvfr", strict=True)},
}
_EPILOG = """\
examples:
  bascule blame src/app.py             who wrote each line
  bascule blame src/app.py:42          all about line 42: who said yes, too
  bascule blame --porcelain FILE       for editors, as `git blame --porcelain`

Lines are followed through later changes and to the file's former names: a file that comes in a call which takes away
another one with at least half of the same lines is that file.
"""


class _Line(NamedTuple):
    number: int
    raw: bytes
    by: str
    run: dict[str, Any] | None
    # How many lines of one run begin with it; 0 in the middle of them.
    begins: int

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    blame = commands.add_parser(
        "blame",
        help="say which agent wrote each line of a file",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    blame.set_defaults(run=run_blame)
    blame.add_argument("file", metavar="FILE[:LINE]")
    blame.add_argument("--porcelain", action="store_true", help="as `git blame --porcelain`, for programs")
    add_state_dir(blame)
    add_json(blame)


def run_blame(args: argparse.Namespace) -> int:
    file, wanted = _file_and_line(args.file)
    if args.porcelain and args.json:
        raise WrongUsage("--porcelain and --json are two forms of one answer: choose one")
    with connect(args) as client:
        space_id, path = _place(client, file)
        answer = client.call("spaces.blame", {"spaceId": space_id, "path": path})
    if args.json:
        show_json(answer)
        return 0
    lines = _lines(file, answer)
    if wanted is not None:
        if not 1 <= wanted <= len(lines):
            raise WrongUsage(f"{file} has {len(lines)} lines: there is no line {wanted}")
        lines = [lines[wanted - 1]]
    if args.porcelain:
        _show_porcelain(lines, path)
    elif wanted is not None:
        _show_one(lines[0])
    else:
        _show_all(lines)
    return 0


def _file_and_line(text: str) -> tuple[str, int | None]:
    """A file whose name ends like this comes first."""
    found = re.fullmatch(r"(.+):(\d{1,9})", text, re.DOTALL)
    if found is None or os.path.lexists(text):
        return text, None
    return found[1], int(found[2])


def _place(client: SyncClient, file: str) -> tuple[str, str]:
    """The innermost space that the file is in, and its path there."""
    folder, name = os.path.split(os.path.abspath(file))
    place = os.path.join(os.path.realpath(folder), name)
    spaces = [space for space in client.call("spaces.list", {}) if place.startswith(f"{space['path']}/")]
    if not spaces:
        raise NotFound(f"no agent has worked where {file} is", hint="`bascule spaces` lists where agents have")
    space = max(spaces, key=lambda space: len(space["path"]))
    return space["spaceId"], os.path.relpath(place, space["path"])


def _lines(file: str, answer: dict[str, Any]) -> list[_Line]:
    try:
        with open(file, "rb") as opened:
            texts = opened.read().split(b"\n")
    except OSError as error:
        raise NotFound(f"{file} cannot be read: {error.strerror}") from None
    if texts[-1] == b"":
        texts.pop()
    if len(texts) != (answer["lines"][-1]["last"] if answer["lines"] else 0):
        raise Conflict(f"{file} has just been changed", hint="do the same again")
    runs = {run["runId"]: run for run in answer["runs"]}
    return [
        _Line(
            number,
            texts[number - 1],
            span["by"],
            runs.get(span.get("runId")),
            span["last"] - span["first"] + 1 if number == span["first"] else 0,
        )
        for span in answer["lines"]
        for number in range(span["first"], span["last"] + 1)
    ]


def _who(line: _Line) -> str:
    if line.run is None:
        return _BY[line.by]
    native = line.run.get("native")
    return f"{native['client']} {short_id(native['session'])}" if native else str(line.run["startedBy"])


def _what(run: dict[str, Any]) -> str:
    native = run.get("native")
    return one_line(native["title"] if native else run.get("title") or "changes of files", MAX_TITLE_CHARS)


def _when(run: dict[str, Any] | None) -> str:
    return run["startedAt"][:16].replace("T", " ") if run is not None else ""


def _show_all(lines: list[_Line]) -> None:
    rows = [(line.run["runId"] if line.run is not None else "", _who(line), _when(line.run)) for line in lines]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    digits = len(str(len(lines)))
    for line, row in zip(lines, rows, strict=True):
        left = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        show(f"{left}  {line.number:{digits}}) {visible(line.text)}".rstrip())


def _show_one(line: _Line) -> None:
    show(f"line {line.number}: {visible(line.text)}".rstrip())
    run = line.run
    if run is None:
        show(f"{_BY[line.by]}: {_MEANS[line.by]}")
        return
    native = run.get("native")
    facts = {
        "run": run["runId"],
        "by": f"{native['client']}, session {native['session']}" if native else run["startedBy"],
        "tool": native["tool"] if native else None,
        "did": _what(run),
        "began": run["startedAt"],
        "yes": "; ".join(run.get("approvedBy", ())) or None,
        "asked": run.get("prompt"),
    }
    for name, value in facts.items():
        if value is not None:
            show(f"{name + ':':7}{one_line(str(value), MAX_TITLE_CHARS)}")
    show(f"to see all of it: bascule show {run['runId']}; to take it back: bascule undo {run['runId']}")


def _show_porcelain(lines: list[_Line], path: str) -> None:
    """As git writes it, byte by byte, with one header more, `approved-by`."""
    out: list[bytes] = []
    seen: set[str] = set()
    for line in lines:
        run = line.run
        commit = run["runId"].removeprefix("run_").ljust(40, "0") if run is not None else _NO_COMMIT[line.by]
        count = f" {line.begins}" if line.begins else ""
        heads = [f"{commit} {line.number} {line.number}{count}"]
        if commit not in seen:
            seen.add(commit)
            when = int(datetime.fromisoformat(run["startedAt"]).timestamp()) if run is not None else 0
            for role in ("author", "committer"):
                heads += [
                    f"{role} {one_line(_who(line))}",
                    f"{role}-mail <>",
                    f"{role}-time {when}",
                    f"{role}-tz +0000",
                ]
            if run is not None and run.get("approvedBy"):
                heads.append(f"approved-by {one_line('; '.join(run['approvedBy']))}")
            summary = _what(run) if run is not None else _MEANS[line.by]
            heads += [f"summary {summary}", f"filename {_quoted(path)}"]
        out += [head.encode() for head in heads]
        out.append(b"\t" + line.raw)
    if sys.stdout.isatty():
        # No program reads it, and what a file holds must not act on a terminal.
        show(visible(b"\n".join(out).decode("utf-8", "replace")))
        return
    sys.stdout.buffer.write(b"".join(each + b"\n" for each in out))
    sys.stdout.buffer.flush()


def _quoted(path: str) -> str:
    """As git quotes a name that a line cannot hold as it is."""
    name = os.fsencode(path)
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in name):
        return path
    escaped = (_ESCAPES.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in name)
    return f'"{"".join(escaped)}"'
