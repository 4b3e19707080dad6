"""The API description, OpenAPI 3.1, made from the rows and the routes."""

from collections.abc import Iterable
from typing import Any

import msgspec

from bascule import __version__
from bascule.errors import ALL_ERRORS
from bascule.protocols.methods import Row, Shape
from bascule.protocols.route import Route
from bascule.wire import codec

_REF = "#/components/schemas/{name}"


def document(rows: Iterable[Row], routes: Iterable[Route]) -> bytes:
    return codec.encode(describe(rows, routes))


def describe(rows: Iterable[Row], routes: Iterable[Route]) -> dict[str, Any]:
    by_name = {row.name: row for row in rows}
    types: list[Any] = []
    for route in routes:
        row = by_name.get(route.method)
        if row is not None:
            types += [row.params, row.result]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    of_type = {id(type_): schema for type_, schema in zip(types, schemas, strict=True)}
    components["Error"] = _error_schema()
    paths: dict[str, Any] = {}
    for route in routes:
        row = by_name.get(route.method)
        operation = _page(route) if row is None else _operation(route, row, of_type, components)
        paths.setdefault(route.path, {})[route.verb.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bascule",
            "version": __version__,
            "description": "The HTTP API of the local Bascule daemon.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:5050"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "local.token of the state directory, or an agentToken.",
                }
            },
        },
    }


def _operation(route: Route, row: Row, of_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    fields = msgspec.json.schema(row.params, ref_template=_REF)
    schema = components.get(row.params.__name__, fields)
    properties: dict[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    path_names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    operation: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.name.partition(".")[0]],
        "responses": _responses(route, row, of_type),
        "x-effect": row.effect.value,
        "x-who": str(row.who),
    }
    parameters = [{"name": name, "in": "path", "required": True, "schema": properties[name]} for name in path_names]
    rest = {name: value for name, value in properties.items() if name not in path_names}
    if route.verb == "GET":
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": value} for name, value in rest.items()
        ]
    elif rest:
        body = {
            "type": "object",
            "properties": rest,
            "required": sorted(required - set(path_names)),
            "additionalProperties": False,
        }
        operation["requestBody"] = {
            "required": bool(required - set(path_names)),
            "content": {"application/json": {"schema": body}},
        }
    if parameters:
        operation["parameters"] = parameters
    return operation


def _responses(route: Route, row: Row, of_type: dict[int, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if route.status == 204:
        responses["204"] = {"description": "Done; no content."}
    else:
        kind = "text/event-stream" if row.shape is Shape.STREAM else "application/json"
        responses[str(route.status)] = {
            "description": row.summary,
            "content": {kind: {"schema": of_type[id(row.result)]}},
        }
    if row.shape is Shape.WAIT:
        responses["204"] = {"description": "Nothing came within waitMs; ask again."}
    error = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    for status in sorted({error.status for error in ALL_ERRORS}):
        responses[str(status)] = {"description": _error_names(status), "content": error}
    return responses


def _error_names(status: int) -> str:
    return ", ".join(dict.fromkeys(error.code for error in ALL_ERRORS if error.status == status))


def _page(route: Route) -> dict[str, Any]:
    name = route.method.partition(".")[2]
    error = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    responses: dict[str, Any] = {"200": {"description": "It is so."}}
    if name == "readyz":
        responses["503"] = {"description": "Not ready, or the store cannot be written."}
    for status in (400, 401, 403, 421, 426, 429):
        responses[str(status)] = {"description": _error_names(status), "content": error}
    return {
        "operationId": route.method,
        "summary": f"The daemon's {name}.",
        "tags": ["house"],
        "responses": responses,
    }


def _error_schema() -> dict[str, Any]:
    inner = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "enum": [error.code for error in ALL_ERRORS]},
            "message": {"type": "string"},
            "details": {"type": "object"},
            "hint": {"type": "string"},
        },
    }
    return {"type": "object", "required": ["error"], "properties": {"error": inner}}
