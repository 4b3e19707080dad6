"""The host's life: started on first use, started again after it ended, ended with us."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.news import DesktopNews
from bascule.desktop.ports import Host, HostGone, Launcher
from bascule.desktop.refusals import lost_while_looking
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred, within
from bascule.foundation.errors import BasculeError, Unavailable
from bascule.foundation.tasks import Tasks
from bascule.kernel.journal_ports import Log

# A host that lived this long was well: what ended it is not what ended the one before.
SETTLED_SECONDS: Final = 60.0
# A kill switch must not wait for a program that hangs: then the host itself is ended.
STOP_SECONDS: Final = 3.0
# Our own calls (stop, resume) are nobody's.
OURSELVES: Final = "daemon"

Delays = Callable[[], Iterator[float]]


class Hosting:
    def __init__(
        self,
        launcher: Launcher,
        clock: Clock,
        log: Log,
        tasks: Tasks,
        *,
        delays: Delays,
        on_stopped: Callable[[], None],
        is_stopped: Callable[[], bool],
        news: DesktopNews,
    ) -> None:
        self._launcher = launcher
        self._clock = clock
        self._log = log
        self._tasks = tasks
        self._make_delays = delays
        self._delays = delays()
        self._on_stopped = on_stopped
        self._is_stopped = is_stopped
        self._news = news
        self._host: Host | None = None
        self._starting: Deferred[Host] | None = None
        self._life = 0
        self._began = 0.0
        self._not_before = 0.0
        # Why there is none, after there was one.
        self.problem: str | None = None

    @property
    def state(self) -> str:
        if self._host is not None:
            return "ready"
        if self._starting is not None:
            return "starting"
        return "lost" if self.problem is not None else "off"

    @property
    def live(self) -> Host | None:
        return self._host

    @property
    def pid(self) -> int | None:
        return self._host.pid if self._host is not None else None

    async def host(self, environment: Mapping[str, str]) -> Host:
        """The one there is, or a new one; `Unavailable` while it must not be tried again."""
        if self._host is not None:
            return self._host
        if self._starting is None:
            wait = self._not_before - self._clock.monotonic()
            if wait > 0:
                raise _not_yet(self.problem or "the desktop host ended", wait)
            # In a task of its own: others wait for the same host, and half a start is a stray process.
            self._starting = self._tasks.answer(self._start(environment), "desktop host", detached=True)
            self._starting.add_done_callback(self._started)
        starting = self._starting
        await within(None, starting)
        return starting.result()

    def _started(self, _: object) -> None:
        self._starting = None

    async def _start(self, environment: Mapping[str, str]) -> Host:
        self._life += 1
        life = self._life
        self._began = self._clock.monotonic()
        try:
            host = await self._launcher.start(
                environment or self._launcher.own_environment(),
                on_stopped=self._on_stopped,
                on_lost=partial(self._lost, life),
            )
            if life != self._life:
                # Disabled meanwhile.
                await host.close()
                raise _not_yet("the desktop host was ended", 0.0)
            self._host = host
            self.problem = None
            self._log("desktop_host_started", pid=host.pid)
            self._news.host("ready")
            if self._is_stopped():
                await host.call("desktop.stop", client=OURSELVES)
        except (HostGone, DesktopError) as error:
            self._lost(life, str(error))
            raise lost_while_looking(HostGone(str(error))) from error
        return host

    def lost(self, host: Host, reason: str) -> None:
        """Its caller has found out."""
        if self._host is host:
            self._lost(self._life, reason)

    def _lost(self, life: int, reason: str) -> None:
        if life != self._life:
            return
        # Late messages of this life are dropped.
        self._life += 1
        now = self._clock.monotonic()
        if now - self._began >= SETTLED_SECONDS:
            self._delays = self._make_delays()
        self._not_before = now + next(self._delays)
        self.problem = reason
        self._log("desktop_host_lost", level="warning", pid=self.pid, reason=reason)
        self._news.host("lost")
        self._close_host()

    def end(self) -> None:
        """Not needed any more, or for another session: what it had under way ends with it."""
        self._life += 1
        self._not_before = 0.0
        self.problem = None
        self._delays = self._make_delays()
        self._close_host()

    def _close_host(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            self._tasks.start(host.close(), "desktop host ends")

    async def stop(self) -> int:
        """How many executions were aborted. A host that does not answer is ended: nothing may act after this."""
        host = self._host
        if host is None:
            return 0
        try:
            async with asyncio.timeout(STOP_SECONDS):
                answer: Any = await host.call("desktop.stop", client=OURSELVES)
                return int(answer.aborted)
        except (TimeoutError, HostGone, DesktopError) as error:
            self.lost(host, f"the desktop host did not stop by itself: {error or 'no answer'}")
            return 0

    async def resume(self) -> None:
        host = self._host
        if host is None:
            return
        try:
            await host.confirmed("desktop.resume", {}, client=OURSELVES)
        except (HostGone, DesktopError) as error:
            # A new one takes input.
            self.lost(host, f"the desktop host did not resume: {error}")

    async def close(self) -> None:
        self._life += 1
        host, self._host = self._host, None
        if host is not None:
            await host.close()


def _not_yet(problem: str, wait: float) -> BasculeError:
    message = f"{problem}; it is started again in {max(1, round(wait))} s"
    error = DesktopError(Code.HOST_NOT_READY, message)
    return Unavailable(
        message,
        hint="`bascule doctor` says what the desktop is missing",
        details={"desktop": error.body()},
        retry_after=max(1.0, wait),
    )
