"""The presets' rules on games.

A game of `games.toml` is one the user chose to put there; what its mod calls destructive asks. A game that somebody
else starts says of itself what it is, so each of its tools asks once. Both are pinned: a tool whose description or
schema is not what was allowed asks again. `about.*` is what the bridge knows of a call (`game.judging`).
"""

from typing import Any

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.rules import Example, Rule
from bascule.kernel.rows import Effect

# The person is asked; asking them about their own, unlocked, calls would be asking themselves.
_ASKED = ("local", "agent:*")
_CALLS = ("games.call", "games.setState")


def _call(*, principal: str = "agent:Jerry", method: str = "games.call", **about: Any) -> Example:
    params = {"gameId": "burrow", "tool": "burrow/restart", "arguments": {}, **({"about": about} if about else {})}
    return Example(principal=principal, method=method, params=params)


_GAMES = Rule(
    name="games",
    decision=Decision.ALLOW,
    reason="the games in games.toml are there to be played",
    methods=("games.*",),
    effects=(Effect.GAME,),
    match=(
        Example(principal="agent:Jerry", method="games.start", params={"gameId": "burrow"}),
        _call(destructive=False, attached=False, pin="new"),
    ),
    not_match=(
        Example(principal="agent:Jerry", method="games.list"),
        Example(principal="agent:Jerry", method="games.stop", params={"gameId": "burrow"}),
    ),
)

_CHANGED_TOOLS_ASK = Rule(
    name="changed-tools-ask",
    decision=Decision.ASK,
    reason="This tool is not what was allowed before: its description or schema has changed",
    suggestion="Look at it (games_tool_detail), tell the user what changed, and wait until the person has approved",
    principals=_ASKED,
    methods=_CALLS,
    params={"about.pin": "changed"},
    match=(_call(pin="changed"), _call(principal="local", pin="changed", attached=True)),
    not_match=(_call(pin="same"), _call(pin="new"), _call(principal="person", pin="changed"), _call()),
)

_DESTRUCTIVE_TOOLS_ASK = Rule(
    name="destructive-tools-ask",
    decision=Decision.ASK,
    reason="The game calls this tool destructive",
    suggestion="Use another tool, or wait until the person has approved",
    principals=_ASKED,
    methods=_CALLS,
    params={"about.destructive": "true"},
    match=(_call(destructive=True), _call(principal="local", destructive=True, pin="same")),
    not_match=(_call(destructive=False), _call(principal="person", destructive=True), _call()),
)

_ATTACHED_TOOLS_ASK = Rule(
    name="attached-tools-ask",
    decision=Decision.ASK,
    reason="First use of a tool in a game that Bascule did not start",
    suggestion="Wait until the person has approved; this tool asks once, as long as it does not change",
    principals=_ASKED,
    methods=_CALLS,
    params={"about.attached": "true", "about.pin": "new"},
    match=(_call(attached=True, pin="new"), _call(method="games.setState", attached=True, pin="new")),
    not_match=(_call(attached=True, pin="same"), _call(attached=False, pin="new"), _call()),
)

_ANOTHERS_GAME_ASKS = Rule(
    name="anothers-game-asks",
    decision=Decision.ASK,
    reason="Another agent started this game",
    suggestion="Ask that agent to stop it, or wait until the person has approved",
    principals=_ASKED,
    methods=("games.stop", "games.kill"),
    effects=(Effect.PROCESS_CONTROL,),
    params={"about.own": "false"},
    match=(_call(method="games.stop", own=False), _call(method="games.kill", own=False, principal="local")),
    not_match=(
        _call(method="games.stop", own=True),
        _call(method="games.kill", own=False, principal="person"),
        _call(method="games.stop"),
    ),
)

_NO_GAMES = Rule(
    name="no-games",
    decision=Decision.DENY,
    reason="under the restrictive policy games are watched, not played",
    suggestion="Read tools, events, resources and state, and say what should be done",
    effects=(Effect.GAME,),
    match=(_call(), Example(principal="local", method="games.start", params={"gameId": "burrow"})),
    not_match=(Example(principal="agent:Jerry", method="games.events", params={"gameId": "burrow"}),),
)

# Of equally strict rules the first is named, so the more telling ones stand before the others.
STANDARD = (_GAMES, _CHANGED_TOOLS_ASK, _DESTRUCTIVE_TOOLS_ASK, _ATTACHED_TOOLS_ASK, _ANOTHERS_GAME_ASKS)
RESTRICTIVE = (_NO_GAMES, _ANOTHERS_GAME_ASKS)
PERMISSIVE = (_GAMES, _CHANGED_TOOLS_ASK, _ANOTHERS_GAME_ASKS)
