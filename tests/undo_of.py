"""What one call did between two checkpoints, taken back by itself: as an undo has it when nobody else worked there."""

from typing import Any

from bascule.workspace.machine.checkpoints.spaces import SpaceCheckpoints
from bascule.workspace.ports import Undone, Way, Ways


def undo(checkpoints: SpaceCheckpoints, before: str, after: str, **options) -> Undone:
    edits = checkpoints.edits(before, after)
    return checkpoints.bring(Ways(before, {path: Way(left, was) for path, (was, left) in edits.items()}), **options)


def left_alone(undone: dict[str, Any]) -> dict[str, str]:
    """What an answer says that an undo left alone: each path with the reason."""
    return {each["path"]: each["reason"] for each in undone.get("leftAlone", [])}
