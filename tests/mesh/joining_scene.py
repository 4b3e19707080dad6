"""Both sides of a join without a machine between them: the holder of the mesh key, and joiners that knock."""

import os

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.kernel.journal import Transaction
from bascule.mesh.admissions import Admissions
from bascule.mesh.cards import CARD_DAYS, DAY_MS, Card, Keys, sign_card, text_of
from bascule.mesh.join_code import bus_key, proof_key, public_text
from bascule.mesh.knock import Knock, KnockAnswer, Party, commitment_of, read_knock, words_between, write_knock
from bascule.mesh.membership import seeds_of
from bascule.mesh.records import Membership, Standing
from bascule.mesh.roster import Roster
from bascule.stores.memory import MemoryStore
from bascule.testing.clock import FakeClock

CERTIFICATE = "c" * 64


class Holder:
    """The node `desk` of the mesh `home`, which began it."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.key = Ed25519PrivateKey.generate()
        keys = Keys.new()
        self.own = Membership(
            mesh="home",
            node="desk",
            standing=Standing.MEMBER,
            mesh_key=public_text(self.key),
            mesh_secret=text_of(self.key.private_bytes_raw()),
            keys=seeds_of(keys),
            owner="own_me",
            owner_name="me",
        )
        self.store = MemoryStore()
        self.roster = Roster(self.store, self.clock, lambda: (self.own.mesh, self.own.mesh_key))
        self.admissions = Admissions(self.store, self.clock, self.roster)
        sign, box, bus = keys.public
        self.put(Card(mesh="home", node="desk", sign=sign, box=box, bus=bus, owner="own_me", not_after=self.later()))

    def later(self, days: int = CARD_DAYS) -> int:
        return self.clock.wall_ms() + days * DAY_MS

    def put(self, card: Card) -> None:
        with Transaction() as tx:
            self.roster.put(tx, card.node, sign_card(self.key, card))

    def invite(self, owner_name: str | None = None):
        key, row, code = self.admissions.new_invite(
            self.own, addresses=["127.0.0.1:5052"], certificate=CERTIFICATE, owner_name=owner_name
        )
        with Transaction() as tx:
            tx.put(self.admissions.invites, key, row)
        return code

    def take(self, data: bytes) -> KnockAnswer:
        with Transaction() as tx:
            return self.admissions.take(tx, self.own, read_knock(data))

    def accept(self, node: str, words: str | None = None, owner_name: str | None = None) -> Card:
        found = words if words is not None else self.admissions.find(node).words
        with Transaction() as tx:
            return self.admissions.accept(tx, self.own, node, found, owner_name)

    def deny(self, node: str) -> None:
        with Transaction() as tx:
            self.admissions.deny(tx, node)

    def revoke(self, node: str) -> Card:
        with Transaction() as tx:
            return self.admissions.revoke(tx, self.own, node)

    def restart(self) -> None:
        """What was in memory alone is gone; the tables are as they were."""
        old = self.admissions
        self.admissions = Admissions(self.store, self.clock, self.roster)
        self.admissions.invites, self.admissions.requests = old.invites, old.requests


class Joiner:
    def __init__(self, holder: Holder, node: str = "laptop", code=None) -> None:
        self.holder = holder
        self.keys = Keys.new()
        sign, box, bus = self.keys.public
        self.party = Party(node=node, sign=sign, box=box, bus=bus)
        self.code = code
        self.number = text_of(os.urandom(32))
        self.answer: KnockAnswer | None = None

    def knock(self, *, reveal: bool = False, **changed: object) -> KnockAnswer:
        self.answer = self.holder.take(self.bytes(reveal=reveal, **changed))
        return self.answer

    def bytes(self, *, reveal: bool = False, proof: bytes | None = None, **changed: object) -> bytes:
        secret = self.code.secret if self.code is not None else None
        knock = Knock(
            **{
                "joiner": self.party,
                "commitment": commitment_of(self.number),
                "number": self.number if reveal else None,
                "invitation": public_text(bus_key(secret)) if secret is not None else None,
                **changed,
            }
        )
        key = proof_key(proof or secret) if proof or secret else None
        return write_knock(knock, self.keys.sign, key)

    def ask(self) -> KnockAnswer:
        """Both knocks."""
        self.knock()
        return self.knock(reveal=True)

    @property
    def words(self) -> str:
        assert self.answer is not None
        assert self.answer.holder is not None
        return words_between(
            mesh=self.answer.mesh,
            mesh_key=self.answer.mesh_key or "",
            joiner=self.party,
            holder=self.answer.holder,
            numbers=(self.number, self.answer.number or ""),
        )
