"""How a person sees a call on the desktop: where, what, and every character of it.

Made visible later (`bascule.foundation.text`). Titles are text that the program chose, so each stays on a line of its
own.
"""

from collections.abc import Callable
from typing import Any, Final

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop.extensions import ResolveResult
from bascule.desktop.protocol import FoundElement
from bascule.kernel.consent import blocks
from bascule.kernel.consent.blocks import Block

# Longer than any title bar shows; what a window is called is not what is asked about.
MAX_TITLE_CHARS: Final = 300
_BREAK: Final = "⏎"
_WIDTH: Final = 9


def summary(method: str, params: Any, app: str, element: FoundElement | None) -> str:
    """One line for lists, notifications and terminals: it outlives the question, so no typed text is in it."""
    act = method.removeprefix("desktop.")
    where = f" {_element_name(element)}" if element is not None else ""
    match params:
        case d.TypeTextCall():
            what = f" {len(params.text)} characters"
        case d.HotkeyCall():
            what = f" {len(params.keys)} keys"
        case _:
            what = ""
    return f"{act}{what}{where} in {_line(app)}"


def preview(method: str, params: Any, found: ResolveResult, notes: tuple[str, ...]) -> tuple[Block, ...]:
    lines = [
        *_row("app", f"{_line(found.bundle_id)} (pid {found.pid})"),
        *_row("program", _line(found.program or "not known")),
        *_row("window", f"{_quoted(found.window_title)} ({found.window_id})"),
    ]
    if found.element is not None:
        lines += _row("element", _element(found.element))
    elif method in ("desktop.typeText", "desktop.hotkey"):
        lines += _row("element", "whatever has the focus in this window")
    if found.to is not None:
        lines += _row("to", _element(found.to))
    lines += _row("does", method)
    exact: list[Block] = []
    for type_, details in _DETAILS:
        if isinstance(params, type_):
            more = details(params)
            if isinstance(more, Block):
                exact.append(more)
            else:
                lines += more
    first = (blocks.text("\n".join(notes)),) if notes else ()
    return (*first, blocks.facts(*lines), *exact)


def everywhere(method: str, condition: str) -> tuple[Block, ...]:
    rows = (*_row("app", "every app: the titles of all windows"), *_row("does", f"{method} {condition}"))
    return (blocks.facts(*rows),)


def exactly(title: str, text: str) -> Block:
    """Every character, blanks at the ends of lines too; ⏎ is a line break that is typed."""
    lines = text.split("\n")
    shown = (f'| "{line}"{_BREAK if number < len(lines) else ""}' for number, line in enumerate(lines, 1))
    return blocks.text("\n".join(shown), title)


def _typed(params: d.TypeTextCall) -> Block:
    replaces = ", replacing what is there" if params.options.clear_before else ""
    return exactly(f"text, {len(params.text)} characters{replaces}", params.text)


def _keys(params: d.HotkeyCall) -> Block:
    return blocks.keys(*map(_line, params.keys))


def _scroll(params: m.ScrollCall) -> list[str]:
    return _row("by", f"{params.steps} steps {params.direction}")


def _value(params: m.SetValueCall) -> list[str] | Block:
    if isinstance(params.value, str):
        return exactly(f"value, {len(params.value)} characters", params.value)
    return _row("value", str(params.value))


def _button(params: m.DismissModalCall) -> list[str]:
    return _row("with", "Escape" if params.button is None else f"its button {_quoted(params.button)}")


def _wait(params: d.WaitUntilCall) -> list[str]:
    return _row("until", ", ".join(params.condition.chosen()))


def _observe(params: d.ObserveCall) -> list[str]:
    parts = [
        *(["a picture of it"] if params.options.include_screenshot or params.options.inline else []),
        *(
            ["its elements and what stands in them"]
            if params.options.include_ax_tree or params.options.snapshot
            else []
        ),
    ]
    return _row("sees", " and ".join(parts) or "which window it is")


_DETAILS: Final[tuple[tuple[type, Callable[[Any], list[str] | Block]], ...]] = (
    (d.TypeTextCall, _typed),
    (d.HotkeyCall, _keys),
    (m.ScrollCall, _scroll),
    (m.SetValueCall, _value),
    (m.DismissModalCall, _button),
    (d.WaitUntilCall, _wait),
    (d.ObserveCall, _observe),
)


def _row(name: str, text: str) -> list[str]:
    return [f"{name:<{_WIDTH}}{text}"]


def _element(element: FoundElement) -> str:
    frame = element.frame
    where = f"at {frame.x},{frame.y}, {frame.width} x {frame.height}"
    return f"{_element_name(element)}, {where}" + ("" if element.visible else ", not visible now")


def _element_name(element: FoundElement) -> str:
    return f"{_line(element.role)} {_quoted(element.title)}" if element.title else _line(element.role)


def _quoted(text: str) -> str:
    return f'"{_line(text)}"'


def _line(text: str) -> str:
    shown = text.replace("\n", _BREAK)
    return shown if len(shown) <= MAX_TITLE_CHARS else f"{shown[:MAX_TITLE_CHARS]}… ({len(shown)} characters)"
