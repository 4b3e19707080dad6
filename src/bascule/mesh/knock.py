"""How a node asks to be let in: it knocks until it has an answer. No I/O.

    joiner                                         holder of the mesh key
      knock: keys, name, commitment            ->
                                               <-  answer: holder's keys, mesh key, a random number
      knock: the same, and the number behind
      the commitment                           ->  both can show the words now; a person is waited for
                                               <-  answer: waiting | accepted with the card | denied | refused

Knocks are the same however often they come, so either side may stop and start in between, and a lost one is sent again.

The words cover every key of both sides, the mesh key, and one random number of each. The joiner has fixed its number
(the commitment) before it sees the holder's, and the holder its own before it sees the joiner's. So somebody between
the two who shows each of them other keys cannot look for keys with the same words on both screens: an attempt is one
guess in 2^40, made before its words are known, and the holder allows few of them.
"""

import hashlib
from enum import StrEnum
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Meta

from bascule.mesh.cards import KeyText, bytes_of, is_box_key, text_of
from bascule.mesh.names import NodeText
from bascule.mesh.words import words_of
from bascule.wire.canonical import canonical
from gabp import codec

# Keys, names and two signatures.
MAX_KNOCK_BYTES = 8_192
# A card and the holder's keys are 2 KB; a newer node may say more.
MAX_ANSWER_BYTES = 65_536
NUMBER_BYTES = 32
_DOMAIN = b"bascule-mesh-join-1\0"


class BadKnock(Exception):
    """Not a knock, or not by who it says."""


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Unknown fields are passed over: a newer node may say more."""


class Party(_Wire, frozen=True, kw_only=True):
    """One side: its name and its three public keys."""

    node: NodeText
    sign: KeyText
    box: KeyText
    bus: KeyText


class Knock(_Wire, frozen=True, kw_only=True):
    joiner: Party
    # SHA-256 of the joiner's number.
    commitment: KeyText
    # The number, once the holder has shown its own.
    number: KeyText | None = None
    # The public bus key of the code, where there is one.
    invitation: KeyText | None = None
    version: Annotated[str, Meta(max_length=32)] = ""


class _Sealed(_Wire, frozen=True, kw_only=True):
    body: Annotated[str, Meta(max_length=MAX_KNOCK_BYTES)]
    # By the joiner's key for letters.
    signature: Annotated[str, Meta(max_length=128)]
    # By the key that only somebody with the code can make.
    proof: Annotated[str, Meta(max_length=128)] = ""


class AnswerState(StrEnum):
    # A person has to say something.
    WAITING = "waiting"
    ACCEPTED = "accepted"
    DENIED = "denied"
    REFUSED = "refused"


class Refusal(StrEnum):
    """Why the holder does not even ask a person."""

    CODE_UNKNOWN = "code unknown"
    CODE_USED = "code used"
    NAME_TAKEN = "name taken"
    NAME_RESERVED = "name reserved"
    FULL = "full"
    # A revoked key never comes again; its node takes new ones.
    REVOKED = "revoked"
    # Nobody answered in time.
    OVER = "over"
    BAD = "bad"


class KnockAnswer(_Wire, frozen=True, kw_only=True):
    state: AnswerState
    mesh: Annotated[str, Meta(max_length=64)] = ""
    mesh_key: KeyText | None = None
    holder: Party | None = None
    # The holder's.
    number: KeyText | None = None
    # How long the question stays open.
    left_ms: Annotated[int, Meta(ge=0, le=2**53)] = 0
    # Signed, as text.
    card: str | None = None
    refusal: Annotated[str, Meta(max_length=32)] = ""


_SEALED: codec.Decoder[_Sealed] = codec.Decoder(_Sealed)
_KNOCKS: codec.Decoder[Knock] = codec.Decoder(Knock)
_ANSWERS: codec.Decoder[KnockAnswer] = codec.Decoder(KnockAnswer)


class Opened(msgspec.Struct, frozen=True):
    """A knock whose signature fits. Whether its proof does is asked with the key of the invitation."""

    knock: Knock
    body: bytes
    proof: str

    def is_proved_by(self, key: str) -> bool:
        return _fits(key, self.proof, self.body)


def write_knock(knock: Knock, sign: Ed25519PrivateKey, proof: Ed25519PrivateKey | None) -> bytes:
    body = canonical(msgspec.to_builtins(knock))
    sealed = _Sealed(
        body=body.decode(),
        signature=text_of(sign.sign(_DOMAIN + body)),
        proof="" if proof is None else text_of(proof.sign(_DOMAIN + body)),
    )
    return codec.encode(sealed)


def read_knock(data: bytes) -> Opened:
    if len(data) > 2 * MAX_KNOCK_BYTES:
        raise BadKnock("too large")
    try:
        sealed = _SEALED.decode(data)
        body = sealed.body.encode()
        knock = _KNOCKS.decode(body)
    except (codec.BadJson, ValueError) as error:
        raise BadKnock(f"not readable: {error}") from None
    if not _fits(knock.joiner.sign, sealed.signature, body):
        raise BadKnock("its signature does not fit")
    if not is_box_key(knock.joiner.box):
        raise BadKnock("its key for letters is none")
    if knock.number is not None and commitment_of(knock.number) != knock.commitment:
        raise BadKnock("its number is not the one it committed to")
    return Opened(knock, body, sealed.proof)


def write_answer(answer: KnockAnswer) -> bytes:
    return codec.encode(answer)


def read_answer(data: bytes) -> KnockAnswer:
    if len(data) > MAX_ANSWER_BYTES:
        raise BadKnock("too large")
    try:
        return _ANSWERS.decode(data)
    except codec.BadJson as error:
        raise BadKnock(f"not readable: {error}") from None


def commitment_of(number: str) -> str:
    return text_of(hashlib.sha256(_DOMAIN + bytes_of(number)).digest())


def words_between(*, mesh: str, mesh_key: str, joiner: Party, holder: Party, numbers: tuple[str, str]) -> str:
    """`numbers`: the joiner's and the holder's."""
    parts = [mesh, mesh_key]
    for party in (joiner, holder):
        parts += [party.node, party.sign, party.box, party.bus]
    return words_of(*(each.encode() for each in (*parts, *numbers)))


def _fits(key: str, signature: str, body: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes_of(key)).verify(bytes_of(signature), _DOMAIN + body)
    except (InvalidSignature, ValueError):
        return False
    return True
