"""wire.codec: what counts as JSON here, and how a refusal reads."""

import contextlib
import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gabp import codec
from gabp.codec import MAX_DEPTH, BadJson, Raw

SURROGATES = st.characters(blacklist_categories=("Cs",))
TEXT = st.text(SURROGATES)
# Strings that try to pass for structure.
TRICKY_TEXT = TEXT | st.text('[]{}"\\,:ab')
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TRICKY_TEXT
JSON_VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TRICKY_TEXT, inner), max_leaves=12)


class Person(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    agent_id: str
    age: int = 0
    friends: list["Person"] = []


class Loose(msgspec.Struct, frozen=True):
    a: int = 0


class Holder(msgspec.Struct, frozen=True):
    raw: Raw


class Query(msgspec.Struct, frozen=True, rename="camel"):
    wait_ms: int = 0
    ratio: float = 0.0
    type: str = ""


def depth_of(value: Any) -> int:
    match value:
        case list():
            return 1 + max(map(depth_of, value), default=0)
        case dict():
            return 1 + max(map(depth_of, value.values()), default=0)
        case _:
            return 0


def refusal(data: bytes, type_: Any = Any) -> str:
    with pytest.raises(BadJson) as caught:
        codec.decode(data, type_)
    assert caught.value.message == str(caught.value)
    return caught.value.message


@settings(deadline=None, max_examples=100)
@given(JSON_VALUES, st.booleans())
def test_valid_json_decodes_as_the_plain_parser_reads_it(value, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()

    assert codec.decode(data) == value
    codec.check_no_duplicate_keys(data)


@settings(deadline=None, max_examples=60)
@given(JSON_VALUES)
def test_what_is_encoded_decodes_to_the_same_value(value):
    assert codec.decode(codec.encode(value)) == value


@settings(deadline=None, max_examples=300)
@given(st.binary() | st.text('{}[]",:\\ud8f0123e+-.nulltrefasagentId \n').map(str.encode))
def test_any_bytes_are_decoded_or_refused_as_bad_json(data):
    for type_ in (Any, Person, Loose, Raw):
        with contextlib.suppress(BadJson):
            codec.decode(data, type_)
    with contextlib.suppress(BadJson):
        codec.check_no_duplicate_keys(data)


@settings(deadline=None, max_examples=100)
@given(JSON_VALUES, st.integers(0, 6), st.booleans())
def test_depth_is_counted_in_levels_whatever_stands_in_strings(value, limit, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    decoder = codec.decoder(Any, max_depth=limit)

    if depth_of(value) <= limit:
        assert decoder.decode(data) == value
    else:
        with pytest.raises(BadJson, match=f"deeper than {limit} levels"):
            decoder.decode(data)


@pytest.mark.parametrize("type_", [Any, Raw, Loose])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"k":', b"}")])
def test_64_levels_are_accepted_and_65_refused(opening, closing, type_):
    # One level is the object that Loose reads, whose unknown field is skipped.
    def nested(levels: int) -> bytes:
        return b'{"x":' + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"}"

    codec.decode(nested(MAX_DEPTH), type_)

    assert "deeper than 64 levels" in refusal(nested(MAX_DEPTH + 1), type_)


def test_many_brackets_side_by_side_are_not_deep():
    value = [{"a": [[], {}]}] * 1000

    assert codec.decode(json.dumps(value).encode()) == value


def test_depth_is_counted_also_among_many_brackets():
    def wide(levels: int) -> bytes:
        return b"[" + b",".join([b'{"[":' * (levels - 1) + b"1" + b"}" * (levels - 1)] * 3) + b"]"

    assert len(codec.decode(wide(MAX_DEPTH))) == 3
    assert "deeper than 64 levels" in refusal(wide(MAX_DEPTH + 1))


def test_a_nesting_beyond_every_recursion_limit_is_refused():
    assert "nested too deeply" in refusal(b"[" * 1_000_000 + b"]" * 1_000_000)
    assert "nested too deeply" in refusal(b'{"a":' * 1_000_000)


def test_the_names_of_fields_are_reported():
    assert refusal(b'{"agentId":1}', Person) == "`agentId`: expected `str`, got `int`"
    assert refusal(b"{}", Person) == "missing required field `agentId`"
    assert refusal(b'{"agentId":"a","agentID":1}', Person).startswith("unknown field `agentID`; there are: agentId, ")
    assert refusal(b"[]", Person) == "expected `object`, got `array`"
    assert (
        refusal(b'{"agentId":"a","friends":[{"agentId":"b","age":1.5}]}', Person)
        == "`friends[0].age`: expected `int`, got `float`"
    )
    assert refusal(b'{"agentId":"a","friends":[{"agentId":"b","x":1}]}', Person).startswith(
        "`friends[0]`: unknown field `x`; there are: agentId, "
    )
    assert refusal(b'{"x":1}', dict[int, int]) == "a key: expected `int`, got `str`"


def test_a_refusal_is_short_and_printable_whatever_the_peer_named_its_field():
    long = refusal(b'{"agentId":"a","' + b"q" * 100_000 + b'":1}', Person)
    odd = refusal(b'{"agentId":"a","\\u001b[31m\\u0000\\u009b\\n":1}', Person)

    assert len(long) < 400
    assert odd.startswith(r"unknown field `\x1b[31m\x00\x9b\n`; there are: ")


def test_invalid_utf8_is_refused_also_where_the_value_is_skipped_or_kept_raw():
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"):
        assert "not valid UTF-8" in refusal(b'"' + bad + b'"')
        assert "not valid UTF-8" in refusal(b'{"unknown":"' + bad + b'"}', Loose)
        assert "not valid UTF-8" in refusal(b'{"' + bad + b'":1}', Loose)
        assert "not valid UTF-8" in refusal(b'{"raw":"' + bad + b'"}', Holder)


def test_a_raw_value_that_nobody_checked_is_refused_when_decoded_through_the_codec():
    # msgspec itself lets all of these into a Raw.
    for bad in (b'"\xff"', b"1e400", b"[" * 100 + b"]" * 100):
        unchecked = msgspec.json.decode(b'{"raw":' + bad + b"}", type=Holder)
        with pytest.raises(BadJson):
            codec.decode(unchecked.raw)


def test_a_raw_value_decodes_like_the_bytes_it_holds():
    held = codec.decode(b'{"raw": {"agentId": "a"} }', Holder)

    assert codec.decode(held.raw, Person) == Person(agent_id="a")


@pytest.mark.parametrize(
    "data",
    [
        b'"\\ud800"',
        b'"\\udc00"',
        b'"\\ud800\\u0041"',
        b'"\\ud800\\ud800"',
        b'"\\udbff tail of text"',
        b'"\\ud800\\n"',
    ],
)
def test_half_a_surrogate_pair_is_refused(data):
    assert "surrogate" in refusal(data)
    refusal(b'{"raw":' + data + b"}", Holder)
    refusal(b'{"unknown":' + data + b"}", Loose)


def test_a_whole_surrogate_pair_is_one_character():
    assert codec.decode(b'"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**63) - 1, 10**400, int("9" * 4300)])
def test_an_integer_of_any_size_is_kept_exactly(number):
    decoded = codec.decode(str(number).encode())

    assert type(decoded) is int
    assert decoded == number
    assert codec.decode(codec.encode(number)) == number


def test_an_integer_too_long_to_convert_is_refused_and_not_made_a_float():
    assert "out of range" in refusal(b"9" * 4301)


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"NaN", b"Infinity", b"-Infinity", b"1e999999999999999999"])
def test_numbers_are_finite(number):
    refusal(number)
    refusal(b"[" + number + b"]", list[float])


def test_negative_zero_keeps_its_kind():
    assert codec.decode(b"-0") == 0
    assert math.copysign(1, codec.decode(b"-0.0")) == -1


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "JSON is missing: the body is empty"),
        (b" \n", "JSON is missing: the body is empty"),
        (b'{"a":', "JSON is cut short: the body ends inside a value"),
        (b"\xef\xbb\xbf{}", "JSON starts with a byte order mark: send it without one"),
        (b"{}x", "JSON is malformed: trailing characters (byte 3)"),
        (b'"a\nb"', "JSON is malformed: invalid character (byte 2)"),
        (b"\x00", "JSON is malformed: invalid character (byte 0)"),
        ("{}".encode("utf-16-le"), "JSON is malformed: object keys must be strings (byte 1)"),
    ],
)
def test_what_is_not_json_is_reported_with_its_place(data, sentence):
    with pytest.raises(BadJson) as caught:
        codec.decode(data)

    assert caught.value.message == sentence
    assert caught.value.malformed


