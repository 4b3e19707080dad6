"""wire.json_schema: the sentences an agent mends its call by, and schemas that are attacks."""

import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gabp.codec import encode
from gabp.json_schema import MAX_PROBLEMS, Schema
from gabp.words import MAX_SCHEMA_BYTES


def problems(schema, value, *, trusted=False):
    return Schema(schema, trusted=trusted).problems(value)


@pytest.mark.parametrize(
    ("schema", "value", "sentence"),
    [
        ({"type": "integer"}, "three", 'arguments: must be an integer, not "three"'),
        ({"type": ["string", "null"]}, 3, "arguments: must be a string or null, not 3"),
        ({"type": "integer"}, True, "arguments: must be an integer, not true"),
        ({"enum": ["a", 1]}, "b", 'arguments: must be one of "a", 1, not "b"'),
        ({"const": 1}, True, "arguments: must be 1, not true"),
        ({"required": ["x"]}, {}, "arguments.x: is missing"),
        ({"properties": {"x": {"type": "string"}}}, {"x": 1}, "arguments.x: must be a string, not 1"),
        (
            {"properties": {"x": {}, "y": {}}, "additionalProperties": False},
            {"z": 1},
            "arguments.z: is not known; known: x, y",
        ),
        ({"additionalProperties": {"type": "null"}}, {"z": 1}, "arguments.z: must be null, not 1"),
        ({"items": {"type": "string"}}, ["a", 2], "arguments[1]: must be a string, not 2"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 2], "arguments[1]: is not allowed here"),
        ({"items": [{"type": "string"}]}, [1], "arguments[0]: must be a string, not 1"),
        ({"minItems": 2}, [1], "arguments: must have at least 2 items, not 1"),
        ({"maxLength": 2}, "abc", "arguments: must have at most 2 characters, not 3"),
        ({"uniqueItems": True}, [1, 1], "arguments: must not have the same item twice"),
        ({"minimum": 3}, 2, "arguments: must be at least 3, not 2"),
        ({"exclusiveMaximum": 3}, 3, "arguments: must be less than 3, not 3"),
        ({"format": "uuid"}, "b", 'arguments: must be a uuid, not "b"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "arguments: fits none of the 2 alternatives, being 1"),
        (
            {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "null"}]},
            {},
            "arguments.x: is missing",
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, "arguments: must be null, not 1"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, 'arguments: must not have the key "ab"'),
        ({"minProperties": 1}, {}, "arguments: must have at least 1 properties, not 0"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, "arguments: must have at most 1 properties, not 2"),
        ({"contains": {"type": "null"}}, [1], "arguments: has no item of the kind that it must contain"),
        ({"multipleOf": 3}, 4, "arguments: must be a multiple of 3, not 4"),
        ({"multipleOf": 2}, 10**18 + 1, "arguments: must be a multiple of 2, not 1000000000000000001"),
        ({"multipleOf": 0.1}, 0.25, "arguments: must be a multiple of 0.1, not 0.25"),
        (False, 1, "arguments: is not allowed here"),
    ],
)
def test_a_wrong_value_is_reported_where_and_why(schema, value, sentence):
    assert problems(schema, value) == [sentence]


def test_a_pattern_is_tried_when_the_schema_is_our_own():
    sentence = 'arguments: must match ^a+$, and "b" does not'
    assert problems({"pattern": "^a+$"}, "b", trusted=True) == [sentence]
    assert problems({"pattern": "^a+$"}, "b") == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 3.0),
        ({"type": "integer"}, 2**100),
        ({"type": "string", "nullable": True}, None),
        ({"$ref": "https://example.com/schema"}, 1),
        ({"$ref": "#/nowhere"}, 1),
        ({"type": "colour"}, 1),
        ({"type": []}, 1),
        ({"properties": {"a": {"$ref": "#number"}}, "type": "object"}, {"a": 1}),
        ({"contains": {"pattern": "^a"}}, ["b"]),
        ({"contains": {"type": "null"}, "minContains": 0}, []),
        ({"multipleOf": 0.1}, 0.3),
        ({"multipleOf": 0}, 1),
        ({"multipleOf": 0.1}, 1e9 + 0.1),
        ({"multipleOf": 1e-300}, 1e300),
        ({"multipleOf": 0.5}, 10**400),
        ({"$ref": "file:///etc/hostname"}, 1),
        ({"pattern": "("}, "x"),
        # A schema whose parts are not all judged must not refuse what it does not mean.
        ({"not": {"pattern": "(a+)+$"}}, "b"),
        ({"oneOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, "b"),
        ({"if": {"pattern": "^a"}, "then": False}, "b"),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"xy": 1}),
        ({"maximum": 10**400}, 10**300),
        ({"required": "x", "properties": 7, "items": None, "enum": {}, "anyOf": []}, {}),
        (True, 1),
        (None, 1),
    ],
)
def test_what_fits_or_cannot_be_judged_passes(schema, value):
    assert problems(schema, value) == []


def test_names_and_values_of_strangers_are_shown_short_and_without_control_characters():
    name = "\x1b[2J" + "n" * 500
    for schema, value in (
        ({"additionalProperties": False}, {name: 1}),
        ({"additionalProperties": False, "properties": {name: {}}}, {"x": 1}),
        ({"required": [name]}, {}),
        ({"properties": {name: {"type": "null"}}}, {name: 1}),
        ({"enum": [name]}, "x"),
        ({"type": ["null"] * 5_000}, name),
        ({"const": {name: [name] * 5_000}}, [name] * 5_000),
    ):
        (sentence,) = problems(schema, value)
        assert "\x1b" not in sentence
        assert len(sentence) < 300


