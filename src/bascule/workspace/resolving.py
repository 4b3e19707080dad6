"""Where a path leads, and what the policy says about that.

A path is judged twice: as it was written, and as it was resolved when a link on the way led elsewhere. The stricter
verdict counts, and the `ResolvedPath` that was judged is the one that is shown and acted on. What `runs.undo` and
`runs.commit` change is judged by its path too; they follow no link at all.
"""

import asyncio
from collections.abc import Iterable

from bascule.kernel.call import Call
from bascule.kernel.gate import Gate
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.workspace.paths import WorkspacePath
from bascule.workspace.ports import ResolvedPath, Root
from bascule.workspace.protocol import CreateFileOperation, DeleteFileOperation, FileChange, Operation
from bascule.workspace.threads import Threads

# Judging a path takes up to 0.1 ms: so many are judged before others have their turn on the event loop.
PATHS_AT_ONCE = 20

# As which operations a change is judged: each is a way to the same result.
_WRITES = ("workspace.createFile", "workspace.editFile")
_DELETES = ("workspace.deleteFile",)


def follows(operation: Operation) -> bool:
    """Whether a link at the end of its path is followed: deleting, and making what must be new, are about the name."""
    match operation:
        case DeleteFileOperation():
            return False
        case CreateFileOperation():
            return operation.overwrite
        case _:
            return True


async def resolve(threads: Threads, root: Root, path: WorkspacePath, *, follow: bool) -> ResolvedPath:
    """On the event loop where the kernel can answer from memory, else on a thread."""
    place = root.resolve_cached(path, follow=follow)
    return place if place is not None else await threads.do(root.resolve, path, follow=follow)


def leads(place: ResolvedPath) -> str:
    return f"`{place.written}` leads to `{place.path}` through a link"


async def judge_changes(gate: Gate, call: Call, changes: Iterable[FileChange]) -> Verdict | None:
    """The strictest verdict on writing or deleting these files; None when all of it is allowed."""
    strictest: Verdict | None = None
    for number, change in enumerate(changes, 1):
        for method in _DELETES if change.change == "deleted" else _WRITES:
            verdict = gate.verdict(call.principal, method, {"path": change.path})
            if verdict.decision > (strictest.decision if strictest is not None else Decision.ALLOW):
                strictest = verdict
        if number % PATHS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return strictest
