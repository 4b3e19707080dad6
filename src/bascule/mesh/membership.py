"""This node's own place in a mesh: which standing follows on what, and the one row that keeps it.

    none --ask--> waiting --accepted--> member --revoked--> revoked
    none --begin----------------------> member --cloned--> cloned --kept--> member

`TRANSITIONS` is all of it. For a pair that is not there `next_standing` raises `Conflict`, with what to do instead.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from bascule.foundation.errors import Conflict
from bascule.kernel.journal import Table, Transaction
from bascule.mesh.cards import Keys, bytes_of, text_of
from bascule.mesh.records import Membership, Standing

_SELF: Final = "self"


class Event(StrEnum):
    # A person begins a mesh here.
    BEGIN = "begin"
    # A person here wants to join one.
    ASK = "ask"
    # The holder of the mesh key began anew: we asked once more, with another number.
    ASKED_AGAIN = "asked again"
    # A person here has compared the words, where no code says which mesh it must be.
    COMPARED = "compared"
    # The mesh key's holder has signed our card.
    ACCEPTED = "accepted"
    # A person there said no, or nobody answered in time.
    ENDED = "ended"
    # A newer card of ours has come.
    RENEWED = "renewed"
    # Our key is on the list of revoked ones.
    REVOKED = "revoked"
    # Another daemon lives with our keys.
    CLONED = "cloned"
    # A person says that of the two this one stays.
    KEPT = "kept"
    # A person here leaves the mesh, or gives up waiting.
    LEFT = "left"


# None: in no mesh.
TRANSITIONS: Mapping[Standing | None, Mapping[Event, Standing | None]] = {
    None: {Event.BEGIN: Standing.MEMBER, Event.ASK: Standing.WAITING},
    Standing.WAITING: {
        Event.ASKED_AGAIN: Standing.WAITING,
        Event.COMPARED: Standing.WAITING,
        Event.ACCEPTED: Standing.MEMBER,
        Event.ENDED: None,
        Event.LEFT: None,
    },
    Standing.MEMBER: {
        Event.RENEWED: Standing.MEMBER,
        Event.REVOKED: Standing.REVOKED,
        Event.CLONED: Standing.CLONED,
        Event.LEFT: None,
    },
    Standing.REVOKED: {Event.LEFT: None},
    # Revoked while two lived with one key: that is final for both.
    Standing.CLONED: {Event.KEPT: Standing.MEMBER, Event.REVOKED: Standing.REVOKED, Event.LEFT: None},
}

_INSTEAD: Mapping[Standing | None, tuple[str, str]] = {
    None: ("this node is in no mesh", "begin one with `bascule mesh new NAME`, or join one with `bascule join CODE`"),
    Standing.WAITING: (
        "this node waits to be accepted",
        "accept it on the machine that made the code; `bascule mesh leave` gives up",
    ),
    Standing.MEMBER: (
        "this node is in a mesh already",
        "`bascule mesh status` shows it; leave it with `bascule mesh leave`",
    ),
    Standing.REVOKED: ("this node's card was revoked", "`bascule mesh leave`, then join again with a new code"),
    Standing.CLONED: (
        "two daemons live with this node's keys: a copied disk",
        "`bascule mesh keep` on the machine that stays, `bascule mesh leave` on the other",
    ),
}


def next_standing(standing: Standing | None, event: Event) -> Standing | None:
    try:
        return TRANSITIONS[standing][event]
    except KeyError:
        message, hint = _INSTEAD[standing]
        raise Conflict(message, hint=hint) from None


class OwnPlace:
    """The row `self`. Every change is a step of `TRANSITIONS` in the transaction of what it belongs to."""

    def __init__(self, table: Table[Membership]) -> None:
        self.table = table
        # Called when a change is durable.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def row(self) -> Membership | None:
        return self.table.rows.get(_SELF)

    @property
    def standing(self) -> Standing | None:
        return None if (row := self.row) is None else row.standing

    @property
    def member(self) -> Membership | None:
        """The row while we may take part."""
        row = self.row
        return row if row is not None and row.standing is Standing.MEMBER else None

    def must_be_member(self) -> Membership:
        if (row := self.member) is None:
            message, hint = _INSTEAD[self.standing]
            raise Conflict(message, hint=hint)
        return row

    def must_allow(self, event: Event) -> None:
        next_standing(self.standing, event)

    def change(self, tx: Transaction, event: Event, row: Membership | None = None) -> None:
        """`row` is the new one where the event brings one; else the old one with its new standing."""
        standing = next_standing(self.standing, event)
        kept = row if row is not None else self.row
        tx.put(self.table, _SELF, None if standing is None or kept is None else _with(kept, standing))
        tx.after.append(self._notify)

    def _notify(self) -> None:
        self.on_change()


def keys_of(row: Membership) -> Keys:
    return Keys(*map(bytes_of, row.keys))


def seeds_of(keys: Keys) -> tuple[str, str, str]:
    sign, box, bus = map(text_of, keys.seeds)
    return sign, box, bus


def _with(row: Membership, standing: Standing) -> Membership:
    return msgspec.structs.replace(row, standing=standing)
