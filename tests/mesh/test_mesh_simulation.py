"""Random days of three machines, each a real broker with its gate and ledger: see `story`.

Each rule of the protocol is needed: with any one of them off, some day breaks an invariant.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from story import Broken, play

from bascule.kernel.journal import Transaction
from bascule.mesh.arrivals import Arrivals
from bascule.mesh.copies import Copies
from bascule.mesh.engine import Engine
from bascule.mesh.home import Home
from bascule.mesh.outbox import Outbox
from bascule.mesh.protocol import Taken

LONG = bool(os.environ.get("BASCULE_LONG"))
DAYS = 20_000 if LONG else 40
# A day without a rule breaks within so many; each is seen within a few dozen.
DAYS_UNTIL_SEEN = 400


@pytest.mark.parametrize("part", range(4))
def test_nothing_is_lost_doubled_or_contradicted_on_random_days(part: int) -> None:
    for seed in range(part, DAYS, 4):
        play(seed)


@pytest.mark.parametrize("part", range(2))
def test_machines_that_are_restored_from_backups_hear_again_what_they_lost(part: int) -> None:
    for seed in range(part, DAYS // 2, 2):
        play(seed, with_rollback=True)


# -- each rule, switched off --


def _older_words_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1: an older word of home never takes the place of a newer one."""
    word_of_home = Arrivals._word_of_home
    confirmed = Copies.confirmed

    def forgetful(self: Any, name: str, item: Any, envelope: Any) -> None:
        copies = self._state.copies
        id_ = self._copies.id_of(name, item.ticket)
        if (known := copies.rows.get(id_)) is not None:
            copies.rows[id_] = msgspec.structs.replace(known, rank=0)
        word_of_home(self, name, item, envelope)

    def forgetful_receipt(self: Any, tx: Transaction, item: Any, taken: Taken, seq: int) -> bool:
        return confirmed(self, tx, item, msgspec.structs.replace(taken, rank=2**40), seq)

    monkeypatch.setattr(Arrivals, "_word_of_home", forgetful)
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
    """The k rule: home takes only the next reply."""

    def any_order(self: Any, name: str, item: Any, envelope: Any) -> None:
        known = self._mail.known(item.ticket)
        if known is not None and hasattr(item, "number"):
            item = msgspec.structs.replace(item, number=known.replies + 1)
        word_of_copy(self, name, item, envelope)

    word_of_copy = Arrivals._word_of_copy
    monkeypatch.setattr(Arrivals, "_word_of_copy", any_order)


def _nothing_is_sent_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 4: what has no receipt goes again."""

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


# A tombstone is needed on one day in a hundred: test_mesh_messages makes that day.
_SELDOM = pytest.param(_a_cancel_before_its_offer_leaves_nothing, marks=pytest.mark.long)
RULES = [
    _older_words_count,
    _copies_are_forgotten,
    _replies_count_in_any_order,
    _nothing_is_sent_twice,
    _receipts_come_before_the_disk,
    _SELDOM,
    _home_does_not_say_how_it_ended,
]


@pytest.mark.parametrize("switch_off", RULES, ids=lambda rule: rule.__name__.strip("_"))
def test_a_day_without_one_of_the_rules_breaks_an_invariant(
    switch_off: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        _play_until_it_breaks()


def test_a_restored_machine_misses_messages_when_nobody_says_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_say_again", lambda *_: None)
    with pytest.raises(Broken):
        _play_until_it_breaks(with_rollback=True)


def _play_until_it_breaks(*, with_rollback: bool = False) -> None:
    for seed in range(DAYS_UNTIL_SEEN):
        play(seed, with_rollback=with_rollback)
