"""ui-control methods. A reply of `true` proves nothing: every act is read back, and `effect` says what was seen."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import msgspec

from bascule.desktop import protocol as d
from bascule.desktop.errors import Code, DesktopError, invalid, not_found
from bascule.programs.desktop_host import pictures
from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.looking import Looking, Picture, check_selector, folder_of, windows_with
from bascule.programs.desktop_host.matching import first_visible, matches
from bascule.programs.desktop_host.ports import AppGone, Judged, NotAnswering, Onto, Window
from bascule.programs.desktop_host.refs import Ambiguous, find_again, same
from bascule.programs.desktop_host.routes import Routed

# The longest look for what an act did: before it is said that nothing happened, and where no element can be read back.
CONFIRM_SECONDS: Final = 0.4
FOCUS_SECONDS: Final = 0.5
# How long a program may take to say where its password fields are.
PICTURE_SECONDS: Final = 2.0
# States that a click brings by itself, whatever comes of it.
_QUIET: Final = ("StateChanged:focused", "StateChanged:armed", "StateChanged:pressed", "StateChanged:active")
_CHECKABLE: Final = frozenset({"AXCheckBox"})
# Two windows of which one was not read whole are not compared.
_UNREAD: Final = frozenset({"time", "unresponsive", "inaccessible"})


# True: the program's own action was asked for, which some programs carry out later.
Act = Callable[[], Awaitable[bool | None]]


class Watched(msgspec.Struct, frozen=True):
    """What was seen after an act: a change, or none in that time."""

    change: bool
    ms: int
    # The window shows something else than before, whatever its program said of that.
    window: bool = False


class Seen(msgspec.Struct, frozen=True):
    """What an answer says of it."""

    effect: d.Effect
    by: d.SeenBy | None = None
    watched_ms: int | None = None


class Aim(msgspec.Struct):
    """The element meant, and where it is."""

    routed: Routed
    element: Element
    tree: Tree | None
    rematched: bool = False
    # Where its window was when the point to click was chosen.
    judged: Judged | None = None


class Acting:
    def __init__(self, looking: Looking) -> None:
        self._looking = looking
        self._desktop = looking.desktop

    # -- finding the target --

    async def aim(self, execution: Execution, params: Any, name: str = "element") -> Aim:
        """`name`: "element", or "to" for the end of a drag."""
        aim = await self._aim(execution, params, params.target if name == "element" else params.to)
        expected = execution.expected
        if expected is not None:
            element = aim.element
            if expected.unmoved and aim.tree is None:
                # A ref says which object, not where it is now. The picture before the act uses the same tree.
                aim.tree = await self._looking.tree(execution, aim.routed, self._looking.limit(execution))
                element = aim.tree.by_key(element.key) or element
            expected.check_element(name, element)
        return aim

    async def _aim(self, execution: Execution, params: Any, target: d.Target) -> Aim:
        ref, selector = target.element_ref, target.selector
        if ref is None and selector is None:
            raise invalid("target needs elementRef or selector")
        if ref is not None and selector is not None and not isinstance(params, d.TypeTextCall):
            raise invalid("target needs either elementRef or selector")
        if selector is not None:
            check_selector(selector)
        if ref is not None:
            try:
                return await self._aim_at_ref(execution, params, ref, rematch=target.rematch)
            except DesktopError as error:
                # Contract 5.6: typeText may bring a selector to fall back to.
                if selector is None or error.code is not Code.ELEMENT_NOT_FOUND:
                    raise
                execution.note("fallback", reason=error.details.get("reason"))
        assert selector is not None
        return await self._aim_by_selector(execution, params, selector)

    async def _aim_by_selector(self, execution: Execution, params: Any, selector: d.Selector) -> Aim:
        routed = await self._looking.route(execution, params.route)
        tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
        hits = matches(tree, selector)
        execution.note("matched", count=len(hits))
        chosen = first_visible(hits)
        if chosen is None:
            raise not_found("no element matches the selector", reason="selector", partial=list(tree.partial))
        return Aim(routed, chosen, tree)

    async def _aim_at_ref(self, execution: Execution, params: Any, ref: d.ElementRef, *, rematch: bool) -> Aim:
        known = self._looking.refs.get(execution.client, ref.element_id)
        fingerprint = ref.fingerprint or (known.fingerprint if known is not None else None)
        if fingerprint is None:
            raise not_found("no such elementId here, and no fingerprint to find it by", reason="stale")
        routed = await self._route_of(execution, params.route, known.window if known is not None else None)
        if known is not None and known.window in _meant(routed):
            with contextlib.suppress(AppGone):
                now = await self._desktop.refreshed(known.element)
                # The same object under another name is another thing to press.
                if now is not None and same(now, fingerprint) and "defunct" not in now.states:
                    return Aim(routed, now, None)
        if not rematch:
            raise not_found("the element is gone, or is not what it was: find it again", reason="stale")
        tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
        try:
            found = find_again(tree, fingerprint)
        except Ambiguous as error:
            raise not_found(
                f"the element is gone and {error.count} others look like it: find it again",
                reason="ambiguous",
                candidates=error.count,
            ) from None
        if found is None:
            raise not_found("the element is gone: find it again", reason="stale")
        execution.note("rematched")
        return Aim(routed, found, tree, rematched=True)

    async def _route_of(self, execution: Execution, route: d.Route | None, handle: int | None) -> Routed:
        if route is None and handle is not None:
            window = windows_with(await self._desktop.windows(), handle)
            if window is None:
                raise not_found("the element's window is closed", reason="stale")
            # The window the ref came from, whatever is in front now.
            return await self._looking.route_to(execution, window)
        return await self._looking.route(execution, route)

    # -- the methods --

    async def click(self, execution: Execution, params: d.TargetCall) -> d.ClickResult:
        aim = await self.aim(execution, params)
        check_enabled(aim.element)
        await self.require_focus(aim.routed, params.route)
        method = "action"

        async def act() -> bool:
            nonlocal method
            execution.halt.check()
            if await self._desktop.press(aim.element):
                return True
            method = "pointer"
            x, y = await self.point(execution, aim, params)
            await self._desktop.click_at(x, y, execution.halt, onto(aim))
            return False

        seen = await self.seen(execution, aim, act)
        return d.ClickResult(
            execution_id=execution.id,
            clicked=True,
            evidence=self.evidence(execution),
            effect=seen.effect,
            by=seen.by,
            method="pointer" if method == "pointer" else "action",
            rematched=aim.rematched,
            watched_ms=seen.watched_ms,
        )

    async def hotkey(self, execution: Execution, params: d.HotkeyCall) -> d.HotkeyResult:
        routed = await self._looking.route(execution, params.route)
        routed = await self.bring_to_front(execution, routed, params.route)
        execution.note("keys", keys=_shown(params.keys))
        delay = params.options.delay_ms / 1000

        async def act() -> None:
            await self._desktop.chord(params.keys, execution.halt, routed.window, delay=delay)

        watched = await self.pictured(execution, routed, act)
        seen = _of_others(watched)
        return d.HotkeyResult(
            execution_id=execution.id,
            sent=True,
            evidence=self.evidence(execution),
            effect=seen.effect,
            by=seen.by,
            watched_ms=seen.watched_ms,
        )

    # -- what they share --

    def evidence(self, execution: Execution, ax_path: str | None = None) -> d.Evidence:
        before, after = ("before.png", "after.png") if self._desktop.has_pictures else (None, None)
        return d.Evidence(dir=folder_of(execution), ax_path=ax_path, before_screenshot=before, after_screenshot=after)

    async def require_focus(self, routed: Routed, route: d.Route | None) -> None:
        if route is not None and route.focus_policy == "requireFocused" and not routed.window.active:
            raise not_found("the window is not in front, and focusPolicy is requireFocused", reason="focus")

    async def bring_to_front(self, execution: Execution, routed: Routed, route: d.Route | None) -> Routed:
        _check_complete(execution)
        await self.require_focus(routed, route)
        if routed.window.active:
            return routed
        execution.halt.check()
        execution.note("activate")
        if not await self._desktop.activate(routed.window):
            raise not_found("the window could not be brought to the front", reason="focus")
        return await self._looking.route_to(execution, routed.window)

    async def point(self, execution: Execution, aim: Aim, params: Any) -> tuple[int, int]:
        """Where to click, after the program itself says that the element is what is there."""
        routed = aim.routed
        tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
        element = tree.by_key(aim.element.key)
        if element is None:
            raise not_found("the element is gone: find it again", reason="stale")
        if not element.on_screen:
            raise not_found("the element cannot be seen: scroll to it", reason="offscreen")
        holder = self._looking.holder(element, routed, tree)
        steady = await self._desktop.steady(element, holder)
        if steady is None:
            raise not_found("the window keeps moving: try again", reason="moved")
        place, window_place = steady
        aim.judged = Judged(holder.handle, window_place)
        x, y = element.visible.moved(place.x - element.rect.x, place.y - element.rect.y).centre
        if not await self._on_top(aim, x, y, holder):
            routed = aim.routed = await self.bring_to_front(execution, routed, params.route)
            if not await self._on_top(aim, x, y, holder):
                raise not_found("another window covers the element", reason="covered")
        key = await self._desktop.element_at(routed.window, x, y)
        hit = tree.by_key(key) if key is not None else None
        if hit is None or (hit.key != element.key and tree.is_within(element, hit)):
            # The program does not say, or only half of the way down: GTK 3 stops at a notebook that shows no tabs.
            hit = _smallest_at(tree, x, y)
        execution.note("hit", x=x, y=y, role=hit.role if hit is not None else None)
        if hit is None or not tree.is_within(hit, element):
            raise not_found("something else is where the element should be", reason="covered")
        aim.tree = tree
        return x, y

    async def _on_top(self, aim: Aim, x: int, y: int, holder: Window) -> bool:
        routed = aim.routed
        windows = await self._desktop.windows()
        if aim.judged is not None and any(
            each.handle == holder.handle and each.rect != holder.rect for each in windows
        ):
            aim.judged = msgspec.structs.replace(aim.judged, moves=True)
        x, y = onto(aim).follow(x, y, windows)
        for each in reversed(windows):
            if each.outer.contains(x, y):
                return each.pid == routed.window.pid and (
                    each.popup or not routed.exact or each.handle == routed.window.handle
                )
        return False

    async def seen(self, execution: Execution, aim: Aim, act: Act) -> Seen:
        """Act between two pictures, then compare what the element says of itself, what its program said, and what the
        window shows."""
        before = aim.element
        patient = partial(differs, before) if before.role in _CHECKABLE else None
        watched = await self.pictured(execution, aim.routed, act, aim, patient=patient)
        try:
            after = await self._desktop.refreshed(before)
        except (AppGone, NotAnswering) as error:
            execution.note("readback", outcome=str(error))
            return Seen("confirmed", "program") if isinstance(error, AppGone) else Seen("unverified", None, watched.ms)
        changed = after is None or differs(before, after)
        execution.note("readback", changed=changed, heard=watched.change, window=watched.window)
        if changed:
            return Seen("confirmed", "element")
        return Seen("none") if before.role in _CHECKABLE else _of_others(watched)

    async def pictured(
        self,
        execution: Execution,
        routed: Routed,
        act: Act,
        aim: Aim | None = None,
        blanked: tuple[Rect, ...] = (),
        *,
        patient: Callable[[Element], bool] | None = None,
    ) -> Watched:
        """before.png, the act, after.png; whether a change was seen meanwhile.

        `patient`: look for the element to become this, for the longest time, because its absence is reported as `none`.
        """
        _check_complete(execution)
        program = aim.element.key.program if aim is not None else self._desktop.program_of(routed.window)
        changed = asyncio.Event()

        def on_change(name: str, kind: str) -> None:
            if program in (None, name) and not kind.startswith(_QUIET):
                changed.set()

        if not self._desktop.has_pictures:
            execution.note("picture", missing="this session shows none")
            async with self._desktop.changes(on_change):
                execution.halt.check()
                by_action = await act()
                execution.note("acted")
                return await self._watch(changed, aim, program, by_action=bool(by_action), patient=patient)
        before, tree = await self._picture(execution, routed, aim.tree if aim is not None else None, blanked)
        image = before.image
        if aim is not None:
            shown = aim.element.visible if aim.element.on_screen else aim.element.rect
            image = pictures.marked(image, before.area, [("", shown)])
        # Written before anything is done: where there is no room for evidence, nothing is done.
        await self._looking.save(execution, "before.png", await asyncio.to_thread(pictures.png, image))
        async with self._desktop.changes(on_change):
            execution.halt.check()
            by_action = await act()
            execution.note("acted")
            # Most often nothing on the screen changes: what the picture is then is made while we watch.
            encoding = asyncio.ensure_future(asyncio.to_thread(pictures.png, before.image))
            try:
                watched = await self._watch(changed, aim, program, by_action=bool(by_action), patient=patient)
                execution.note("watched", change=watched.change)
                after = await self._picture_after(execution, routed, before, encoding, blanked)
            finally:
                encoding.cancel()
        return msgspec.structs.replace(watched, window=_shows_other(tree, after))

    async def _watch(
        self,
        changed: asyncio.Event,
        aim: Aim | None,
        program: str | None,
        *,
        by_action: bool,
        patient: Callable[[Element], bool] | None,
    ) -> Watched:
        """Until the first sign of a change, or until none came in the time in which this program gives one.

        That time begins when the program has answered once after the act: a busy one is given more.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        end = began + CONFIRM_SECONDS
        pace = self._desktop.pace_of(program)
        within = CONFIRM_SECONDS if aim is None else pace.reports_within
        change = by_action and await _set_within(changed, pace.action_delay)
        while patient is not None or not change:
            if patient is not None:
                # What its program says may be about something else; the element says it of itself.
                changed.clear()
            if aim is not None and await self._became(aim.element, patient or partial(differs, aim.element), end):
                change = True
                break
            change = await _set_within(changed, min(within, end - loop.time()))
            if patient is None or loop.time() >= end:
                break
        return Watched(change, int((loop.time() - began) * 1000))

    async def _became(self, element: Element, wanted: Callable[[Element], bool], end: float) -> bool:
        """Whether an element is gone or as it is wanted by now. One whose program does not answer shows nothing."""
        try:
            async with asyncio.timeout_at(end):
                now = await self._desktop.refreshed(element)
        except (TimeoutError, NotAnswering):
            return False
        except AppGone:
            return True
        return now is None or wanted(now)

    async def _picture(
        self, execution: Execution, routed: Routed, tree: Tree | None, blanked: tuple[Rect, ...]
    ) -> tuple[Picture, Tree | None]:
        if tree is None:
            try:
                tree = await self._looking.tree(execution, routed, PICTURE_SECONDS)
            except (DesktopError, NotAnswering):
                # Where the secrets are is not known, so nothing is shown.
                blanked = (*blanked, routed.window.outer)
        return await self._looking.picture(execution, routed, tree, blanked), tree

    async def _picture_after(
        self,
        execution: Execution,
        routed: Routed,
        before: Picture,
        unchanged: Awaitable[bytes],
        blanked: tuple[Rect, ...],
    ) -> Tree | None:
        """What the window shows by then, where that is something else."""
        tree = None
        if await self._looking.is_current(before):
            # The same pixels hide the same secrets in the same places.
            execution.note("picture", unchanged=True)
            data = await unchanged
        else:
            try:
                after, tree = await self._picture(execution, routed, None, blanked)
            except DesktopError as error:
                if error.code is not Code.ELEMENT_NOT_FOUND:
                    raise
                # The act closed the window.
                execution.note("picture", name="after.png", missing="the window is closed")
                return None
            data = await asyncio.to_thread(pictures.png, after.image)
        await self._looking.save(execution, "after.png", data)
        return tree


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def differs(before: Element, now: Element) -> bool:
    """Whether an element shows something else than before."""
    return _shown_by(now) != _shown_by(before)


