"""A preview in blocks: one source for pages and terminals, and no line of an agent's that passes for one of ours."""

import difflib

import pytest
from felling import Grove
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation.errors import NotFound, Overloaded, TooLarge
from bascule.foundation.text import visible
from bascule.kernel.consent import blocks
from bascule.kernel.consent.records import Approval, Question
from bascule.kernel.consent.states import ApprovalState
from bascule.kernel.resolution import Resolution
from gabp import codec

LINES = st.lists(
    st.sampled_from(["", "-", "--", "-- a/x", "++ b/x", "@@ -1 +1 @@", " ", "+", "a", "b", "\\ No"]), max_size=9
)


def unified(old, new):
    lines = difflib.unified_diff([f"{each}\n" for each in old], [f"{each}\n" for each in new], "a/x", "b/x")
    return "".join(lines)


@given(old=LINES, new=LINES)
def test_the_marks_of_a_diff_are_what_git_would_apply(old, new):
    """Whatever the files hold, the lines that stay and go are the old file, those that stay and come the new one."""
    lines = blocks.lines_of(blocks.diff(unified(old, new)))
    if old == new:
        return
    assert [line.text for line in lines[:2]] == ["--- a/x", "+++ b/x"]
    assert [line.mark for line in lines[:2]] == [None, None]
    assert lines[2].mark == "@"
    rest = lines[2:]
    assert all(line.mark is not None for line in rest)
    was = [line.text for line in rest if line.mark in ("-", " ")]
    is_ = [line.text for line in rest if line.mark in ("+", " ")]
    # Less context than three lines at both ends: these files are short, so the hunks hold all but equal ends.
    assert "\n".join(was) in "\n".join(old)
    assert "\n".join(is_) in "\n".join(new)


def test_a_removed_line_that_looks_like_the_name_of_a_file_is_a_removed_line():
    lines = blocks.lines_of(blocks.diff(unified(["-- a/innocent", "x"], ["x"])))
    assert ("-- a/innocent", "-") in lines
    # The control: by its look alone it would be a name.
    assert "--- a/innocent" in unified(["-- a/innocent", "x"], ["x"])


def test_several_files_in_one_diff_keep_their_names_apart_from_their_lines():
    text = unified(["one"], ["two"]) + unified(["-- a/y"], ["z"])
    marks = [line.mark for line in blocks.lines_of(blocks.diff(text))]
    assert marks == [None, None, "@", "-", "+"] * 2


@given(st.lists(st.tuples(st.sampled_from(["", "env", "⟨"]), st.text(max_size=20)), max_size=4))
def test_making_each_block_visible_is_making_the_whole_visible(parts):
    made = tuple(blocks.text(words, title) for title, words in parts)
    assert blocks.text_of(blocks.made_visible(made)) == visible(blocks.text_of(made), keep="\n")


def test_a_value_with_a_line_break_cannot_pass_for_the_next_fact():
    block = blocks.facts("cwd: .\nrule: allowed: by a liar", "timeout: 5 ms")
    assert [line.text for line in blocks.lines_of(block)] == ["cwd: .", "  | rule: allowed: by a liar", "timeout: 5 ms"]


def test_a_question_from_before_there_were_blocks_opens_and_is_one_block_of_text():
    old = {
        "approval_id": "apr_1",
        "state": "pending",
        "asked_at": 1,
        "expires_at": 2,
        "question": {
            "principal": "local",
            "method": "m",
            "digest": "d",
            "params_json": "{}",
            "rule": "r",
            "reason": "w",
            "suggestion": None,
            "summary": "s",
            "preview": "one\ntwo",
            "run_id": None,
            "operation_id": None,
            "offers": [],
            "exact": None,
            "picture": None,
        },
    }
    question = codec.stored(Approval)(codec.encode(old)).question
    assert question.text == "one\ntwo"
    assert question.blocks == (blocks.text("one\ntwo"),)


def test_blocks_come_back_from_the_store_as_they_were():
    shown = (blocks.facts("a", title="t"), blocks.diff("--- a\n"), blocks.command("ls"), blocks.keys("ctrl", "s"))
    question = Question(
        principal="local", method="m", digest="d", params_json="", rule="r", reason="w", summary="s", preview=shown
    )
    approval = Approval(approval_id="apr_1", state=ApprovalState.PENDING, question=question, asked_at=1, expires_at=2)
    assert codec.stored(Approval)(codec.encode(approval)) == approval
    assert question.emptied().blocks == ()


# -- as methods -----------------------------------------------------------------------------------


@pytest.fixture
def grove():
    made = Grove().set_person()
    yield made
    made.house.close()


