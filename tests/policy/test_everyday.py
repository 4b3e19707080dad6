"""What asks too often is switched off: the commands that everybody runs every day pass without a question."""

from pathlib import Path

import pytest

from bascule.kernel.call import agent_principal
from bascule.kernel.policy.decision import Decision
from bascule.kernel.rows import Effect
from bascule.testing.policies import standard

JERRY = agent_principal("Jerry")
# From Makefiles and CI files of public projects; fixed before the reader learned more, so that it cannot be fitted.
COMMANDS = [
    line for line in (Path(__file__).parent / "everyday.txt").read_text().splitlines() if not line.startswith("#")
]
# Of at least 500. A hundredth is what a person still answers one by one.
MAY_ASK = 5
PLACE = {"root": "/home/me/app", "home": "/home/me", "cwd": "/home/me/app"}


def asking(method, **more):
    policy = standard()
    verdicts = [
        (policy.decide(JERRY, method, Effect.EXEC, lambda command=command: {"command": command, **more}), command)
        for command in COMMANDS
    ]
    return [f"{verdict.rule}: {command}" for verdict, command in verdicts if verdict.decision is not Decision.ALLOW]


def test_the_everyday_commands_are_many_and_all_different():
    assert len(COMMANDS) >= 500
    assert len(set(COMMANDS)) == len(COMMANDS)


@pytest.mark.parametrize(("method", "more"), [("workspace.shell", {}), ("native.shell", PLACE)])
def test_at_most_five_of_the_everyday_commands_ask(method, more):
    found = asking(method, **more)
    assert len(found) <= MAY_ASK, "\n".join(found)
