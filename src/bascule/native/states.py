"""What a session does, by the last thing that its client said: a table.

A client says nothing when a person answers No or presses Esc, and nothing when it is killed. So silence is never taken
for a fact: `is_probably_idle` says when only silence speaks, and a dead process is looked for.
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


# A model that thinks, or a command that runs, says nothing for minutes.
QUIET = timedelta(minutes=10)

_OVER = frozenset([State.ENDED, State.DEAD])
_SAYS: dict[Moment, State] = {
    "before": State.WORKS,
    "after": State.WORKS,
    "failed": State.WORKS,
    "question": State.WAITS,
    "asks": State.ASKS,
    "start": State.IDLE,
    "prompt": State.WORKS,
    "stop": State.IDLE,
    "stop_failed": State.FAILED,
    "end": State.ENDED,
}
_NOTICES = {"permission_prompt": State.WAITS, "ToolPermission": State.WAITS, "idle_prompt": State.IDLE,
            "elicitation_dialog": State.ASKS}  # fmt: skip


def following(state: State | None, moment: Moment | None, about: str | None) -> State:
    """The state after an event. A subagent's end is not its session's; the caller leaves those out."""
    if moment == "notice":
        found = _NOTICES.get(about or "")
        # A notice comes seconds late: it never takes back what was said since.
        if found is None or (found is State.WAITS and state in (State.IDLE, State.ASKS, *_OVER)):
            return state or State.IDLE
        return found
    if moment is None:
        return State.WORKS if state is None or state in _OVER else state
    return _SAYS[moment]


def is_probably_idle(state: State, age: timedelta, *, open_calls: int) -> bool:
    """Works, says the last event; nothing was heard since, and no call is under way."""
    return state is State.WORKS and open_calls == 0 and age >= QUIET
