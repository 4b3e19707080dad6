"""What its user may set about the mesh."""

from typing import Annotated

from msgspec import Meta

from bascule.kernel.settings import Settings


class MeshSettings(Settings, frozen=True, kw_only=True):
    # How many items may wait for one other node before a message to it is refused: a week of a busy team.
    mesh_outbox_items: Annotated[int, Meta(ge=1)] = 10_000
    # How many bytes may wait for one other node: a bound for our disk.
    mesh_outbox_bytes: Annotated[int, Meta(ge=1)] = 256 * 1024 * 1024
