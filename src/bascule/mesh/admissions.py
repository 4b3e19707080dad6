"""The side of the mesh key: codes that were made, nodes that knock, and the cards that a person's yes signs.

The store is the truth. Which keys a server lets in follows from it (`connection`), so that a daemon that dies between
the two puts it right when it starts again.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.foundation.clock import Clock
from bascule.foundation.errors import Conflict, NotFound, Overloaded
from bascule.foundation.ids import new_id
from bascule.kernel.journal import Table, Transaction
from bascule.kernel.journal_ports import JournalStore
from bascule.mesh.cards import (
    CARD_DAYS,
    DAY_MS,
    Card,
    Revoked,
    bytes_of,
    sign_card,
    sign_revoked,
    text_of,
)
from bascule.mesh.join_code import CODE_SECONDS, MAX_ADDRESSES, JoinCode, bus_key, proof_key, public_text
from bascule.mesh.knock import NUMBER_BYTES, AnswerState, Knock, KnockAnswer, Opened, Party, Refusal, words_between
from bascule.mesh.membership import keys_of
from bascule.mesh.membership_records import Invitation, JoinRequest, RequestState
from bascule.mesh.names import RESERVED_NODES
from bascule.mesh.records import Membership
from bascule.mesh.roster import MAX_NODES, REVOKED_KEY, Roster

INVITES_TABLE: Final = "mesh_invites"
REQUESTS_TABLE: Final = "mesh_requests"
# A person compares words: more codes or questions than this at once are nobody's intention.
MAX_INVITES = 32
MAX_REQUESTS = 32
# How long a person has to answer.
REQUEST_SECONDS = 600
# A joiner that stopped and started again takes a new number. Each number is one guess at the words, so there are few.
MAX_TRIES = 8
# Who was accepted while it was away finds its card for so long.
FETCH_SECONDS = 24 * 3_600
# The holder renews a card in its last third; a node that is away for two months keeps its place.
RENEW_DAYS = 30
# In one turn: a signature takes 0.1 ms, and a sweep comes every minute.
MAX_RENEWED = 50


class _Attempt(msgspec.Struct):
    """A joiner that has not shown its number yet. Only in memory: after a restart it begins again."""

    sign: str
    commitment: str
    holder_number: str
    ends_at: int
    tries: int = 1


class Admissions:
    def __init__(self, store: JournalStore, clock: Clock, roster: Roster) -> None:
        self._clock = clock
        self._roster = roster
        self.invites: Table[Invitation] = Table(INVITES_TABLE, Invitation)
        self.invites.rows.update(store.load(INVITES_TABLE, Invitation))
        self.requests: Table[JoinRequest] = Table(REQUESTS_TABLE, JoinRequest)
        self.requests.rows.update(store.load(REQUESTS_TABLE, JoinRequest))
        # By the code's key, or without a code by the joiner's.
        self._attempts: dict[str, _Attempt] = {}

    # -- codes --

    def new_invite(
        self, own: Membership, *, addresses: list[str], certificate: str, owner_name: str | None
    ) -> tuple[str, Invitation, JoinCode]:
        """A code for one's own node, or for one of somebody else's; key and row of `invites`, which the caller puts."""
        now = self._clock.wall_ms()
        if len(self.open_invites()) >= MAX_INVITES:
            raise Overloaded(
                f"{MAX_INVITES} join codes wait to be used",
                hint=f"each ends {CODE_SECONDS // 60} minutes after it was made: try again then",
                retry_after=float(CODE_SECONDS),
            )
        secret = os.urandom(32)
        owner, name = self.owner_of(own, owner_name)
        expires = now + CODE_SECONDS * 1000
        row = Invitation(proof_key=public_text(proof_key(secret)), expires_at=expires, owner=owner, owner_name=name)
        code = JoinCode(
            addresses=addresses[:MAX_ADDRESSES],
            certificate=bytes.fromhex(certificate),
            mesh=own.mesh,
            mesh_key=bytes_of(own.mesh_key),
            secret=secret,
            expires_ms=expires,
        )
        return public_text(bus_key(secret)), row, code

    def open_invites(self) -> Mapping[str, int]:
        """Bus keys that may still ask to join, with the wall time until which they may."""
        now = self._clock.wall_ms()
        found = {key: row.expires_at for key, row in self.invites.rows.items() if row.expires_at > now}
        for request in self.requests.rows.values():
            # Somebody who was accepted has to come back once more, for the card.
            if request.invitation is not None and request.state is RequestState.ACCEPTED and request.ends_at > now:
                found[request.invitation] = max(found.get(request.invitation, 0), request.ends_at)
        return found

    def owner_of(self, own: Membership, name: str | None) -> tuple[str, str]:
        """Whose node it will be: the id and the name. A name that is known means the same person."""
        if name is None or name == own.owner_name:
            return own.owner, own.owner_name
        for card in self._roster.all():
            if card.owner_name == name and card.owner != own.owner:
                return card.owner, name
        for row in self.invites.rows.values():
            if row.owner_name == name and row.owner != own.owner:
                return row.owner, name
        return new_id("own"), name

    # -- knocking --

    def take(self, tx: Transaction, own: Membership, opened: Opened) -> KnockAnswer:
        """Answer a knock; what it changes rides in `tx`. Asked again it answers the same."""
        knock = opened.knock
        key = knock.joiner.sign
        request = self.requests.rows.get(key)
        if request is not None and request.state is not RequestState.ASKED:
            return self._outcome(own, request)
        refusal = self._refusal(opened, request)
        if refusal is not None:
            return _refused(refusal)
        now = self._clock.wall_ms()
        if request is not None and request.commitment == knock.commitment:
            return self._waiting(own, request.holder_number, request.ends_at - now)
        attempt = self._attempt(knock, request, now)
        if attempt is None:
            return _refused(Refusal.FULL)
        if knock.number is not None:
            self._store(tx, own, knock, attempt, request)
        return self._waiting(own, attempt.holder_number, attempt.ends_at - now)

    def _refusal(self, opened: Opened, request: JoinRequest | None) -> Refusal | None:
        knock, now = opened.knock, self._clock.wall_ms()
        if request is not None and request.ends_at <= now:
            return Refusal.OVER
        if request is not None and (request.joiner != knock.joiner or request.invitation != knock.invitation):
            return Refusal.BAD
        if self._roster.is_revoked_key(knock.joiner.sign):
            return Refusal.REVOKED
        if knock.invitation is not None:
            invite = self.invites.rows.get(knock.invitation)
            if invite is None or not opened.is_proved_by(invite.proof_key):
                return Refusal.CODE_UNKNOWN
            if invite.used_by not in (None, knock.joiner.sign):
                return Refusal.CODE_USED
            if invite.expires_at <= now and request is None:
                return Refusal.CODE_UNKNOWN
        if self._has_login_of_another(knock.joiner):
            return Refusal.BAD
        return self.name_refusal(knock.joiner)

    def _has_login_of_another(self, joiner: Party) -> bool:
        """Nobody proves that it has the key that it will log in with, and all see those of the others on their cards.
        With one key for two nodes no server starts."""
        known: dict[str, str] = {each.joiner.sign: each.joiner.bus for each in self.requests.rows.values()}
        known |= {card.sign: card.bus for card in self._roster.all()}
        known.pop(joiner.sign, None)
        return joiner.bus in self.invites.rows or joiner.bus in known.values()

    def name_refusal(self, joiner: Party) -> Refusal | None:
        if joiner.node in RESERVED_NODES:
            return Refusal.NAME_RESERVED
        known = self._roster.known(joiner.node)
        if known is not None and not self._roster.is_revoked(known):
            return Refusal.NAME_TAKEN
        others = (each for each in self.asked() if each.joiner.sign != joiner.sign)
        return Refusal.NAME_TAKEN if any(each.joiner.node == joiner.node for each in others) else None

    def _attempt(self, knock: Knock, request: JoinRequest | None, now: int) -> _Attempt | None:
        """One number of ours for one commitment: what was shown once is not drawn again."""
        self._attempts = {each: attempt for each, attempt in self._attempts.items() if attempt.ends_at > now}
        sign = knock.joiner.sign
        key = knock.invitation or sign
        old = self._attempts.get(key)
        if old is not None and (old.sign, old.commitment) == (sign, knock.commitment):
            return old
        waiting = {*self._attempts, *map(_slot, self.asked())}
        if old is None and request is None and len(waiting) >= MAX_REQUESTS:
            return None
        tries = 1 if old is None else old.tries + 1
        if tries > MAX_TRIES:
            return None
        ends_at = old.ends_at if old is not None else request.ends_at if request is not None else self._ends(now)
        attempt = _Attempt(sign, knock.commitment, text_of(os.urandom(NUMBER_BYTES)), ends_at, tries)
        self._attempts[key] = attempt
        return attempt

    @staticmethod
    def _ends(now: int) -> int:
        return now + REQUEST_SECONDS * 1000

    def _store(
        self, tx: Transaction, own: Membership, knock: Knock, attempt: _Attempt, old: JoinRequest | None
    ) -> None:
        """Both numbers are fixed: from here on a person can be asked, and the code is used up."""
        assert knock.number is not None
        now = self._clock.wall_ms()
        words = words_between(
            mesh=own.mesh,
            mesh_key=own.mesh_key,
            joiner=knock.joiner,
            holder=party_of(own),
            numbers=(knock.number, attempt.holder_number),
        )
        request = JoinRequest(
            joiner=knock.joiner,
            commitment=knock.commitment,
            number=knock.number,
            holder_number=attempt.holder_number,
            words=words,
            invitation=knock.invitation,
            version=knock.version,
            asked_at=now if old is None else old.asked_at,
            ends_at=attempt.ends_at,
        )
        tx.put(self.requests, knock.joiner.sign, request)
        if knock.invitation is not None:
            invite = self.invites.rows[knock.invitation]
            tx.put(self.invites, knock.invitation, msgspec.structs.replace(invite, used_by=knock.joiner.sign))
        tx.subject = knock.joiner.node
        tx.details = {"key": knock.joiner.sign, "invited": knock.invitation is not None}

    def _waiting(self, own: Membership, number: str, left_ms: int) -> KnockAnswer:
        return KnockAnswer(
            state=AnswerState.WAITING,
            mesh=own.mesh,
            mesh_key=own.mesh_key,
            holder=party_of(own),
            number=number,
            left_ms=max(0, left_ms),
        )

    def _outcome(self, own: Membership, request: JoinRequest) -> KnockAnswer:
        if request.state is RequestState.DENIED:
            return KnockAnswer(state=AnswerState.DENIED)
        # The newest: it may have been renewed since.
        card = self._roster.signed(request.joiner.node) or request.card or b""
        return KnockAnswer(
            state=AnswerState.ACCEPTED,
            mesh=own.mesh,
            mesh_key=own.mesh_key,
            holder=party_of(own),
            number=request.holder_number,
            card=card.decode(),
        )

    # -- a person answers --

    def asked(self) -> Iterator[JoinRequest]:
        """What waits for a person, the oldest first."""
        now = self._clock.wall_ms()
        waiting = [each for each in self.requests.rows.values() if each.state is RequestState.ASKED]
        return iter(sorted((each for each in waiting if each.ends_at > now), key=lambda each: each.asked_at))

    def find(self, node: str) -> JoinRequest:
        for each in self.asked():
            if each.joiner.node == node:
                return each
        others = ", ".join(each.joiner.node for each in self.asked())
        raise NotFound(
            f"no node {node!r} asks to join",
            hint=f"these do: {others}" if others else "`bascule mesh invite` makes a join code; nobody asks now",
        )

    def accept(self, tx: Transaction, own: Membership, node: str, words: str, owner_name: str | None) -> Card:
        """`words` are those that the person compared: what came in between is not accepted in their name."""
        request = self.find(node)
        if request.words != words:
            raise Conflict(
                f"{node} shows other words by now",
                hint=f"look again: `bascule node accept {node}` shows the words as they are now",
            )
        if sum(1 for _ in self._roster.all()) >= MAX_NODES:
            raise Overloaded(f"the mesh has {MAX_NODES} nodes", hint="revoke those that are gone: `bascule node list`")
        invite = self.invites.rows.get(request.invitation) if request.invitation is not None else None
        owner, name = self.owner_of(own, owner_name)
        if invite is not None and owner_name is None:
            owner, name = invite.owner, invite.owner_name
        known = self._roster.known(node)
        card = Card(
            mesh=own.mesh,
            node=node,
            sign=request.joiner.sign,
            box=request.joiner.box,
            bus=request.joiner.bus,
            owner=owner,
            owner_name=name,
            not_after=self._clock.wall_ms() + CARD_DAYS * DAY_MS,
            serial=1 if known is None else known.serial + 1,
        )
        signed = sign_card(mesh_secret(own), card)
        self._roster.put(tx, node, signed)
        accepted = msgspec.structs.replace(
            request,
            state=RequestState.ACCEPTED,
            card=signed,
            ends_at=self._clock.wall_ms() + FETCH_SECONDS * 1000,
        )
        tx.put(self.requests, request.joiner.sign, accepted)
        tx.subject = node
        tx.details = {"key": card.sign, "owner": owner, "serial": card.serial}
        return card

    def deny(self, tx: Transaction, node: str) -> JoinRequest:
        request = self.find(node)
        tx.put(self.requests, request.joiner.sign, msgspec.structs.replace(request, state=RequestState.DENIED))
        self._attempts.pop(_slot(request), None)
        tx.subject = node
        tx.details = {"key": request.joiner.sign}
        return request

    def revoke(self, tx: Transaction, own: Membership, node: str) -> Card:
        card = self._roster.known(node)
        if card is None or self._roster.is_revoked(card):
            raise NotFound(f"no node {node!r} is in this mesh", hint="`bascule node list` shows those that are")
        if node == own.node:
            raise Conflict(
                f"{node} holds the mesh key: without it the mesh cannot go on",
                hint="`bascule mesh leave` on this machine ends the mesh for it",
            )
        keys = sorted(self._roster.revoked_keys | {card.sign})
        # Not counted from the last: put back from a backup, this machine would give a number to two lists.
        number = max(self._roster.revocations()[0] + 1, self._clock.wall_ms())
        revoked = Revoked(mesh=own.mesh, number=number, keys=keys)
        self._roster.put(tx, REVOKED_KEY, sign_revoked(mesh_secret(own), revoked), keys)
        request = self.requests.rows.get(card.sign)
        if request is not None:
            tx.put(self.requests, card.sign, None)
        tx.subject = node
        tx.details = {"key": card.sign, "number": revoked.number}
        return card

    # -- time --

    def renew(self, tx: Transaction, own: Membership) -> list[str]:
        """Sign anew what ends soon; the nodes whose card is new."""
        now = self._clock.wall_ms()
        soon = [
            card
            for card in self._roster.all()
            if card.not_after - now < RENEW_DAYS * DAY_MS and not self._roster.is_revoked(card)
        ]
        for card in soon[:MAX_RENEWED]:
            longer = msgspec.structs.replace(card, not_after=now + CARD_DAYS * DAY_MS, serial=card.serial + 1)
            self._roster.put(tx, card.node, sign_card(mesh_secret(own), longer))
        return [card.node for card in soon[:MAX_RENEWED]]

    def fetched(self, tx: Transaction, sign: str) -> bool:
        """The node has its card: its request is forgotten, and with it the code's key."""
        request = self.requests.rows.get(sign)
        if request is None or request.state is not RequestState.ACCEPTED:
            return False
        tx.put(self.requests, sign, None)
        if request.invitation is not None:
            tx.put(self.invites, request.invitation, None)
        return True

    def forget(self, tx: Transaction) -> int:
        """What is over. A denied or unanswered joiner hears so for as long as it would have waited."""
        now = self._clock.wall_ms()
        kept_ms = REQUEST_SECONDS * 1000
        over = [key for key, each in self.requests.rows.items() if each.ends_at + kept_ms <= now]
        for key in over:
            tx.put(self.requests, key, None)
        used = {each.invitation for each in self.requests.rows.values()}
        old = [key for key, row in self.invites.rows.items() if row.expires_at <= now and key not in used]
        for key in old:
            tx.put(self.invites, key, None)
        return len(over) + len(old)

    def clear(self, tx: Transaction) -> None:
        self._attempts.clear()
        for key in list(self.requests.rows):
            tx.put(self.requests, key, None)
        for key in list(self.invites.rows):
            tx.put(self.invites, key, None)


def party_of(own: Membership) -> Party:
    sign, box, bus = keys_of(own).public
    return Party(node=own.node, sign=sign, box=box, bus=bus)


def mesh_secret(own: Membership) -> Ed25519PrivateKey:
    if own.mesh_secret is None:
        raise Conflict(
            "this node does not hold the mesh key",
            hint="do it on the machine that began the mesh: `bascule mesh status` there says so",
        )
    return Ed25519PrivateKey.from_private_bytes(bytes_of(own.mesh_secret))


def _slot(request: JoinRequest) -> str:
    return request.invitation or request.joiner.sign


def _refused(refusal: Refusal) -> KnockAnswer:
    return KnockAnswer(state=AnswerState.REFUSED, refusal=refusal.value)
