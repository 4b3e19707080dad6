"""typeText (contract 5.6): the clipboard, a paste, a look whether it arrived; the text itself is written nowhere."""

import asyncio
import contextlib
from typing import Any, Final

from bascule.desktop import protocol as d
from bascule.desktop import roles
from bascule.desktop.errors import not_found
from bascule.programs.desktop_host.acting import FOCUS_SECONDS, Acting, Aim, check_enabled, is_enabled, onto
from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.ports import AppGone, BackendError, IsShown, NotAnswering, Pasted
from bascule.programs.desktop_host.routes import Routed

# How long a program may take to show what it was given.
READ_BACK_SECONDS: Final = 1.0
# After a click the focus is there, or the toolkit does not tell.
CLICKED_SECONDS: Final = 0.15
# Of a long text its start is looked for: what is read of a value is limited.
_COMPARED_CHARS: Final = 1_000


class Writing:
    def __init__(self, acting: Acting, looking: Looking) -> None:
        self._acting = acting
        self._looking = looking
        self._desktop = looking.desktop

    async def type_text(self, execution: Execution, params: d.TypeTextCall) -> d.TypeTextResult:
        text = params.text
        self._looking.typed.remember(text)
        execution.note("text", chars=len(text), digest=self._looking.typed.digest(text))
        aim: Aim | None = None
        if params.target is not None:
            aim = await self._acting.aim(execution, params)
            check_enabled(aim.element)
            routed = aim.routed
        else:
            routed = await self._looking.route(execution, params.route)
            if execution.expected is not None:
                execution.expected.check_element("element", typed_into(await self._tree(execution, routed)))
        if self._desktop.has_hands:
            routed = await self._acting.bring_to_front(execution, routed, params.route)
        else:
            await self._acting.require_focus(routed, params.route)
        if aim is not None:
            aim.routed = routed
            field: Element | None = await self._field(execution, aim, params)
        else:
            field = focused_field(await self._tree(execution, routed))
        before = field.value if field is not None else None
        pasted: Pasted | None = None

        async def act() -> None:
            nonlocal pasted
            pasted = await self._insert(field, params)
            if pasted is not None:
                return
            if params.options.clear_before:
                await self._desktop.chord(("ctrl", "a"), execution.halt, routed.window)
            # Decided: no paste unless the focus is inside the routed window.
            pasted = await self._desktop.paste(text, execution.halt, routed.window, self._is_shown(field, before, text))

        await self._acting.pictured(execution, routed, act, None, self._blanked(routed, field))
        assert pasted is not None
        execution.note("pasted", taken=pasted.taken, pieces=pasted.pieces, clipboard=pasted.clipboard)
        effect = await self._effect(field, before, text) if pasted.taken else "none"
        await self._save_tree(execution, routed, field)
        return d.TypeTextResult(
            execution_id=execution.id,
            typed=pasted.taken == pasted.pieces,
            evidence=self._acting.evidence(execution, "ax.json"),
            effect=effect,
            clipboard=pasted.clipboard,
            rematched=aim.rematched if aim is not None else False,
        )

    async def _field(self, execution: Execution, aim: Aim, params: d.TypeTextCall) -> Element:
        """The target, with the focus in it."""
        if not self._desktop.has_hands:
            # Its own program puts the text there, with or without the focus.
            return aim.element
        field = await self._has_focus(aim.element, 0.0)
        if field is None:
            field = await self._focus(execution, aim, params)
            # A field that was given the focus has all its text selected, and a paste would replace it.
            if not params.options.clear_before:
                await self._desktop.caret_to_end(field)
        return field

    async def _insert(self, field: Element | None, params: d.TypeTextCall) -> Pasted | None:
        """By the field's own program, which needs no focus. None: nothing was put there, so it is to be pasted."""
        if field is None or not self._desktop.inserts or not _is_insertable(field, params.text):
            return None
        if not await self._desktop.insert(field, params.text, clear=params.options.clear_before):
            return None
        # Some programs say yes and do nothing.
        if await self._effect(field, field.value, params.text) == "none":
            return None
        return Pasted(1, 1, "untouched")

    async def _focus(self, execution: Execution, aim: Aim, params: Any) -> Element:
        """AXFocused first, as the contract says; then a click on it. What is not known to have failed is tried."""
        element = aim.element
        execution.halt.check()
        given = False
        with contextlib.suppress(NotAnswering):
            given = await self._desktop.focus(element)
        if (now := await self._has_focus(element, FOCUS_SECONDS if given else 0.0)) is not None:
            return now
        try:
            x, y = await self._acting.point(execution, aim, params)
        except BackendError:
            return element
        await self._desktop.click_at(x, y, execution.halt, onto(aim))
        if (now := await self._has_focus(element, CLICKED_SECONDS)) is not None:
            return now
        # GTK 4 focuses a part of its entries and does not say so of the entry. Another field that has it says no.
        tree = await self._tree(execution, aim.routed)
        other = focused_field(tree)
        if other is not None and not tree.is_within(other, element):
            raise not_found("the target could not be given the focus: another field keeps it", reason="focus")
        return tree.by_key(element.key) or element

    async def _has_focus(self, element: Element, seconds: float) -> Element | None:
        end = asyncio.get_running_loop().time() + seconds
        while True:
            now = await self._desktop.refreshed(element)
            if now is None:
                raise not_found("the element is gone: find it again", reason="stale")
            if "focused" in now.states:
                return now
            if asyncio.get_running_loop().time() > end or "focusable" not in now.states:
                return None
            await asyncio.sleep(0.01)

    async def _tree(self, execution: Execution, routed: Routed) -> Tree:
        return await self._looking.tree(execution, routed, self._looking.limit(execution))

    def _blanked(self, routed: Routed, field: Element | None) -> tuple[Rect, ...]:
        # Lists of suggestions repeat what is typed.
        popups = tuple(each.outer for each in routed.windows if each.popup)
        if field is None or field.rect.empty:
            return (routed.window.outer, *popups)
        return (field.rect, *popups)

    async def _effect(self, field: Element | None, before: str | None, text: str) -> d.Effect:
        if field is None or field.secret:
            return "unverified"
        end = asyncio.get_running_loop().time() + READ_BACK_SECONDS
        wanted = _wanted(text)
        after = before
        while True:
            with contextlib.suppress(AppGone, NotAnswering):
                now = await self._desktop.refreshed(field)
                after = now.value if now is not None else None
            if after is None:
                return "unverified"
            if wanted in after and after != before:
                return "confirmed"
            if asyncio.get_running_loop().time() > end:
                # It took the text and shows something else, or what it showed before.
                return "unverified" if after != before or wanted in after else "none"
            await asyncio.sleep(0.02)

    def _is_shown(self, field: Element | None, before: str | None, text: str) -> IsShown | None:
        if field is None or field.secret or before is None or _wanted(text) in before:
            return None

        async def is_shown() -> bool | None:
            with contextlib.suppress(AppGone, NotAnswering):
                now = await self._desktop.refreshed(field)
                return None if now is None or now.value is None else now.value != before
            return False

        return is_shown

    async def _save_tree(self, execution: Execution, routed: Routed, field: Element | None) -> None:
        tree = await self._tree(execution, routed)
        drop = [each for each in tree.elements if field is not None and each.key == field.key]
        if field is None:
            drop = tree.elements
        await self._looking.save_tree(execution, routed, tree, drop)


def _wanted(text: str) -> str:
    """An entry of one line keeps what it can: breaks may become something else, or nothing."""
    return text.strip("\r\n")[:_COMPARED_CHARS]


def _is_insertable(element: Element, text: str) -> bool:
    """What cannot be read back is pasted, and so are lines into a field of one: what it makes of breaks is its own."""
    return not element.secret and element.value is not None and (element.role != "AXTextField" or "\n" not in text)


def focused_field(tree: Tree) -> Element | None:
    focused = [each for each in tree.elements if "focused" in each.states]
    return next((each for each in focused if each.role in roles.TYPED_INTO), focused[-1] if focused else None)


def typed_into(tree: Tree) -> Element | None:
    """The field that a text without a target is for; None: whatever has the focus."""
    field = focused_field(tree)
    return field if field is not None and field.role in roles.TYPED_INTO and is_enabled(field) else None