@pytest.mark.parametrize(
    "data", [b"01", b"1.", b".5", b"+1", b"[1,]", b"{'a':1}", b'{"a":1,}', b"nul", b"0x1", b"//\n1"]
)
def test_almost_json_is_refused(data):
    refusal(data)


def test_json_of_another_shape_is_not_called_malformed():
    with pytest.raises(BadJson) as caught:
        codec.decode(b"{}", Person)

    assert not caught.value.malformed


def test_of_duplicate_keys_the_last_counts():
    assert codec.decode(b'{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    "data",
    [b'{"a":1,"a":2}', b'{"a":1,"\\u0061":1}', b'[{"x":{"b":0,"c":0,"b":0}}]', b'{"":1,"":1}'],
)
def test_duplicate_keys_are_found_where_a_digest_is_taken(data):
    with pytest.raises(BadJson, match="duplicate key"):
        codec.check_no_duplicate_keys(data)


def test_equal_keys_of_different_objects_are_no_duplicates():
    codec.check_no_duplicate_keys(b'[{"a":1},{"a":{"a":2}}]')


def test_the_duplicate_pass_takes_the_numbers_that_the_decoder_takes():
    codec.check_no_duplicate_keys(b'{"a":' + b"9" * 4300 + b',"b":1e-400}')


