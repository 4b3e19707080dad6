"""What `GET /openapi.json` answers is a valid OpenAPI 3.1 document, as far as that can be told without the network."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from bascule.bridge_list import methods_of
from bascule.daemon.compose import routes_of
from bascule.foundation.errors import ALL_ERRORS
from bascule.kernel.blob import INERT_TYPES
from bascule.surfaces.openapi import describe, document

ROUTES = routes_of()
ROWS = methods_of()

DOCUMENT: dict[str, Any] = json.loads(document(ROWS, ROUTES))
OPERATIONS = [(verb, path, operation) for path, verbs in DOCUMENT["paths"].items() for verb, operation in verbs.items()]

# The parts of the OpenAPI 3.1 schema that our document uses, closed: what is not named here must not appear.
_CONTENT = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {
        "type": "object",
        # Bytes as they are have none: "image/png: {}" in OpenAPI 3.1's own example.
        "properties": {"schema": {"type": "object"}},
        "additionalProperties": False,
    },
}
_RESPONSE = {
    "oneOf": [
        {
            "type": "object",
            "required": ["$ref"],
            "properties": {"$ref": {"type": "string"}},
            "additionalProperties": False,
        },
        {
            "type": "object",
            "required": ["description"],
            "properties": {
                "description": {"type": "string", "minLength": 1},
                "content": _CONTENT,
                "headers": {"type": "object", "additionalProperties": {"type": "object", "required": ["schema"]}},
            },
            "additionalProperties": False,
        },
    ]
}
_OPERATION = {
    "type": "object",
    "required": ["operationId", "summary", "tags", "responses"],
    "properties": {
        "operationId": {"type": "string"},
        "summary": {"type": "string", "pattern": "\\.$"},
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parameters": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "in", "required", "schema"],
                "properties": {
                    "name": {"type": "string"},
                    "in": {"enum": ["path", "query", "header"]},
                    "required": {"type": "boolean"},
                    "schema": {"type": "object"},
                    "description": {"type": "string"},
                },
                "additionalProperties": False,
            },
        },
        "requestBody": {
            "type": "object",
            "required": ["content"],
            "properties": {"content": _CONTENT, "required": {"type": "boolean"}},
            "additionalProperties": False,
        },
        "responses": {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {"^[1-5][0-9]{2}$": _RESPONSE},
            "additionalProperties": False,
        },
    },
    "patternProperties": {"^x-": {"type": "string"}},
    "additionalProperties": False,
}
_FORM = {
    "type": "object",
    "required": ["openapi", "info", "paths", "components", "security", "servers"],
    "properties": {
        "openapi": {"const": "3.1.0"},
        "info": {"type": "object", "required": ["title", "version"]},
        "servers": {"type": "array", "items": {"type": "object", "required": ["url"]}},
        "security": {"type": "array", "items": {"type": "object"}},
        "paths": {
            "type": "object",
            "patternProperties": {
                "^/": {
                    "type": "object",
                    "properties": {"get": _OPERATION, "post": _OPERATION, "put": _OPERATION, "delete": _OPERATION},
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "components": {
            "type": "object",
            "properties": {
                "schemas": {"type": "object", "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"}},
                "responses": {"type": "object", "additionalProperties": _RESPONSE},
                "securitySchemes": {"type": "object"},
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}


def walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from walk(each)


def resolve(reference: str) -> Any:
    assert reference.startswith("#/")
    found: Any = DOCUMENT
    for step in reference[2:].split("/"):
        found = found[step]
    return found


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """For a schema of the document, with its references."""
    return jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def test_the_document_has_the_form_of_openapi_3_1():
    jsonschema.Draft202012Validator.check_schema(_FORM)
    faults = [fault.message for fault in jsonschema.Draft202012Validator(_FORM).iter_errors(DOCUMENT)]
    assert faults == []


def test_every_reference_resolves():
    references = {each["$ref"] for each in walk(DOCUMENT) if isinstance(each.get("$ref"), str)}
    assert references
    for reference in references:
        assert resolve(reference)


def test_nothing_is_defined_that_nobody_refers_to():
    references = {each["$ref"] for each in walk(DOCUMENT) if isinstance(each.get("$ref"), str)}
    defined = {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in DOCUMENT["components"][kind]
    }
    # No operation can be reached with a verb that its path does not serve.
    assert defined - references == {"#/components/responses/405"}


def test_every_schema_is_valid_json_schema():
    schemas = [*DOCUMENT["components"]["schemas"].values()]
    schemas += [each["schema"] for each in walk(DOCUMENT["paths"]) if "schema" in each]
    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)


def test_operation_ids_are_unique():
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("verb", "path", "operation"), OPERATIONS, ids=[f"{verb} {path}" for verb, path, _ in OPERATIONS]
)
def test_a_path_declares_the_parameters_it_names_and_no_others(verb, path, operation):
    parameters = operation.get("parameters", [])
    names = [(each["name"], each["in"]) for each in parameters]
    assert len(names) == len(set(names))
    assert {name for name, where in names if where == "path"} == set(re.findall(r"\{(\w+)\}", path))
    assert all(each["required"] for each in parameters if each["in"] == "path")
    # A GET has no body, a POST no query: then a field has one place to stand.
    assert ("requestBody" in operation) <= (verb in ("post", "put"))
    assert ("query" in {where for _, where in names}) <= (verb == "get")


def test_every_route_is_described_and_nothing_else():
    assert {(verb.upper(), path) for verb, path, _ in OPERATIONS} == {
        (route.verb, route.path.replace("...}", "}")) for route in ROUTES
    }


def test_every_params_field_is_described_where_it_is_sent():
    rows = {row.name: row for row in ROWS}
    for _, path, operation in OPERATIONS:
        row = rows.get(operation["operationId"])
        if row is None:
            continue
        sent = {each["name"] for each in operation.get("parameters", [])}
        if "requestBody" in operation:
            sent |= set(operation["requestBody"]["content"]["application/json"]["schema"]["properties"])
        assert sent == set(row.params.__struct_encode_fields__), path


def test_an_answer_that_has_content_is_never_null():
    for _, path, operation in OPERATIONS:
        content = operation["responses"].get("200", {}).get("content", {})
        for kind in content.values():
            assert {"type": "null"} not in kind.get("schema", {}).get("anyOf", []), path


def test_only_bytes_have_no_schema():
    for _, path, operation in OPERATIONS:
        for response in operation["responses"].values():
            without = {kind for kind, form in response.get("content", {}).items() if "schema" not in form}
            assert without <= INERT_TYPES, path


def test_every_error_of_the_house_has_its_response():
    assert set(DOCUMENT["components"]["responses"]) == {str(error.status) for error in ALL_ERRORS}
    codes = DOCUMENT["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"]
    assert codes == [error.code for error in ALL_ERRORS]


@pytest.mark.parametrize("error", ALL_ERRORS, ids=lambda error: error.code)
def test_an_error_body_fits_its_schema(error):
    made = error("what was wrong", hint="what to do next", details={"a": 1})
    validator(DOCUMENT["components"]["schemas"]["Error"]).validate({"error": made.body()})


def test_the_served_text_is_the_described_one_and_made_only_once():
    assert json.loads(document(ROWS, ROUTES)) == describe(ROWS, ROUTES)
    assert document(ROWS, ROUTES) is document(ROWS, ROUTES)
