"""waitUntil (contract 5.8): woken by what programs say changed, with the contract's poll as a net below."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from bascule.desktop import protocol as d
from bascule.desktop.errors import Code, DesktopError, invalid
from bascule.programs.desktop_host.elements import Tree
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.looking import Looking, check_selector, folder_of
from bascule.programs.desktop_host.matching import matches
from bascule.programs.desktop_host.routes import Routed, titled
from bascule.programs.desktop_host.title_patterns import MAX_TITLE_CHARS, compiled

# A window that redraws itself sends hundreds of events: they are answered by one look.
GATHER_SECONDS: Final = 0.005
# After a look that took long (a large window), rest for a part of that: waiting must not cost a whole core.
REST_SHARE: Final = 0.5


class Look(msgspec.Struct):
    """One evaluation of the condition."""

    matched: int
    routed: Routed | None = None
    tree: Tree | None = None


class Waiting:
    def __init__(self, looking: Looking) -> None:
        self._looking = looking

    async def wait_until(self, execution: Execution, params: d.WaitUntilCall) -> d.WaitUntilResult:
        look = self._prepare(params, self._looking.limit(execution))
        limit_ms = min(params.timeout_ms, execution.timeout_ms)
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_ms / 1000
        wake = asyncio.Event()
        program: str | None = None
        looks = 0
        changed_at = loop.time()

        def on_change(name: str, _kind: str) -> None:
            nonlocal changed_at
            if program in (None, name):
                changed_at = loop.time()
                wake.set()

        async with self._looking.desktop.changes(on_change):
            while True:
                wake.clear()
                began = loop.time()
                seen = await look(began - changed_at)
                took = loop.time() - began
                looks += 1
                if seen.routed is not None:
                    program = self._looking.desktop.program_of(seen.routed.window)
                if seen.matched:
                    break
                left = end - loop.time()
                if left <= 0:
                    await self._save(execution, seen)
                    raise DesktopError(
                        Code.TIMEOUT,
                        f"the condition did not hold within {limit_ms} ms",
                        timeoutMs=limit_ms,
                        elapsedMs=execution.elapsed_ms(),
                    )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_until_next_look(params, loop.time() - changed_at), left)):
                        await wake.wait()
                        await asyncio.sleep(max(GATHER_SECONDS, took * REST_SHARE))
        elapsed = execution.elapsed_ms()
        execution.note("held", looks=looks)
        await self._save(execution, seen)
        return d.WaitUntilResult(
            execution_id=execution.id,
            ok=True,
            matched=seen.matched,
            elapsed_ms=elapsed,
            evidence=d.Evidence(dir=folder_of(execution), ax_path="ax.json" if seen.tree is not None else None),
        )

    async def _save(self, execution: Execution, seen: Look) -> None:
        if seen.tree is not None and seen.routed is not None:
            await self._looking.save_tree(execution, seen.routed, seen.tree)

    def _prepare(self, params: d.WaitUntilCall, seconds: float) -> Callable[[float], Awaitable[Look]]:
        """Bad conditions are refused before anything is waited for."""
        chosen = params.condition.chosen()
        if len(chosen) != 1:
            raise invalid("condition needs exactly one of selectorExists, " + ", ".join(_OTHERS))
        condition = params.condition
        pattern: re.Pattern[str] | None = None
        for selector in (condition.selector_exists, condition.selector_gone):
            if selector is not None:
                check_selector(selector)
        if condition.value_contains is not None:
            check_selector(condition.value_contains.selector)
        if condition.title_matches is not None:
            pattern = compiled(condition.title_matches)
        if condition.window_exists is not None:
            pattern = compiled(condition.window_exists.title_pattern)

        return lambda quiet: self._look(params, pattern, quiet, seconds)

    async def _look(
        self, params: d.WaitUntilCall, pattern: re.Pattern[str] | None, quiet: float, seconds: float
    ) -> Look:
        condition = params.condition
        if condition.window_exists is not None and pattern is not None:
            app = params.route.app if params.route is not None else None
            found = titled(await self._looking.desktop.windows(), pattern, app, self._looking.keep_out)
            return Look(len(found))
        quietly = _Unheard()
        try:
            routed = await self._looking.route(quietly, params.route)
        except DesktopError as error:
            if error.code is Code.ELEMENT_NOT_FOUND:
                # The window is not there yet; for "gone" that is as good as it gets.
                return Look(int(condition.selector_gone is not None))
            raise
        if condition.title_matches is not None and pattern is not None:
            return Look(int(pattern.search(routed.window.title[:MAX_TITLE_CHARS]) is not None), routed)
        if condition.stable is not None:
            return Look(int(quiet * 1000 >= condition.stable.for_ms), routed)
        try:
            tree = await self._looking.tree(quietly, routed, seconds)
        except DesktopError as error:
            if error.code is Code.TIMEOUT:
                # It hangs now; it may answer later.
                return Look(0, routed)
            raise
        return Look(_count(tree, condition), routed, tree)


_OTHERS: Final = ("selectorGone", "valueContains", "titleMatches", "windowExists", "stable")


def _until_next_look(params: d.WaitUntilCall, quiet: float) -> float:
    """The poll, or sooner where quiet itself is waited for."""
    poll = params.poll_ms / 1000
    stable = params.condition.stable
    return poll if stable is None else min(poll, max(0.0, stable.for_ms / 1000 - quiet))


class _Unheard(Execution):
    """Looks are many; the trace says how many, not each one."""

    def __init__(self) -> None:
        pass

    def note(self, step: str, **fields: object) -> None:
        pass


def _count(tree: Tree, condition: d.Condition) -> int:
    if condition.selector_exists is not None:
        return len(matches(tree, condition.selector_exists))
    if condition.selector_gone is not None:
        # What could not be read in full may hold it still.
        return int(not matches(tree, condition.selector_gone) and not tree.partial)
    wanted = condition.value_contains
    if wanted is None:
        return 0
    return sum(wanted.text in (each.value or "") for each in matches(tree, wanted.selector))