def shown(grove, number=0):
    return grove.house.call("local", "approvals.show", {"approvalId": grove.pending()[number]["approvalId"]})


def test_a_question_is_shown_in_blocks_and_as_the_text_they_make(grove):
    grove.resolution = Resolution(
        summary="cut",
        preview=(
            blocks.facts("in the forest"),
            blocks.command("axe --now\x1b[2K", "command"),
            blocks.diff("--- a/oak\n+++ b/oak\n@@ -1 +1 @@\n-tree\n+stump\u202e\n"),
            blocks.keys("ctrl", "x"),
        ),
    )
    grove.begin("tree.resolved")
    view = shown(grove)
    assert view["blocks"] == [
        {"kind": "facts", "lines": [{"text": "in the forest"}]},
        {"kind": "command", "title": "command", "lines": [{"text": "axe --now⟨ESC⟩[2K"}]},
        {
            "kind": "diff",
            "lines": [
                {"text": "--- a/oak"},
                {"text": "+++ b/oak"},
                {"text": "@@ -1 +1 @@", "mark": "@"},
                {"text": "tree", "mark": "-"},
                {"text": "stump⟨U+202E⟩", "mark": "+"},
            ],
        },
        {"kind": "keys", "title": "keys", "lines": [{"text": "ctrl + x"}]},
    ]
    assert view["preview"].split("\n") == [
        *("in the forest", "", "command:", "  axe --now⟨ESC⟩[2K", ""),
        *("--- a/oak", "+++ b/oak", "@@ -1 +1 @@", "-tree", "+stump⟨U+202E⟩", ""),
        *("keys:", "  ctrl + x"),
    ]
    assert "hasPicture" not in view


def test_lists_have_no_blocks_and_no_history(grove):
    grove.begin()
    (listed,) = grove.pending()
    assert not {"blocks", "preview", "history", "offers"} & set(listed)


def test_what_has_no_picture_says_so(grove):
    grove.begin()
    with pytest.raises(NotFound, match="has no picture"):
        grove.house.call("local", "approvals.picture", {"approvalId": grove.pending()[0]["approvalId"]})
    with pytest.raises(NotFound, match="no approval apr_none"):
        grove.house.call("local", "approvals.picture", {"approvalId": "apr_none"})


def test_a_question_shows_what_the_same_asker_asked_before(grove):
    for path, decision in (("ash", "approved"), ("elm", "denied"), ("fir", "denied")):
        grove.begin(path=path)
        grove.decide(decision)
        grove.house.advance(1)
    grove.begin(path="yew")
    grove.house.advance(16 * 60)
    grove.begin(path="oak", principal="agent:Tom")
    for path in ("a", "b", "c"):
        grove.house.advance(1)
        grove.begin(path=path)
    asked = {each["summary"]: each["approvalId"] for each in grove.pending()}
    view = grove.house.call("local", "approvals.show", {"approvalId": asked['tree.cut {"path":"b"}']})
    history = view["history"]
    recent = history.pop("recent")
    # Without Tom's; with those that wait.
    assert history == {"asked": 7, "approved": 1, "denied": 2, "expired": 1}
    assert [(each["summary"], each["state"]) for each in recent] == [
        ('tree.cut {"path":"a"}', "pending"),
        ('tree.cut {"path":"yew"}', "expired"),
        ('tree.cut {"path":"fir"}', "denied"),
        ('tree.cut {"path":"elm"}', "denied"),
        ('tree.cut {"path":"ash"}', "done"),
    ]


def test_a_preview_of_a_mebibyte_is_refused_in_blocks_as_in_one_text(grove):
    for preview in ("x" * 2**20, (blocks.text("x" * 2**19), blocks.diff("y" * 2**19))):
        grove.resolution = Resolution(summary="cut", preview=preview)
        with pytest.raises(TooLarge, match="a person would have to read 1048576 characters"):
            grove.begin("tree.resolved").result()
    assert grove.pending() == []


def test_a_thousand_questions_are_listed_and_the_next_is_refused():
    grove = Grove().set_person()
    for number in range(1_000):
        grove.begin(path=f"tree-{number}", principal=f"agent:A{number % 40}")
    listed = grove.house.call("local", "approvals.list", {"limit": 1_000})
    assert len(listed) == 1_000
    assert len({each["approvalId"] for each in listed}) == 1_000
    with pytest.raises(Overloaded, match="1000 questions wait for the person"):
        grove.begin(principal="agent:B").result()
    stream = grove.house.call("local", "approvals.stream")
    assert len(stream.items()) == 1_000
    stream.close()
    grove.house.close()
