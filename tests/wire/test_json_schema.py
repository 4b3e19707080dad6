"""wire.json_schema: the sentences an agent mends its call by, and schemas that are attacks."""

import time

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gabp import tame_patterns
from gabp.json_schema import MAX_PROBLEMS, Schema, same


def problems(schema, value):
    return Schema(schema).problems(value)


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
        ({"contains": {"type": "string"}}, [1], "arguments: has no item of the kind it must contain"),
        ({"minimum": 3}, 2, "arguments: must be at least 3, not 2"),
        ({"exclusiveMaximum": 3}, 3, "arguments: must be less than 3, not 3"),
        ({"multipleOf": 0.5}, 0.75, "arguments: must be a multiple of 0.5, not 0.75"),
        ({"pattern": "^a+$"}, "b", 'arguments: must match ^a+$, and "b" does not'),
        ({"format": "uuid"}, "b", 'arguments: must be a uuid, not "b"'),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "arguments: fits none of the 2 alternatives, being 1"),
        (
            {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "null"}]},
            {},
            "arguments.x: is missing",
        ),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            1,
            "arguments: fits 2 of the alternatives, and must fit exactly one",
        ),
        ({"not": {"type": "string"}}, "a", 'arguments: must not be "a"'),
        (
            {"if": {"type": "string"}, "then": {"maxLength": 1}},
            "ab",
            "arguments: must have at most 1 characters, not 2",
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, 1, "arguments: must be null, not 1"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, 'arguments: must not have the key "ab"'),
        ({"patternProperties": {"^x": {"type": "null"}}}, {"xy": 1}, "arguments.xy: must be null, not 1"),
        (False, 1, "arguments: is not allowed here"),
    ],
)
def test_a_wrong_value_is_told_where_and_why(schema, value, sentence):
    assert problems(schema, value) == [sentence]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 3.0),
        ({"type": "integer"}, 2**100),
        ({"type": "string", "nullable": True}, None),
        ({"$ref": "https://example.com/schema"}, 1),
        ({"$ref": "#/nowhere"}, 1),
        ({"type": "colour"}, 1),
        ({"pattern": "("}, "x"),
        ({"required": "x", "properties": 7, "items": None, "enum": {}, "anyOf": []}, {}),
        (True, 1),
        (None, 1),
    ],
)
def test_what_fits_or_cannot_be_judged_passes(schema, value):
    assert problems(schema, value) == []


def test_names_and_values_of_strangers_are_shown_short_and_without_control_characters():
    (sentence,) = problems({"additionalProperties": False}, {"\x1b[2J" + "n" * 500: 1})
    assert "\x1b" not in sentence
    assert len(sentence) < 200


def test_a_thousand_mistakes_are_told_as_a_few():
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
            "required": st.lists(st.sampled_from(["a", "b"]), unique=True),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner),
            "additionalProperties": inner | st.booleans(),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
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
def test_it_judges_as_the_reference_implementation_does(schema, value):
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (problems(schema, value) == []) == expected


def test_equal_is_equal_as_json():
    assert same(1, 1.0)
    assert not same(1, True)
    assert not same([1], [True])
    assert same({"a": [None]}, {"a": [None]})


# -- attacks ------------------------------------------------------------------------------------


def around(depth: int) -> dict:
    """2^depth ways through, if each is tried."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**defs, f"d{depth}": {"type": "null"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        around(40),
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"items": {"anyOf": [{"enum": list(range(1000))}] * 100}},
        {"pattern": "(a+)+$"},
        {"patternProperties": {"(x|x)*y": {}}},
    ],
)
def test_a_schema_that_would_take_for_ever_is_not_judged(schema):
    began = time.thread_time()
    assert problems(schema, ["a" * 64] * 1000 if "items" in schema else "a" * 64) == []
    # A tenth of a second here; for ever where the budget is missing.
    assert time.thread_time() - began < 10


@pytest.mark.parametrize(
    ("pattern", "text", "tried"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "ABC", False),
        (r"^\d{1,3}(\.\d+)?$", "12.5", True),
        ("(a+)+$", "a" * 30 + "b", None),
        ("(a|a)*b", "a" * 30, None),
        ("(a?){30}a{30}", "a" * 30, None),
        ("a?" * 25 + "a" * 25, "a" * 25, None),
        ("a*a*a*b", "a" * 900, None),
        (r"(a)\1", "aa", None),
        ("(?=a)", "a", None),
        ("[", "a", None),
        ("a", "a" * 20_000, None),
        ("a" * 2_000, "a", None),
    ],
)
def test_only_patterns_whose_worst_case_is_short_are_tried(pattern, text, tried):
    assert tame_patterns.search(pattern, text) is tried


@settings(deadline=None, max_examples=200)
@given(st.text("ab+*?{}()|[]^$\\.1,", max_size=14), st.integers(1, 300))
def test_no_pattern_that_is_tried_takes_long(pattern, length):
    began = time.thread_time()
    tame_patterns.search(pattern, "a" * length + "c")
    assert time.thread_time() - began < 5
