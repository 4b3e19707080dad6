"""The mesh bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Declared
from bascule.mesh import rows as mesh_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings


class MeshDeclared(Declared):
    name = "mesh"
    rows = mesh_rows.METHODS
    made_by = "bascule.mesh.compose:make_mesh"

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.mesh import rules as mesh_rules

        return {
            "restrictive": mesh_rules.RESTRICTIVE,
            "standard": mesh_rules.STANDARD,
            "permissive": mesh_rules.STANDARD,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.mesh.state import TABLES

        return TABLES

    def settings(self) -> "type[Settings]":
        from bascule.mesh.settings import MeshSettings

        return MeshSettings
