"""What the policy knows about a call to a game beyond its params, and how a person sees it.

Rules reach it as `about.*`. It is the bridge's own knowledge, so a caller cannot say it. A rule that needs it can ask
or deny, and not allow: whether a call is allowed at all is decided before the game is looked at.
"""

import glob
import json
from collections.abc import Callable
from typing import Any

import msgspec

from bascule.game.catalog import KnownTool
from bascule.game.game import Game
from bascule.game.pins import Pinned, Pins
from bascule.game.protocol import CallToolParams, GameParams, SetStateParams
from bascule.kernel.call import PERSON, Call
from bascule.kernel.consent import blocks
from bascule.kernel.consent.blocks import Block, Preview
from bascule.kernel.policy.decision import Decision, Verdict
from bascule.kernel.policy.rules import Rule
from bascule.kernel.resolution import Resolution
from bascule.wire.canonical import digest
from gabp import messages

# Pinned like a tool: it has no schema that could change, but an attached game asks on its first use too.
SET_STATE = messages.STATE_SET
_SET_STATE_HASH = digest({"method": SET_STATE})
# The timed rule that stands for "trust this game".
TRUST_RULE = "timed.games.trust"
# Named in the question one by one; the largest mod known has 123, and nobody reads more.
MAX_TRUSTED_TOOLS = 500


class GameFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What only the bridge knows."""

    # Its tool is tagged as one.
    destructive: bool = False
    # Somebody else starts the game: nobody but that program says what it is.
    attached: bool = False
    # Whether this tool was allowed before, as it is now.
    pin: Pinned = "same"
    # Over all tools that the game lists now.
    listing: str = ""
    # The caller started the game, or is the person.
    own: bool = True


class JudgedTool(msgspec.Struct, frozen=True, kw_only=True):
    """What the handler calls, as it was judged."""

    # Of the tool's description and schemas; None for what is no tool.
    schema_hash: str | None = None
    # The tools that "trust this game" pins together with this one.
    trusted: dict[str, str] = {}


class Judging:
    def __init__(self, pins: Pins) -> None:
        self._pins = pins

    def call_tool(self, call: Call, params: CallToolParams, found: Game, known: KnownTool) -> Resolution:
        about = GameFacts(
            destructive=known.is_destructive,
            attached=found.settings.command is None,
            pin=self._pins.compare(found.pinned_as, params.tool, known.schema_hash),
            own=_is_own(call, found),
            listing=found.catalog.digest,
        )
        trusted = self._trusted(found) if about.attached and about.pin == "new" and not about.destructive else {}
        return _resolution(
            call,
            params,
            about,
            lambda: (
                f"{found.id}: {params.tool} {_one_line(params.arguments)}",
                _tool_preview(found, known, about, params.arguments, trusted),
            ),
            bound={"tool": known.schema_hash, "attached": about.attached},
            target=JudgedTool(schema_hash=known.schema_hash, trusted=trusted),
            tool=params.tool,
        )

    def _trusted(self, found: Game) -> dict[str, str]:
        """What "trust this game" means now: its tools that are new and that it does not call destructive."""
        new = {
            name: known.schema_hash
            for name, known in found.catalog.tools.items()
            if not known.is_destructive and self._pins.compare(found.pinned_as, name, known.schema_hash) == "new"
        }
        return new if 1 < len(new) <= MAX_TRUSTED_TOOLS else {}

    def set_state(self, call: Call, params: SetStateParams, found: Game) -> Resolution:
        about = GameFacts(
            attached=found.settings.command is None,
            pin=self._pins.compare(found.pinned_as, SET_STATE, _SET_STATE_HASH),
            own=_is_own(call, found),
        )
        player = () if params.player_id is None else (f"of the player: {params.player_id}",)
        return _resolution(
            call,
            params,
            about,
            lambda: (
                f"{found.id}: set state {_one_line(params.updates)}",
                (
                    blocks.facts(_title(found), *player),
                    blocks.text(_json(params.updates), "changes its state"),
                ),
            ),
            bound={"tool": _SET_STATE_HASH, "attached": about.attached},
            target=JudgedTool(schema_hash=_SET_STATE_HASH),
        )

    def end(self, call: Call, params: GameParams, found: Game) -> Resolution:
        about = GameFacts(attached=found.settings.command is None, own=_is_own(call, found))
        what = "lets go of" if about.attached else "ends"
        owner = found.started_by or "nobody"
        return _resolution(
            call,
            params,
            about,
            lambda: (
                f"{call.method} {found.id}",
                (
                    blocks.facts(
                        _title(found), f"{what} the game, which {owner} started; what is not saved in it is lost"
                    ),
                ),
            ),
            # Another launch is another game.
            bound={"launch": found.launches},
        )

    @staticmethod
    def hash_of(params: CallToolParams | SetStateParams, found: Game) -> str:
        return _SET_STATE_HASH if isinstance(params, SetStateParams) else found.tool(params.tool).schema_hash


def _resolution(
    call: Call,
    params: Any,
    about: GameFacts,
    shown: Callable[[], tuple[str, Preview]],
    *,
    bound: dict[str, Any],
    target: JudgedTool | None = None,
    tool: str | None = None,
) -> Resolution:
    resolution = Resolution(
        facts={**msgspec.to_builtins(params), "about": msgspec.to_builtins(about)},
        bound=bound,
        resolved=target,
        record_first=about.destructive,
    )

    async def describe(_: Verdict) -> Resolution:
        summary, preview = shown()
        offers = () if tool is None or about.pin == "changed" else (_offer(call, params.game_id, tool),)
        if target is not None and target.trusted:
            offers = (*offers, _trust_offer(call, params.game_id, about, len(target.trusted)))
        return msgspec.structs.replace(resolution, summary=summary, preview=preview, offers=offers, describe=None)

    return msgspec.structs.replace(resolution, describe=describe)


def _is_own(call: Call, found: Game) -> bool:
    return call.principal in (found.started_by, PERSON)


def _offer(call: Call, game_id: str, tool: str) -> Rule:
    """This tool of this game, with any arguments, for a while."""
    return Rule(
        name="timed.games.call",
        decision=Decision.ALLOW,
        reason="this tool with any arguments",
        principals=(glob.escape(call.principal),),
        methods=(call.method,),
        params={"gameId": glob.escape(game_id), "tool": glob.escape(tool)},
    )


def _trust_offer(call: Call, game_id: str, about: GameFacts, tools: int) -> Rule:
    """All its tools as they are listed now; a list in which anything has changed meanwhile is not meant."""
    return Rule(
        name=TRUST_RULE,
        decision=Decision.ALLOW,
        reason=f"trust this game: its {tools} new tools, as they are now; each asks again when it changes",
        principals=(glob.escape(call.principal),),
        methods=(call.method,),
        params={
            "gameId": glob.escape(game_id),
            "about.attached": "true",
            "about.destructive": "false",
            "about.pin": "new",
            "about.listing": about.listing,
        },
    )


def _title(found: Game) -> str:
    how = "attached: another program" if found.settings.command is None else f"started as {found.settings.command}"
    return f"game {found.id} ({found.settings.name or found.id}, {how})"


def _tool_preview(
    found: Game, known: KnownTool, about: GameFacts, arguments: dict[str, Any], trusted: dict[str, str]
) -> tuple[Block, ...]:
    tool = known.tool
    if about.pin == "changed":
        says = "It is NOT what was allowed before: its description or schema has changed. It now says"
    elif about.pin == "new":
        says = "It was not called before. It says of itself"
    else:
        says = "It says of itself"
    shown = [
        blocks.facts(_title(found), f"tool {tool.name}" + (" (destructive)" if about.destructive else "")),
        blocks.text(tool.description or tool.title or "nothing", says),
        blocks.text(_json(arguments), "arguments"),
        blocks.facts(f"schema {known.schema_hash[:16]}"),
    ]
    if trusted:
        title = f"To trust this game allows these {len(trusted)} tools, and none that it calls destructive"
        shown.append(blocks.facts(*sorted(trusted), title=title))
    return tuple(shown)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
