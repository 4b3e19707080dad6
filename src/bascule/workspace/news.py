"""What runs and commands do, as facts for `events.all`: ids and states, and of a command its program."""

from bascule.foundation.text import one_line
from bascule.kernel.event_ring import EventRing, Fact, Kind
from bascule.workspace.processes import Process
from bascule.workspace.records import RunRecord

# A program by its path fits; what is longer is not a name.
MAX_PROGRAM_CHARS = 80


class News:
    def __init__(self, events: EventRing) -> None:
        self._events = events

    def run(self, event: str, record: RunRecord) -> None:
        self._events.publish(
            Fact(kind=Kind.RUN, event=event, id=record.run_id, principal=record.started_by, status=record.status)
        )

    def process(self, event: str, process: Process) -> None:
        self._events.publish(
            Fact(
                kind=Kind.PROCESS,
                event=event,
                id=process.process_id,
                principal=process.started_by,
                status=_status(process),
                text=one_line(process.program, MAX_PROGRAM_CHARS),
            )
        )


def _status(process: Process) -> str:
    if not process.ended.done():
        return "running"
    outcome = process.outcome
    if outcome is None:
        return "unknown"
    return f"exit {outcome.exit_code}" if outcome.ended_by == "exit" else outcome.ended_by
