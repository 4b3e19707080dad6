"""Acts beyond the contract: other clicks, scrolling, dragging, values, windows, modals. Each one is confirmed."""

import contextlib

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop.errors import not_found
from bascule.programs.desktop_host.acting import Acting, Aim, Seen, check_enabled, differs, onto
from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.looking import Looking, folder_of, modals, within
from bascule.programs.desktop_host.ports import AppGone


def modal_meant(tree: Tree, button: str | None) -> tuple[Element, Element | None]:
    """The dialog in front, and the one of its buttons that is called so."""
    open_ones = modals(tree)
    if not open_ones:
        raise not_found("no dialog is open in this app", reason="modal")
    modal = open_ones[0]
    if button is None:
        return modal, None
    buttons = [each for each in within(tree, modal) if each.role == "AXButton" and each.title == button]
    if len(buttons) != 1:
        raise not_found(f"the dialog has {len(buttons)} buttons of that title", reason="modal")
    return modal, buttons[0]


class Pointing:
    def __init__(self, acting: Acting, looking: Looking) -> None:
        self._acting = acting
        self._looking = looking
        self._desktop = looking.desktop

    async def double_click(self, execution: Execution, params: d.TargetCall) -> m.ActResult:
        return await self._clicked(execution, params, button=1, count=2)

    async def right_click(self, execution: Execution, params: d.TargetCall) -> m.ActResult:
        return await self._clicked(execution, params, button=3, count=1)

    async def _clicked(self, execution: Execution, params: d.TargetCall, *, button: int, count: int) -> m.ActResult:
        aim = await self._acting.aim(execution, params)

        async def act() -> None:
            x, y = await self._acting.point(execution, aim, params)
            await self._desktop.click_at(x, y, execution.halt, onto(aim), button=button, count=count)

        return self._result(execution, aim, await self._acting.seen(execution, aim, act))

    async def scroll(self, execution: Execution, params: m.ScrollCall) -> m.ActResult:
        aim = await self._acting.aim(execution, params)

        async def act() -> None:
            x, y = await self._acting.point(execution, aim, params)
            await self._desktop.scroll_at(
                x, y, execution.halt, onto(aim), direction=params.direction, steps=params.steps
            )

        return self._result(execution, aim, await self._acting.seen(execution, aim, act))

    async def drag(self, execution: Execution, params: m.DragCall) -> m.ActResult:
        aim = await self._acting.aim(execution, params)
        other = await self._acting.aim(execution, params, "to")

        async def act() -> None:
            start = await self._acting.point(execution, aim, params)
            end = await self._acting.point(execution, other, params)
            # Two windows move apart: then both points stay where they are on the screen.
            judged = aim.judged if aim.judged == other.judged else None
            await self._desktop.drag(start, end, execution.halt, msgspec.structs.replace(onto(other), judged=judged))

        return self._result(execution, aim, await self._acting.seen(execution, aim, act))

    async def set_value(self, execution: Execution, params: m.SetValueCall) -> m.ActResult:
        aim = await self._acting.aim(execution, params)
        check_enabled(aim.element)
        value = params.value
        shown = value if isinstance(value, str) else f"{value:g}"
        if isinstance(value, str) and value:
            self._looking.typed.remember(value)
        done = False

        async def act() -> None:
            nonlocal done
            done = await self._desktop.set_value(aim.element, value)
            if not done:
                raise not_found("the element takes no value: type or click instead", reason="action")

        def is_set(now: Element) -> bool:
            # Some programs empty a field first.
            return differs(aim.element, now) if now.secret else now.value == shown

        blanked = (aim.element.rect,) if isinstance(value, str) else ()
        watched = await self._acting.pictured(execution, aim.routed, act, aim, blanked, patient=is_set)
        now = None
        with contextlib.suppress(AppGone):
            now = await self._desktop.refreshed(aim.element)
        seen = Seen("unverified", None, watched.ms)
        if now is not None and not now.secret:
            # Firefox answers true and does nothing.
            seen = Seen("confirmed", "element") if now.value == shown else Seen("none")
        return self._result(execution, aim, seen)

    async def focus_window(self, execution: Execution, params: d.Routed) -> m.ActResult:
        routed = await self._looking.route(execution, params.route)
        front = await self._acting.bring_to_front(execution, routed, params.route)
        return m.ActResult(
            execution_id=execution.id,
            done=True,
            effect="confirmed" if front.window.active else "unverified",
            evidence=d.Evidence(dir=folder_of(execution)),
        )

    async def dismiss_modal(self, execution: Execution, params: m.DismissModalCall) -> m.ActResult:
        routed = await self._looking.route(execution, params.route)
        tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
        modal, button = modal_meant(tree, params.button)
        if execution.expected is not None:
            execution.expected.check_element("element", button or modal)
        if button is None:
            # A dialog has a window of its own: Escape in the one behind it may mean something else.
            front = await self._looking.route_to(execution, self._looking.holder(modal, routed, tree))
            front = await self._acting.bring_to_front(execution, front, params.route)
            aim = Aim(front, modal, tree)

            async def escape() -> None:
                await self._desktop.chord(("escape",), execution.halt, front.window)

            return self._result(execution, aim, await self._acting.seen(execution, aim, escape))
        aim = Aim(routed, button, tree)

        async def act() -> bool:
            if await self._desktop.press(aim.element):
                return True
            x, y = await self._acting.point(execution, aim, params)
            await self._desktop.click_at(x, y, execution.halt, onto(aim))
            return False

        return self._result(execution, aim, await self._acting.seen(execution, aim, act))

    def _result(self, execution: Execution, aim: Aim, seen: Seen) -> m.ActResult:
        return m.ActResult(
            execution_id=execution.id,
            done=True,
            effect=seen.effect,
            by=seen.by,
            evidence=self._acting.evidence(execution),
            rematched=aim.rematched,
            watched_ms=seen.watched_ms,
        )
