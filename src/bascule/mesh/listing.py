"""What this node says of its own agents, cut to what the others read. No I/O."""

from collections.abc import Iterable
from itertools import islice

from bascule.mesh.cards import sign_directory
from bascule.mesh.identity import Identity
from bascule.mesh.ports import MAX_VALUE_BYTES, Board
from bascule.mesh.protocol import MAX_FREE_GROUPS, MAX_LISTED, ListedAgent, Listing


def signed_listing(
    identity: Identity, agents: Iterable[ListedAgent], *, max_bytes: int = MAX_VALUE_BYTES[Board.DIRECTORY]
) -> bytes:
    """Those that are online first. Who is left out is not shown elsewhere, and is written to by its full name."""
    listed = sorted(agents, key=lambda each: not each.online)[:MAX_LISTED]
    while True:
        value = sign_directory(identity.keys.sign, identity.node, Listing(agents=listed))
        if len(value) <= max_bytes or not listed:
            return value
        listed = listed[: len(listed) * max_bytes // len(value)]


def free_groups(groups: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(islice(sorted(groups), MAX_FREE_GROUPS), 1)
