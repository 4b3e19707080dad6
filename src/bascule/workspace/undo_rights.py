"""Whose work a caller may take back without a question, and which restored files ask all the same.

One's own work is free, and so is everything from a terminal of the person's: one that stands below no agent's client.
From below a client, through MCP or HTTP, or out of a cell, the work of others asks. A program of the same user can
pretend to be a terminal (SECURITY.md).
"""

from collections.abc import Callable, Iterable

from bascule.kernel.call import LOCAL, PERSON, Call, agent_of
from bascule.workspace.ports import Checkpoints, Standing, Ways
from bascule.workspace.protocol import FileChange
from bascule.workspace.records import RunRecord, UndoRecord
from bascule.workspace.undos import Operation


def why_asks(call: Call, record: Operation, standing_of: Callable[[int], Standing]) -> str | None:
    """Why this caller is asked before it takes this run back; None when it is free. Reads /proc: blocks."""
    native = record.native if isinstance(record, RunRecord) else None
    what = record.run_id if isinstance(record, RunRecord) else f"the undo of {record.what}"
    if call.principal == PERSON:
        return None
    # Everybody without a name is `local`: a terminal of the person's, and each client.
    from_terminal = isinstance(record, UndoRecord) and call.principal == LOCAL and bool(call.pid)
    if native is None and call.principal == record.started_by and not from_terminal:
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
    is_own = _client_of(record) in standing.pids
    return whose if standing.is_below_client and not is_own else None


def is_person(call: Call, standing_of: Callable[[int], Standing]) -> bool:
    """Signed in as one, or in a terminal below no client. Reads /proc: blocks."""
    if call.principal == PERSON:
        return True
    return call.principal == LOCAL and bool(call.pid) and not standing_of(call.pid).is_below_client


def _client_of(record: Operation) -> int | None:
    """The client's process, where one is known."""
    if isinstance(record, UndoRecord):
        return record.client or None
    return record.native.pid if record.native is not None else None


def restored_from_agents(
    checkpoints: Checkpoints, earlier: Iterable[RunRecord], ways: Ways, changes: Iterable[FileChange]
) -> list[FileChange]:
    """The changes whose restored content an earlier run had written: it was never the person's. Blocks."""
    segments = [(each.before, each.after) for record in earlier for each in record.segments if each.after is not None]
    # A change has its path as people read it.
    shown = {path.decode("utf-8", "backslashreplace"): path for path in ways.paths}
    meant = {shown[change.path] for change in changes if change.path in shown}
    restored = {path: way.wanted for path, way in ways.paths.items() if path in meant and way.wanted is not None}
    written: set[bytes] = set()
    for before, after in segments:
        was, then = checkpoints.values(before, restored), checkpoints.values(after, restored)
        written.update(path for path, value in restored.items() if then[path] == value != was[path])
    return [change for change in changes if shown.get(change.path) in written]
