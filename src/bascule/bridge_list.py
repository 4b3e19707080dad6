"""The bridges of this daemon. Whatever has to know them all iterates over this list."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bascule.a2a.declared import A2aDeclared
from bascule.admin.declared import AdminDeclared
from bascule.broker.declared import BrokerDeclared
from bascule.desktop.declared import DesktopDeclared
from bascule.game.declared import GameDeclared
from bascule.kernel.declared import Declared
from bascule.kernel.rows import Row
from bascule.mesh.declared import MeshDeclared
from bascule.native.declared import NativeDeclared
from bascule.workspace.declared import WorkspaceDeclared

if TYPE_CHECKING:
    from bascule.kernel.policy.rules import Rule

# A bridge stands behind those whose ports it needs.
BRIDGES: tuple[Declared, ...] = (
    BrokerDeclared(),
    AdminDeclared(),
    WorkspaceDeclared(),
    GameDeclared(),
    DesktopDeclared(),
    MeshDeclared(),
    A2aDeclared(),
    NativeDeclared(),
)


def methods_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Row, ...]:
    """What clients can call."""
    return tuple(row for bridge in bridges for row in bridge.methods)


def rows_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[Row, ...]:
    """What rules can speak of: the methods, and the operations inside runs."""
    return tuple(row for bridge in bridges for row in bridge.rows)


def tables_of(bridges: Iterable[Declared] = BRIDGES) -> tuple[str, ...]:
    """Of the store; the journal adds its own."""
    return tuple(name for bridge in bridges for name in bridge.tables())


def presets_of(bridges: Iterable[Declared] = BRIDGES) -> "Mapping[str, tuple[Rule, ...]]":
    """The policies that come with us: the rules on effects, then what each bridge adds."""
    from bascule.kernel.policy.presets import NAMES, ON_EFFECTS

    rules = [bridge.rules() for bridge in bridges]
    return {name: (*ON_EFFECTS, *(rule for each in rules for rule in each.get(name, ()))) for name in NAMES}
