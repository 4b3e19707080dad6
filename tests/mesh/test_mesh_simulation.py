"""Random days of three machines, each a real broker with its gate and ledger: see `story`.

Each rule of the protocol is needed: with any one of them off, some day breaks an invariant.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from invariants import Broken
from story import play

from bascule.foundation.errors import BasculeError
from bascule.kernel.call import Call
from bascule.kernel.journal import Transaction
from bascule.mesh import envelope
from bascule.mesh.arrivals import Arrivals
from bascule.mesh.copies import Copies, principal_of
from bascule.mesh.engine import Engine
from bascule.mesh.envelope import BadEnvelope, Opened, Pair
from bascule.mesh.home import Home
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import Receipt, Reply, Taken
from bascule.mesh.receipts import Receipts

LONG = bool(os.environ.get("BASCULE_LONG"))
DAYS = 20_000 if LONG else 40
# A day without a rule breaks within so many; each is seen within a few dozen.
DAYS_UNTIL_SEEN = 400


@pytest.mark.req("MESH-RULE-1", "MESH-M-1", "MESH-M-2", "MESH-M-3", "MESH-M-4", "MESH-M-5", "MESH-M-6")
@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_contradicted_on_random_days(part: int) -> None:
    for seed in range(part, DAYS, 4):
        play(seed)


@pytest.mark.req("MESH-DAY-11")
@pytest.mark.parametrize("part", range(2))
def test_machines_that_are_restored_from_backups_hear_again_what_they_lost(part: int) -> None:
    for seed in range(part, DAYS // 2, 2):
        play(seed, with_rollback=True)


# -- each rule, switched off --


def _older_words_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older status of home never replaces a newer one."""
    from_home = Arrivals._from_home
    confirmed = Copies.confirmed

    def forgetful(self: Any, name: str, item: Any, envelope: Any) -> None:
        copies = self._state.copies
        id_ = self._copies.id_of(name, item.ticket)
        if (known := copies.rows.get(id_)) is not None:
            copies.rows[id_] = msgspec.structs.replace(known, rank=0)
        from_home(self, name, item, envelope)

    def forgetful_receipt(self: Any, tx: Transaction, item: Any, taken: Taken, seq: int) -> bool:
        return confirmed(self, tx, item, msgspec.structs.replace(taken, rank=2**40), seq)

    monkeypatch.setattr(Arrivals, "_from_home", forgetful)
    monkeypatch.setattr(Copies, "confirmed", forgetful_receipt)


def _copies_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules 2 and 3: state is the memory, and a duplicate gets the answer of the first."""

    def forget(self: Any, node: Any, item: Any, envelope: Any) -> None:
        id_ = self._copies.id_of(node.card.node, item.ticket)
        if self._mail.known(id_) is not None:
            # The ticket is there and would be put a second time.
            self._state.copies.rows.pop(id_, None)
        offer(self, node, item, envelope)

    offer = Arrivals._offer
    monkeypatch.setattr(Arrivals, "_offer", forget)


def _replies_count_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Home takes only the next reply."""

    def any_order(self: Any, name: str, item: Any, envelope: Any) -> None:
        known = self._mail.known(item.ticket)
        if known is not None and hasattr(item, "number"):
            item = msgspec.structs.replace(item, number=known.replies + 1)
        from_copy(self, name, item, envelope)

    from_copy = Arrivals._from_copy
    monkeypatch.setattr(Arrivals, "_from_copy", any_order)


def _nothing_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no receipt goes again."""

    def once(self: Any, node: str, item_id: str, _now: float) -> None:
        """Nothing goes again."""

    monkeypatch.setattr(Outbox, "_due", once)
    monkeypatch.setattr(Outbox, "again", lambda self, node: None)


def _receipts_come_before_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item leaves the outbox when the other daemon has it on its disk, not when the post has it."""

    def at_once(self: Any, node: Any, item: Any, envelope: Any) -> None:
        self._courier.confirm(node.card.node, Taken(id=item.id, ticket=item.ticket))
        # As if the power had been cut between the receipt and the disk, now and then.
        if int(item.id[-1], 16) % 4:
            offer(self, node, item, envelope)

    offer = Arrivals._offer
    monkeypatch.setattr(Arrivals, "_offer", at_once)


def _a_cancel_before_its_offer_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tombstone: the offer that comes after its cancel is not delivered."""

    def without(self: Any, tx: Transaction, id_: str, copy: Any) -> None:
        if id_ in self._state.copies.rows or copy.rank == 0 or self._mail.known(id_) is not None:
            keep(self, tx, id_, copy)

    keep = Copies._keep
    monkeypatch.setattr(Copies, "_keep", without)


def _home_does_not_say_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: a copy shows what its home decided."""
    monkeypatch.setattr(Home, "_say_end", lambda *_, **__: None)


