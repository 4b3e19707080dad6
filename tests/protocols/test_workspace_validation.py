"""Operations are judged by type and by rule, and what is wrong is named."""

import json
import math

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workspace_cases import BAD, BEYOND_SCHEMAS, GOOD

from bascule.workspace.protocol import MAX_OPERATIONS, MessageOperation, Operation, OperationsMessage
from bascule.workspace.schemas import events_schema, operations_schema
from bascule.workspace.validation import (
    BadOperation,
    operation_ids,
    parse_operation,
    validate_operation,
    validate_operations_message,
)

OPERATIONS = jsonschema.Draft202012Validator(operations_schema())


def message(*operations):
    return {"protocolVersion": "1.0", "operations": list(operations)}


@pytest.mark.parametrize("given_", GOOD.values(), ids=GOOD)
def test_a_good_operation_is_taken_as_value_and_as_text(given_):
    result = validate_operation(given_)
    assert result.success
    assert result.error is None
    assert validate_operation(json.dumps(given_)).data == result.data
    assert validate_operation(json.dumps(given_).encode()).data == result.data
    # What was parsed is an operation too.
    assert parse_operation(result.data) == result.data


@pytest.mark.parametrize(("given_", "field"), BAD.values(), ids=BAD)
def test_a_bad_operation_is_refused_with_its_field_and_a_reason(given_, field):
    result = validate_operation(given_)
    assert not result.success
    assert result.data is None
    assert result.error.field == field
    assert result.error.reason
    with pytest.raises(BadOperation) as refused:
        parse_operation(given_)
    assert str(refused.value) == str(result.error)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("given_", "field"), BAD.values(), ids=BAD)
def test_in_a_message_the_field_says_which_operation(given_, field):
    error = validate_operations_message(message(GOOD["message"], given_)).error
    assert str(error).startswith(f"operations[1].{field}" if field else "operations[1]")


def test_a_whole_message_is_taken_as_value_and_as_text():
    whole = message(*(GOOD[name] for name in ("message", "create", "read", "edit", "delete", "shell")))
    result = validate_operations_message(whole)
    assert isinstance(result.data, OperationsMessage)
    assert validate_operations_message(json.dumps(whole)) == result
    assert validate_operations_message(result.data) == result


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("{", "JSON is cut short"),
        (b"\xff", "UTF-8"),
        ("[]", "a JSON object, not a list"),
        ({"operations": []}, "protocolVersion: is missing"),
        ({"protocolVersion": 1.0, "operations": []}, "protocolVersion: 'a number' is not spoken here"),
        ({"protocolVersion": "1.1", "operations": []}, "'1.1' is not spoken here"),
        ({"protocolVersion": "1.0"}, "operations: is missing"),
        ({"protocolVersion": "1.0", "operations": None}, "operations: is missing"),
        ({"protocolVersion": "1.0", "operations": "ls"}, "operations: is a string"),
        ({"protocolVersion": "1.0", "operations": [], "metadata": {}}, "metadata': is not a field"),
        (message(*[GOOD["message"]] * (MAX_OPERATIONS + 1)), f"at most {MAX_OPERATIONS}"),
        (
            message({**GOOD["message"], "id": "x"}, GOOD["read"], {"id": "x"}),
            "operations[2].id: 'x' is the id of operations[0]",
        ),
    ],
)
def test_a_bad_message_is_refused_with_a_reason(given_, expected):
    assert expected in str(validate_operations_message(given_).error)


def test_a_python_number_that_json_cannot_hold_is_refused():
    for value in (math.nan, math.inf):
        assert not validate_operation({"type": "shell", "command": "x", "timeout": value}).success


def test_half_a_surrogate_pair_is_refused_wherever_it_stands():
    half = "\ud800"
    for case in (
        {"type": "message", "content": half},
        {"type": "createFile", "path": "a", "content": half},
        {"type": "readFile", "path": half},
        {"type": "shell", "command": half},
        {"type": "shell", "command": "x", "env": {"A": half}},
        {"type": "editFile", "path": "a", "edits": [{"oldContent": half, "newContent": ""}]},
    ):
        assert "Unicode" in str(validate_operation(case).error)


def test_what_is_quoted_back_is_short_and_printable():
    expected = str(validate_operation({"type": "\x1b[31m" * 1000}).error)
    assert "\x1b" not in expected
    assert len(expected) < 300


def test_ids_are_given_to_operations_without_one_and_never_twice():
    assert operation_ids([{}, {"id": "op-1"}, {"id": ""}, 7, {"id": "x" * 500}]) == [
        "op-1.1",
        "op-1",
        "op-3",
        "op-4",
        "op-5",
    ]


@given(st.lists(st.one_of(st.just({}), st.integers(1, 9).map(lambda n: {"id": f"op-{n}"})), max_size=9))
def test_ids_are_as_many_as_operations_and_all_different(items):
    own = [item.get("id") for item in items if "id" in item]
    if len(own) == len(set(own)):
        ids = operation_ids(items)
        assert len(set(ids)) == len(items)
        assert all(id_ == item["id"] for id_, item in zip(ids, items, strict=True) if "id" in item)


# -- the schemas ----------------------------------------------------------------------------------------------


def test_both_schemas_are_schemas():
    for schema in (operations_schema(), events_schema()):
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("given_", GOOD.values(), ids=GOOD)
def test_what_is_taken_is_valid_by_the_schema(given_):
    OPERATIONS.validate(message(given_))


@pytest.mark.parametrize("name", [name for name in BAD if name not in BEYOND_SCHEMAS])
def test_what_is_refused_is_invalid_by_the_schema_as_far_as_one_can_tell(name):
    assert not OPERATIONS.is_valid(message(BAD[name][0]))


_paths = st.text(st.sampled_from("a./\\:C\0 ü"), max_size=12)


@given(_paths)
def test_schema_and_parser_agree_on_every_path(path):
    wanted = {"type": "readFile", "path": path}
    assert OPERATIONS.is_valid(message(wanted)) == validate_operation(wanted).success


@given(_paths)
def test_schema_and_parser_agree_on_every_directory(path):
    wanted = {"type": "shell", "command": "x", "cwd": path}
    assert OPERATIONS.is_valid(message(wanted)) == validate_operation(wanted).success


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(["type", "id", "path", "content", "encoding", "edits", "command", "cwd", "timeout", "env"]),
        _json | st.sampled_from(["message", "shell", "createFile", "utf-8"]),
    )
    | _json
)
def test_any_value_is_an_operation_or_is_refused_with_a_reason(value):
    result = validate_operation(value)
    assert result.success == isinstance(result.data, Operation)
    assert result.success or result.error.reason


def test_messages_are_no_more_than_their_fields():
    assert parse_operation({"type": "message", "content": "x"}) == MessageOperation(content="x")
