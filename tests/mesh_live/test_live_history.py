"""The checker itself: histories that are well, and each kind of wrong one."""

from collections import Counter

import pytest
from history import Ask, faults_of, fits_one_order


def asked(**more):
    well = {
        "accepted": True,
        "home_saw": ["pending", "delivered", "responded"],
        "copy_saw": ["pending", "responded"],
        "got": Counter({"msh_1": 2}),
        "tried": ["1", "2"],
        "taken": ["2"],
        "end": "responded",
        "copy_end": "responded",
        "replies": ["2"],
    }
    return Ask("key", "desk", "vm", **(well | more))


def test_a_question_that_was_answered_once_is_well():
    assert faults_of(asked()) == []
    assert faults_of(asked(taken=[], replies=["1", "2"])) == [], "whether the first was taken was not known"


def test_a_reply_that_crossed_a_cancel_is_well():
    crossed = {"home_saw": ["pending", "cancelled"], "end": "cancelled", "copy_end": "cancelled", "replies": []}
    assert faults_of(asked(**crossed)) == []
    assert faults_of(asked(**crossed, got=Counter(), copy_saw=[], tried=[], taken=[])) == []


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"end": "", "copy_end": ""}, "lost: its home"),
        ({"got": Counter(), "copy_saw": [], "tried": [], "taken": [], "replies": []}, "lost: nobody"),
        ({"replies": []}, "lost: the replies"),
        ({"shown": ["1"]}, "lost: its sender was shown"),
        ({"got": Counter({"msh_1": 1, "msh_2": 1})}, "twice: it came as 2"),
        ({"got_after_reply": 1}, "twice: it came again"),
        ({"replies": ["2", "2"]}, "twice: the reply 2"),
        ({"replies": ["2", "3"]}, "nobody made"),
        ({"replies": ["2", "1"]}, "another order"),
        ({"copy_end": "pending", "copy_saw": []}, "no one order"),
        ({"home_saw": ["responded", "pending"]}, "no one order"),
        ({"home_saw": ["timeout", "responded"], "copy_saw": ["responded", "timeout"]}, "no one order"),
    ],
)
def test_what_is_wrong_is_named(wrong, word):
    assert any(word in fault for fault in faults_of(asked(**wrong))), faults_of(asked(**wrong))


def test_two_views_need_one_order():
    assert fits_one_order(["pending", "timeout"], ["delivered", "responded"])
    assert not fits_one_order(["pending", "timeout"], ["pending", "cancelled"])