def _a_reply_is_confirmed_before_it_is_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: a receipt for a reply waits for home's disk."""

    def at_once(self: Any, name: str, item: Any, envelope: Any) -> None:
        # As if the power had been cut between the receipt and the disk, now and then.
        if isinstance(item, Reply) and not int(item.id[-1], 16) % 4:
            self._courier.confirm(name, self._home.taken(item))
        else:
            from_copy(self, name, item, envelope)

    from_copy = Arrivals._from_copy
    monkeypatch.setattr(Arrivals, "_from_copy", at_once)


def _a_reply_is_refused_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: who replied hears that it came to nothing."""

    def silently(self: Any, name: str, receipt: Receipt, anchor: Any) -> None:
        out = self._state.out.rows
        taken = [
            msgspec.structs.replace(each, refused=None) if each.id in out and out[each.id].kind == "reply" else each
            for each in receipt.taken
        ]
        add(self, name, Receipt(taken=taken), anchor)

    add = Receipts.add
    monkeypatch.setattr(Receipts, "add", silently)


# -- of a group of any machine --


def _replies_of_all_machines_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The k rule, of a group of any machine: each machine numbers its own replies."""

    def together(self: Any, name: str, item: Any, envelope: Any) -> None:
        home = self._state.home.rows
        is_any = (ticket := home.get(item.ticket)) is not None and ticket.any
        if is_any:
            home[item.ticket] = msgspec.structs.replace(ticket, any=False)
        from_copy(self, name, item, envelope)
        if is_any:
            home[item.ticket] = msgspec.structs.replace(home[item.ticket], any=True)

    from_copy = Arrivals._from_copy
    monkeypatch.setattr(Arrivals, "_from_copy", together)


def _who_had_nobody_free_waits_for_an_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that had nobody free has nothing to end, and says so."""

    def waiting(self: Any, name: str, item: Any, envelope: Any) -> None:
        from_home(self, name, msgspec.structs.replace(item, any=False) if hasattr(item, "any") else item, envelope)

    from_home = Arrivals._from_home
    monkeypatch.setattr(Arrivals, "_from_home", waiting)


def _no_end_is_sent_to_who_takes_it_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: also by the one that was asked first and heard of last."""
    say_end = Home._say_end

    def silently(self: Any, tx: Transaction, item: Any, envelope: Any) -> None:
        monkeypatch.setattr(Home, "_say_end", lambda *_, **__: None)
        arrived(self, tx, item, envelope)
        monkeypatch.setattr(Home, "_say_end", say_end)

    arrived = Home.arrived
    monkeypatch.setattr(Home, "arrived", silently)


# -- when a machine is revoked, or a week is over --


def _what_is_given_up_is_dropped_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: a reply that nobody will get any more is refused."""
    monkeypatch.setattr(Receipts, "_publish_refused", lambda *_: None)


def _what_a_revoked_machine_asked_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: nobody works for a machine that was cut off."""
    monkeypatch.setattr(Copies, "revoked", lambda *_: None)


