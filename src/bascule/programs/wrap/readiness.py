"""When something may be typed for the program: never into a person's line, never at a busy program.

Signals in the order they are trusted: what the program's own hooks said; how long it has been quiet; what its
terminal and its screen show. No clock, no terminal: what was seen comes in, a reason to wait or None goes out.
"""

from typing import NamedTuple

from bascule.programs.wrap.profiles import Profile

# A hook said `busy` and nothing since: a turn that was interrupted ends without a hook. A program that works shows it
# by moving something on its screen far more often than this.
STALE_BUSY_SECONDS = 60.0
# A program that said it is idle may still be drawing its prompt.
SETTLE_SECONDS = 0.3


class Seen(NamedTuple):
    """What can be known about program and person at one moment."""

    now: float
    # The person has begun a line, or has just typed.
    typing: bool
    last_output: float
    # "busy", "idle", or None where no hook speaks.
    turn: str | None = None
    # The terminal's own line editing is on; None where it cannot be asked.
    cooked: bool | None = None
    # The program itself has the terminal, not something it started; None where it cannot be asked.
    foreground: bool | None = None
    line: str = ""
    # The screen of the person's terminal is that of a program: tmux's copy mode, for a pane.
    elsewhere: bool = False
    title: str | None = None
    cursor: bool | None = None
    # The row the cursor is in, as an emulator draws it; None where there is none, "" while it is behind.
    row: str | None = None


def reason_to_wait(seen: Seen, profile: Profile) -> str | None:
    """Why nothing may be typed now; None when it may."""
    if seen.typing:
        return "the person is typing"
    if seen.elsewhere:
        return "the pane shows something else"
    return _busy(seen, profile) or _not_reading(seen, profile) or _not_showing(seen, profile)


def _busy(seen: Seen, profile: Profile) -> str | None:
    quiet = seen.now - seen.last_output
    if seen.turn == "busy" and quiet < STALE_BUSY_SECONDS:
        return "the program is in a turn"
    if quiet < (SETTLE_SECONDS if seen.turn == "idle" else profile.quiet_seconds):
        return "the program is writing"
    if profile.title is not None and seen.title is not None and not profile.title.search(seen.title):
        return "the program is in a turn"
    return None


def _not_reading(seen: Seen, profile: Profile) -> str | None:
    """What the terminal says about it."""
    if profile.foreground and seen.foreground is False:
        return "another program has the terminal"
    if profile.mode is not None and seen.cooked is not None and seen.cooked != (profile.mode == "cooked"):
        return "the program does not read a line"
    return None


def _not_showing(seen: Seen, profile: Profile) -> str | None:
    """What the screen says about it."""
    if profile.cursor is not None and seen.cursor is not None and seen.cursor != profile.cursor:
        return "the program shows a menu"
    if profile.row is not None and not (seen.row is not None and profile.row.search(seen.row)):
        # Enter in a menu is an answer, perhaps "yes": without seeing the screen nothing is typed at all.
        return "the program's screen is not known to wait for a line"
    if profile.prompt is not None and seen.turn is None and not profile.prompt.search(seen.line):
        return "the program shows no prompt"
    return None
