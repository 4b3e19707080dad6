"""A person is told that something waits for them: a desktop notification, a line in tmux.

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
from collections.abc import Mapping

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

_UNSAFE = re.compile(r"[^A-Za-z0-9 .,:_-]")
# What a notification needs to find the desktop; nothing of the daemon's own settings.
_PASSED_ON = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "HOME", "LANG", "XAUTHORITY")


class Announcer:
    """Hears of every question and answer; tells of questions."""

    def __init__(
        self,
        *,
        log: Log,
        environment: Mapping[str, str] | None = None,
        uid: int | None = None,
        pause_seconds: float = PAUSE_SECONDS,
        program_seconds: float = PROGRAM_SECONDS,
    ) -> None:
        self._log = log
        self._environment = dict(os.environ if environment is None else environment)
        self._uid = os.getuid() if uid is None else uid
        self._pause = pause_seconds
        self._program_seconds = program_seconds
        self._more = 0
        self._timer: asyncio.TimerHandle | None = None
        self._announcing: asyncio.Future[None] | None = None

    def __call__(self, approval: Approval) -> None:
        if approval.state is not ApprovalState.PENDING:
            return
        if self._timer is not None:
            self._more += 1
            return
        asked = approval.question
        self._start_announcement(
            f"{asked.principal} asks for {asked.method}: bascule approvals show {approval.approval_id}"
        )

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_announcement(self, text: str, questions: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._pause, self._pause_over)
        if self._announcing is not None and not self._announcing.done():
            # The last one hangs; the next may get through, and speaks of these too.
            self._more += questions
            return
        self._announcing = loop.run_in_executor(None, self._announce, _safe(text))
        self._announcing.add_done_callback(self._log_failure)

    def _pause_over(self) -> None:
        self._timer = None
        more, self._more = self._more, 0
        if more:
            self._start_announcement(f"{more} more questions wait: bascule approvals", more)

    def _log_failure(self, future: "asyncio.Future[None]") -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            log_fault(self._log, error)

    # -- on a thread --

    def _announce(self, text: str) -> None:
        for announce in (self._on_desktop, self._in_tmux):
            try:
                announce(text)
            except (OSError, subprocess.SubprocessError) as error:
                self._log("announce", level="debug", how=announce.__name__, error=error)

    def _on_desktop(self, text: str) -> None:
        program = self._find("notify-send")
        bus = self._session_bus()
        if program is not None and bus is not None:
            # Everything behind `--` is text, whatever it begins with.
            arguments = ["--app-name=Bascule", "--urgency=critical", "--", "Bascule asks", text]
            self._run([program, *arguments], {"DBUS_SESSION_BUS_ADDRESS": bus})

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

    def _run(self, command: list[str], more: Mapping[str, str]) -> str:
        environment = {name: self._environment[name] for name in _PASSED_ON if name in self._environment}
        done = subprocess.run(  # noqa: S603 - fixed programs of the user's, no shell, no word of an agent's
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "PATH": self._environment.get("PATH", os.defpath), **more},
            cwd="/",
            timeout=self._program_seconds,
            check=False,
        )
        return done.stdout.decode(errors="replace")


def _safe(text: str) -> str:
    return _UNSAFE.sub("?", text)[:MAX_TEXT_CHARS]
