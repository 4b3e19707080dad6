"""What the cell for one command has to look like."""

from collections.abc import Hashable
from typing import NamedTuple

from bascule.kernel.policy.programs import ProgramRules
from bascule.workspace.machine.sandbox.seals import NO_SEALS, Plan


class CellPlan(NamedTuple):
    # A warm cell of another shape does not serve.
    shape: Hashable
    programs: ProgramRules
    # The directory that is HOME inside; empty outside of a sandbox.
    home: str = ""
    seals: Plan = NO_SEALS
    # Place in the workspace and content: such a cell is for this command alone.
    files: tuple[tuple[str, bytes], ...] = ()
    # Whether the command ends when somebody puts another file in the place of one of them.
    guarded: bool = False
