"""`Trees`: what is in windows, read and acted on through AT-SPI. The same on every session."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from bascule.programs.desktop_host.elements import Element, Key, Tree, arrange, clip
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.accessibility import (
    ACCESSIBLE,
    ANSWER_SECONDS,
    COMPONENT,
    ROOT,
    Accessibility,
    Program,
    bus_address,
    elements_of,
    enable,
    has_value,
    is_unnamed_text,
    state_names,
)
from bascule.programs.desktop_host.linux.actions import Actions
from bascule.programs.desktop_host.linux.bus import BusError, BusLost, Gone, session_address
from bascule.programs.desktop_host.linux.parts import Windows
from bascule.programs.desktop_host.linux.toolkits import SLOWEST, Quirks
from bascule.programs.desktop_host.linux.toplevels import (
    UNSCALED,
    Scaled,
    assigned,
    believed,
    inside_corner,
    origin,
    scaled,
)
from bascule.programs.desktop_host.linux.wayland.bare import Top
from bascule.programs.desktop_host.ports import (
    AppGone,
    BackendError,
    Changed,
    NotAnswering,
    NotReachable,
    Pace,
    Window,
)

OPEN_SECONDS: Final = 5.0
# A walk goes level by level; to have the first ones in document order, more are read than asked for.
MIN_WALKED: Final = 2_000
# Values are read for what people type into and for what moves; no window shows more.
MAX_VALUES: Final = 500
# A window that moves while an element says where it is is asked again, as often as this.
MOVED_TRIES: Final = 10

Pair = tuple[Element, Key | None]


class Trees:
    """A lost accessibility bus is found again at the next use."""

    def __init__(
        self, environment: dict[str, str], windows: Windows, hint: Callable[[], Awaitable[str | None]]
    ) -> None:
        self._environment = environment
        self._windows = windows
        self._hint = hint
        self._a11y: Accessibility | None = None
        self._opening = asyncio.Lock()
        # What org.a11y.Status.IsEnabled was before us.
        self._was_enabled: bool | None = None
        self._programs: dict[int, list[Program]] = {}
        # The accessible window that stands for a window of the session.
        self._roots: dict[int, Key] = {}
        # Where its numbers begin, where they are not the screen's.
        self._origins: dict[int, tuple[int, int]] = {}
        # Where the window itself was by then.
        self._seen_at: dict[int, Rect] = {}
        # Programs whose numbers are not the screen's pixels.
        self._scales: dict[str, Scaled] = {}
        # Programs that do not know where their windows are.
        self._placeless: set[str] = set()

    # -- life --

    async def close(self) -> None:
        if self._was_enabled is False and (session := self.session_bus):
            with contextlib.suppress(BusError):
                await enable(session, on=False)
        if self._a11y is not None:
            self._a11y.bus.close()

    async def pids(self) -> set[int]:
        """Of the programs that can be read."""
        a11y = await self.accessibility()
        return {each.pid for each in await a11y.programs()}

    async def tops(self) -> list[Top]:
        """The windows that programs describe, where nobody else knows any."""
        a11y = await self.accessibility()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await asyncio.gather(*(self._tops_of(a11y, each) for each in await a11y.programs()))
        except (TimeoutError, BusLost) as error:
            raise NotReachable(f"the accessibility bus does not answer: {error or 'a program hangs'}") from error
        return [each for tops in found for each in tops]

    @staticmethod
    async def _tops_of(a11y: Accessibility, program: Program) -> list[Top]:
        """Of one that does not answer: none."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS / 2):
                found = []
                for owner, path in await a11y.bus.maybe(program.bus_name, ROOT, ACCESSIBLE, "GetChildren") or ():
                    key = Key(program.bus_name, path)
                    node = await a11y.node(key) if owner == program.bus_name else None
                    states = state_names(node.states) if node is not None else frozenset()
                    if node is not None and {"showing", "visible"} & states:
                        rect = await a11y.extents(key)
                        found.append(Top(key, program.pid, node.name, "active" in states, rect))
                return found
        except TimeoutError:
            return []

    @property
    def session_bus(self) -> str | None:
        return session_address(self._environment)

    async def accessibility(self) -> Accessibility:
        async with self._opening:
            if self._a11y is not None and self._a11y.bus.connected:
                return self._a11y
            self._programs, self._roots = {}, {}
            hint = None
            with contextlib.suppress(BackendError):
                hint = await self._hint()
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    session = self.session_bus
                    if session is not None and self._was_enabled is None:
                        with contextlib.suppress(BusError):
                            self._was_enabled = await enable(session, on=True)
                    self._a11y = await Accessibility.open(await bus_address(session, hint))
            except (BusError, TimeoutError) as error:
                raise NotReachable(f"the accessibility bus does not answer: {error}") from error
            return self._a11y

    def root_of(self, window: Window) -> Key | None:
        return self._roots.get(window.handle)

    def program_of(self, window: Window) -> str | None:
        found = self._programs.get(window.pid)
        return found[0].bus_name if found else None

    def pace_of(self, program: str | None) -> Pace:
        return self._a11y.pace_of(program) if self._a11y is not None else SLOWEST

    # -- trees --

    async def tree(
        self, windows: Sequence[Window], *, seconds: float, max_depth: int, max_nodes: int, values: bool = True
    ) -> Tree:
        a11y = await self.accessibility()
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            program = await self._program(a11y, windows, deadline)
            if program is None:
                return Tree(elements=[], partial=("inaccessible",))
            (self._placeless.add if windows[0].placeless else self._placeless.discard)(program.bus_name)
            reading = await a11y.read(program, deadline=deadline, max_nodes=max(2 * max_nodes, MIN_WALKED))
            quirks = await a11y.quirks(program)
            root = Key(program.bus_name, ROOT)
            nodes = list(elements_of(program, quirks, reading.nodes.values()))
            try:
                async with asyncio.timeout_at(deadline):
                    nodes = await self._only(a11y, nodes, root, windows, quirks)
            except TimeoutError:
                reading.partial.add("time")
            tree = arrange(nodes, root, max_depth=max_depth, max_nodes=max_nodes)
            partial = {*reading.partial, *tree.partial}
            try:
                async with asyncio.timeout_at(deadline):
                    await self._place(a11y, tree, windows, quirks)
                    if values:
                        await self._read_values(a11y, tree, quirks)
            except TimeoutError:
                partial.add("time")
            return Tree(elements=tree.elements, partial=tuple(sorted(partial)))
        except BusLost as error:
            raise NotReachable(str(error)) from error

    async def _program(self, a11y: Accessibility, windows: Sequence[Window], deadline: float) -> Program | None:
        """Two programs may share a pid, one of them empty: the one that has the window is meant."""
        self._programs = {}
        for each in await a11y.programs():
            self._programs.setdefault(each.pid, []).append(each)
        candidates = self._programs.get(windows[0].pid, [])
        if len(candidates) > 1:
            for each in candidates:
                try:
                    async with asyncio.timeout(min(ANSWER_SECONDS, deadline - asyncio.get_running_loop().time())):
                        count = await a11y.bus.prop(each.bus_name, ROOT, "org.a11y.atspi.Accessible", "ChildCount")
                except TimeoutError:
                    continue
                if count:
                    return each
        return candidates[0] if candidates else None

    async def _place(self, a11y: Accessibility, tree: Tree, windows: Sequence[Window], quirks: Quirks) -> None:
        """Rectangles of what may be on screen, then what of them can be seen."""
        asked = [each for each in tree.elements if "showing" in each.states and COMPONENT in each.native]

        async def read(element: Element) -> None:
            element.rect = await self._extents(a11y, element.key)

        await asyncio.gather(*map(read, asked))
        if self._is_relative(windows[0], quirks):
            self._move_to_screen(tree, windows)
        clip(tree, await self._windows.screen())

    async def _only(
        self, a11y: Accessibility, nodes: list[Pair], root: Key, windows: Sequence[Window], quirks: Quirks
    ) -> list[Pair]:
        """The program's top levels that stand for these windows, the first window's first; and its popups."""
        tops = [element for element, parent in nodes if parent == root]
        for each in tops:
            each.rect = await a11y.extents(each.key)
        there = await self._windows.windows()
        named = [each for each in there if each.pid == windows[0].pid and not each.popup]
        # A closed window's number comes again, for another's window.
        known = {each.handle: self._roots[each.handle] for each in there if each.handle in self._roots}
        self._origins = {handle: place for handle, place in self._origins.items() if handle in known}
        self._seen_at = {handle: place for handle, place in self._seen_at.items() if handle in known}
        self._roots = known | assigned(tops, named, relative=self._is_relative(windows[0], quirks))
        first = next((each for each in tops if each.key == self._roots.get(windows[0].handle)), None)
        if first is not None:
            relative = self._is_relative(windows[0], quirks)
            self._scales[root.program] = scaled(windows[0], first.rect, relative=relative)
        meant = [self._roots[each.handle] for each in windows if each.handle in self._roots]
        others = {self._roots[each.handle] for each in named if each.handle in self._roots} - set(meant)
        order = {key: at for at, key in enumerate(meant)}
        kept = [pair for pair in nodes if pair[1] == root and pair[0].key not in others]
        kept.sort(key=lambda pair: order.get(pair[0].key, len(order)))
        return [*kept, *(pair for pair in nodes if pair[1] != root)]

    @staticmethod
    def _is_relative(window: Window, quirks: Quirks) -> bool:
        return quirks.window_relative or window.placeless

    def _move_to_screen(self, tree: Tree, windows: Sequence[Window]) -> None:
        tops = {each.key: each for each in tree.elements if each.depth == 1}
        origins: dict[Key, tuple[int, int]] = {}
        for window in windows:
            top = tops.get(self._roots[window.handle]) if window.handle in self._roots else None
            if top is not None:
                inside = [tree.elements[at].rect for at in top.children]
                place = origin(window, top.rect, inside) if window.placeless else inside_corner(window, top.rect)
                origins[top.key] = self._origins[window.handle] = place
                self._seen_at[window.handle] = window.rect
        # Wayland's menus count from their window, and are top levels of their own.
        elsewhere = self._origins.get(windows[0].handle, (0, 0)) if windows[0].placeless else (0, 0)
        offsets: list[tuple[int, int]] = []
        for element in tree.elements:
            offset = origins.get(element.key, elsewhere) if element.depth <= 1 else offsets[element.parent]
            offsets.append(offset)
            element.rect = element.rect.moved(*offset)

    async def _read_values(self, a11y: Accessibility, tree: Tree, quirks: Quirks) -> None:
        wanted = [each for each in tree.elements if has_value(each) or is_unnamed_text(each, quirks)]
        # Of a long page what can be seen comes first.
        wanted.sort(key=lambda each: not each.on_screen)

        async def read(element: Element) -> None:
            element.title = await a11y.title(element, quirks)
            element.value = await a11y.value(element, quirks)

        await asyncio.gather(*map(read, wanted[:MAX_VALUES]))

    async def refreshed(self, element: Element) -> Element | None:
        async with self._asking() as a11y:
            node = await a11y.node(element.key)
            if node is None:
                return None
            program = a11y.known(element.key.program) or Program(bus_name=element.key.program, pid=0)
            quirks = await a11y.quirks(program)
            node.parent = "" if element.depth > 1 else ROOT
            (now, _), *_ = elements_of(program, quirks, [node])
            now.title = await a11y.title(now, quirks)
            now.value = await a11y.value(now, quirks)
            relative = quirks.window_relative or element.key.program in self._placeless
            now.rect = element.rect if relative else await self._extents(a11y, element.key)
            now.visible, now.depth = element.visible, element.depth
            return now
        return None

    async def steady(self, element: Element, window: Window) -> tuple[Rect, Rect] | None:
        root = self._roots.get(window.handle)
        async with self._asking() as a11y:
            program = a11y.known(element.key.program)
            if root is None or program is None or self._is_relative(window, await a11y.quirks(program)):
                return element.rect, self._seen_at.get(window.handle, window.rect)
            for _ in range(MOVED_TRIES):
                # Answered in this order. The program may be late to hear that it was moved; it is the same for both.
                asked = (self._extents(a11y, key) for key in (root, element.key, root))
                first, place, second = await asyncio.gather(*asked)
                if first == second:
                    return place, believed(window, first)
        return None

    async def element_at(self, window: Window, x: int, y: int) -> Key | None:
        root = self._roots.get(window.handle)
        if root is None:
            return None
        async with self._asking() as a11y:
            if (program := a11y.known(root.program)) and self._is_relative(window, await a11y.quirks(program)):
                left, top = self._origins.get(window.handle, window.rect[:2])
                x, y = x - left, y - top
            x, y = self._scales.get(root.program, UNSCALED).in_program(x, y)
            return await Actions(a11y).element_at(root, x, y)
        return None

    async def _extents(self, a11y: Accessibility, key: Key) -> Rect:
        return self._scales.get(key.program, UNSCALED).on_screen(await a11y.extents(key))

    # -- acting --

    async def press(self, element: Element) -> bool:
        async with self._asking() as a11y:
            return await Actions(a11y).press(element)
        return False

    async def focus(self, element: Element) -> bool:
        async with self._asking() as a11y:
            return await Actions(a11y).focus(element)
        return False

    async def caret_to_end(self, element: Element) -> None:
        async with self._asking() as a11y:
            await Actions(a11y).caret_to_end(element)

    async def set_value(self, element: Element, value: str | float) -> bool:
        async with self._asking() as a11y:
            return await Actions(a11y).set_value(element, value)
        return False

    async def insert(self, element: Element, text: str, *, clear: bool) -> bool:
        async with self._asking() as a11y:
            program = a11y.known(element.key.program)
            if program is None:
                return False
            return await Actions(a11y).insert(element, text, await a11y.quirks(program), clear=clear)
        return False

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[Accessibility]:
        """One question to one program: it answers in time, or it is said that it does not."""
        a11y = await self.accessibility()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                yield a11y
        except TimeoutError:
            raise NotAnswering(f"the program does not answer within {ANSWER_SECONDS:.0f} s: it hangs") from None
        except BusLost as error:
            raise NotReachable(str(error)) from error
        except Gone as error:
            raise AppGone("the program, or this part of its window, went away") from error
        except BusError as error:
            raise BackendError(f"the program refused: {error}") from error

    # -- changes --

    @contextlib.asynccontextmanager
    async def changes(self, on_change: Changed) -> AsyncIterator[None]:
        a11y = await self.accessibility()
        async with a11y.listening(lambda program, _path, kind: on_change(program, kind)):
            yield
