"""What was done in a project, as one list: runs, and undos. Who did it, when, and who else was at work."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from bascule.foundation.errors import InvalidRequest, NotFound
from bascule.foundation.text import one_line
from bascule.kernel.call import Principal, agent_of
from bascule.workspace.checkpointing import MAX_NAMED
from bascule.workspace.live import Run, is_over
from bascule.workspace.protocol import CreateFileEvent, DeleteFileEvent, EditFileEvent, PathReason, ShellEvent
from bascule.workspace.records import RunRecord, Segment, UndoRecord
from bascule.workspace.runbook import RunBook
from bascule.workspace.undos import Operation, Undos, is_undo_id

MAX_TITLE_CHARS = 60
MAX_COMMAND_CHARS = 200


class Chosen(NamedTuple):
    """What is to be taken back."""

    # The newest first.
    operations: tuple[Operation, ...]
    # In words.
    what: str
    # Only these paths, and what is beneath them; none: all.
    paths: frozenset[str]
    merge: bool
    # Of the chosen those that cannot be taken back, and why.
    stays: list[PathReason]
    # A person chose.
    by_person: bool = False

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(each.run_id for each in self.operations)

    @property
    def sure(self) -> bool:
        """Whether a person has named the paths on purpose: then what may be another's is meant as well."""
        return bool(self.paths) and self.by_person

    @property
    def runs(self) -> list[RunRecord]:
        return [each for each in self.operations if isinstance(each, RunRecord)]

    def is_meant(self, path: bytes) -> bool:
        if not self.paths:
            return True
        steps = os.fsdecode(path).split("/")
        return any("/".join(steps[:count]) in self.paths for count in range(1, len(steps) + 1))


class Operations:
    def __init__(self, *, book: RunBook, undos: Undos, live: Mapping[str, Run]) -> None:
        self.book = book
        self.undos = undos
        self.live = live

    def starter(self, operation: str) -> Principal:
        return Principal(self.find(operation).started_by)

    def find(self, operation: str, space_id: str | None = None) -> Operation:
        try:
            return (
                self.undos.find(operation, space_id) if is_undo_id(operation) else self.book.find(operation, space_id)
            )
        except NotFound as error:
            raise NotFound(error.message, hint="`bascule log` lists those that are kept; old ones make room") from None

    def down_to_runs(self, operations: Iterable[Operation]) -> list[Operation]:
        """With what undos among them took back: to take those back is to do that again."""
        found: dict[str, Operation] = {}
        todo = list(operations)
        while todo:
            each = todo.pop()
            if each.run_id in found:
                continue
            found[each.run_id] = each
            for target in each.undoes if isinstance(each, UndoRecord) else ():
                known = self.undos.table.rows.get(target) or self.book.table.rows.get(target)
                if isinstance(known, RunRecord | UndoRecord):
                    todo.append(known)
        return list(found.values())

    def title(self, record: RunRecord) -> str | None:
        """Its first command, or what it did to a file first."""
        run = self.live.get(record.run_id)
        for event in run.events if run is not None else self.book.events(record.run_id):
            if isinstance(event, ShellEvent):
                return event.command[:MAX_COMMAND_CHARS]
            if isinstance(event, CreateFileEvent | EditFileEvent | DeleteFileEvent):
                return f"{type(event).__struct_config__.tag} {event.path}"[:MAX_COMMAND_CHARS]
        return None

    def of_space(self, space_id: str) -> list[Operation]:
        """All that worked here, in the order of beginning."""
        records = self.book.of_space(space_id)
        runs = [self.live[each.run_id].record if each.run_id in self.live else each for each in records]
        found: list[Operation] = [each for each in runs if not each.on_copy or each.committed]
        return sorted([*found, *self.undos.of_space(space_id)], key=began)

    def name(self, operation: str) -> str:
        return operation if is_undo_id(operation) else named(self.book.find(operation))

    def remark(self, record: Operation) -> str | None:
        if isinstance(record, UndoRecord):
            return None if record.finished else "it was cut short: this is what it was about to do"
        notes: list[str] = []
        if not is_over(record):
            notes.append("it is not over yet: this is what changed so far")
        elif any(segment.after is None for segment in record.segments):
            notes.append(
                "there is no checkpoint after it: what it changed is read from the workspace as it is now, "
                "without what changed later"
            )
        others = sorted(set(self._others(record)))
        if others:
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            named = ", ".join(others[:MAX_NAMED]) + more
            notes.append(f"others worked here at the same time, and what they changed may be in this too: {named}")
        if record.native is not None and record.note is not None:
            notes.append(record.note)
        # Of a client's own call it is said in docs/native.md: under each of them nobody reads it.
        if record.background and record.native is None:
            notes.append("it ran in the background: what anybody changed here meanwhile is in this too")
        return "; ".join(notes) or None

    def _others(self, record: RunRecord) -> Iterator[str]:
        """Who worked here at the same time."""
        others: list[Operation] = [*self.book.of_space(record.space_id), *self.undos.of_space(record.space_id)]
        for other in others:
            run = self.live.get(other.run_id)
            theirs = (other.segment,) if isinstance(other, UndoRecord) else run.segments if run else other.segments
            if (
                other.run_id != record.run_id
                and any(_overlap(one, each) for one in record.segments for each in theirs)
                and not self._is_unended(other.run_id, record)
            ):
                yield other.run_id

    def _is_unended(self, run_id: str, record: RunRecord) -> bool:
        """A call of the same session whose end no client reported: it refused the call, or was interrupted."""
        run = self.live.get(run_id)
        if run is None or run.left_running is not None or record.native is None or run.record.native is None:
            return False
        return run.record.native.session == record.native.session


