"""What a session does, by the last thing that its client said: a table.

A client says nothing when a person answers No or presses Esc, and nothing when it is killed. So silence is never taken
for a fact: `is_probably_idle` says when only silence speaks, and a dead process is looked for. An event that says
`idle` counts only where it can be true: hooks are programs that are started side by side, and some of them are late.
"""

from datetime import timedelta
from enum import StrEnum

from bascule.native.hooks import Moment


class State(StrEnum):
    WORKS = "works"
    IDLE = "idle"
    WAITS = "waits_for_permission"
    ASKS = "asks"
    FAILED = "failed"
    ENDED = "ended"
    DEAD = "dead"
    # Something was heard that says nothing about it, such as changed settings after a restart of the daemon.
    UNKNOWN = "unknown"


# A model that thinks, or a command that runs, says nothing for minutes.
QUIET = timedelta(minutes=10)
# Claude Code says `idle_prompt` after 60 s in which nobody did anything. Whatever was heard meanwhile contradicts it.
IDLE_NOTICE = timedelta(seconds=50)

_OVER = frozenset([State.ENDED, State.DEAD])
_BUSY = frozenset([State.WORKS, State.WAITS, State.ASKS])
_SAYS: dict[Moment, State] = {
    "before": State.WORKS,
    "after": State.WORKS,
    "failed": State.WORKS,
    "question": State.WAITS,
    "asks": State.ASKS,
    "prompt": State.WORKS,
    "woken": State.WORKS,
    "stop": State.IDLE,
    "stop_failed": State.FAILED,
    "end": State.ENDED,
}
_NOTICES = {"permission_prompt": State.WAITS, "ToolPermission": State.WAITS, "idle_prompt": State.IDLE,
            "elicitation_dialog": State.ASKS}  # fmt: skip


def following(state: State, moment: Moment | None, about: str | None, quiet: timedelta) -> State:
    """The state after an event, `quiet` after the one before.

    A subagent's end is not its session's; the caller leaves those out.
    """
    match moment:
        case "notice":
            return _noticed(state, _NOTICES.get(about or ""), quiet)
        case "start":
            # In the middle of a turn it is a compaction, or late: a turn that began with the client is there already.
            return state if state in _BUSY or state is State.FAILED else State.IDLE
        case None:
            return State.UNKNOWN if state in _OVER else state
        case _:
            return _SAYS[moment]


def _noticed(state: State, notice: State | None, quiet: timedelta) -> State:
    """A notice comes seconds late: it never takes back what was said since."""
    match notice:
        case State.IDLE:
            late = state in _BUSY and quiet < IDLE_NOTICE
            return state if late or state is State.FAILED or state in _OVER else State.IDLE
        case State.WAITS:
            return state if state in (State.IDLE, State.ASKS, *_OVER) else State.WAITS
        case None:
            return state
        case _:
            return notice


def is_probably_idle(state: State, age: timedelta, *, open_calls: int) -> bool:
    """Works, says the last event; nothing was heard since, and no call is under way."""
    return state is State.WORKS and open_calls == 0 and age >= QUIET
