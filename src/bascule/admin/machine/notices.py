"""Notifications with buttons: each is a child that lasts until a button is pressed, it is no longer wanted, or its
time is over.

What comes back is the name of a button, from a program that any other of this user could have told to say so: it may
open a page or say no, and nothing else.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence

from bascule.foundation.tasks import Tasks
from bascule.kernel.faults import log_fault
from bascule.kernel.journal_ports import Log

# As long as a question waits.
NOTICE_SECONDS = 15 * 60.0
# On the screen at once; the oldest gives way.
MAX_NOTICES = 3
# Until a child that was asked to end is killed.
END_SECONDS = 1.0
# The name of a button and a line feed.
MAX_ANSWER_BYTES = 64


class Notices:
    def __init__(
        self,
        *,
        log: Log,
        seconds: float = NOTICE_SECONDS,
        most: int = MAX_NOTICES,
    ) -> None:
        self._log = log
        self._seconds = seconds
        self._most = most
        self._tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        # By what they are about, the oldest first.
        self._shown: dict[str, asyncio.Task[None]] = {}

    def show(
        self, about: str, on_button: Callable[[str], None], command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """`on_button` gets the name of the button that was pressed; one notification at most is about the same."""
        self.end(about)
        while len(self._shown) >= self._most:
            self.end(next(iter(self._shown)))
        task = self._shown[about] = self._tasks.start(self._run(on_button, command, environment), f"notice {about}")
        task.add_done_callback(lambda _: self._forget(about, task))

    def end(self, about: str) -> None:
        """It is answered, or asked no longer."""
        task = self._shown.pop(about, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        for about in list(self._shown):
            self.end(about)
        # Cancelled a second time, one that ends its program would leave it.
        await self._tasks.close(3 * END_SECONDS)

    def _forget(self, about: str, task: "asyncio.Task[None]") -> None:
        if self._shown.get(about) is task:
            del self._shown[about]

    async def _run(
        self, on_button: Callable[[str], None], command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(environment),
                cwd="/",
            )
        except OSError as error:
            self._log("announce", level="debug", how="buttons", error=error)
            return
        pressed, ends_itself = b"", False
        try:
            assert child.stdout is not None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds):
                    pressed = await child.stdout.read(MAX_ANSWER_BYTES)
                    ends_itself = True
        finally:
            await _ended(child, interrupt=not ends_itself)
        if button := pressed.decode("ascii", "replace").strip():
            on_button(button)


async def _ended(child: asyncio.subprocess.Process, *, interrupt: bool) -> None:
    """Gently first: notify-send takes its notification away when it is interrupted."""
    if interrupt:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(END_SECONDS):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    # Its pipe, too: a loop that ends sooner leaves it open. Somebody whom the program started may hold it.
    assert child.stdout is not None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await child.stdout.read()