def _a_reply_is_taken_when_nobody_knows_to_what(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: after a week a copy is forgotten, and its message may still be in somebody's hands."""

    def anyhow(self: Any, tx: Transaction, id_: str, reply: Any) -> None:
        if id_ in self._state.copies.rows:
            replied(self, tx, id_, reply)

    replied = Copies.replied
    monkeypatch.setattr(Copies, "replied", anyhow)


# -- what keeps a machine that lies from being believed --


def _anybody_confirms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt counts when it comes from the machine that was written to."""

    def of_anybody(self: Any, _name: str, receipt: Receipt, anchor: Any) -> None:
        for taken in receipt.taken:
            if (item := self._state.out.rows.get(taken.id)) is not None:
                add(self, item.node, Receipt(taken=[taken]), anchor)

    add = Receipts.add
    monkeypatch.setattr(Receipts, "add", of_anybody)


def _anybody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply counts when it comes from the machine that was asked."""

    def of_anybody(self: Any, name: str, item: Any, envelope: Any) -> None:
        ticket = self._state.home.rows.get(item.ticket)
        from_copy(self, name if ticket is None else ticket.nodes[-1], item, envelope)

    from_copy = Arrivals._from_copy
    monkeypatch.setattr(Arrivals, "_from_copy", of_anybody)


def _with_each_pair(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    make = Pair.__init__

    def changed(self: Any, **parts: Any) -> None:
        make(self, **parts)
        change(self)

    monkeypatch.setattr(Pair, "__init__", changed)


class _Believing:
    def verify(self, _signature: bytes, _data: bytes) -> None:
        """Whatever it is, it fits."""


def _signatures_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has stolen the key that opens letters cannot write them."""

    def believe(pair: Any) -> None:
        pair._verify = _Believing()

    _with_each_pair(monkeypatch, believe)


def _signatures_do_not_say_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter that was opened is not passed on."""

    def for_anybody(pair: Any) -> None:
        pair._to_us = b"\0".join(pair._to_us.split(b"\0")[::2])
        pair._to_peer = b"\0".join(pair._to_peer.split(b"\0")[::2])

    _with_each_pair(monkeypatch, for_anybody)


def _the_name_on_a_letter_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose letter it is, its keys say."""
    # Of one life of one machine.
    all_: dict[int, list[Any]] = {}
    kept: list[Any] = []
    make, open_ = Pair.__init__, Pair.open

    def noting(self: Any, **parts: Any) -> None:
        make(self, **parts)
        kept.append(parts["box"])
        self.together = all_.setdefault(id(parts["box"]), [])
        self.together.append(self)

    def opening(self: Any, data: bytes) -> Opened:
        for pair in self.together:
            with contextlib.suppress(BadEnvelope):
                return open_(pair, data)
        return open_(self, data)

    monkeypatch.setattr(Pair, "__init__", noting)
    monkeypatch.setattr(Pair, "open", opening)


class _Malleable:
    """A cipher that notices another key, and no other bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def _mark(self, about: bytes | None) -> bytes:
        return hashlib.sha256(self._key + (about or b"")).digest()[:16]

    def _mix(self, nonce: bytes, data: bytes) -> bytes:
        return Cipher(ChaCha20(self._key, b"\0" * 4 + nonce), None).encryptor().update(data)

    def encrypt(self, nonce: bytes, data: bytes, about: bytes | None) -> bytes:
        return self._mix(nonce, data) + self._mark(about)

    def decrypt(self, nonce: bytes, data: bytes, about: bytes | None) -> bytes:
        if data[-16:] != self._mark(about):
            raise InvalidTag
        return self._mix(nonce, data[:-16])


def _altered_bytes_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session nothing but the cipher sees that a letter is not as it was sealed."""
    monkeypatch.setattr(envelope, "ChaCha20Poly1305", _Malleable)


def _a_letter_names_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """M6: whatever a letter says becomes a call of one of the mesh's rows."""

    def obedient(self: Any, node: Any, item: Any, envelope: Any) -> None:
        if method := item.metadata.get("method"):
            with contextlib.suppress(BasculeError):
                self._gate.call(Call(principal_of(item, node.card.node), method, b"{}", door="mesh"))
        offer(self, node, item, envelope)

    offer = Arrivals._offer
    monkeypatch.setattr(Arrivals, "_offer", obedient)


# A tombstone is needed on one day in a hundred: test_mesh_messages makes that day.
_SELDOM = pytest.param(_a_cancel_before_its_offer_leaves_nothing, "M[123]", marks=pytest.mark.long)
# As seldom: a message that came late is read after a week. test_mesh_promises makes that week.
_AFTER_A_WEEK = pytest.param(_a_reply_is_taken_when_nobody_knows_to_what, "M4", marks=pytest.mark.long)
# Each with what breaks without it.
RULES = [
    (_older_words_count, "M3"),
    (_copies_are_forgotten, "M2"),
    (_replies_count_in_any_order, "M2"),
    (_nothing_is_sent_twice, "M1"),
    (_receipts_come_before_the_disk, "M1"),
    _SELDOM,
    (_home_does_not_say_how_it_ended, "M[13]"),
    (_a_reply_is_confirmed_before_it_is_at_home, "M4"),
    (_a_reply_is_refused_without_a_word, "M4"),
    (_replies_of_all_machines_are_counted_together, "M[234]"),
    (_who_had_nobody_free_waits_for_an_offer, "M1"),
    (_no_end_is_sent_to_who_takes_it_late, "M3"),
    (_what_is_given_up_is_dropped_silently, "M4"),
    (_what_a_revoked_machine_asked_goes_on, "M[13]"),
    _AFTER_A_WEEK,
    (_anybody_confirms, "M[134]"),
    (_anybody_answers, "M5"),
    (_signatures_are_not_checked, "M5"),
    (_signatures_do_not_say_for_whom, "M5"),
    (_the_name_on_a_letter_is_believed, "M5"),
    (_altered_bytes_are_not_noticed, "M5"),
    (_a_letter_names_the_method, "M6"),
]


@pytest.mark.req(
    "MESH-RULE-1",
    "MESH-RULE-2",
    "MESH-RULE-3",
    "MESH-RULE-4",
    "MESH-RULE-5",
    "MESH-RULE-6",
    "MESH-M-1",
    "MESH-M-2",
    "MESH-M-3",
    "MESH-M-4",
    "MESH-M-5",
    "MESH-M-6",
)
@pytest.mark.parametrize(
    ("switch_off", "broken"), RULES, ids=lambda given: given.__name__.strip("_") if callable(given) else given
)
def test_a_day_without_one_of_the_rules_breaks_an_invariant(
    switch_off: Callable[[pytest.MonkeyPatch], None], broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    with pytest.raises(Broken, match=f"^{broken}: "):
        _play_until_it_breaks()


def test_a_restored_machine_misses_messages_when_nobody_says_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_say_again", lambda *_: None)
    with pytest.raises(Broken):
        _play_until_it_breaks(with_rollback=True)


def _play_until_it_breaks(*, with_rollback: bool = False) -> None:
    for seed in range(DAYS_UNTIL_SEEN):
        play(seed, with_rollback=with_rollback)
