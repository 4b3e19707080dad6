"""A window as short text, for a model to read: what can be seen and used, each with its ref. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from bascule.desktop_host import roles
from bascule.desktop_host.elements import Element, Tree

MAX_LINES: Final = 400
MAX_WORDS_CHARS: Final = 80
# Containers without a name say nothing by themselves; their children move up.
_SILENT: Final = frozenset({"AXGroup", "AXScrollArea", "AXUnknown", "AXSplitGroup", "AXSplitter", "AXScrollBar"})
# States worth a word.
_TOLD: Final = ("checked", "selected", "expanded", "focused", "modal", "pressed")


def text_of(tree: Tree, name: Callable[[Element], str], words: Callable[[str | None], str | None]) -> str:
    """`button "Send" [e:4]` per element on screen, indented by what holds it."""
    lines: list[str] = []
    levels: dict[int, int] = {}
    cut = 0
    for at, element in enumerate(tree.elements):
        level = levels.get(element.parent, -1) + 1
        if not _worth_a_line(tree, element):
            levels[at] = level - 1
            continue
        levels[at] = level
        if len(lines) >= MAX_LINES:
            cut += 1
            continue
        lines.append("  " * level + line_of(element, name(element), words))
    if cut:
        lines.append(f"... {cut} more: narrow it with desktop.find")
    if tree.partial:
        lines.append(f"(not all was read: {', '.join(tree.partial)})")
    return "\n".join(lines)


def line_of(element: Element, ref: str, words: Callable[[str | None], str | None]) -> str:
    parts = [element.role.removeprefix("AX").lower()]
    if title := words(element.title):
        parts.append(f'"{_short(title)}"')
    value = words(element.value)
    if value and element.role not in ("AXCheckBox", "AXRadioButton") and value != title:
        parts.append(f"= {_short(value)}")
    parts += [state for state in _TOLD if state in element.states]
    if not {"enabled", "sensitive"} & element.states:
        parts.append("disabled")
    parts.append(f"[{ref}]")
    return " ".join(parts)


def changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Lines that are new (`+`) and lines that are gone (`-`), in their order."""
    old, new = set(before), set(after)
    gone = [f"- {line.strip()}" for line in before if line not in new]
    return [*gone, *(f"+ {line.strip()}" for line in after if line not in old)]


def _worth_a_line(tree: Tree, element: Element) -> bool:
    if element.depth == 0 or not element.on_screen:
        return False
    if element.role in _SILENT and not element.title:
        return False
    # A button's own label repeats it.
    parent = tree.elements[element.parent] if element.parent >= 0 else None
    return not (element.role == "AXStaticText" and parent is not None and parent.title == element.title) or (
        parent is not None and parent.role in roles.WINDOWS
    )


def _short(text: str) -> str:
    plain = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return plain if len(plain) <= MAX_WORDS_CHARS else plain[: MAX_WORDS_CHARS - 1] + "…"
