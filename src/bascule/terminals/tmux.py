"""tmux as a keyboard and a pair of eyes for panes: one process per question, no library.

Text goes through a paste buffer, read from stdin: on a command line it would be seen by every user of the machine, and
`send-keys` makes keys of words such as `Enter`. What is pasted is cleaned first (`text`), because tmux before 3.7 lets
an `ESC [ 201 ~` out of a bracketed paste; whether a program takes pastes is not told by tmux 3.3, so that only one
line is ever put into a pane of unknown state.
"""

from __future__ import annotations

import contextlib
import os

from bascule.foundation.text import MAX_LINE_CHARS, one_line, typeable, typeable_line
from bascule.terminals.text import as_bytes
from gabp.text import escaped

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Sequence

# A server that does not answer a question within this is stopped or gone.
ANSWER_SECONDS = 5.0
# The pane's own name for its agent, set by `bascule tmux launch`.
AGENT_OPTION = "@bascule_agent"
# Between the text and its Enter: programs that watch for pastes take an Enter in the same breath for a part of it.
ENTER_SECONDS = 0.15

_FIELDS = (
    *("pane_id", "session_name", "pane_pid", "pane_current_command", "pane_in_mode", "pane_dead"),
    *(AGENT_OPTION, "window_activity", "pane_active", "cursor_y", "pane_current_path"),
)


class TmuxFailed(Exception):
    """No tmux, no server, no such pane: the text says which."""


class Pane:
    """A pane as tmux lists it."""

    __slots__ = ("activity", "agent", "command", "cursor", "cwd", "dead", "id", "in_mode", "pid", "session", "watched")

    def __init__(self, fields: Sequence[str]) -> None:
        self.id, self.session, pid, self.command, in_mode, dead, self.agent, activity, active, cursor, self.cwd = fields
        self.pid = _number(pid)
        # Copy mode, a menu: keys would go there and not to the program.
        self.in_mode = in_mode not in ("", "0")
        self.dead = dead == "1"
        # Seconds since the epoch, whole ones.
        self.activity = _number(activity)
        self.watched = active == "1"
        self.cursor = _number(cursor)


def _number(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdigit() else 0


class Tmux:
    """One server: that of `TMUX`, or the user's default one."""

    def __init__(self, socket: str | None = None) -> None:
        self._words = ["tmux", "-S", socket] if socket else ["tmux"]

    def run(self, *words: str, stdin: bytes = b"") -> str:
        """What tmux answers; `TmuxFailed` when it complains."""
        import subprocess  # noqa: PLC0415 - only who types into panes pays for it

        try:
            done = subprocess.run(  # noqa: S603 - our own words and tmux's own names; texts go through stdin
                [*self._words, *words], input=stdin, capture_output=True, timeout=ANSWER_SECONDS, check=False
            )
        except FileNotFoundError:
            raise TmuxFailed("tmux is not installed") from None
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise TmuxFailed(f"tmux does not answer: {fault}") from None
        if done.returncode:
            message = escaped(done.stderr.decode("utf-8", "replace").strip())
            raise TmuxFailed(message or f"tmux {words[0]} ended with {done.returncode}")
        return done.stdout.decode("utf-8", "replace")

    def panes(self) -> list[Pane]:
        """Every pane of the server; none when no server runs."""
        # A program names itself and its directory as it likes, line breaks included, and could write rows for panes of
        # others. It cannot write marks that are drawn by lot for this one question.
        mark, end = f"<{os.urandom(8).hex()}>", f"<{os.urandom(8).hex()}>"
        try:
            listed = self.run("list-panes", "-a", "-F", end + mark.join(f"#{{{name}}}" for name in _FIELDS))
        except TmuxFailed as fault:
            if "no server running" in str(fault) or "error connecting" in str(fault):
                return []
            raise
        rows = (row.removesuffix("\n").split(mark) for row in listed.split(end)[1:])
        return [Pane(row) for row in rows if len(row) == len(_FIELDS)]

    def pane_of(self, agent: str) -> Pane | None:
        """The pane that was launched for this agent."""
        return next((pane for pane in self.panes() if pane.agent == agent and not pane.dead), None)

    def line_at(self, pane: Pane) -> str:
        """The row the cursor is in."""
        row = str(pane.cursor)
        return self.run("capture-pane", "-p", "-t", pane.id, "-S", row, "-E", row).rstrip("\n")

    def last_key(self, pane: Pane) -> int:
        """When somebody attached to the pane's session last pressed a key; 0 when nobody is."""
        try:
            listed = self.run("list-clients", "-t", pane.session, "-F", "#{client_activity}")
        except TmuxFailed:
            return 0
        return max(map(_number, listed.split()), default=0)

    def show(self, pane: Pane, line: str) -> None:
        """In the status line of every client that shows the session. `#` begins a format there."""
        self.run("display-message", "-t", pane.id, one_line(line, MAX_LINE_CHARS).replace("#", "##"))

    def type_line(self, pane_id: str, line: str, *, enter: bool = True) -> None:
        """One line, cleaned; its Enter by itself."""
        self.paste(pane_id, typeable_line(line))
        if enter:
            import time  # noqa: PLC0415 - beside the others of this path

            time.sleep(ENTER_SECONDS)
            self.run("send-keys", "-t", pane_id, "Enter")

    def paste(self, pane_id: str, body: str) -> None:
        """Cleaned text, bracketed if the program asked tmux for that. Several lines: only where it is known to have."""
        cleaned = as_bytes(typeable(body))
        if not cleaned:
            # tmux makes no buffer of nothing.
            return
        buffer = f"bascule-{os.getpid()}-{os.urandom(4).hex()}"
        # -p: brackets, if asked for; -r: line ends as they are; -d: the buffer is not kept.
        paste = ("paste-buffer", "-p", "-r", "-d", "-b", buffer, "-t", pane_id)
        try:
            self.run("load-buffer", "-b", buffer, "-", ";", *paste, stdin=cleaned)
        except TmuxFailed:
            # The pane is gone: the text must not stay where everybody on this server can paste it.
            with contextlib.suppress(TmuxFailed):
                self.run("delete-buffer", "-b", buffer)
            raise


def session_here() -> dict[str, str]:
    """Pane and session this process runs in, for its registration; nothing outside tmux."""
    pane = os.environ.get("TMUX_PANE", "")
    if not pane or not os.environ.get("TMUX"):
        return {}
    try:
        session = Tmux().run("display-message", "-p", "-t", pane, "#{session_name}").strip()
    except TmuxFailed:
        return {"paneId": pane}
    return {"paneId": pane, "session": session}
