"""What is known of the person's line from the keys alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.programs.wrap.keyboard import ESCAPE_SECONDS, STRING_SECONDS, TYPING_SECONDS, Keyboard


def after(*pieces: bytes, is_terminal: bool = True) -> Keyboard:
    keyboard = Keyboard(is_terminal=is_terminal)
    for number, piece in enumerate(pieces):
        keyboard.feed(piece, float(number))
    return keyboard


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        (b"ls -l", "letters"),
        ("größe".encode(), "letters of two bytes"),
        (b"ls\x7f", "one letter fewer"),
        (b"\x1b[A", "an arrow that recalls a line"),
        (b"\x1bOA", "the same in application mode"),
        (b"\t", "a completion"),
        (b"\x12", "a search in the history"),
        (b"\x1b\r", "Alt-Enter: another line of the same message"),
        (b"one\ntwo", "Ctrl-J: another line of the same message"),
        (b"\x1b[200~pasted\rlines\r\x1b[201~", "a paste, whose line ends do not send it"),
        (b"\x1b[200~", "a paste that is still coming"),
        (b"x\x1b[D\x15", "Ctrl-U in the middle of a line leaves its end"),
        (b"\x1b[27;5;106~", "a key with modifiers"),
        (b"\x1b]half a line", "Alt-], which begins as what a terminal says does"),
        (b"\x1bPhalf a line", "Alt-P, the same"),
    ],
)
def test_a_line_that_may_have_been_begun_counts_as_begun(keys, what):
    assert after(keys).drafting, what


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        (b"", "nothing"),
        (b"ls -l\r", "sent with Enter"),
        (b"ls -l\x03", "given up with Ctrl-C"),
        (b"ls\x1b[99;5u", "given up with Ctrl-C as kitty writes it"),
        (b"ls\x7f\x7f", "erased letter by letter"),
        ("ö\x7f".encode(), "a letter of two bytes, erased as one"),
        (b"ls\x15", "erased with Ctrl-U"),
        (b"\x1b[A\r", "recalled and sent"),
        (b"\x1b[200~pasted\x1b[201~\r", "pasted and sent"),
        (b"\x1b[200~\x1b[201~", "an empty paste"),
        (b"\x1b[D\x1b[C", "left and right on an empty line"),
        (b"\x0c", "the screen drawn again"),
        (b"\x1b]a line\r", "begun with Alt-], and sent"),
        (b"\x1b_a line\x03", "begun with Alt-_, and given up"),
    ],
)
def test_a_line_that_is_empty_or_sent_is_not_begun(keys, what):
    assert not after(keys).drafting, what


@pytest.mark.parametrize(
    "report",
    [
        b"\x1b[24;80R",
        b"\x1b[?62;22c",
        b"\x1b[>41;380;0c",
        b"\x1b[0n",
        b"\x1b[I",
        b"\x1b[O",
        b"\x1b[?2004;1$y",
        b"\x1b[8;24;80t",
        b"\x1b[<0;10;10M\x1b[<0;10;10m",
        b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
        b"\x1b]11;rgb:0000/0000/0000\x07",
        b"\x1bP>|tmux 3.3a\x1b\\",
        b"\x1b[99;5:3u",
        b"\x1b[27u",
    ],
)
def test_what_the_terminal_says_by_itself_was_not_typed(report):
    keyboard = after(report)
    assert not keyboard.drafting
    assert not keyboard.is_typing(0.0)


def test_a_person_who_just_pressed_a_key_is_typing_for_a_while():
    keyboard = after(b"ls\r")
    assert keyboard.is_typing(TYPING_SECONDS - 0.1)
    assert not keyboard.is_typing(TYPING_SECONDS + 0.1)


def test_a_line_left_half_written_is_never_over_by_itself():
    assert after(b"rm -rf bui").is_typing(1e9)


def test_escape_by_itself_and_a_later_enter_are_two_keys():
    keyboard = Keyboard()
    keyboard.feed(b"\x1b", 0.0)
    keyboard.feed(b"\r", ESCAPE_SECONDS + 1)
    assert not keyboard.drafting
    # The control: at once they are Alt-Enter.
    keyboard.feed(b"\x1b", 5.0)
    keyboard.feed(b"\r", 5.0)
    assert keyboard.drafting


def test_a_pipe_sends_its_lines_with_newlines():
    assert not after(b"1 + 1\n", is_terminal=False).drafting
    assert after(b"1 + 1\n").drafting


KEYS = st.lists(
    st.sampled_from(
        [
            *[b"a", "ü".encode(), b"\r", b"\x7f", b"\x03", b"\x1b[A", b"\x1b[D", b"\x1b[200~", b"x\ry", b"\x1b[201~"],
            *[b"\x1b[6;1R", b"\x1b]0;t\x07", b"\x1bP1\x1b\\", b"\x1bOB", b"\t", b"\x1bx", b"\x15", b"\x1b[<0;1;1M"],
        ]
    ),
    max_size=12,
)


@given(KEYS, st.lists(st.integers(0, 60), max_size=6))
def test_the_same_is_known_however_the_keys_are_cut(keys, cuts):
    data = b"".join(keys)
    whole, parts = Keyboard(), Keyboard()
    whole.feed(data, 0.0)
    last = 0
    for cut in sorted(cuts):
        parts.feed(data[last:cut], 0.0)
        last = max(last, cut)
    parts.feed(data[last:], 0.0)
    assert (whole.drafting, whole.last_key) == (parts.drafting, parts.last_key)


@given(st.binary(max_size=300))
def test_any_bytes_are_taken(data):
    keyboard = Keyboard()
    keyboard.feed(data, 0.0)
    keyboard.feed(b"\x1b\\\x1b[201~", 10.0)
    keyboard.feed(b"\r", 20.0)
    keyboard.feed(b"\r", 30.0)
    assert not keyboard.drafting


def test_a_string_that_does_not_end_was_a_key():
    keyboard = Keyboard()
    keyboard.feed(b"\x1b]", 0.0)
    for number in range(20):
        keyboard.feed(b"x", number * STRING_SECONDS / 4)
        assert keyboard.is_typing(number * STRING_SECONDS / 4)
    keyboard.feed(b"\r", 100.0)
    assert not keyboard.drafting
    # The control: what a terminal says, cut in two on a slow line.
    keyboard.feed(b"\x1b]11;rgb:00", 200.0)
    keyboard.feed(b"/00/00\x1b\\", 200.0 + STRING_SECONDS / 2)
    assert not keyboard.is_typing(200.0 + STRING_SECONDS / 2)