def test_a_thousand_mistakes_are_reported_as_a_few():
    assert len(problems({"items": {"type": "string"}}, list(range(1000)))) == MAX_PROBLEMS


schemas = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"]),
            "enum": st.lists(st.sampled_from([1, "a", None, True]), min_size=1, max_size=3, unique_by=repr),
            "minimum": st.integers(-3, 3),
            "maxLength": st.integers(0, 3),
            "minItems": st.integers(0, 3),
            "minProperties": st.integers(0, 3),
            "maxProperties": st.integers(0, 3),
            "multipleOf": st.integers(1, 3),
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner),
            "additionalProperties": inner | st.booleans(),
            "items": inner,
            "contains": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
        },
    ),
    max_leaves=5,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-4, 4) | st.sampled_from(["", "a", "abcd", 1.0, 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner),
    max_leaves=5,
)


@settings(deadline=None, max_examples=300)
@given(schemas, values)
def test_the_validator_agrees_with_the_reference_implementation(schema, value):
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (problems(schema, value) == []) == expected


NOT_JUDGED = ("not", "oneOf", "if", "propertyNames")


@settings(deadline=None, max_examples=300)
@given(schemas, st.sampled_from(NOT_JUDGED), schemas, st.booleans(), values)
def test_a_keyword_that_is_not_judged_never_refuses_a_good_value(schema, keyword, inner, nested, value):
    rule = [schema, inner] if keyword == "oneOf" else inner
    whole = {"allOf": [schema, {keyword: rule, "then": False}]} if nested else {**schema, keyword: rule, "else": inner}
    if jsonschema.Draft202012Validator(whole).is_valid(value):
        assert problems(whole, value) == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1, 1.0, True), (1, True, False), ([1], [True], False), ({"a": [None]}, {"a": [None]}, True), ([], {}, False)],
)
def test_equal_is_equal_as_json(one, other, same):
    assert (problems({"const": one}, other) == []) is same


# -- attacks ------------------------------------------------------------------------------------


def around(depth: int) -> dict:
    """2^depth ways through, if each is tried."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**defs, f"d{depth}": {"type": "null"}}, "$ref": "#/$defs/d0"}


# As large as arguments may be.
LARGE = "a" * 1_000_000
MANY = [0] * 500_000
DEEP = [[[["x"] * 1000] * 100] * 10]


def referring(part: dict, count: int = 2_000) -> dict:
    """The same part judged so many times, in a schema that is not too large to be listed."""
    return {"$defs": {"x": part}, "allOf": [{"$ref": "#/$defs/x"}] * count}


def either(part: dict) -> dict:
    return {"$defs": {"x": part}, "anyOf": [{"$ref": "#/$defs/x"}] * 2_000}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (around(40), "a"),
        ({"$ref": "#"}, "a"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "a"),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "a"),
        ({"$defs": {"x": {"anyOf": [{"items": {"$ref": "#/$defs/x"}}] * 3}}, "$ref": "#/$defs/x"}, DEEP),
        ({"items": {"anyOf": [{"enum": list(range(1000))}] * 10}}, ["a" * 64] * 1000),
        (either({"const": [0] * 10_000 + [1]}), [0] * 10_001),
        (either({"enum": [list(range(3_000))]}), [*range(2_999), 0]),
        (either({"required": [f"n{n}" for n in range(3_000)] + [""]}), {f"n{n}": 1 for n in range(3_000)}),
        (either({"format": "uri"}), "a:" + LARGE + " "),
        (either({"uniqueItems": True}), [LARGE[:400_000]] * 2),
        (either({"contains": {"const": 1}}), MANY),
        (referring({"uniqueItems": True}), list(range(50_000))),
        (referring({"$ref": "#" + "/x" * 10_000}), 1),
        ({"pattern": "(a+)+$"}, "a" * 64 + "b"),
        ({"patternProperties": {"(x|x)*y": {}}}, {"x" * 64: 1}),
    ],
    ids=lambda each: encode(each).decode()[:40],
)
def test_a_schema_that_would_take_for_ever_is_not_judged(schema, value):
    assert len(encode(schema)) <= MAX_SCHEMA_BYTES
    began = time.thread_time()
    assert problems(schema, value) == []
    # A tenth of a second here; for ever where the budget is missing.
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (referring({"type": "null"}), MANY),
        (either({"type": "null"}), MANY),
        (referring({"enum": [1, 2]}), DEEP),
        (
            {"additionalProperties": False, "properties": {f"n{n}": {} for n in range(3_000)}},
            {f"m{n}": 1 for n in range(50_000)},
        ),
    ],
    ids=lambda each: encode(each).decode()[:40],
)
def test_what_is_wrong_with_a_large_value_is_said_at_once(schema, value):
    began = time.thread_time()
    assert 0 < len(problems(schema, value)) <= MAX_PROBLEMS
    assert time.thread_time() - began < 10


def test_a_schema_of_a_megabyte_is_judged_in_its_budget():
    properties = {f"p{n}": {"type": "string", "pattern": f"^a{n}.*"} for n in range(20_000)}
    assert problems({"properties": properties}, {"p7": 3}) == ["arguments.p7: must be a string, not 3"]
