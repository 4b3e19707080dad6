"""Read-only methods: observe, find, windows, modals. They never move the focus."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from bascule.desktop import extensions as m
from bascule.desktop import protocol as d
from bascule.desktop import roles
from bascule.desktop.errors import Code, DesktopError, invalid, not_found
from bascule.programs.desktop_host import pictures, snapshot
from bascule.programs.desktop_host.elements import Element, Tree, cut
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.known_places import KnownPlaces, Taken, name_of
from bascule.programs.desktop_host.matching import matches
from bascule.programs.desktop_host.peers import Client, PeerId
from bascule.programs.desktop_host.ports import Desktop, Window
from bascule.programs.desktop_host.redaction import REDACTED, Typed, clean
from bascule.programs.desktop_host.refs import Refs, fingerprint_of
from bascule.programs.desktop_host.routes import KEEP_OUT, Routed, is_kept_out, resolve, window_id_of
from gabp import codec

# One program's tree: a frozen one costs this once, and the answer says so.
TREE_SECONDS: Final = 5.0
# A window that was not read whole may have more secrets.
_UNREAD: Final = frozenset({"time", "unresponsive"})
# Snapshots kept to tell what changed; the oldest go first.
MAX_REMEMBERED: Final = 64
# Of the time a request has, this part goes to reading; the rest is for writing evidence.
_READING_SHARE: Final = 0.8


class Picture(msgspec.Struct, frozen=True):
    """What may be shown of the screen, and what it was made of."""

    image: Any
    area: Rect
    stacked: list[Window]
    shown: list[Window]
    pixels: bytes


class Looking:
    """What every method needs of a desktop: which window, what is in it, a picture of it, the files about it."""

    def __init__(
        self,
        desktop: Desktop,
        refs: Refs,
        typed: Typed,
        *,
        keep_out: Sequence[str] = KEEP_OUT,
        seconds: float = TREE_SECONDS,
    ) -> None:
        self.desktop = desktop
        self.refs = refs
        self.typed = typed
        self.keep_out = keep_out
        self._seconds = seconds
        self._places = KnownPlaces(desktop, typed)
        # The last snapshot each client had of each window.
        self._last: dict[tuple[Client, int], list[str]] = {}

    # -- the methods --

    async def observe(self, execution: Execution, params: d.ObserveCall) -> d.ObserveResult:
        options = params.options
        routed = await self.route(execution, params.route)
        need_tree = options.include_ax_tree or options.snapshot or options.marks or options.diff
        tree = whole = image = text = diff = None
        if not need_tree:
            image = await self._observed_picture(execution, options, routed, None)
        else:
            # All of it, however little of it was asked for: password fields and typed texts are found in it.
            whole = await self.tree(execution, routed, self.limit(execution))
            tree = cut(whole, max_depth=options.ax_max_depth, max_nodes=options.ax_max_nodes)
            image = await self._observed_picture(execution, options, routed, whole)
            if options.include_ax_tree:
                await self.save_tree(execution, routed, tree)
            text, diff = await self._observed_text(execution, options, routed, tree)
        return d.ObserveResult(
            execution_id=execution.id,
            route_resolved=d.RouteResolved(
                frontmost_bundle_id=routed.window.bundle_id, window_title=routed.window.title
            ),
            evidence=d.Evidence(
                dir=folder_of(execution),
                screenshot_path="observe.png" if options.include_screenshot and self.desktop.has_pictures else None,
                ax_path="ax.json" if options.include_ax_tree else None,
            ),
            partial=list(tree.partial) if tree is not None else [],
            nodes=len(tree.elements) if tree is not None else None,
            snapshot=text,
            diff=diff,
            image=image,
        )

    async def _observed_picture(
        self, execution: Execution, options: d.ObserveOptions, routed: Routed, tree: Tree | None
    ) -> d.InlineImage | None:
        if not (options.inline or (options.include_screenshot and self.desktop.has_pictures)):
            return None
        if tree is None:
            picture = await self._picture_alone(execution, routed)
        else:
            picture = await self.picture(execution, routed, tree)
        image = marked = picture.image
        if options.marks and tree is not None:
            marks = [(self._name(execution, each, routed, tree)[2:], each.visible) for each in _usable(tree)]
            marked = pictures.marked(image, picture.area, marks)
        if options.include_screenshot:
            await self.save(execution, "observe.png", await asyncio.to_thread(pictures.png, image))
            if options.marks:
                await self.save(execution, "marks.png", await asyncio.to_thread(pictures.png, marked))
        return await asyncio.to_thread(pictures.inline, marked) if options.inline else None

    async def _observed_text(
        self, execution: Execution, options: d.ObserveOptions, routed: Routed, tree: Tree
    ) -> tuple[str | None, list[str] | None]:
        """The snapshot, and what changed since the last one."""
        if not (options.snapshot or options.diff):
            return None, None
        lines = self.lines(execution, routed, tree)
        where = (execution.client, routed.window.handle)
        diff = snapshot.changes(self._last.get(where, []), lines) if options.diff else None
        self._last.pop(where, None)
        self._last[where] = lines
        while len(self._last) > MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        if not options.snapshot:
            return None, diff
        written = "\n".join(clean(line, self.typed) or "" for line in lines)
        await self.save(execution, "snapshot.txt", written.encode())
        return "\n".join(lines), diff

    async def find(self, execution: Execution, params: d.FindCall) -> d.FindResult:
        check_selector(params.selector)
        routed = await self.route(execution, params.route)
        tree = await self.tree(execution, routed, self.limit(execution))
        hits = matches(tree, params.selector)
        await self.save_tree(execution, routed, tree)
        execution.note("matched", count=len(hits))
        limit = params.selector.limit or d.DEFAULT_LIMIT
        # What can be seen comes first; otherwise document order.
        hits.sort(key=lambda each: not each.on_screen)
        return d.FindResult(
            execution_id=execution.id,
            element_refs=[self.found(execution, each, routed, tree) for each in hits[:limit]],
            matched=len(hits),
            evidence=d.Evidence(dir=folder_of(execution), ax_path="ax.json"),
            partial=list(tree.partial),
        )

    async def windows(self, execution: Execution, _params: d.DesktopCall) -> m.WindowsResult:
        found = await self.desktop.windows()
        execution.note("windows", count=len(found))
        return m.WindowsResult(
            windows=[
                m.WindowInfo(
                    window_id=window_id_of(each),
                    bundle_id=each.bundle_id,
                    title="" if is_kept_out(each, self.keep_out) else each.title,
                    pid=each.pid,
                    frame=frame_of(each.rect),
                    active=each.active,
                    forbidden=is_kept_out(each, self.keep_out),
                )
                for each in reversed(found)
                if not each.popup
            ]
        )

    async def list_modals(self, execution: Execution, params: d.Routed) -> m.ListModalsResult:
        routed = await self.route(execution, params.route)
        tree = await self.tree(execution, routed, self.limit(execution))
        await self.save_tree(execution, routed, tree)
        return m.ListModalsResult(
            execution_id=execution.id,
            modals=[modal_info(tree, each) for each in modals(tree)],
            evidence=d.Evidence(dir=folder_of(execution), ax_path="ax.json"),
        )

    # -- what they share --

    def limit(self, execution: Execution) -> float:
        return min(self._seconds, execution.timeout_ms / 1000 * _READING_SHARE)

    async def route(self, execution: Execution, route: d.Route | None) -> Routed:
        routed = resolve(await self.desktop.windows(), route, self.keep_out)
        window = routed.window
        execution.note("route", bundleId=window.bundle_id, pid=window.pid, window=clean(window.title, self.typed))
        if execution.expected is not None:
            execution.expected.check_window(window)
        return routed

    async def route_to(self, execution: Execution, window: Window) -> Routed:
        """That very window, as it is now; the rules about who may be looked at hold here too."""
        windows = await self.desktop.windows()
        now = windows_with(windows, window.handle)
        if now is None:
            raise not_found("the window is closed", reason="stale")
        others = [each for each in windows if each.handle != now.handle or each.popup]
        front = [*others, msgspec.structs.replace(now, active=True)]
        routed = resolve(front, d.Route(app=d.RouteApp(pid=now.pid)), self.keep_out)
        execution.note("route", bundleId=now.bundle_id, pid=now.pid, window=clean(now.title, self.typed))
        return Routed(now, (now, *(each for each in routed.windows if each.handle != now.handle)), exact=True)

    async def tree(
        self,
        execution: Execution,
        routed: Routed,
        seconds: float,
        max_depth: int = d.MAX_AX_DEPTH,
        max_nodes: int = d.MAX_AX_NODES,
    ) -> Tree:
        tree = await self.desktop.tree(routed.searched, seconds=seconds, max_depth=max_depth, max_nodes=max_nodes)
        execution.note("tree", nodes=len(tree.elements), partial=list(tree.partial))
        if not tree.elements and "unresponsive" in tree.partial:
            raise DesktopError(
                Code.TIMEOUT,
                f"{routed.window.bundle_id} does not answer: it hangs or is stopped",
                partial=["unresponsive"],
            )
        return tree

    async def picture(
        self,
        execution: Execution,
        routed: Routed,
        tree: Tree | None,
        blanked: Sequence[Rect] = (),
    ) -> Picture:
        """The program's windows, or the one that was named, with nobody else's pixels."""
        taken = await self._taken(routed)
        return await self._composed(execution, taken, self._secrets(taken, tree, blanked))

    async def _picture_alone(self, execution: Execution, routed: Routed) -> Picture:
        """Password fields and typed texts are found in the window's elements, which are read unless nothing changed."""
        before = await self._places.listen()
        taken = await self._taken(routed)
        name = await asyncio.to_thread(name_of, taken, exact=routed.exact)
        places = await self._places.get(name, routed.window)
        if places is not None:
            return await self._composed(execution, taken, places)
        tree = await self.tree(execution, routed, self.limit(execution))
        taken = await self._taken(routed)
        places = self._secrets(taken, tree, ())
        # What was read is of these pixels only if they were there before.
        if not _UNREAD & set(tree.partial) and await asyncio.to_thread(name_of, taken, exact=routed.exact) == name:
            self._places.keep(name, routed.window, places, before)
        return await self._composed(execution, taken, places)

    async def _taken(self, routed: Routed) -> Taken:
        stacked = await self.desktop.windows()
        mine = [each for each in stacked if each.pid == routed.window.pid and not is_kept_out(each, self.keep_out)]
        if routed.exact:
            # What the others show was not looked through for what must not be shown.
            mine = [each for each in mine if each.popup or each.handle == routed.window.handle]
        area = pictures.region(mine, await self.desktop.screen())
        if area.empty:
            raise DesktopError(Code.ELEMENT_NOT_FOUND, "the window is not on the screen", reason="route")
        return Taken(area, stacked, mine, await self.desktop.grab(area, mine))

    def _secrets(self, taken: Taken, tree: Tree | None, blanked: Sequence[Rect]) -> tuple[Rect, ...]:
        if self.typed and tree is not None and "time" in tree.partial:
            # Where the typed texts are was not all read in time.
            blanked = (*blanked, *(each.outer for each in taken.shown))
        return (*blanked, *(self.typed.places(tree) if tree is not None else ()))

    @staticmethod
    async def _composed(execution: Execution, taken: Taken, places: Sequence[Rect]) -> Picture:
        shown = frozenset(each.handle for each in taken.shown)
        image = await asyncio.to_thread(pictures.composed, taken.shot, taken.stacked, shown, list(places))
        area = taken.area
        execution.note("picture", x=area.x, y=area.y, width=area.width, height=area.height, blanked=len(places))
        return Picture(image, area, taken.stacked, taken.shown, taken.shot.pixels)

    async def is_current(self, picture: Picture) -> bool:
        """Whether a picture that is taken now would be the same."""
        if await self.desktop.windows() != picture.stacked:
            return False
        return (await self.desktop.grab(picture.area, picture.shown)).pixels == picture.pixels

    async def save(self, execution: Execution, name: str, data: bytes) -> None:
        assert execution.folder is not None
        await asyncio.to_thread(execution.folder.write, name, data)

    async def save_tree(self, execution: Execution, routed: Routed, tree: Tree, drop: Sequence[Element] = ()) -> None:
        dropped = {each.key for each in drop}
        window = routed.window
        body = {
            "bundleId": window.bundle_id,
            "window": clean(window.title, self.typed),
            "partial": list(tree.partial),
            "nodes": [self._node(each, hide=each.key in dropped) for each in tree.elements],
        }
        await self.save(execution, "ax.json", codec.encode(body))

    def _node(self, element: Element, *, hide: bool) -> dict[str, Any]:
        value = element.value
        if value is not None and (hide or element.secret or self.typed.shown_in(value)):
            value = REDACTED
        return {
            "role": element.role,
            "nativeRole": element.native_role,
            "title": clean(element.title, self.typed),
            "value": value,
            "frame": frame_of(element.rect),
            "visible": frame_of(element.visible) if element.on_screen else None,
            "states": sorted(element.states),
            "depth": element.depth,
            "parent": element.parent,
        }

    def found(self, execution: Execution, element: Element, routed: Routed, tree: Tree | None = None) -> d.FoundElement:
        return d.FoundElement(
            element_id=self._name(execution, element, routed, tree),
            fingerprint=fingerprint_of(element),
            role=element.role,
            title=element.title or None,
            value=element.value,
            frame=frame_of(element.rect),
            native_role=element.native_role,
            visible=element.on_screen,
            states=sorted(element.states),
        )

    def lines(self, execution: Execution, routed: Routed, tree: Tree) -> list[str]:
        text = snapshot.text_of(tree, lambda each: self._name(execution, each, routed, tree), lambda words: words)
        return text.split("\n") if text else []

    def _name(self, execution: Execution, element: Element, routed: Routed, tree: Tree | None) -> str:
        return self.refs.name(execution.client, element, self.holder(element, routed, tree).handle)

    def holder(self, element: Element, routed: Routed, tree: Tree | None) -> Window:
        """Which of the windows that were searched it is in: a route by program alone means all of them."""
        if tree is None or routed.exact:
            return routed.window
        top = next((each for each in tree.ancestors(element) if each.depth == 1), element)
        held = (each for each in routed.searched if self.desktop.root_of(each) == top.key)
        # Menus are in windows that no window manager knows; they belong to the one that was meant.
        return next(held, routed.window)

    async def close(self) -> None:
        await self._places.close()

    def forget(self, peer: PeerId) -> None:
        self.refs.forget(peer)
        self._last = {where: lines for where, lines in self._last.items() if where[0].peer != peer}


