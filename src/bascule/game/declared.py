"""The game bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.game import rows as game_rows
from bascule.kernel.declared import Commands, Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.tool import Toolset


class GameDeclared(Declared):
    name = "game"
    rows = game_rows.METHODS
    made_by = "bascule.game.compose:make_games"
    commands = (Commands("bascule.game.cli.command", ("games",)),)

    def toolset(self) -> "Toolset":
        from bascule.game.tools import TOOLSET

        return TOOLSET

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.game import rules as game_rules

        return {
            "restrictive": game_rules.RESTRICTIVE,
            "standard": game_rules.STANDARD,
            "permissive": game_rules.PERMISSIVE,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.game.pins import Pin

        return {"pins": Pin}
