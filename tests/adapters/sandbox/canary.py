"""A program that is denied, and shows by a mark that it ran."""

import shutil
from pathlib import Path

from bascule.kernel.policy.programs import ProgramRule, ProgramRules

NAME = "zanary"
RULES = ProgramRules((ProgramRule("no-canaries", NAME),))


def canary_in(folder: Path) -> Path:
    """`touch` under another name: it leaves a mark where it is told to, and nothing else."""
    folder.mkdir()
    copy = folder / NAME
    shutil.copy(shutil.which("touch"), copy)
    copy.chmod(0o755)
    return copy
