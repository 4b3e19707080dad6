"""What a call would write, as far as a person is shown it; no I/O."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from bascule.kernel.consent import blocks
from bascule.kernel.consent.blocks import Block
from bascule.native.protocol import MAX_EDITS, MAX_PLACE_CHARS, EditText

# What one person reads before a yes; of more the beginning is shown, and that it is one.
MAX_SHOWN_CHARS = 64 * 1024
# Of all edits of a question together. More could cost seconds: all that goes, then all that comes.
MAX_COMPARED_LINES = 2_000
# By tool, not by what is there: a client may ignore a field that its tool does not have, and write the other one.
_WHOLE = {"Write": "content", "write_file": "content", "NotebookEdit": "new_source"}
# What else decides where a text comes to stand. Last is what may be long.
_PLACES = ("replace_all", "allow_multiple", "expected_replacements", "edit_mode", "cell_number", "cell_id")


def edits_of(tool: str, arguments: Mapping[str, Any]) -> tuple[EditText, ...]:
    """Claude Code's Write, Edit, MultiEdit, NotebookEdit; Codex's apply_patch; Gemini CLI's write_file and replace."""
    if tool == "apply_patch":
        patch = patch_of(arguments)
        return (EditText(new=patch),) if patch is not None else ()
    if tool in _WHOLE:
        text = arguments.get(_WHOLE[tool])
        return (EditText(new=text, place=_place(arguments)),) if isinstance(text, str) else ()
    listed = arguments.get("edits") if tool == "MultiEdit" else [arguments]
    given = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    return tuple(
        EditText(old=old, new=new, place=_place(each))
        for each in given
        if isinstance(old := each.get("old_string"), str) and isinstance(new := each.get("new_string"), str)
    )


def patch_of(arguments: Mapping[str, Any]) -> str | None:
    patch = arguments.get("command") or arguments.get("input") or arguments.get("patch")
    if isinstance(patch, list) and all(isinstance(each, str) for each in patch):
        return "\n".join(patch)
    return patch if isinstance(patch, str) else None


def _place(arguments: Mapping[str, Any]) -> str:
    found = [(name, arguments.get(name)) for name in _PLACES]
    place = ", ".join(f"{name}: {value}" for name, value in found if value and isinstance(value, str | int | float))
    return place[:MAX_PLACE_CHARS]


def cut(edits: tuple[EditText, ...]) -> tuple[list[EditText], str | None]:
    """What of it is shown; when that is not all, what all of it is."""
    if len(edits) <= MAX_EDITS and length_of(edits) <= MAX_SHOWN_CHARS:
        return list(edits), None
    left, shown = MAX_SHOWN_CHARS, []
    for each in edits[:MAX_EDITS]:
        old = None if each.old is None else each.old[:left]
        left -= len(old or "")
        shown.append(EditText(old=old, new=each.new[:left], place=each.place))
        left -= len(shown[-1].new)
        if left <= 0:
            break
    # As JSON: whatever stands in a text, it cannot pass for the next one.
    whole = json.dumps([(each.old, each.new, each.place) for each in edits]).encode()
    chars = length_of(edits)
    return shown, f"{chars} characters in {len(edits)} edits, sha256 {hashlib.sha256(whole).hexdigest()}"


def length_of(edits: Iterable[EditText]) -> int:
    return sum(len(each.old or "") + len(each.new) for each in edits)


def preview(edits: list[EditText], whole: str | None) -> tuple[Block, ...]:
    """Only what the client sent. No file is read: who asks may not be allowed to see what stands there."""
    made: list[Block] = []
    left = MAX_COMPARED_LINES
    for each in edits:
        if each.place:
            made.append(blocks.facts(each.place))
        left -= (each.old or "").count("\n") + each.new.count("\n") + 2
        made.append(_block(each, compared=left >= 0))
    if whole is not None:
        made.append(blocks.facts(f"this is the beginning of {whole}: look at the client's own dialog for the rest"))
    return tuple(made)


def _block(edit: EditText, *, compared: bool) -> Block:
    if edit.old is None:
        return blocks.text(edit.new, "the patch" if edit.new.startswith("*** Begin Patch") else "the whole new text")
    old, new = edit.old.split("\n"), edit.new.split("\n")
    if not compared:
        head = f"@@ -1,{len(old)} +1,{len(new)} @@"
        return blocks.diff("\n".join([head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]))
    # The names of the files, which it begins with, are among the facts already.
    return blocks.diff("\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:]))