def test_a_query_string_gives_numbers_and_keeps_words():
    query = codec.convert({"waitMs": "250", "ratio": "0.5", "type": "nan"}, Query, lax=True)

    assert query == Query(wait_ms=250, ratio=0.5, type="nan")


@pytest.mark.parametrize("word", ["nan", "inf", "-inf", "Infinity"])
def test_a_query_string_gives_no_number_that_is_not_finite(word):
    with pytest.raises(BadJson, match="finite"):
        codec.convert({"ratio": word}, Query, lax=True)
    with pytest.raises(BadJson, match="finite"):
        codec.convert(word, float, lax=True)


@pytest.mark.parametrize("word", ["", "1.5", " 1", "+1", "1_000", "01", "٣", "9" * 5000])
def test_a_query_string_with_another_kind_of_number_is_refused_by_name(word):
    with pytest.raises(BadJson, match="waitMs"):
        codec.convert({"waitMs": word}, Query, lax=True)


def test_a_strict_conversion_takes_no_number_from_a_string():
    with pytest.raises(BadJson, match="`waitMs`: expected `int`, got `str`"):
        codec.convert({"waitMs": "1"}, Query)
    assert codec.convert({"waitMs": 1}, Query) == Query(wait_ms=1)


# -- how much work a text makes -------------------------------------------------------------------


def count(value):
    """Everything but names."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


NAMES = st.text(alphabet='b,"[\\', max_size=3)
COUNTED = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet='a,[{"\\ü\n', max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=40,
)


@given(COUNTED, st.booleans())
def test_values_are_counted_and_not_what_stands_in_texts(value, ascii_only):
    data = json.dumps(value, ensure_ascii=ascii_only).encode()
    # An empty list has a bracket and no comma less.
    assert not codec.has_too_many_values(data, 2 * count(value))
    if count(value) > 1:
        assert codec.has_too_many_values(data, count(value) - 2)


@given(st.binary(max_size=200))
def test_any_bytes_are_counted(data):
    assert codec.has_too_many_values(data, 3) in (True, False)


@pytest.mark.parametrize("number", ["1e300", "1.7976931348623157e308", "4.9e-324", "1E+23", "9" * 100])
def test_a_number_that_takes_long_to_read_counts_as_many(number):
    """The control: as many short numbers, and the same in a text."""
    few = codec.MAX_VALUES // codec.SLOW_AS + 10
    assert codec.has_too_many_values(f"[{','.join([number] * few)}]".encode())
    assert not codec.has_too_many_values(f"[{','.join(['1.5e9'] * few)}]".encode())
    assert not codec.has_too_many_values(f'["{",".join([number] * few)}"]'.encode())


def test_a_decoder_with_a_limit_reads_what_is_below_it_and_refuses_the_rest_unread():
    limited = codec.decoder(list[int], max_values=2_000)
    assert len(limited.decode(b"[" + b"0," * 1_999 + b"0]")) == 2_000
    with pytest.raises(codec.TooManyValues, match="2000 values"):
        limited.decode(b"[" + b"0," * 5_000)
