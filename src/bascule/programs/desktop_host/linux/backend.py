"""`ports.Desktop` on Linux: one event loop for the bus, one thread for X11, one for the clipboard."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec
import Xlib.error

from bascule.desktop.protocol import Permission
from bascule.programs.desktop_host.elements import Element, Key, Tree, arrange, clip
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux import programs
from bascule.programs.desktop_host.linux.accessibility import (
    ANSWER_SECONDS,
    COMPONENT,
    ROOT,
    Accessibility,
    Program,
    bus_address,
    elements_of,
    enable,
    has_value,
)
from bascule.programs.desktop_host.linux.actions import Actions
from bascule.programs.desktop_host.linux.bus import BusError, BusLost, Gone
from bascule.programs.desktop_host.linux.clipboard import ClipboardThread, pieces
from bascule.programs.desktop_host.linux.input import Input
from bascule.programs.desktop_host.linux.screen import Screen
from bascule.programs.desktop_host.linux.stop_keys import StopKeys
from bascule.programs.desktop_host.linux.toolkits import SLOWEST, Quirks
from bascule.programs.desktop_host.linux.toplevels import assigned, inside_corner, inside_point
from bascule.programs.desktop_host.linux.x11 import X11
from bascule.programs.desktop_host.ports import (
    AppGone,
    BackendError,
    Changed,
    Elsewhere,
    Halt,
    NotAnswering,
    NotReachable,
    Onto,
    Pace,
    Pasted,
    Shot,
    Status,
    Window,
)

# A window manager takes a few milliseconds to bring a window to the front.
ACTIVATE_SECONDS: Final = 2.0
OPEN_SECONDS: Final = 5.0
# A chord with its pauses takes five seconds at most; everything else milliseconds.
X11_SECONDS: Final = 15.0
# A walk goes level by level; to have the first ones in document order, more are read than asked for.
MIN_WALKED: Final = 2_000
# Values are read for what people type into and for what moves; no window shows more.
MAX_VALUES: Final = 500

T = TypeVar("T")
Pair = tuple[Element, Key | None]


class LinuxDesktop:
    """Opened and closed once; a lost accessibility bus is found again at the next use."""

    def __init__(
        self, environment: dict[str, str] | None = None, on_stop_keys: Callable[[], None] | None = None
    ) -> None:
        # Called on another thread when the person presses the chord that stops everything.
        self._on_stop_keys = on_stop_keys
        self._stop_keys: StopKeys | None = None
        self._environment = dict(os.environ) if environment is None else environment
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bascule-x11")
        self._x11: X11 | None = None
        self._xwayland = False
        self._input: Input | None = None
        self._shots: Screen | None = None
        self._clipboard: ClipboardThread | None = None
        self._a11y: Accessibility | None = None
        self._opening = asyncio.Lock()
        self._opening_x11 = asyncio.Lock()
        # What org.a11y.Status.IsEnabled was before us.
        self._was_enabled: bool | None = None
        self._programs: dict[int, list[Program]] = {}
        # The accessible window that stands for an X window.
        self._roots: dict[int, Key] = {}

    # -- life --

    async def open(self) -> None:
        await self._open_x11()
        await self._accessibility()

    async def close(self) -> None:
        with contextlib.suppress(BackendError, Xlib.error.XError, OSError):
            await self.release_all()
        if self._was_enabled is False and (session := self._session):
            with contextlib.suppress(BusError):
                await enable(session, on=False)
        if self._a11y is not None:
            self._a11y.bus.close()
        for helper in (self._clipboard, self._stop_keys):
            if helper is not None:
                await asyncio.to_thread(helper.close)
        for each in (self._shots, self._x11):
            if each is not None:
                with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
                    await asyncio.get_running_loop().run_in_executor(self._thread, each.close)
        self._thread.shutdown()

    async def status(self) -> Status:
        wayland = bool(self._environment.get("WAYLAND_DISPLAY"))
        # What is wrong, and what to do about it.
        found: list[tuple[str, str]] = []
        accessibility: Permission = "granted"
        screen: Permission = "granted"
        try:
            await self._accessibility()
        except BackendError as error:
            accessibility = "denied"
            found.append((f"Accessibility permission denied: {error}", programs.bus_remedy(self._session)))
        try:
            await self._open_x11()
            # One pixel of Xwayland may be black by chance; the whole screen is not.
            await self.grab(await self.screen() if self._xwayland else Rect(0, 0, 1, 1))
        except BackendError as error:
            screen = "denied"
            remedy = "set DISPLAY (and XAUTHORITY) to the X server of the desktop"
            if wayland:
                remedy = "this host captures X11 screens: log in to an Xorg session"
            found.append((f"Screen Recording permission denied: {error}", remedy))
        keys = self._stop_keys
        if keys is not None and self._xwayland:
            issue = f"The keys that stop everything ({keys.chord}) work only while an X11 window has the focus"
            found.append((issue, "stop with `bascule desktop stop`; bind it to a key in the settings of the desktop"))
        elif keys is not None and not keys.armed:
            issue = f"The keys that stop everything ({keys.chord}) belong to another program"
            remedy = "free them in the desktop's settings; `bascule desktop stop` works without them"
            found.append((issue, remedy))
        note = "a Wayland session: windows of Xwayland only; log in to an Xorg session for the rest"
        return Status(
            accessibility=accessibility,
            screen_recording=screen,
            issues=tuple(issue for issue, _ in found),
            remedies=tuple(remedy for _, remedy in found),
            notes=(note,) if wayland and self._environment.get("DISPLAY") else (),
            stop_keys=keys.chord if keys is not None and keys.armed and not self._xwayland else None,
        )

    async def unreadable(self) -> list[str]:
        a11y = await self._accessibility()
        on_bus = {each.pid for each in await a11y.programs()}
        found: dict[int, Window] = {each.pid: each for each in await self.windows() if not each.popup and each.pid}
        out = []
        for pid, window in sorted(found.items()):
            known = pid in on_bus
            why = await asyncio.to_thread(programs.why_unreadable, pid, window.program, on_bus=known)
            if why is not None:
                out.append(f"{window.bundle_id} (process {pid}): {why}")
        return out

    @property
    def _session(self) -> str | None:
        session = self._environment.get("DBUS_SESSION_BUS_ADDRESS")
        runtime = self._environment.get("XDG_RUNTIME_DIR")
        if session is None and runtime and os.path.exists(os.path.join(runtime, "bus")):
            # systemd's user bus is where a session's programs are, though only login shells are told.
            return f"unix:path={runtime}/bus"
        return session

    async def _open_x11(self) -> X11:
        async with self._opening_x11:
            return self._x11 or await self._connect_x11()

    async def _connect_x11(self) -> X11:
        name = self._environment.get("DISPLAY")
        if not name:
            raise NotReachable("DISPLAY is not set")

        def start() -> X11:
            x11 = X11(name)
            self._xwayland = x11.is_xwayland()
            self._input, self._shots = Input(x11), Screen(name, xwayland=self._xwayland)
            return x11

        x11 = await self._in_thread(start)
        # After the server was lost theirs are gone as well, and the keys that stop everything with them.
        for helper in (self._clipboard, self._stop_keys):
            if helper is not None:
                await asyncio.to_thread(helper.close)
        self._clipboard = self._stop_keys = None
        self._clipboard = await asyncio.to_thread(ClipboardThread, name)
        if self._on_stop_keys is not None:
            self._stop_keys = await asyncio.to_thread(StopKeys, name, self._on_stop_keys)
        self._x11 = x11
        return x11

    async def _accessibility(self) -> Accessibility:
        async with self._opening:
            if self._a11y is not None and self._a11y.bus.connected:
                return self._a11y
            self._programs, self._roots = {}, {}
            hint = None
            with contextlib.suppress(BackendError):
                x11 = await self._open_x11()
                hint = await self._in_thread(lambda: x11.root_text("AT_SPI_BUS"))
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    session = self._session
                    if session is not None and self._was_enabled is None:
                        with contextlib.suppress(BusError):
                            self._was_enabled = await enable(session, on=True)
                    self._a11y = await Accessibility.open(await bus_address(session, hint))
            except (BusError, TimeoutError) as error:
                raise NotReachable(f"the accessibility bus does not answer: {error}") from error
            return self._a11y

    async def _in_thread(self, act: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(X11_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._thread, act)
        except TimeoutError:
            raise NotReachable(f"the X server does not answer within {X11_SECONDS:.0f} s") from None
        except (Xlib.error.ConnectionClosedError, OSError) as error:
            self._x11 = None
            raise NotReachable(f"the X server is gone: {error}") from error
        except Xlib.error.XError as error:
            raise AppGone("the window is gone") from error

    # -- windows --

    async def windows(self) -> list[Window]:
        x11 = await self._open_x11()
        found = await self._in_thread(x11.windows)
        if any(each.active for each in found) or await self._in_thread(x11.has_window_manager):
            # A window manager that names none means it: the focus is nowhere, or in a Wayland window.
            return found
        # Without a window manager nobody says which is in front: the topmost is the best guess.
        tops = [each for each in found if not each.popup]
        return [msgspec.structs.replace(each, active=bool(tops) and each is tops[-1]) for each in found]

    async def screen(self) -> Rect:
        x11 = await self._open_x11()
        return await self._in_thread(x11.screen)

    async def activate(self, window: Window) -> bool:
        x11 = await self._open_x11()
        await self._in_thread(lambda: x11.activate(window.handle))
        end = asyncio.get_running_loop().time() + ACTIVATE_SECONDS
        while await self._in_thread(x11.active) != window.handle:
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(0.005)
        return True

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
        a11y = await self._accessibility()
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            program = await self._program(a11y, windows, deadline)
            if program is None:
                return Tree(elements=[], partial=("inaccessible",))
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
            element.rect = await a11y.extents(element.key)

        await asyncio.gather(*map(read, asked))
        if quirks.window_relative:
            self._move_to_screen(tree, windows)
        clip(tree, await self.screen())

    async def _only(
        self, a11y: Accessibility, nodes: list[Pair], root: Key, windows: Sequence[Window], quirks: Quirks
    ) -> list[Pair]:
        """The program's top levels that stand for these windows, the first window's first; and its popups."""
        tops = [element for element, parent in nodes if parent == root]
        for each in tops:
            each.rect = await a11y.extents(each.key)
        there = await self.windows()
        named = [each for each in there if each.pid == windows[0].pid and not each.popup]
        # A closed window's number comes again, for another's window.
        known = {each.handle: self._roots[each.handle] for each in there if each.handle in self._roots}
        self._roots = known | assigned(tops, named, relative=quirks.window_relative)
        meant = [self._roots[each.handle] for each in windows if each.handle in self._roots]
        others = {self._roots[each.handle] for each in named if each.handle in self._roots} - set(meant)
        order = {key: at for at, key in enumerate(meant)}
        kept = [pair for pair in nodes if pair[1] == root and pair[0].key not in others]
        kept.sort(key=lambda pair: order.get(pair[0].key, len(order)))
        return [*kept, *(pair for pair in nodes if pair[1] != root)]

    def _move_to_screen(self, tree: Tree, windows: Sequence[Window]) -> None:
        roots = {self._roots[each.handle]: each for each in windows if each.handle in self._roots}
        offsets: list[tuple[int, int]] = []
        for element in tree.elements:
            if element.depth == 1 and element.key in roots:
                offset = inside_corner(roots[element.key], element.rect)
            else:
                offset = offsets[element.parent] if element.parent >= 0 else (0, 0)
            offsets.append(offset)
            element.rect = element.rect.moved(*offset)

    async def _read_values(self, a11y: Accessibility, tree: Tree, quirks: Quirks) -> None:
        wanted = [each for each in tree.elements if has_value(each)][:MAX_VALUES]

        async def read(element: Element) -> None:
            element.value = await a11y.value(element, quirks)

        await asyncio.gather(*map(read, wanted))

    async def refreshed(self, element: Element) -> Element | None:
        async with self._asking() as a11y:
            node = await a11y.node(element.key)
            if node is None:
                return None
            program = a11y.known(element.key.program) or Program(bus_name=element.key.program, pid=0)
            quirks = await a11y.quirks(program)
            node.parent = "" if element.depth > 1 else ROOT
            (now, _), *_ = elements_of(program, quirks, [node])
            now.value = await a11y.value(now, quirks)
            now.rect = await a11y.extents(element.key) if not quirks.window_relative else element.rect
            now.visible, now.depth = element.visible, element.depth
            return now
        return None

    async def element_at(self, window: Window, x: int, y: int) -> Key | None:
        root = self._roots.get(window.handle)
        if root is None:
            return None
        async with self._asking() as a11y:
            if (program := a11y.known(root.program)) and (await a11y.quirks(program)).window_relative:
                x, y = inside_point(window, await a11y.extents(root), x, y)
            return await Actions(a11y).element_at(root, x, y)
        return None

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

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[Accessibility]:
        """One question to one program: it answers in time, or it is said that it does not."""
        a11y = await self._accessibility()
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

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        await self._with_input(lambda each: each.click(x, y, halt, onto, button=button, count=count))

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        await self._with_input(lambda each: each.scroll(x, y, halt, onto, direction=direction, steps=steps))

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        await self._with_input(lambda each: each.drag(start, end, halt, onto))

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        await self._with_input(lambda each: each.chord(keys, halt, window.handle, delay))

    async def check_keys(self, keys: Sequence[str]) -> None:
        await self._with_input(lambda each: each.check(keys))

    async def release_all(self) -> None:
        if self._input is not None:
            await self._with_input(Input.release_all)

    async def _with_input(self, act: Callable[[Input], None]) -> None:
        await self._open_x11()
        assert self._input is not None
        given = self._input
        await self._in_thread(lambda: act(given))

    async def paste(self, text: str, halt: Halt, window: Window) -> Pasted:
        """Piece by piece, as long as the focus stays where it belongs."""
        await self._open_x11()
        clipboard = self._clipboard
        assert clipboard is not None
        parts = pieces(text)
        saved = await asyncio.to_thread(clipboard.save)
        taken = 0
        offering: asyncio.Future[None] | None = None
        try:
            for part in parts:
                halt.check()
                offering = asyncio.ensure_future(asyncio.to_thread(clipboard.offer, part))
                await asyncio.shield(offering)
                try:
                    await self.chord(("ctrl", "v"), halt, window)
                except Elsewhere:
                    if taken:
                        break
                    raise
                if not await asyncio.to_thread(clipboard.wait_taken, halt):
                    break
                taken += 1
        finally:
            # Whatever happened: the person's clipboard is theirs. An offer that is still on its way would come after
            # what is given back, so it is waited for.
            if offering is not None and not offering.done():
                await asyncio.wait([offering])
            outcome = await asyncio.shield(asyncio.to_thread(clipboard.restore, saved))
        return Pasted(taken, len(parts), outcome)

    # -- pixels, changes --

    async def grab(self, rect: Rect) -> Shot:
        await self._open_x11()
        assert self._shots is not None
        shots = self._shots
        return await self._in_thread(lambda: shots.grab(rect))

    @contextlib.asynccontextmanager
    async def changes(self, on_change: Changed) -> AsyncIterator[None]:
        a11y = await self._accessibility()
        async with a11y.listening(lambda program, _path, kind: on_change(program, kind)):
            yield
