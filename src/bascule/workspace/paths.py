"""Paths inside a workspace: the spec's rules, and a type that only this parser makes.

    Be relative (no leading `/`) · Not contain `..` (parent traversal) · Not contain null bytes ·
    Be at most 255 characters

A `WorkspacePath` has passed them, so a raw `str` cannot reach the file system. Whether the path stays inside
the workspace once links are followed is not a question about text: the file service asks the kernel.
"""

import re
from typing import NewType

WorkspacePath = NewType("WorkspacePath", str)

# "Be at most 255 characters": the whole path, as the spec says, not each of its names.
MAX_PATH_CHARS = 255

_DRIVE = re.compile(r"[A-Za-z]:")


class BadPath(ValueError):
    """Not a path of a workspace; the message says which rule it breaks."""


def parse_path(text: str) -> WorkspacePath:
    """The path without empty and `.` steps; `BadPath` says what is wrong with it."""
    if not text:
        raise BadPath("the path is empty")
    if len(text) > MAX_PATH_CHARS:
        raise BadPath(f"the path has {len(text)} characters; at most {MAX_PATH_CHARS} are allowed")
    if "\0" in text:
        raise BadPath("the path contains a null byte")
    if text.startswith("/"):
        raise BadPath("the path is absolute; write it relative to the workspace")
    if "\\" in text:
        raise BadPath("the path contains a backslash; steps are separated by /")
    if _DRIVE.match(text):
        raise BadPath("the path begins with a drive letter; write it relative to the workspace")
    return WorkspacePath("/".join(_steps(text)))


def _steps(text: str) -> list[str]:
    steps = [step for step in text.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise BadPath("the path contains `..`; a workspace's parents are out of reach")
    if not steps:
        raise BadPath("the path names the workspace itself")
    try:
        # How many bytes a name may have is for the file system to say.
        text.encode()
    except UnicodeEncodeError:
        raise BadPath("the path is not valid Unicode") from None
    return steps
