"""Everything is stopped: a state that the gate reads before each call, until a person resumes.

What is left open then: looking, being there, ending things, and administration by the user. Nothing new begins.
"""

import msgspec

from bascule.foundation.clock import rfc3339
from bascule.foundation.errors import Stopped


class Halt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who stopped everything, when and why; as it is stored."""

    by: str
    at: int
    # In words, for the user of this machine: no caller is sent them in a refusal.
    reason: str | None = None

    def refusal(self) -> Stopped:
        at = rfc3339(self.at)
        return Stopped(
            f"everything was stopped by {self.by} at {at}: nothing new begins until a person resumes",
            hint="do not try it another way: the user of this machine resumes with `bascule resume`, or in the "
            "console; looking, waiting and ending things still work",
            details={"stopped": {"by": self.by, "at": at}},
        )


def check_not_stopped(halt: Halt | None) -> None:
    """For a handler that has waited for something before it starts a process."""
    if halt is not None:
        raise halt.refusal()
