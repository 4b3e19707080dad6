"""The presets' rules on callers beyond A2A. Elsewhere the rule on messages allows them: a person made their token."""

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule

_NO_MESSAGES_FROM_OUTSIDE = Rule(
    name="no-messages-from-outside",
    decision=Decision.DENY,
    reason="under the restrictive policy nobody outside of this machine writes to agents here",
    suggestion="Ask the owner of this agent",
    principals=("a2a:*",),
    methods=("messages.send",),
    match=(Example(principal="a2a:Ann", method="messages.send"),),
    not_match=(
        Example(principal="agent:Ann", method="messages.send"),
        Example(principal="a2a:Ann", method="tickets.show"),
    ),
)

RESTRICTIVE = (_NO_MESSAGES_FROM_OUTSIDE,)
