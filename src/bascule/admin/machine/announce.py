"""Announces that something waits for the person: a desktop notification, a line in tmux.

Best effort and never in the way: on a thread, one at a time, with a limit on how long and how often. No shell is
involved, and no word that an agent chose: tmux would expand `#(...)` in a message into a command of its own. What is
asked is read with `bascule approvals`, where it is drawn with care.
"""

import asyncio
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from bascule.admin.machine.notices import Notices
from bascule.kernel.consent.records import Approval
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.faults import log_fault
from bascule.kernel.journal_ports import Log

# A dialogue with a desktop that hangs must not keep the thread.
PROGRAM_SECONDS = 3.0
# Questions that come faster are counted and told together.
PAUSE_SECONDS = 5.0
MAX_TEXT_CHARS = 200
# Terminals that show tmux to one person at once.
MAX_TMUX_CLIENTS = 8
_SHOWN_MS = "8000"

# Pages of the console.
_APPROVALS: Final = "approvals"
_TICKETS: Final = "tickets"
_OPEN: Final = "open"
_DENY: Final = "deny"
_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:_-]")
# What a notification needs to find the desktop; nothing of the daemon's own settings.
_PASSED_ON = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "HOME", "LANG", "XAUTHORITY")


class About(NamedTuple):
    """What is asked: an approval, or a ticket to the person, and the page of the console that has it."""

    page: str
    id: str

    @property
    def address(self) -> str:
        return f"#/{self.page}/{self.id}"


class _Notice(NamedTuple):
    """A notification with buttons, ready to be shown."""

    command: list[str]
    environment: dict[str, str]


