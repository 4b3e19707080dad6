"""Operations and messages that are right or wrong, for whoever judges them: the decoder, the schemas, the daemon."""

import base64
from typing import Any

from bascule.workspace.protocol import (
    MAX_COMMAND_CHARS,
    MAX_CONTENT_BYTES,
    MAX_EDITS,
    MAX_MESSAGE_CHARS,
    MAX_OPERATION_ID_CHARS,
    MAX_TIMEOUT_MS,
)


def operation(type_: str, **fields: Any) -> dict[str, Any]:
    return {"type": type_, **fields}


EDIT = {"oldContent": "x", "newContent": "y"}

GOOD: dict[str, dict[str, Any]] = {
    "message": operation("message", content="hello"),
    "message-empty": operation("message", content=""),
    "message-longest": operation("message", content="x" * MAX_MESSAGE_CHARS),
    "message-id": operation("message", id="m" * MAX_OPERATION_ID_CHARS, content="x"),
    "create": operation("createFile", path="a.txt", content="x"),
    "create-all": operation("createFile", id="c", path="a/b.txt", content="", encoding="utf-8", overwrite=True),
    "create-base64": operation(
        "createFile", path="b", content=base64.b64encode(b"\x00\xff").decode(), encoding="base64"
    ),
    "create-base64-empty": operation("createFile", path="b", content="", encoding="base64"),
    "create-largest": operation("createFile", path="b", content="x" * MAX_CONTENT_BYTES),
    "read": operation("readFile", path="config.json"),
    "read-base64": operation("readFile", path="a", encoding="base64"),
    "edit": operation("editFile", path="a", edits=[EDIT]),
    "edit-many": operation("editFile", path="a", edits=[EDIT] * MAX_EDITS),
    "delete": operation("deleteFile", path="temp.txt"),
    "shell": operation("shell", command="ls"),
    "shell-all": operation("shell", id="s", command="ls -l", cwd="src", timeout=1500.5, env={"DEBUG": "true"}),
    "shell-longest": operation("shell", command="x" * MAX_COMMAND_CHARS),
    "shell-slowest": operation("shell", command="x", timeout=MAX_TIMEOUT_MS),
    "shell-here": operation("shell", command="x", cwd="."),
    "shell-here-too": operation("shell", command="x", cwd="./"),
    "path-255": operation("readFile", path="x" * 255),
    "path-255-of-two-bytes": operation("readFile", path="é" * 255),
    "path-dots": operation("readFile", path="a..b/...c/.d"),
    "path-dot-steps": operation("readFile", path="./a/./b"),
    "path-spaces": operation("readFile", path=" a / b "),
    "path-unicode": operation("readFile", path="grün/日本"),
    "path-newline": operation("readFile", path="..\n"),
    "path-colon": operation("readFile", path="a/b:c"),
}

