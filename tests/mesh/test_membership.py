"""A node's own place in a mesh: every cell of its table."""

import itertools

import pytest

from bascule.foundation.errors import Conflict
from bascule.kernel.journal import Table, Transaction
from bascule.mesh.cards import Keys
from bascule.mesh.membership import TRANSITIONS, Event, OwnPlace, keys_of, next_standing, seeds_of
from bascule.mesh.records import Membership, Standing

S, E = Standing, Event
# What may happen, written once more by hand; every other cell is forbidden.
ALLOWED = {
    (None, E.BEGIN): S.MEMBER,
    (None, E.ASK): S.WAITING,
    (S.WAITING, E.ASKED_AGAIN): S.WAITING,
    (S.WAITING, E.COMPARED): S.WAITING,
    (S.WAITING, E.ACCEPTED): S.MEMBER,
    (S.WAITING, E.ENDED): None,
    (S.WAITING, E.LEFT): None,
    (S.MEMBER, E.RENEWED): S.MEMBER,
    (S.MEMBER, E.REVOKED): S.REVOKED,
    (S.MEMBER, E.CLONED): S.CLONED,
    (S.MEMBER, E.LEFT): None,
    (S.REVOKED, E.LEFT): None,
    (S.CLONED, E.KEPT): S.MEMBER,
    (S.CLONED, E.REVOKED): S.REVOKED,
    (S.CLONED, E.LEFT): None,
}
CELLS = list(itertools.product([None, *S], E))


def _row(standing=S.MEMBER):
    keys = seeds_of(Keys(b"a" * 32, b"b" * 32, b"c" * 32))
    return Membership(mesh="home", node="desk", standing=standing, mesh_key="k", keys=keys, owner="own_1")


@pytest.mark.req("MESH-JOIN-8")
@pytest.mark.parametrize(("standing", "event"), CELLS)
def test_each_cell_of_the_table_is_as_written_or_refused_with_what_to_do(standing, event):
    if (standing, event) in ALLOWED:
        assert next_standing(standing, event) is ALLOWED[standing, event]
        return
    with pytest.raises(Conflict) as refused:
        next_standing(standing, event)
    assert "bascule " in refused.value.hint


def test_the_table_has_a_line_for_every_standing_and_no_way_out_is_missing():
    assert set(TRANSITIONS) == {None, *S}
    assert all(None in TRANSITIONS[standing].values() for standing in S), "a person can always leave"


@pytest.mark.parametrize(("standing", "event"), CELLS)
def test_a_change_is_stored_and_undone_as_the_table_says(standing, event):
    place = OwnPlace(Table("mesh_membership", Membership))
    if standing is not None:
        place.table.rows["self"] = _row(standing)
    with Transaction() as tx:
        if (standing, event) not in ALLOWED:
            with pytest.raises(Conflict):
                place.change(tx, event, _row())
            assert place.standing is standing
            return
        place.change(tx, event, _row())
    assert place.standing is ALLOWED[standing, event]
    tx.undo()
    assert place.standing is standing


def test_only_a_member_takes_part():
    place = OwnPlace(Table("mesh_membership", Membership))
    for standing in [None, *S]:
        place.table.rows.clear()
        if standing is not None:
            place.table.rows["self"] = _row(standing)
        assert (place.member is not None) == (standing is S.MEMBER)
        if standing is not S.MEMBER:
            with pytest.raises(Conflict):
                place.must_be_member()


def test_a_change_without_a_row_keeps_the_old_one():
    place = OwnPlace(Table("mesh_membership", Membership))
    place.table.rows["self"] = _row()
    with Transaction() as tx:
        place.change(tx, E.CLONED)
    assert place.row == _row(S.CLONED)


def test_keys_come_back_from_the_row():
    assert keys_of(_row()).seeds == (b"a" * 32, b"b" * 32, b"c" * 32)
