"""Every cell of the table of states, the forbidden ones too."""

import pytest

from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.consent.states import NEXT, ApprovalState, IllegalMove, check_move

ALLOWED = {
    ("pending", "approved"),
    ("pending", "denied"),
    ("pending", "expired"),
    ("pending", "withdrawn"),
    ("approved", "spent"),
    ("approved", "expired"),
    ("spent", "done"),
    ("spent", "unknown"),
}


@pytest.mark.parametrize("old", ApprovalState)
@pytest.mark.parametrize("new", ApprovalState)
def test_a_step_happens_only_where_the_table_has_it(old, new):
    approval = Approval(
        approval_id="apr_1",
        state=old,
        question=Question(
            principal="local", method="m", digest="d", params_json="{}", rule="r", reason="w", summary="s", preview="p"
        ),
        asked_at=0,
        expires_at=1,
    )
    if (old.value, new.value) in ALLOWED:
        assert approval.moved(new).state is new
    else:
        with pytest.raises(IllegalMove, match=f"{old.value} never becomes {new.value}"):
            approval.moved(new)
    assert approval.state is old


def test_nothing_leads_back_to_a_grant():
    """The one property everything rests on: from `spent` no way leads to `approved`."""
    reached, found = {ApprovalState.SPENT}, {ApprovalState.SPENT}
    while found:
        found = {new for old in found for new in NEXT[old]} - reached
        reached |= found
    assert ApprovalState.APPROVED not in reached
    with pytest.raises(IllegalMove):
        check_move(ApprovalState.SPENT, ApprovalState.APPROVED)
