"""What membership keeps beside the one row of this node: plain frozen Structs, stored as they are."""

from enum import StrEnum

import msgspec

from bascule.mesh.knock import Party


class Asking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a waiting node needs to go on after a restart."""

    # Of the code; None: it logs in with a creds file.
    secret: str | None = None
    # Ours, and what the holder of the mesh key has shown (see `knock`).
    number: str
    holder: Party
    holder_number: str
    asked_at: int
    # Wall time here after which nobody is asked any more.
    ends_at: int
    # A person here says that the other machine shows the same words. With a code it has named the mesh already.
    compared: bool = False

    @property
    def must_compare(self) -> bool:
        return self.secret is None and not self.compared


class KnownCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card as it was signed; under the key `_revoked` the list of those revoked."""

    signed: bytes
    at: int
    # Under `_revoked`: the keys of all lists that were ever taken.
    revoked: list[str] = []


class Invitation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A code that was made here, by its public bus key. The code itself is not kept."""

    # Who signs with it has the code.
    proof_key: str
    expires_at: int
    # Of the card that it leads to.
    owner: str
    owner_name: str = ""
    # The signing key of the one node that asked with it.
    used_by: str | None = None


class RequestState(StrEnum):
    ASKED = "asked"
    ACCEPTED = "accepted"
    DENIED = "denied"


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that asks to be let in, by its signing key."""

    joiner: Party
    commitment: str
    # The joiner's number and ours.
    number: str
    holder_number: str
    words: str
    invitation: str | None = None
    version: str = ""
    asked_at: int
    ends_at: int
    state: RequestState = RequestState.ASKED
    card: bytes | None = None


TABLES: dict[str, type[msgspec.Struct]] = {
    "mesh_cards": KnownCard,
    "mesh_invites": Invitation,
    "mesh_requests": JoinRequest,
}
