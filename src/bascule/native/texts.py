"""What a call would write, as far as a person is shown it; no I/O."""

import difflib
import hashlib
from collections.abc import Mapping
from typing import Any

from bascule.kernel.consent import blocks
from bascule.kernel.consent.blocks import Block
from bascule.native.protocol import EditText

# What one person reads before a yes; of more the beginning is shown, and that it is one.
MAX_SHOWN_CHARS = 64 * 1024
# Beyond this many lines a comparison costs seconds: all that goes, then all that comes.
MAX_COMPARED_LINES = 4_000


def edits_of(arguments: Mapping[str, Any]) -> tuple[EditText, ...]:
    """Claude Code's Write, Edit, MultiEdit, NotebookEdit; Codex's apply_patch; Gemini CLI's write_file and replace."""
    listed = arguments.get("edits")
    given = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else [arguments]
    found = [_edit(each) for each in given]
    return tuple(each for each in found if each is not None)


def _edit(arguments: Mapping[str, Any]) -> EditText | None:
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        return EditText(old=old, new=new)
    for name in ("content", "new_source", "command", "input", "patch"):
        text = arguments.get(name)
        if isinstance(text, str):
            return EditText(new=text)
    return None


def cut(edits: tuple[EditText, ...]) -> tuple[list[EditText], str | None]:
    """What of it is shown; when that is not all, what all of it is."""
    if sum(len(each.old or "") + len(each.new) for each in edits) <= MAX_SHOWN_CHARS:
        return list(edits), None
    left, shown = MAX_SHOWN_CHARS, []
    for each in edits:
        old = None if each.old is None else each.old[:left]
        left -= len(old or "")
        shown.append(EditText(old=old, new=each.new[:left]))
        left -= len(shown[-1].new)
        if left <= 0:
            break
    whole = "\0".join(f"{each.old}\0{each.new}" for each in edits).encode("utf-8", "surrogatepass")
    return shown, f"{len(whole)} bytes in {len(edits)} edits, sha256 {hashlib.sha256(whole).hexdigest()}"


def preview(edits: list[EditText], whole: str | None) -> tuple[Block, ...]:
    """Only what the client sent. No file is read: who asks may not be allowed to see what stands there."""
    made = [_block(each) for each in edits]
    if whole is not None:
        made.append(blocks.facts(f"this is the beginning of {whole}: look at the client's own dialog for the rest"))
    return tuple(made)


def _block(edit: EditText) -> Block:
    if edit.old is None:
        return blocks.text(edit.new, "the patch" if edit.new.startswith("*** Begin Patch") else "the whole new text")
    old, new = edit.old.split("\n"), edit.new.split("\n")
    if len(old) + len(new) > MAX_COMPARED_LINES:
        head = f"@@ -1,{len(old)} +1,{len(new)} @@"
        return blocks.diff("\n".join([head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]))
    # The names of the files, which it begins with, are among the facts already.
    return blocks.diff("\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:]))
