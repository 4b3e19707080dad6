"""What pages of the console ask for without a touch, and what they must not get without one."""

from bascule.kernel.call import Grade
from bascule.workspace.protocol import UndoParams
from bascule.workspace.rows import RUNS_UNDO


def test_looking_at_what_an_undo_would_change_needs_no_touch_and_undoing_does():
    assert callable(RUNS_UNDO.proof)
    assert RUNS_UNDO.proof(UndoParams(run_id="run_1", dry_run=True)) is Grade.SIGNED_IN
    assert RUNS_UNDO.proof(UndoParams(run_id="run_1")) is Grade.FRESH
