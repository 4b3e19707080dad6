"""What a person is shown: every character of it, and none that acts, hides or pretends."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.approval.drawing import MAX_MARKS, digest_line, one_line, visible
from bascule.approval.questions import default_preview
from bascule.protocols.methods import Params

TRICKS = {
    "escape sequence": "ok\x1b[2Krm -rf /",
    "carriage return": "rm -rf /\rls",
    "backspace": "rm\x08\x08ls",
    "right to left override": "safe\u202etxt.sh",
    "isolate": "a\u2066b\u2069",
    "zero width": "r\u200bm",
    "joiner": "r\u200dm",
    "byte order mark": "\ufeffls",
    "C1": "ls\x9b2J",
    "line separator": "ls\u2028rm",
    "next line": "ls\x85rm",
    "tag": "ls\U000e0041",
    "hangul filler": "ls\u3164",
    "braille blank": "ls\u2800rm",
    "no-break space": "rm\u00a0-rf",
    "soft hyphen": "r\u00adm",
    "private use": "ls\ue000",
    "variation selector": "a\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f\ufe0f",
    "tab": "ls\trm",
}


@pytest.mark.parametrize("text", TRICKS.values(), ids=TRICKS)
def test_what_would_act_or_hide_is_shown_by_its_name(text):
    assert visible(text) != text
    assert "⟨" in visible(text)


def test_what_stands_for_itself_is_left_alone():
    for text in ("ls -la", "größer", "日本語　テキスト", "+ added\n- gone\n", "naïve e\u0301", "🙂", "عربى"):
        assert visible(text) == text


@given(st.text())
def test_nothing_that_is_shown_can_act_and_nothing_is_left_out(text):
    shown = visible(text)
    for letter in shown:
        assert letter == "\n" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    # As many lines as the text has newlines: no other character makes one.
    assert shown.count("\n") == text.count("\n")
    plain = sum(1 for letter in text if letter.isascii() and letter.isprintable())
    assert len(shown) >= plain


def test_marks_do_not_pile_up_over_other_lines():
    shown = visible("a" + "\u0301" * 50)
    assert shown.count("\u0301") == MAX_MARKS
    assert shown.count("⟨U+0301⟩") == 50 - MAX_MARKS


def test_two_texts_that_look_alike_are_told_apart():
    assert visible("rm\u00a0x") != visible("rm x")
    assert visible("\x1b") == "⟨ESC⟩"
    assert visible("⟨ESC⟩") == "⟨U+27E8⟩ESC⟩", "our own brackets cannot be typed"


@given(st.text(), st.text())
def test_different_texts_are_shown_differently(one, other):
    assert (visible(one) == visible(other)) == (one == other)


def test_a_line_for_lists_is_one_line_and_says_what_was_cut():
    assert one_line("a\nb") == "a⟨LF⟩b"
    assert one_line("x" * 500, 10) == "xxxxxxxxxx… (500 characters)"


def test_a_digest_is_shown_so_that_people_can_compare_it():
    assert digest_line("0123456789abcdef" * 4) == "0123 4567 89ab cdef"


class Some(Params, frozen=True, kw_only=True):
    command: str
    env: dict[str, str] = {}


def test_a_call_without_a_picture_of_its_own_is_shown_param_by_param():
    drawn = visible(default_preview("tree.cut", Some(command="one\ntwo\x1b", env={"A": "\u202e"})))
    assert drawn.split("\n") == [
        "tree.cut",
        "  command: one",
        "         | two⟨ESC⟩",
        '  env: {"A":"⟨U+202E⟩"}',
    ]
