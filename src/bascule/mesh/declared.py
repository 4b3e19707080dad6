"""The mesh bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Commands, Declared
from bascule.mesh import rows as mesh_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.settings import Settings


class MeshDeclared(Declared):
    name = "mesh"
    rows = mesh_rows.METHODS
    made_by = "bascule.mesh.compose:make_mesh"
    checked_by = "bascule.mesh.cli.checks:CHECKS"
    commands = (Commands("bascule.mesh.cli.command", ("mesh", "join", "node")),)

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.mesh.membership_records import Invitation, JoinRequest, KnownCard
        from bascule.mesh.records import Membership

        return {
            "mesh": Membership,
            "mesh_cards": KnownCard,
            "mesh_invites": Invitation,
            "mesh_requests": JoinRequest,
        }

    def settings(self) -> "type[Settings]":
        from bascule.mesh.settings import MeshSettings

        return MeshSettings
