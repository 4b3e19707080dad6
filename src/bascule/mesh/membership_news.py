"""What this node hears about membership: cards on the board, nodes that are there, another daemon with its keys."""

from functools import partial

import msgspec

from bascule.foundation.errors import BasculeError
from bascule.kernel.call import DAEMON
from bascule.kernel.journal import Journal, Transaction
from bascule.mesh.admissions import Admissions
from bascule.mesh.cards import BadCard
from bascule.mesh.connection import Connection
from bascule.mesh.membership import Event, OwnPlace, keys_of
from bascule.mesh.records import Membership
from bascule.mesh.roster import REVOKED_KEY, Roster


class MembershipNews:
    def __init__(
        self, place: OwnPlace, roster: Roster, admissions: Admissions, connection: Connection, journal: Journal
    ) -> None:
        self._place = place
        self._roster = roster
        self._admissions = admissions
        self._connection = connection
        self._journal = journal

    def take_card(self, key: str, value: bytes) -> None:
        """Something on the board of cards is new to us."""
        own = self._place.member
        if own is None:
            return
        old = self._roster.known(key)
        tx = Transaction()
        try:
            with tx:
                if not self._roster.learn(tx, key, value):
                    return
                new = self._roster.known(key)
                if old is not None and new is not None and new.sign != old.sign:
                    # Whoever was away may hear of the new machine under this name before it hears of the old one's end.
                    tx.after.append(partial(self._connection.traffic.revoked, old))
                tx.subject = key
                if key == own.node:
                    self._take_own_card(tx, own)
                elif key == REVOKED_KEY and self._roster.is_revoked_key(keys_of(own).public[0]):
                    self._place.change(tx, Event.REVOKED)
        except (BadCard, BasculeError):
            # Somebody who may write there puts things there; they are nobody's.
            return
        self._journal.commit(tx, DAEMON, "mesh.learned")

    def _take_own_card(self, tx: Transaction, own: Membership) -> None:
        card = self._roster.known(own.node)
        if card is None or (card.sign, card.box, card.bus) != keys_of(own).public:
            raise BadCard("a card in our name for other keys")
        row = msgspec.structs.replace(own, owner=card.owner, owner_name=card.owner_name)
        self._place.change(tx, Event.RENEWED, row)

    def node_seen(self, node: str) -> None:
        """It is a member that is there: whatever let it fetch its card is of no use any more."""
        card = self._roster.card(node)
        with Transaction() as tx:
            if card is None or not self._admissions.fetched(tx, card.sign):
                return
            tx.subject = node
        tx.after.append(self._connection.notice)
        self._journal.commit(tx, DAEMON, "mesh.fetched")

    def twin_seen(self, why: str) -> None:
        """Another daemon lives with our keys."""
        if self._place.member is None:
            return
        with Transaction() as tx:
            tx.subject = self._place.member.node
            tx.details = {"reason": why}
            self._place.change(tx, Event.CLONED)
        self._journal.commit(tx, DAEMON, "mesh.cloned")
