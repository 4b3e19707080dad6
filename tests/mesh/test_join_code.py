"""Join codes and words: what one machine writes, another reads, and nothing else is taken for it."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.mesh.join_code import (
    MAX_ADDRESSES,
    MAX_CODE_CHARS,
    PREFIX,
    BadCode,
    JoinCode,
    bus_key,
    proof_key,
    public_text,
    read_code,
    write_code,
)
from bascule.mesh.words import COUNT, WORDS, words_of

_addresses = st.from_regex(r"\A[a-z0-9.-]{1,40}:[0-9]{1,5}\Z")
_key = st.binary(min_size=32, max_size=32)
codes = st.builds(
    JoinCode,
    addresses=st.lists(_addresses, min_size=1, max_size=MAX_ADDRESSES),
    certificate=_key,
    mesh=st.text(min_size=1, max_size=64),
    mesh_key=_key,
    secret=_key,
    expires_ms=st.integers(0, 2**53),
)
CODE = JoinCode(
    addresses=["192.0.2.7:5052", "workstation.local:5052"],
    certificate=bytes(range(32)),
    mesh="home",
    mesh_key=bytes(32),
    secret=b"s" * 32,
    expires_ms=1_760_947_200_000,
)


@given(codes)
def test_a_code_is_read_as_it_was_written(code):
    assert read_code(write_code(code)) == code


@given(codes, st.integers(0, 2**32))
def test_a_code_may_be_pasted_in_pieces_and_in_lower_case(code, at):
    text = write_code(code).lower()
    cut = at % len(text)
    assert read_code(f"  {text[:cut]}\n  {text[cut:]}\n") == code


@given(st.text(max_size=300))
def test_any_text_is_a_code_or_is_refused_with_a_sentence(text):
    with pytest.raises(BadCode, match=r"\w+ \w+"):
        read_code(text)


@given(st.binary(max_size=300))
def test_any_bytes_with_a_fitting_checksum_are_a_code_or_are_refused(body):
    from bascule.mesh.join_code import _checksum

    text = PREFIX + base64.b32encode(body + _checksum(body)).rstrip(b"=").decode()
    with pytest.raises(BadCode, match="another version"):
        read_code(text)


@given(codes, st.integers(0, 2**32), st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
def test_one_wrong_letter_is_noticed(code, at, letter):
    text = write_code(code)
    place = len(PREFIX) + at % (len(text) - len(PREFIX))
    changed = text[:place] + letter + text[place + 1 :]
    if changed == text:
        return
    try:
        # The last letter has bits that mean nothing.
        assert read_code(changed) == code
        assert place == len(text) - 1
    except BadCode:
        pass


def test_a_code_that_was_cut_says_so():
    text = write_code(CODE)
    with pytest.raises(BadCode, match=r"not copied whole|some are missing"):
        read_code(text[:-4])
    with pytest.raises(BadCode, match="too long"):
        read_code(PREFIX + "A" * MAX_CODE_CHARS)


def test_a_code_fits_into_four_lines_of_a_terminal():
    assert len(write_code(CODE)) < 320


def test_the_key_that_logs_in_is_not_the_key_that_proves():
    """A server chooses what the first one signs."""
    assert public_text(bus_key(CODE.secret)) != public_text(proof_key(CODE.secret))
    assert public_text(proof_key(CODE.secret)) == public_text(proof_key(CODE.secret))


# -- words --


def _differences(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (left != right))
    return row[-1]


def test_every_byte_has_a_word_that_nobody_mistakes_for_another():
    assert len(WORDS) == 256
    assert len({word[:4] for word in WORDS}) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and 4 <= len(word) <= 7 for word in WORDS)
    for at, one in enumerate(WORDS):
        assert all(_differences(one, other) > 1 for other in WORDS[at + 1 :]), one


def test_the_words_never_change_between_versions():
    """Two machines of different age must show the same."""
    assert words_of(b"one", b"two") == "library lemon tulip carrot library"


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.binary(max_size=40), max_size=6))
def test_other_parts_give_other_words(one, other):
    assert len(words_of(*one).split()) == COUNT
    assert (words_of(*one) == words_of(*other)) == (one == other)


def test_a_part_cannot_run_into_the_next():
    assert words_of(b"ab", b"c") != words_of(b"a", b"bc")
