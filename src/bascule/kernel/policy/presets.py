"""The policies that come with us: their names, and the rules on effects that are in each of them.

Of all rules that match a call the strictest decides, and what no rule matches is denied. Each rule carries examples
that a test proves. What else a preset says is declared by the bridges (`Declared.rules`); `bridge_list.presets_of` puts
them together.
"""

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule
from bascule.kernel.rows import Effect

DEFAULT_PRESET = "standard"

_READ = Rule(
    name="read",
    decision=Decision.ALLOW,
    reason="looking at one's own things, at who is there and at ticket metadata is open to all",
    effects=(Effect.READ,),
    match=(
        Example(principal="local", method="agents.list"),
        Example(principal="agent:Jerry", method="inbox.take", params={"agentId": "Jerry"}),
        Example(principal="person", method="ledger.tail"),
    ),
    not_match=(
        Example(principal="agent:Jerry", method="messages.send"),
        Example(principal="local", method="daemon.gc"),
    ),
)

_MESSAGE = Rule(
    name="message",
    decision=Decision.ALLOW,
    reason="agents are here to talk to each other",
    effects=(Effect.MESSAGE,),
    match=(
        Example(principal="agent:Jerry", method="messages.send"),
        Example(principal="local", method="agents.register"),
        Example(principal="agent:Jerry", method="replies.post"),
    ),
    not_match=(Example(principal="agent:Jerry", method="tickets.cancel"),),
)

# Whose ticket it is was checked before policy: what arrives here is one's own.
_STOP_ONES_OWN = Rule(
    name="stop-ones-own",
    decision=Decision.ALLOW,
    reason="what one started, one may stop",
    effects=(Effect.PROCESS_CONTROL,),
    match=(Example(principal="agent:Jerry", method="tickets.cancel"),),
    not_match=(Example(principal="agent:Jerry", method="agents.revoke"),),
)

_ADMIN_BY_THE_USER = Rule(
    name="admin-by-the-user",
    decision=Decision.ALLOW,
    reason="the daemon belongs to the user who runs it",
    principals=("local", "person"),
    effects=(Effect.ADMIN,),
    match=(
        Example(principal="local", method="daemon.gc"),
        Example(principal="person", method="agents.revoke"),
    ),
    not_match=(
        Example(principal="agent:Jerry", method="daemon.gc"),
        Example(principal="local", method="agents.list"),
    ),
)

# Without it agents would be denied too, but told only that no rule allows it.
_NO_ADMIN_BY_AGENTS = Rule(
    name="no-admin-by-agents",
    decision=Decision.DENY,
    reason="administration is for the user of this machine, not for agents",
    suggestion="Ask the user to run the command in a terminal of their own",
    principals=("agent:*",),
    effects=(Effect.ADMIN,),
    match=(
        Example(principal="agent:Jerry", method="person.set"),
        Example(principal="agent:Jerry", method="agents.revoke"),
    ),
    not_match=(
        Example(principal="local", method="person.set"),
        Example(principal="agent:Jerry", method="daemon.status"),
    ),
)

ON_EFFECTS = (_READ, _MESSAGE, _STOP_ONES_OWN, _ADMIN_BY_THE_USER, _NO_ADMIN_BY_AGENTS)

NAMES = (
    # Looking and talking.
    "restrictive",
    # Work in a space; asked before what is hard to take back or cannot be read.
    "standard",
    # Asked only before what works outside of the sandbox. Administration stays closed to agents: that is not a
    # matter of comfort, an agent that may set the passphrase is the person.
    "permissive",
)
