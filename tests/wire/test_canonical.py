"""wire.canonical against RFC 8785: its published vectors, and an independent implementation."""

import hashlib
import json
import struct

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.wire.canonical import NotCanonical, canonical, digest

LARGEST_SAFE = 2**53 - 1
TEXT = st.text(st.characters(blacklist_categories=("Cs",)))
# Keys of every plane, where the order of code points and of UTF-16 units differ.
KEYS = TEXT | st.text("\ud7ff\ue000\uffff\U00010000\U0010ffffaA\x00\x7f\x80")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_SAFE, LARGEST_SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=12)

# RFC 8785 appendix B: the bits of a double, and its text.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


def from_bits(bits: str) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    return value


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_the_published_numbers_are_written_as_published(bits, text):
    assert canonical(from_bits(bits)).decode() == text


@pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
def test_numbers_that_are_not_finite_have_no_canonical_form(bits):
    with pytest.raises(NotCanonical, match="not finite"):
        canonical([from_bits(bits)])


def test_the_published_key_order_is_by_utf16_units():
    names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\u00f6"]

    ordered = json.loads(canonical(dict.fromkeys(names, 0)))

    assert list(ordered) == ["\r", "1", "\x80", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


def test_the_published_string_is_escaped_as_published():
    text = canonical({"string": '\u20ac$\x0f\nA\'B"\\\\"/', "literals": [None, True, False]})

    assert text == '{"literals":[null,true,false],"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'.encode()


@settings(deadline=None, max_examples=150)
@given(VALUES)
def test_an_independent_implementation_writes_the_same_bytes(value):
    assert canonical(value) == rfc8785.dumps(value)


@settings(deadline=None, max_examples=400)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_is_written_as_the_independent_implementation_does_and_reads_back_the_same(value):
    text = canonical(value)

    assert text == rfc8785.dumps(value)
    assert float(text) == value


@settings(deadline=None, max_examples=60)
@given(VALUES)
def test_canonical_text_is_json_that_means_the_same_and_is_its_own_canonical_form(value):
    text = canonical(value)

    # As RFC 8785 reads numbers: every one a double.
    assert json.loads(text, parse_int=float) == value
    assert canonical(json.loads(text)) == text


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(KEYS, SCALARS), st.randoms(use_true_random=False))
def test_the_order_in_which_keys_came_does_not_matter(value, random):
    names = list(value)
    random.shuffle(names)

    assert digest({name: value[name] for name in names}) == digest(value)


def test_integers_beyond_two_to_the_53_are_written_in_full():
    assert canonical([2**53 + 1, -(2**64), 10**30]) == f"[{2**53 + 1},{-(2**64)},{10**30}]".encode()
    assert digest(2**53) != digest(2**53 + 1)


def test_a_list_and_a_tuple_are_the_same_array():
    assert canonical((1, [2, ()])) == b"[1,[2,[]]]"


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", {"\ud800": 1}, ["\udbff\ud800"]])
def test_half_a_surrogate_pair_has_no_canonical_form(value):
    with pytest.raises(NotCanonical, match="surrogate"):
        canonical(value)


@pytest.mark.parametrize("value", [b"x", {1: 2}, {None: 1}, {1, 2}, object(), 1j])
def test_what_is_no_json_value_has_no_canonical_form(value):
    with pytest.raises(NotCanonical):
        canonical([value])


def test_an_integer_too_long_to_write_has_no_canonical_form():
    with pytest.raises(NotCanonical, match="more digits"):
        canonical(10**5000)


def test_a_value_that_contains_itself_has_no_canonical_form():
    value: list[object] = []
    value.append(value)

    with pytest.raises(NotCanonical, match="nested"):
        canonical(value)


def test_the_digest_is_sha256_of_the_canonical_form():
    value = {"b": 1.0, "a": "x"}

    assert digest(value) == hashlib.sha256(b'{"a":"x","b":1}').hexdigest()
