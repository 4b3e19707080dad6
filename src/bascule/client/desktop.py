"""The desktop as a program uses it: look at a window, find an element, act on it.

    with SyncClient.connect(agent="Jerry", register=True) as client:
        seen = client.desktop.observe(app="org.gnome.TextEditor", patience=120)
        print(seen.snapshot)
        client.desktop.type_text("中文", "e:7", patience=120)

Where the policy asks, a call waits for the person: 45 s, or `patience`; then it raises `ApprovalRequired`, and the
same call made again goes on with the answer. `SyncDesktop` blocks, `Desktop` is for asyncio.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Unpack

from bascule.client.desktop_verbs import DesktopVerbs, Element, Where
from bascule.client.steps import Program
from bascule.desktop.extensions import DEFAULT_SCROLL_STEPS, ActResult, Direction, Modal, StopResult, WindowInfo
from bascule.desktop.protocol import (
    AbortResult,
    ClickResult,
    Condition,
    FindResult,
    HotkeyResult,
    ObserveOptions,
    ObserveResult,
    Selector,
    TypeTextResult,
    WaitUntilResult,
)
from bascule.desktop.rows import DesktopStatus

# A compact text with refs, of all levels; other pictures of a window are asked for with options.
SNAPSHOT = ObserveOptions(snapshot=True, ax_max_depth=64)


class Desktop:
    """The desktop, for asyncio: `client.desktop`."""

    def __init__(self, verbs: DesktopVerbs, do: Callable[[Program[Any]], Coroutine[Any, Any, Any]]) -> None:
        self._verbs = verbs
        self._do = do

    async def status(self) -> DesktopStatus:
        """Whether it is enabled, stopped and reachable."""
        result: DesktopStatus = await self._do(self._verbs.status())
        return result

    async def stop(self) -> StopResult:
        """The kill switch: nothing reaches the screen until the person resumes. Of the local user."""
        result: StopResult = await self._do(self._verbs.stop())
        return result

    async def abort(self, execution_id: str) -> AbortResult:
        """Stop one call of this client's, by its executionId or the `request_id` given."""
        result: AbortResult = await self._do(self._verbs.abort(execution_id))
        return result

    async def windows(self, **where: Unpack[Where]) -> list[WindowInfo]:
        result: list[WindowInfo] = await self._do(self._verbs.windows(where))
        return result

    async def observe(self, options: ObserveOptions = SNAPSHOT, **where: Unpack[Where]) -> ObserveResult:
        result: ObserveResult = await self._do(self._verbs.observe(options, where))
        return result

    async def find(self, selector: Selector, **where: Unpack[Where]) -> FindResult:
        result: FindResult = await self._do(self._verbs.find(selector, where))
        return result

    async def list_modals(self, **where: Unpack[Where]) -> list[Modal]:
        """Dialogs that want an answer first."""
        result: list[Modal] = await self._do(self._verbs.list_modals(where))
        return result

    async def wait_until(self, condition: Condition, **where: Unpack[Where]) -> WaitUntilResult:
        """At most `timeout`, a minute unless given."""
        result: WaitUntilResult = await self._do(self._verbs.wait_until(condition, where))
        return result

    async def click(self, target: Element, **where: Unpack[Where]) -> ClickResult:
        result: ClickResult = await self._do(self._verbs.click(target, where))
        return result

    async def double_click(self, target: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = await self._do(self._verbs.act("doubleClick", target, where))
        return result

    async def right_click(self, target: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = await self._do(self._verbs.act("rightClick", target, where))
        return result

    async def type_text(
        self, text: str, target: Element | None = None, *, clear: bool = False, **where: Unpack[Where]
    ) -> TypeTextResult:
        """Into an element, or where the focus is."""
        result: TypeTextResult = await self._do(self._verbs.type_text(text, target, clear=clear, where=where))
        return result

    async def hotkey(self, *keys: str, **where: Unpack[Where]) -> HotkeyResult:
        """`hotkey("ctrl", "s")`."""
        result: HotkeyResult = await self._do(self._verbs.hotkey(keys, where))
        return result

    async def scroll(
        self, target: Element, direction: Direction, steps: int = DEFAULT_SCROLL_STEPS, **where: Unpack[Where]
    ) -> ActResult:
        result: ActResult = await self._do(self._verbs.scroll(target, direction, steps, where))
        return result

    async def drag(self, target: Element, to: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = await self._do(self._verbs.drag(target, to, where))
        return result

    async def set_value(self, target: Element, value: str | float, **where: Unpack[Where]) -> ActResult:
        result: ActResult = await self._do(self._verbs.set_value(target, value, where))
        return result

    async def focus_window(self, **where: Unpack[Where]) -> ActResult:
        result: ActResult = await self._do(self._verbs.focus_window(where))
        return result

    async def dismiss_modal(self, button: str | None = None, **where: Unpack[Where]) -> ActResult:
        """By one of its buttons, or with Escape."""
        result: ActResult = await self._do(self._verbs.dismiss_modal(button, where))
        return result


class SyncDesktop:
    """The same, blocking."""

    def __init__(self, verbs: DesktopVerbs, do: Callable[[Program[Any]], Any]) -> None:
        self._verbs = verbs
        self._do = do

    def status(self) -> DesktopStatus:
        result: DesktopStatus = self._do(self._verbs.status())
        return result

    def stop(self) -> StopResult:
        result: StopResult = self._do(self._verbs.stop())
        return result

    def abort(self, execution_id: str) -> AbortResult:
        result: AbortResult = self._do(self._verbs.abort(execution_id))
        return result

    def windows(self, **where: Unpack[Where]) -> list[WindowInfo]:
        result: list[WindowInfo] = self._do(self._verbs.windows(where))
        return result

    def observe(self, options: ObserveOptions = SNAPSHOT, **where: Unpack[Where]) -> ObserveResult:
        result: ObserveResult = self._do(self._verbs.observe(options, where))
        return result

    def find(self, selector: Selector, **where: Unpack[Where]) -> FindResult:
        result: FindResult = self._do(self._verbs.find(selector, where))
        return result

    def list_modals(self, **where: Unpack[Where]) -> list[Modal]:
        result: list[Modal] = self._do(self._verbs.list_modals(where))
        return result

    def wait_until(self, condition: Condition, **where: Unpack[Where]) -> WaitUntilResult:
        result: WaitUntilResult = self._do(self._verbs.wait_until(condition, where))
        return result

    def click(self, target: Element, **where: Unpack[Where]) -> ClickResult:
        result: ClickResult = self._do(self._verbs.click(target, where))
        return result

    def double_click(self, target: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.act("doubleClick", target, where))
        return result

    def right_click(self, target: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.act("rightClick", target, where))
        return result

    def type_text(
        self, text: str, target: Element | None = None, *, clear: bool = False, **where: Unpack[Where]
    ) -> TypeTextResult:
        result: TypeTextResult = self._do(self._verbs.type_text(text, target, clear=clear, where=where))
        return result

    def hotkey(self, *keys: str, **where: Unpack[Where]) -> HotkeyResult:
        result: HotkeyResult = self._do(self._verbs.hotkey(keys, where))
        return result

    def scroll(
        self, target: Element, direction: Direction, steps: int = DEFAULT_SCROLL_STEPS, **where: Unpack[Where]
    ) -> ActResult:
        result: ActResult = self._do(self._verbs.scroll(target, direction, steps, where))
        return result

    def drag(self, target: Element, to: Element, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.drag(target, to, where))
        return result

    def set_value(self, target: Element, value: str | float, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.set_value(target, value, where))
        return result

    def focus_window(self, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.focus_window(where))
        return result

    def dismiss_modal(self, button: str | None = None, **where: Unpack[Where]) -> ActResult:
        result: ActResult = self._do(self._verbs.dismiss_modal(button, where))
        return result