def _overlap(one: Segment, other: Segment) -> bool:
    """Whether both were at work at some time; one without an end is still."""
    return one.began < (other.ended or float("inf")) and other.began < (one.ended or float("inf"))


def began(each: Operation) -> float:
    if isinstance(each, UndoRecord):
        return each.segment.began
    # Without a change in the project there is no moment.
    return each.segments[0].began if each.segments else each.started_at


def last(each: Operation) -> float:
    if isinstance(each, UndoRecord):
        return each.segment.ended if each.finished else each.segment.began + 0.5
    segment = each.segments[-1] if each.segments else None
    if segment is not None and segment.after is None:
        return float("inf")
    return max(segment.ended if segment is not None else 0, each.ended_at or each.started_at)


def started(each: Operation) -> int:
    return each.at if isinstance(each, UndoRecord) else each.started_at


def actor_of(each: Operation) -> str:
    """Whose work it is: a session's, an agent's, the person's."""
    native = each.native if isinstance(each, RunRecord) else None
    return f"{native.client} {native.session}" if native is not None else each.started_by


def named(each: Operation) -> str:
    """For people: which one it is, and what it did."""
    if isinstance(each, UndoRecord):
        return each.undo_id
    native = each.native
    return f"{each.run_id} ({native.client}: {one_line(native.title, MAX_TITLE_CHARS)})" if native else each.run_id


def session_id(each: Operation) -> str | None:
    return each.native.session if isinstance(each, RunRecord) and each.native is not None else None


def session_of(word: str, operations: Iterable[Operation]) -> str:
    """A session by its id, by how that ends, or the newest one of a client."""
    calls = [each.native for each in reversed(list(operations)) if isinstance(each, RunRecord) and each.native]
    for call in calls:
        if word in (call.session, call.client):
            return call.session
    ids = {call.session for call in calls if call.session.endswith(word) or call.session.startswith(word)}
    if len(ids) > 1:
        raise InvalidRequest(
            f"several sessions are called {word}: {', '.join(sorted(ids))}", hint="give more of the id"
        )
    if not ids:
        there = sorted({f"{call.client} {call.session}" for call in calls})
        known = f"there are: {', '.join(there[:MAX_NAMED])}" if there else "no session of a client has worked here"
        raise NotFound(f"no work of a session {word} is kept here that is not taken back", hint=known)
    return ids.pop()


def is_of(each: Operation, agent: str) -> bool:
    native = each.native if isinstance(each, RunRecord) else None
    return agent in (agent_of(Principal(each.started_by)), native.agent if native is not None else None)