# What is wrong, and the field that the answer names.
BAD: dict[str, tuple[Any, str]] = {
    "no-object": ([], ""),
    "null": (None, ""),
    "no-type": ({"content": "x"}, "type"),
    "unknown-type": (operation("moveFile", path="a"), "type"),
    "type-number": (operation("message", content="x") | {"type": 7}, "type"),
    "unknown-field": (operation("message", content="x", extra=1), ""),
    "message-no-content": (operation("message"), ""),
    "message-number": (operation("message", content=7), "content"),
    "message-too-long": (operation("message", content="x" * (MAX_MESSAGE_CHARS + 1)), "content"),
    "id-empty": (operation("message", id="", content="x"), "id"),
    "id-too-long": (operation("message", id="x" * (MAX_OPERATION_ID_CHARS + 1), content="x"), "id"),
    "id-number": (operation("message", id=7, content="x"), "id"),
    "create-no-path": (operation("createFile", content="x"), ""),
    "create-encoding": (operation("createFile", path="a", content="x", encoding="latin-1"), "encoding"),
    "create-overwrite": (operation("createFile", path="a", content="x", overwrite="yes"), "overwrite"),
    "create-too-large": (operation("createFile", path="a", content="x" * (MAX_CONTENT_BYTES + 1)), "content"),
    "create-too-large-in-bytes": (
        operation("createFile", path="a", content="ü" * (MAX_CONTENT_BYTES // 2 + 1)),
        "content",
    ),
    "base64-characters": (operation("createFile", path="a", content="a*b=", encoding="base64"), "content"),
    "base64-padding": (operation("createFile", path="a", content="YQ", encoding="base64"), "content"),
    "base64-line-break": (operation("createFile", path="a", content="YWFh\nYWFh", encoding="base64"), "content"),
    "base64-after-padding": (operation("createFile", path="a", content="YQ==YQ==", encoding="base64"), "content"),
    "base64-unicode": (operation("createFile", path="a", content="ü", encoding="base64"), "content"),
    "edit-none": (operation("editFile", path="a", edits=[]), "edits"),
    "edit-too-many": (operation("editFile", path="a", edits=[EDIT] * (MAX_EDITS + 1)), "edits"),
    "edit-half": (operation("editFile", path="a", edits=[{"oldContent": "x"}]), "edits[0]"),
    "edit-unknown": (operation("editFile", path="a", edits=[{**EDIT, "all": True}]), "edits[0]"),
    "command-empty": (operation("shell", command=""), "command"),
    "command-blank": (operation("shell", command=" \n"), "command"),
    "command-too-long": (operation("shell", command="x" * (MAX_COMMAND_CHARS + 1)), "command"),
    "command-nul": (operation("shell", command="a\0b"), "command"),
    "timeout-zero": (operation("shell", command="x", timeout=0), "timeout"),
    "timeout-negative": (operation("shell", command="x", timeout=-1), "timeout"),
    "timeout-too-long": (operation("shell", command="x", timeout=MAX_TIMEOUT_MS + 1), "timeout"),
    "timeout-text": (operation("shell", command="x", timeout="30000"), "timeout"),
    "cwd-up": (operation("shell", command="x", cwd=".."), "cwd"),
    "cwd-absolute": (operation("shell", command="x", cwd="/etc"), "cwd"),
    "cwd-root": (operation("shell", command="x", cwd="/"), "cwd"),
    "cwd-empty": (operation("shell", command="x", cwd=""), "cwd"),
    "env-name": (operation("shell", command="x", env={"A-B": "1"}), "env"),
    "env-digit": (operation("shell", command="x", env={"1A": "1"}), "env"),
    "env-empty": (operation("shell", command="x", env={"": "1"}), "env"),
    "env-newline": (operation("shell", command="x", env={"A\n": "1"}), "env"),
    "env-nul": (operation("shell", command="x", env={"A": "1\0"}), "env.A"),
    "env-number": (operation("shell", command="x", env={"A": 1}), "env[...]"),
    "env-too-many": (operation("shell", command="x", env={f"A{n}": "" for n in range(257)}), "env"),
    "env-too-large": (operation("shell", command="x", env={"A": "x" * 70_000}), "env"),
    "path-empty": (operation("readFile", path=""), "path"),
    "path-256": (operation("readFile", path="x" * 256), "path"),
    "path-absolute": (operation("readFile", path="/etc/passwd"), "path"),
    "path-up": (operation("readFile", path="../x"), "path"),
    "path-up-inside": (operation("deleteFile", path="a/../b"), "path"),
    "path-up-last": (operation("editFile", path="a/..", edits=[EDIT]), "path"),
    "path-nul": (operation("readFile", path="a\0b"), "path"),
    "path-backslash": (operation("readFile", path="a\\b"), "path"),
    "path-drive": (operation("readFile", path="C:/x"), "path"),
    "path-itself": (operation("readFile", path="./."), "path"),
}
# Rules that a JSON Schema cannot tell: bytes, base64's grammar, what `trim` leaves.
BEYOND_SCHEMAS = {
    *("create-too-large", "create-too-large-in-bytes", "env-too-large"),
    *("base64-characters", "base64-padding", "base64-line-break", "base64-after-padding", "base64-unicode"),
}