class Announcer:
    """Hears of every question and answer, and announces questions."""

    def __init__(
        self,
        *,
        log: Log,
        environment: Mapping[str, str] | None = None,
        uid: int | None = None,
        pause_seconds: float = PAUSE_SECONDS,
        program_seconds: float = PROGRAM_SECONDS,
        console: Callable[[], str | None] = lambda: None,
        deny: Callable[[str], object] | None = None,
    ) -> None:
        """`console`: the address of the console, if there is one. `deny` is called when that button is pressed."""
        self._log = log
        self._environment = dict(os.environ if environment is None else environment)
        self._uid = os.getuid() if uid is None else uid
        self._pause = pause_seconds
        self._program_seconds = program_seconds
        self._console = console
        self._deny = deny
        self._notices = Notices(log=log)
        # Whether notify-send knows buttons, once it was asked.
        self._has_buttons: bool | None = None
        self._more = 0
        self._timer: asyncio.TimerHandle | None = None
        self._announcing: asyncio.Future[_Notice | None] | None = None

    def __call__(self, approval: Approval) -> None:
        if approval.state is not ApprovalState.PENDING:
            self._notices.end(About(_APPROVALS, approval.approval_id).address)
            return
        asked = approval.question
        text = f"{asked.principal} asks for {asked.method}: bascule approvals show {approval.approval_id}"
        self._announce_soon(text, About(_APPROVALS, approval.approval_id))

    def asked(self, ticket_id: str, sender: str) -> None:
        """An agent asks the person something in words. Its ticket id is not shown: the agent may have chosen it."""
        self._announce_soon(f"{sender} asks you a question: bascule approvals", About(_TICKETS, ticket_id))

    def _announce_soon(self, text: str, about: About) -> None:
        if self._timer is not None:
            self._more += 1
        else:
            self._start_announcement(text, about=about)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        await self._notices.close()

    def _start_announcement(self, text: str, questions: int = 1, about: About | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._pause_over)
        if self._announcing is not None and not self._announcing.done():
            # The last one hangs; the next may get through, and speaks of these too.
            self._more += questions
            return
        self._announcing = loop.run_in_executor(None, self._announce, _safe(text), self._buttons(about))
        self._announcing.add_done_callback(partial(self._announced, about))

    def _pause_over(self) -> None:
        self._timer = None
        more, self._more = self._more, 0
        if more:
            self._start_announcement(f"{more} more questions wait: bascule approvals", more)

    def _announced(self, about: About | None, future: "asyncio.Future[_Notice | None]") -> None:
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            log_fault(self._log, error)
        elif (notice := future.result()) is not None and about is not None:
            self._notices.show(about.address, partial(self._pressed, about), notice.command, notice.environment)

    # -- buttons --

    def _buttons(self, about: About | None) -> tuple[str, ...]:
        """Never one that approves: any program of this user could press it."""
        if about is None:
            return ()
        may_open = self._console() is not None
        may_deny = self._deny is not None and about.page == _APPROVALS
        return (*((_OPEN,) if may_open else ()), *((_DENY,) if may_deny else ()))

    def _pressed(self, about: About, button: str) -> None:
        console = self._console()
        if button == _DENY and self._deny is not None and about.page == _APPROVALS:
            self._deny(about.id)
        elif button == _OPEN and console is not None:
            opening = asyncio.get_running_loop().run_in_executor(None, self._open, f"{console}/{about.address}")
            opening.add_done_callback(self._opened)

    def _opened(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._log("announce", level="debug", how="open", error=error)

    # -- on a thread --

    def _announce(self, text: str, buttons: tuple[str, ...]) -> "_Notice | None":
        notice = None
        try:
            notice = self._on_desktop(text, buttons)
        except (OSError, subprocess.SubprocessError) as error:
            self._log("announce", level="debug", how="desktop", error=error)
        try:
            self._in_tmux(text)
        except (OSError, subprocess.SubprocessError) as error:
            self._log("announce", level="debug", how="tmux", error=error)
        return notice

    def _on_desktop(self, text: str, buttons: tuple[str, ...]) -> "_Notice | None":
        """With buttons it is left to the caller: it lasts until one is pressed."""
        program = self._find("notify-send")
        bus = self._session_bus()
        if program is None or bus is None:
            return None
        more = {"DBUS_SESSION_BUS_ADDRESS": bus}
        if buttons and self._has_buttons is None:
            self._has_buttons = "--action" in self._run([program, "--help"], more)
        named = [f"--action={each}={each.capitalize()}" for each in buttons] if self._has_buttons else []
        # Everything behind `--` is text, whatever it begins with.
        command = [program, "--app-name=Bascule", "--urgency=critical", *named, "--", "Bascule asks", text]
        if named:
            return _Notice(command, self._environment_with(more))
        self._run(command, more)
        return None

    def _open(self, address: str) -> None:
        program = self._find("xdg-open")
        if program is not None:
            self._run([program, address], {})

    def _session_bus(self) -> str | None:
        known = self._environment.get("DBUS_SESSION_BUS_ADDRESS")
        if known:
            return known
        # Agent clients strip the environment of what they start, and one of them may have started us.
        usual = f"/run/user/{self._uid}/bus"
        return f"unix:path={usual}" if self._is_our_socket(usual) else None

    def _in_tmux(self, text: str) -> None:
        program = self._find("tmux")
        socket = self._tmux_socket()
        if program is None or socket is None:
            return
        tmux = [program, "-S", socket]
        clients = self._run([*tmux, "list-clients", "-F", "#{client_name}"], {}).splitlines()
        for client in clients[:MAX_TMUX_CLIENTS]:
            self._run([*tmux, "display-message", "-c", client, "-d", _SHOWN_MS, text], {})

    def _tmux_socket(self) -> str | None:
        inside = self._environment.get("TMUX", "").partition(",")[0]
        usual = os.path.join(self._environment.get("TMUX_TMPDIR", "/tmp"), f"tmux-{self._uid}", "default")  # noqa: S108 - where tmux keeps it
        return next((path for path in (inside, usual) if path and self._is_our_socket(path)), None)

    def _is_our_socket(self, path: str) -> bool:
        try:
            status = os.lstat(path)
        except OSError:
            return False
        # Another user could have put one there that pretends.
        return stat.S_ISSOCK(status.st_mode) and status.st_uid == self._uid

    def _find(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH", os.defpath))

    def _environment_with(self, more: Mapping[str, str]) -> dict[str, str]:
        passed_on = {name: self._environment[name] for name in _PASSED_ON if name in self._environment}
        return {**passed_on, "PATH": self._environment.get("PATH", os.defpath), **more}

    def _run(self, command: list[str], more: Mapping[str, str]) -> str:
        done = subprocess.run(  # noqa: S603 - fixed programs of the user's, no shell, no word of an agent's
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment_with(more),
            cwd="/",
            timeout=self._program_seconds,
            check=False,
        )
        return done.stdout.decode(errors="replace")


def _safe(text: str) -> str:
    return _UNSAFE.sub("?", text)[:MAX_TEXT_CHARS]
