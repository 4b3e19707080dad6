"""The game bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Declared
from bascule.protocols import game_methods

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.policy.rules import Rule
    from bascule.protocols.tool import Tool


class GameDeclared(Declared):
    name = "game"
    rows = game_methods.METHODS
    made_by = "bascule.daemon.compose_games:make_games"

    def tools(self) -> "tuple[Tool, ...]":
        from bascule.bridges.game import tools

        return tools.TOOLS

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.policy import presets_games

        return {
            "restrictive": presets_games.RESTRICTIVE,
            "standard": presets_games.STANDARD,
            "permissive": presets_games.PERMISSIVE,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.bridges.game.pins import Pin

        return {"pins": Pin}
