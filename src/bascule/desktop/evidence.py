"""What desktop calls left as evidence, and in which workspaces: read for the user of the machine.

Evidence of calls that name no workspacePath is in a place of ours. Of those that do, the places are remembered here:
the host writes into any directory beneath desktop_root, and nobody looks through a home directory for folders.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from bascule.desktop import evidence_rows as e
from bascule.desktop.ports import EvidenceGone, EvidenceReader, Execution
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import NotFound
from bascule.foundation.tasks import Tasks
from bascule.foundation.text import one_line
from bascule.kernel.blob import Blob
from bascule.kernel.call import Call
from bascule.kernel.effects import RecordedEffect
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.kernel.rows import Bound

# Projects that a person lets agents test on the screen; of more the one unused for longest is forgotten, and its
# folders stay where they are.
MAX_PLACES: Final = 32
# So often at most the time of a place is written: once a day says which is unused.
NOTED_EVERY_MS: Final = 24 * 60 * 60 * 1000
# Of one field in a list.
MAX_FIELD_CHARS: Final = 200
# Readers at once: each has a folder and a file open, and megabytes in memory.
MAX_READERS: Final = 2

T = TypeVar("T")


class EvidencePlace(msgspec.Struct, frozen=True, gc=False):
    """A workspace that a desktop call named; used at this time, to the day."""

    used_at: int


class EvidenceShelf:
    def __init__(self, store: JournalStore, clock: Clock, reader: EvidenceReader) -> None:
        self._clock = clock
        self._reader = reader
        self.table: Table[EvidencePlace] = Table("desktop_evidence", EvidencePlace)
        self.table.rows.update(store.load("desktop_evidence", EvidencePlace))
        # Who asked for it hears of a fault.
        self._tasks = Tasks(lambda _name, _error: None)
        self._turns = asyncio.Semaphore(MAX_READERS)

    def bound(self) -> list[Bound]:
        return [
            e.EVIDENCE_LIST.bind(self.list_executions),
            e.EVIDENCE_SHOW.bind(self.show),
            e.EVIDENCE_FILE.bind(self.file),
        ]

    async def close(self) -> None:
        await self._tasks.close()

    def note(self, workspace: str | None, effect: RecordedEffect) -> None:
        """A call that is about to be made names this place; it is remembered with the record of the call."""
        if workspace is None:
            return
        known = self.table.rows.get(workspace)
        now = self._clock.wall_ms()
        if known is None or abs(now - known.used_at) >= NOTED_EVERY_MS:
            effect.changes.append(lambda tx: self._remember(tx, workspace, now))

    def _remember(self, tx: Transaction, workspace: str, now: int) -> None:
        tx.put(self.table, workspace, EvidencePlace(now))
        while len(self.table.rows) > MAX_PLACES:
            tx.put(self.table, min(self.table.rows, key=lambda each: self.table.rows[each].used_at), None)

    # -- methods --

    def list_executions(self, call: Call, params: e.EvidenceListParams) -> Deferred[list[e.EvidenceView]]:
        def listed() -> list[e.EvidenceView]:
            found = self._reader.newest(places, params.before, params.limit)
            return [_view(each) for each in found]

        places = list(self.table.rows)
        return self._read(listed, call)

    def show(self, call: Call, params: e.EvidenceParams) -> Deferred[e.EvidenceDetails]:
        def shown() -> e.EvidenceDetails:
            found = self._reader.show(places, params.execution_id)
            return e.EvidenceDetails(
                **msgspec.structs.asdict(_view(found.about)),
                result=found.result,
                trace=found.trace,
                tree=found.tree,
                left_out=found.left_out,
                changed=found.changed,
            )

        places = list(self.table.rows)
        return self._read(shown, call)

    def file(self, call: Call, params: e.EvidenceFileParams) -> Deferred[Blob]:
        places = list(self.table.rows)
        return self._read(
            lambda: Blob("image/png", self._reader.picture(places, params.execution_id, params.name)), call
        )

    def _read(self, work: Callable[[], T], call: Call) -> Deferred[T]:
        return self._tasks.answer(self._on_a_thread(work), call.method)

    async def _on_a_thread(self, work: Callable[[], T]) -> T:
        async with self._turns:
            try:
                return await asyncio.to_thread(work)
            except EvidenceGone as error:
                raise NotFound(
                    f"there is no evidence {one_line(str(error), MAX_FIELD_CHARS)!r}, or it is not what the host wrote",
                    hint="evidence.list names what is kept; the oldest makes room for newer",
                ) from None


def _view(found: Execution) -> e.EvidenceView:
    """For lists: one visible line in each field."""
    return e.EvidenceView(
        execution_id=found.execution_id,
        workspace=one_line(found.workspace),
        method=_shown(found.method),
        app=_shown(found.app),
        at=_shown(found.at) or found.day,
        principal=_shown(found.client),
        effect=_shown(found.effect),
        error=_shown(found.error),
        files=[e.EvidenceFile(name=name, size=size) for name, size in found.files],
    )


def _shown(text: str | None) -> str | None:
    return None if text is None else one_line(text, MAX_FIELD_CHARS)
