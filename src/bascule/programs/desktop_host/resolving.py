"""desktop.resolve: what a call would be about if it came now, and the same call tied to exactly that.

A client that asks a person first (the daemon) asks about what is there. Between the question and the act a window may
close, another come to the front, a button change its name. The tied call names the program, the window and the object
themselves, and finds nothing rather than something else.
"""

import asyncio
from typing import Any, Final

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop.errors import DesktopError, invalid
from bascule.desktop.host_methods import METHODS
from bascule.programs.desktop_host import pictures
from bascule.programs.desktop_host.acting import Acting, Aim, check_enabled
from bascule.programs.desktop_host.elements import Element, Tree
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.geometry import NOWHERE, Rect
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.pointing import modal_meant
from bascule.programs.desktop_host.ports import NotAnswering, Window
from bascule.programs.desktop_host.routes import Routed, window_id_of
from bascule.programs.desktop_host.writing import typed_into
from gabp import codec

# Of the window around the target: enough to know the place again.
CROP_MARGIN_PIXELS: Final = 160
_NOT_ABOUT_IT: Final = ("meta", "confirm")
# Those that refuse a disabled element; a disabled one can be scrolled.
_NEEDS_ENABLED: Final = ("desktop.click", "desktop.typeText", "desktop.setValue")


class _Meant(msgspec.Struct):
    routed: Routed
    window: Window
    # Tied to the window; a look at a program by its name alone is at all its windows.
    exact: bool = True
    element: Element | None = None
    to: Element | None = None
    tree: Tree | None = None


class Resolving:
    def __init__(self, acting: Acting, looking: Looking) -> None:
        self._acting = acting
        self._looking = looking
        self._desktop = looking.desktop

    async def resolve(self, execution: Execution, params: m.ResolveParams) -> m.ResolveResult:
        row = METHODS.get(params.intent.method)
        if row is None or not hasattr(row.call, "route") or row.at_once:
            raise invalid("intent.method is about no window", method=params.intent.method)
        given = {name: value for name, value in params.intent.params.items() if name not in _NOT_ABOUT_IT}
        try:
            intent: Any = row.call_of(codec.convert(given, row.wire_type(meta=False)))
        except codec.BadJson as error:
            raise invalid(f"intent.params: {error.message}") from None
        if row.confirmed:
            meant = await self._act(execution, row.name, intent)
        else:
            routed = await self._looking.route(execution, intent.route)
            meant = _Meant(routed, routed.window, exact=routed.exact)
        window = meant.window
        element, to = self._found(execution, meant, meant.element), self._found(execution, meant, meant.to)
        wanted = params.picture and row.confirmed and self._desktop.has_pictures
        picture = await self._picture(execution, meant) if wanted else None
        resolved = {**given, "route": _resolved_route(intent.route, meant)}
        if element is not None and hasattr(intent, "target"):
            resolved["target"] = _resolved_target(element)
        if to is not None:
            resolved["to"] = _resolved_target(to)
        return m.ResolveResult(
            bundle_id=window.bundle_id,
            pid=window.pid,
            program=window.program,
            window_id=window_id_of(window),
            window_title=window.title,
            element=element,
            to=to,
            params=resolved,
            picture=picture,
            pictures=self._desktop.has_pictures,
            held=self._desktop.holds or not row.confirmed,
        )

    async def _act(self, execution: Execution, method: str, intent: Any) -> _Meant:
        """As the act itself finds its target, with what it would refuse."""
        if getattr(intent, "target", None) is not None:
            return await self._aimed(execution, method, intent)
        routed = await self._looking.route(execution, intent.route)
        if method == "desktop.dismissModal":
            tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
            modal, button = modal_meant(tree, intent.button)
            window = self._looking.holder(modal, routed, tree)
            return _Meant(routed, window, element=button or modal, tree=tree)
        await self._acting.require_focus(routed, intent.route)
        if method == "desktop.hotkey":
            await self._desktop.check_keys(intent.keys)
        if method == "desktop.typeText":
            tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
            # A text without a target goes where the focus is: where it is now, not where it is after the question.
            return _Meant(routed, routed.window, element=typed_into(tree), tree=tree)
        return _Meant(routed, routed.window)

    async def _aimed(self, execution: Execution, method: str, intent: Any) -> _Meant:
        aim = await self._acting.aim(execution, intent)
        if method in _NEEDS_ENABLED:
            check_enabled(aim.element)
        if method in ("desktop.click", "desktop.typeText"):
            await self._acting.require_focus(aim.routed, intent.route)
        other: Aim | None = None
        if method == "desktop.drag":
            other = await self._acting.aim(execution, intent, "to")
        tree = aim.tree
        if tree is None:
            # A ref says which object, not where it is now and what is around it.
            tree = await self._looking.tree(execution, aim.routed, self._looking.limit(execution))
        element = tree.by_key(aim.element.key) or aim.element
        to = None if other is None else tree.by_key(other.element.key) or other.element
        window = self._looking.holder(element, aim.routed, tree)
        return _Meant(aim.routed, window, element=element, to=to, tree=tree)

    def _found(self, execution: Execution, meant: _Meant, element: Element | None) -> d.FoundElement | None:
        return None if element is None else self._looking.found(execution, element, meant.routed, meant.tree)

    async def _picture(self, execution: Execution, meant: _Meant) -> d.InlineImage:
        window, tree = meant.window, meant.tree
        routed = Routed(window, (window, *(e for e in meant.routed.windows if e.handle != window.handle)), exact=True)
        hidden: tuple[Rect, ...] = ()
        if tree is None:
            try:
                tree = await self._looking.tree(execution, routed, self._looking.limit(execution))
            except (DesktopError, NotAnswering):
                # Where the secrets are is not known, so nothing is shown.
                hidden = (window.outer,)
        picture = await self._looking.picture(execution, routed, tree, hidden)
        origin = picture.area
        marks = [_place(each) for each in (meant.element, meant.to) if each is not None]
        around = NOWHERE
        for each in marks:
            around = around.joined(each)

        def render() -> d.InlineImage:
            with_marks = pictures.marked(picture.image, origin, [("", each) for each in marks])
            return pictures.inline(pictures.cropped(with_marks, origin, around, CROP_MARGIN_PIXELS))

        return await asyncio.to_thread(render)


def _place(element: Element) -> Rect:
    return element.visible if element.on_screen else element.rect


def _resolved_route(route: d.Route | None, meant: _Meant) -> dict[str, Any]:
    window = meant.window
    resolved: dict[str, Any] = {"app": {"pid": window.pid}}
    if window.bundle_id in window.names:
        # A pid comes again; one that comes again under the same name is a rare thing.
        resolved["app"]["bundleId"] = window.bundle_id
    if meant.exact:
        resolved["window"] = {"windowId": window_id_of(window)}
        if route is not None and route.window is not None and route.window.title_pattern is not None:
            # Still: a window that is called otherwise by then is not the one that was asked about.
            resolved["window"]["titlePattern"] = route.window.title_pattern
    if route is not None and route.focus_policy != d.Route().focus_policy:
        resolved["focusPolicy"] = route.focus_policy
    return resolved


def _resolved_target(element: d.FoundElement) -> dict[str, Any]:
    return {"elementRef": {"elementId": element.element_id, "fingerprint": element.fingerprint}, "rematch": False}
