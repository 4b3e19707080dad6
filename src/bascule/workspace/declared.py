"""The workspace bridge, declared: see `kernel.declared`."""

import os
from typing import TYPE_CHECKING

from bascule.kernel.declared import Commands, Declared, Kept
from bascule.workspace import rows as workspace_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings
    from bascule.kernel.tool import Toolset

# In the workspace's directory: what the rows of runs and undos name.
CHECKPOINTS = "checkpoints"
GIT_STATES = "git-states"
OUTSIDE = "outside"


class WorkspaceDeclared(Declared):
    name = "workspace"
    rows = (*workspace_rows.METHODS, *workspace_rows.OPERATIONS)
    made_by = "bascule.workspace.compose:make_workspace"
    checked_by = "bascule.workspace.cli.checks:CHECKS"
    commands = (
        Commands("bascule.workspace.cli.work", ("run", "exec")),
        Commands("bascule.workspace.cli.undo", ("undo", "redo", "log", "show")),
        Commands("bascule.workspace.cli.blame", ("blame",)),
        Commands("bascule.workspace.cli.spaces", ("spaces", "runs", "processes")),
    )

    def toolset(self) -> "Toolset":
        from bascule.workspace.tools import TOOLSET

        return TOOLSET

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.workspace import rules as workspace_rules

        return {
            "restrictive": workspace_rules.RESTRICTIVE,
            "standard": workspace_rules.STANDARD,
            "permissive": workspace_rules.PERMISSIVE,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.workspace.records import RUN_ROW, SpaceRecord, UndoRecord

        return {"spaces": SpaceRecord, "runs": RUN_ROW, "undos": UndoRecord}

    def kept(self) -> Kept:
        from bascule.foundation.paths import workspace_dir
        from bascule.workspace.records import FORMAT

        # The rows of spaces stay: their form has not changed.
        directories = tuple(os.path.join(workspace_dir(""), name) for name in (CHECKPOINTS, GIT_STATES, OUTSIDE))
        return Kept("runs", FORMAT, ("runs", "undos"), directories)

    def settings(self) -> "type[Settings]":
        from bascule.workspace.settings import WorkspaceSettings

        return WorkspaceSettings
