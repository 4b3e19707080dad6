"""The skill of `bascule on`: what an agent reads when other agents, undo or its record come up, and not before.

One text for all three clients: each reads `skills/NAME/SKILL.md` in its own folder. Their plugin commands would put it
there too, but they write the user's settings anew and leave caches behind: `off` could not leave files as they were.
"""

import os

from bascule.cli.setup.changes import digest
from bascule.cli.setup.planning import Planner
from bascule.cli.setup.texts import INSTRUCTIONS

NAME = "bascule"
TEXT = f"""\
---
name: {NAME}
description: Talk to other AI agents on this machine, answer their messages, and take back what a tool call \
destroyed. Use it when a line begins with [bascule], when the user mentions another agent, or when files must come back.
---

<!-- Written by `bascule on`; `bascule off` removes it. -->

{INSTRUCTIONS}
## What your own tools do is on record

Bascule keeps what your shell and editor are about to change. When something was lost that should not be, say so to your
user and run `bascule log` in the project (it lists what was done), then `bascule undo RUN --dry-run`. `bascule redo`
takes an undo back. `bascule sessions` says what other sessions on this machine are doing.
"""


def add_skill(planner: Planner, folder: str) -> None:
    path = os.path.join(folder, "skills", NAME, "SKILL.md")
    # Every text of ours that was ever put there; another one is the person's.
    ours = set(planner.made(path).parts)

    def edit(text: str) -> str | None:
        if text and digest(text) not in ours and text != TEXT:
            planner.plan.notes.append(f"{path} is not as we wrote it, and is left alone.")
            return text
        if planner.undo:
            return None if ours else text
        planner.is_ours(path, digest(TEXT), present=False)
        return TEXT

    planner.text(path, edit)