def _shown_by(element: Element) -> tuple[str | None, str, frozenset[str]]:
    """Without the states that a click brings by itself."""
    return element.value, element.title, element.states - {"focused", "pressed", "armed", "active"}


def _shows_other(before: Tree | None, after: Tree | None) -> bool:
    """GTK 4's elements report nothing: that a label has changed is seen in the window alone."""
    if before is None or after is None or _UNREAD & {*before.partial, *after.partial}:
        return False
    return _shown_in(before) != _shown_in(after)


def _shown_in(tree: Tree) -> list[tuple[str, tuple[str | None, str, frozenset[str]]]]:
    return [(each.role, _shown_by(each)) for each in tree.elements if each.on_screen]


def _of_others(watched: Watched) -> Seen:
    """Where the element itself shows nothing."""
    if watched.change:
        return Seen("confirmed", "program")
    return Seen("confirmed", "window") if watched.window else Seen("unverified", None, watched.ms)


def _check_complete(execution: Execution) -> None:
    if execution.expected is not None:
        execution.expected.check_complete()


def onto(aim: Aim) -> Onto:
    """Where a click may go: as `_on_top` has it, asked again when the button goes down."""
    routed = aim.routed
    return Onto(routed.window.pid, frozenset(each.handle for each in routed.searched), aim.judged)


def _meant(routed: Routed) -> frozenset[int]:
    """Windows a ref may come from: that of another program, or a window the route does not name, is not meant."""
    return frozenset(each.handle for each in (routed.searched if routed.exact else routed.windows))


def _shown(keys: list[str]) -> list[str]:
    """For the trace. A character alone may be one of a password that is typed key by key."""
    if all(len(each) == 1 or each.lower() == "shift" for each in keys):
        return ["a character"]
    return keys


def is_enabled(element: Element) -> bool:
    return bool({"enabled", "sensitive"} & element.states)


def check_enabled(element: Element) -> None:
    if not is_enabled(element):
        raise not_found("the element is disabled", reason="disabled")


def _smallest_at(tree: Tree, x: int, y: int) -> Element | None:
    """Where a program does not say what is at a point: the innermost, the last drawn."""
    there = [each for each in tree.elements if each.visible.contains(x, y) and each.depth]
    return max(there, key=lambda each: (each.depth, tree.elements.index(each)), default=None)