def check_selector(selector: d.Selector) -> None:
    if selector.is_empty():
        raise invalid("an empty selector would match everything: give byRole, titleContains or valueContains")
    if selector.near is not None:
        check_selector(selector.near.anchor)


def frame_of(rect: Rect) -> d.Frame:
    return d.Frame(x=rect.x, y=rect.y, width=rect.width, height=rect.height)


def modals(tree: Tree) -> list[Element]:
    """Windows that want an answer first. Some toolkits say so, some only call it a dialog."""
    return [
        each
        for each in tree.elements
        if each.depth == 1 and each.on_screen and (each.role in roles.DIALOGS or "modal" in each.states)
    ]


def within(tree: Tree, top: Element) -> list[Element]:
    return [each for each in tree.elements if tree.is_within(each, top)]


def modal_info(tree: Tree, modal: Element) -> m.Modal:
    parts = within(tree, modal)
    words = [each.title for each in parts if each.role == "AXStaticText" and each.title]
    buttons = [each.title for each in parts if each.role == "AXButton" and each.title]
    return m.Modal(title=modal.title, text="\n".join(words), buttons=buttons)


def _usable(tree: Tree) -> list[Element]:
    quiet = ("AXGroup", "AXStaticText", "AXWindow", "AXApplication", "AXScrollArea", "AXUnknown")
    return [each for each in tree.elements if each.on_screen and each.role not in quiet]


def folder_of(execution: Execution) -> str:
    assert execution.folder is not None
    return execution.folder.path


def windows_with(windows: Sequence[Window], handle: int) -> Window | None:
    return next((each for each in windows if each.handle == handle), None)
