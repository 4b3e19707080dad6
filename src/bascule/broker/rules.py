"""The presets' rules on messages."""

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule

_REGISTER_FIRST = Rule(
    name="register-first",
    decision=Decision.DENY,
    reason="under the restrictive policy a sender must have a name",
    suggestion="Register a handle (agents.register, bridge-register) and send with its token",
    principals=("local",),
    methods=("messages.send", "messages.broadcast"),
    match=(
        Example(principal="local", method="messages.send"),
        Example(principal="local", method="messages.broadcast"),
    ),
    not_match=(
        Example(principal="local", method="agents.register"),
        Example(principal="agent:Jerry", method="messages.send"),
        Example(principal="person", method="messages.send"),
    ),
)

_NO_BROADCAST_BY_AGENTS = Rule(
    name="no-broadcast-by-agents",
    decision=Decision.DENY,
    reason="under the restrictive policy agents do not broadcast",
    suggestion="Send to each agent by name (messages.send)",
    principals=("agent:*",),
    methods=("messages.broadcast",),
    match=(Example(principal="agent:Jerry", method="messages.broadcast"),),
    not_match=(
        Example(principal="agent:Jerry", method="messages.send"),
        Example(principal="person", method="messages.broadcast"),
    ),
)

RESTRICTIVE = (_REGISTER_FIRST, _NO_BROADCAST_BY_AGENTS)
