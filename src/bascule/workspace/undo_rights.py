"""Whose work a caller may take back without a question, and which restored files ask all the same.

One's own work is free, and so is everything from a terminal of the person's: one that stands below no agent's client.
From below a client, through MCP or HTTP, or out of a cell, the work of others asks. A program of the same user can
pretend to be a terminal (SECURITY.md).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from bascule.kernel.call import LOCAL, PERSON, Call, agent_of
from bascule.workspace.ports import Checkpoints, Standing
from bascule.workspace.protocol import FileChange
from bascule.workspace.records import LastUndo, RunRecord


class Piece(Protocol):
    @property
    def before(self) -> str: ...


def why_asks(call: Call, record: RunRecord | LastUndo, standing_of: Callable[[int], Standing]) -> str | None:
    """Why this caller is asked before it takes this run back; None when it is free. Reads /proc: blocks."""
    native = record.native if isinstance(record, RunRecord) else None
    what = record.run_id if isinstance(record, RunRecord) else f"the undo of {record.run_id}"
    if call.principal == PERSON:
        return None
    if native is None and call.principal == record.started_by:
        return None
    handle = agent_of(call.principal)
    if handle is not None and native is not None and native.agent == handle:
        return None
    whose = f"{what} is the work of " + (
        f"a session of {native.client}" if native is not None else str(record.started_by)
    )
    if call.principal != LOCAL or not call.pid:
        return whose
    standing = standing_of(call.pid)
    is_own = native is not None and native.pid in standing.pids
    return whose if standing.is_below_client and not is_own else None


def restored_from_agents(
    checkpoints: Checkpoints, earlier: Iterable[RunRecord], pieces: Sequence[Piece], changes: Iterable[FileChange]
) -> list[FileChange]:
    """The changes whose restored content an earlier run had written: it was never the person's. Blocks."""
    segments = [each for record in earlier for each in record.segments if each.after is not None]

    def is_an_agents(change: FileChange) -> bool:
        contents = [checkpoints.content(piece.before, change.path) for piece in pieces]
        restored = next((content for content in contents if content is not None), None)
        return restored is not None and any(
            checkpoints.content(each.after or "", change.path) == restored
            and checkpoints.content(each.before, change.path) != restored
            for each in segments
        )

    return [change for change in changes if is_an_agents(change)]
