"""What a person is shown before saying yes, as blocks: pages show them, terminals print the text they make together.

A block keeps its lines as one text, because a question may have half a million of them and waits in memory.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from bascule.foundation.text import one_line, visible

_INDENT = "  "


class BlockKind(StrEnum):
    # Short lines, each a fact: an app, a rule, a directory.
    FACTS = "facts"
    # Words of somebody's, exactly.
    TEXT = "text"
    # A unified diff.
    DIFF = "diff"
    # A command line, exactly.
    COMMAND = "command"
    # Keys that are pressed together.
    KEYS = "keys"


class Block(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    kind: BlockKind
    # Its lines. Those of a diff begin with their marks.
    text: str
    title: str = ""


# A plain text is one block: so it was stored before there were blocks.
Preview: TypeAlias = str | tuple[Block, ...]


class Line(NamedTuple):
    text: str
    # Of a diff: + - @ or a space. None: a line about the diff, as the names of its files.
    mark: str | None = None


def facts(*lines: str, title: str = "") -> Block:
    """A line break inside of one goes on behind a bar, so that no value can pass for the next fact."""
    return Block(BlockKind.FACTS, "\n".join(line.replace("\n", f"\n{_INDENT}| ") for line in lines), title)


def text(words: str, title: str = "") -> Block:
    return Block(BlockKind.TEXT, words, title)


def diff(unified: str) -> Block:
    return Block(BlockKind.DIFF, unified.removesuffix("\n"))


def command(line: str, title: str = "") -> Block:
    return Block(BlockKind.COMMAND, line, title)


def keys(*names: str) -> Block:
    return Block(BlockKind.KEYS, " + ".join(names), "keys")


def blocks_of(preview: Preview) -> tuple[Block, ...]:
    if not isinstance(preview, str):
        return preview
    return (text(preview),) if preview else ()


def text_of(preview: Preview) -> str:
    """For terminals: an empty line between blocks, and what has a title stands below it."""
    if isinstance(preview, str):
        return preview
    return "\n\n".join(_text(block) for block in preview)


def _text(block: Block) -> str:
    if not block.title:
        return block.text
    return "\n".join([f"{block.title}:", *(_INDENT + line for line in block.text.split("\n"))])


def length_of(preview: Preview) -> int:
    """Characters that a person would have to read."""
    return len(preview) if isinstance(preview, str) else sum(len(each.text) + len(each.title) for each in preview)


def made_visible(preview: Preview) -> Preview:
    """With every hidden character by its name, before it is stored: no reader can forget to."""
    if isinstance(preview, str):
        return visible(preview, keep="\n")
    return tuple(Block(each.kind, visible(each.text, keep="\n"), one_line(each.title)) for each in preview)


def lines_of(block: Block) -> list[Line]:
    """Without a word of ours that an agent could have written: a diff's marks are apart from its text."""
    lines = block.text.split("\n")
    return list(_diff_lines(lines)) if block.kind is BlockKind.DIFF else [Line(line) for line in lines]


def _diff_lines(lines: Iterable[str]) -> Iterable[Line]:
    """Names of files stand before the first `@@` and after a line that is no part of a hunk.

    `--- a/x` in a hunk is the line `-- a/x` that goes: so a hunk's length decides, not how a line looks.
    """
    left = 0
    for line in lines:
        if left <= 0 and line.startswith("@@"):
            left = _hunk_lines(line)
            yield Line(line, "@")
        elif left > 0 and line[:1] in ("+", "-", " "):
            # A changed line counts once, one that stays twice: it is in the old file and in the new.
            left -= 2 if line[0] == " " else 1
            yield Line(line[1:], line[0])
        else:
            yield Line(line)


def _hunk_lines(head: str) -> int:
    """Lines of the old file and of the new one together: `@@ -1,2 +3,4 @@` has 6."""
    total = 0
    for part in head.split(" ")[1:3]:
        _, _, count = part.partition(",")
        total += int(count) if count.isdecimal() else 1
    return total
