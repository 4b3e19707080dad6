"""The presets' rules on other machines."""

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule

_OTHERS_ASK = Rule(
    name="machines-of-others-ask",
    decision=Decision.ASK,
    reason="a machine of another person wants to write to your agents",
    methods=("mesh.meet",),
    params={"own": "false"},
    match=(Example(principal="node:desk", method="mesh.meet", params={"node": "desk", "owner": "Bob", "own": False}),),
    not_match=(
        Example(principal="node:desk", method="mesh.meet", params={"node": "desk", "owner": "me", "own": True}),
        Example(principal="agent:Ada@desk", method="mesh.offer"),
    ),
)

_NO_OTHER_MACHINES = Rule(
    name="no-other-machines",
    decision=Decision.DENY,
    reason="under the restrictive policy agents of other machines do not write here",
    suggestion="Ask the person of that machine to allow it",
    methods=("mesh.offer", "mesh.meet"),
    match=(
        Example(principal="agent:Ada@desk", method="mesh.offer"),
        Example(principal="node:desk", method="mesh.meet", params={"node": "desk", "owner": "Bob", "own": False}),
    ),
    not_match=(
        Example(principal="agent:Ada@desk", method="mesh.reply"),
        Example(principal="agent:Ada", method="messages.send"),
    ),
)

STANDARD = (_OTHERS_ASK,)
RESTRICTIVE = (_NO_OTHER_MACHINES,)
