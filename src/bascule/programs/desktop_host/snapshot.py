"""A window as short text, for a model to read: what can be seen and used, each with its ref. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from bascule.desktop import roles
from bascule.programs.desktop_host.elements import Element, Tree
from gabp.text import is_plain

MAX_LINES: Final = 400
MAX_WORDS_CHARS: Final = 80
# Containers without a name say nothing by themselves; their children move up.
_SILENT: Final = frozenset({"AXGroup", "AXScrollArea", "AXUnknown", "AXSplitGroup", "AXSplitter", "AXScrollBar"})
# What people know by the words on it, which toolkits give as elements of their own.
_LABELLED: Final = frozenset(
    {"AXButton", "AXCheckBox", "AXRadioButton", "AXMenuItem", "AXMenu", "AXLink", "AXCell", "AXRow"}
)
# States worth a word.
_SHOWN_STATES: Final = ("checked", "selected", "expanded", "focused", "modal", "pressed")


def text_of(tree: Tree, name: Callable[[Element], str], words: Callable[[str | None], str | None]) -> str:
    """`button "Send" [e:4]` per element on screen, indented by what holds it."""
    lines: list[str] = []
    levels: dict[int, int] = {}
    cut = 0
    labels = _labels(tree)
    for at, element in enumerate(tree.elements):
        level = levels.get(element.parent, -1) + 1
        if not _is_listed(tree, element, labels):
            levels[at] = level - 1
            continue
        levels[at] = level
        if len(lines) >= MAX_LINES:
            cut += 1
            continue
        lines.append("  " * level + line_of(element, name(element), words, labels.get(at, "")))
    if cut:
        lines.append(f"... {cut} more: narrow it with desktop.find")
    if tree.partial:
        lines.append(f"(not all was read: {', '.join(tree.partial)})")
    return "\n".join(lines)


def line_of(element: Element, ref: str, words: Callable[[str | None], str | None], label: str = "") -> str:
    """`label` is for what has no title of its own."""
    parts = [element.role.removeprefix("AX").lower()]
    if title := words(element.title or label):
        parts.append(f'"{_short(_once(title))}"')
    value = words(element.value)
    if value and element.role not in ("AXCheckBox", "AXRadioButton") and value != title:
        parts.append(f'= "{_short(value)}"')
    parts += [state for state in _SHOWN_STATES if state in element.states]
    if not {"enabled", "sensitive"} & element.states:
        parts.append("disabled")
    parts.append(f"[{ref}]")
    return " ".join(parts)


def changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Lines that are new (`+`) and lines that are gone (`-`), in their order."""
    old, new = set(before), set(after)
    gone = [f"- {line.strip()}" for line in before if line not in new]
    return [*gone, *(f"+ {line.strip()}" for line in after if line not in old)]


def _labels(tree: Tree) -> dict[int, str]:
    """The words on each thing that is known by them, by its place in the tree."""
    found: dict[int, list[str]] = {}
    for element in tree.elements:
        if element.role == "AXStaticText" and element.title and element.on_screen:
            at = _labelled(tree, element)
            if at is not None:
                found.setdefault(at, []).append(element.title)
    return {at: tree.elements[at].title or " ".join(titles) for at, titles in found.items()}


def _labelled(tree: Tree, text: Element) -> int | None:
    """Whose label a text is: the first thing around it that is no mere container."""
    at = text.parent
    while at >= 0 and tree.elements[at].role in _SILENT and not tree.elements[at].title:
        at = tree.elements[at].parent
    return at if at >= 0 and tree.elements[at].role in _LABELLED else None


def _is_listed(tree: Tree, element: Element, labels: dict[int, str]) -> bool:
    if element.depth == 0 or not element.on_screen:
        return False
    if element.role in _SILENT and not element.title:
        return False
    if element.role == "AXStaticText":
        # A button's own label repeats it.
        at = _labelled(tree, element)
        parent = tree.elements[element.parent]
        repeats = element.title == parent.title if at is None else element.title in labels.get(at, "")
        return not repeats or parent.role in roles.WINDOWS
    return True


def _once(title: str) -> str:
    """GTK 4 says name and label of a button, which are the same: "Close Close"."""
    half, space, rest = (
        title[: len(title) // 2],
        title[len(title) // 2 : len(title) // 2 + 1],
        title[len(title) // 2 + 1 :],
    )
    return half if space == " " and half == rest else title


def _short(text: str) -> str:
    """On one line, and never with the quote that ends it: a page's words must not look like our own."""
    plain = " ".join("".join(each if is_plain(each) else " " for each in text).split()).replace('"', "'")
    return plain if len(plain) <= MAX_WORDS_CHARS else plain[: MAX_WORDS_CHARS - 1] + "…"
