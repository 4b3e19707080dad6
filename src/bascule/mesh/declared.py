"""The mesh bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Commands, Declared
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
    checked_by = "bascule.mesh.cli.checks:CHECKS"
    commands = (Commands("bascule.mesh.cli.command", ("mesh", "join", "node")),)

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.mesh import rules as mesh_rules

        return {
            "restrictive": mesh_rules.RESTRICTIVE,
            "standard": mesh_rules.STANDARD,
            "permissive": mesh_rules.STANDARD,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.mesh.membership_records import TABLES as MEMBERSHIP_TABLES
        from bascule.mesh.state import TABLES

        return {**TABLES, **MEMBERSHIP_TABLES}

    def settings(self) -> "type[Settings]":
        from bascule.mesh.settings import MeshSettings

        return MeshSettings
