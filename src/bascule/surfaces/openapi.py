"""The API description, OpenAPI 3.1, made from the rows and the routes."""

import re
from collections import Counter
from functools import cache
from types import NoneType
from typing import Any, get_args

import msgspec

from bascule import __version__
from bascule.foundation.agreement import DEFAULT_PORT
from bascule.foundation.errors import ALL_ERRORS, ApprovalRequired
from bascule.kernel.blob import INERT_TYPES, Blob
from bascule.kernel.route import Route
from bascule.kernel.rows import Consent, Row, Shape
from gabp import codec

_SCHEMA = "#/components/schemas/{name}"
_RESPONSE = "#/components/responses/{status}"

# What the gate, the route table and the body's reader may answer before a method is reached.
_BEFORE_ANY_METHOD = frozenset({400, 401, 403, 421, 426, 429, 500})
_WITH_A_BODY = frozenset({413, 415})
# With a verb or a path of no route there is no operation to list them under.
_OUTSIDE_ROUTES = frozenset({405})
_RETRY_LATER = frozenset({429, 503})

_PAGES: dict[str, tuple[str, str]] = {
    "page.healthz": ("Say that the process answers.", "text/plain"),
    "page.readyz": ("Say whether the daemon takes calls and can write.", "text/plain"),
    "page.metrics": ("Show numbers about the daemon in Prometheus' text form.", "text/plain"),
    "page.openapi": ("Show this description.", "application/json"),
}
_MCP: dict[str, str] = {
    "mcp.post": "Speak MCP (streamable HTTP) as the agent whose agentToken is the bearer.",
    "mcp.get": "Receive what an MCP session of the 2025 revisions tells by itself.",
    "mcp.delete": "End an MCP session of the 2025 revisions.",
}
# What MCP itself refuses there, in JSON-RPC's form or with no content at all; the rest of the statuses are ours.
_MCP_REFUSALS: dict[int, str] = {
    400: "Not a message of MCP, or one that belongs into a session.",
    404: "No such session, or no such method; or /mcp is turned off.",
    405: "The client's revision of MCP has nothing here.",
    406: "The client does not accept what MCP answers with: application/json and text/event-stream.",
    409: "The session has its stream already.",
    503: "The daemon is starting or stopping, or too many sessions are open.",
}
# Fields of which a body gives one at most; the handlers refuse both.
_ONE_OF: dict[str, tuple[str, str]] = {"messages.broadcast": ("agentIds", "type")}
# Fields that a body must have although decoding does without: what is missing is answered in the protocol's own form.
_REQUIRED: dict[str, tuple[str, ...]] = {"runs.start": ("operations", "protocolVersion")}
# An invalid message of a published protocol is answered in that protocol's form.
_IN_THEIR_FORM = frozenset({"runs.start"})
_SECTION = re.compile(r"\((\d[\d.]*)\)")
_UNDERSCORE = re.compile(r"_(\w)")


# Made once: 10 ms of work is too much for the event loop, and a page may be asked for by anybody.
@cache
def document(rows: tuple[Row, ...], routes: tuple[Route, ...]) -> bytes:
    return codec.encode(describe(rows, routes))


def describe(rows: tuple[Row, ...], routes: tuple[Route, ...]) -> dict[str, Any]:
    by_name = {row.name: row for row in rows}
    served = [by_name[route.method] for route in routes if route.method in by_name]
    with_content = [row for row in served if row.result is not Blob and any(at.status != 204 for at in row.routes)]
    answers = [_without_none(row.result) for row in with_content]
    types = [*answers, *(row.params for row in served)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMA)
    results = {row.name: schema for row, schema in zip(with_content, schemas, strict=False)}
    paths: dict[str, Any] = {}
    ids: Counter[str] = Counter()
    for route in routes:
        row = by_name.get(route.method)
        if row is not None:
            operation = _operation(route, row, components, results.get(row.name, {}))
            # A method may have two ways to it.
            ids[row.name] += 1
            if ids[row.name] > 1:
                operation["operationId"] += f".{ids[row.name]}"
        else:
            operation = _mcp(route) if route.method in _MCP else _page(route)
        # The rest of a path is one parameter to OpenAPI.
        paths.setdefault(route.path.replace("...}", "}"), {})[route.verb.lower()] = operation
    # Parameters stand in the operations, field by field; only an answer may refer to their Structs as a whole.
    _, in_answers = msgspec.json.schema_components(answers, ref_template=_SCHEMA)
    for row in served:
        if row.params.__name__ not in in_answers:
            components.pop(row.params.__name__, None)
    for schema in components.values():
        if "description" in schema:
            schema["description"] = _SECTION.sub(r"section \1 of the agent broker spec", schema["description"])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Bascule",
            "version": __version__,
            "description": "The HTTP API of the local Bascule daemon, on 127.0.0.1 and on the unix socket http.sock. "
            "A client that sends the header `Bascule-Protocol: 1` is told when it and the daemon do not match.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": f"http://127.0.0.1:{DEFAULT_PORT}"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _error_schema(), **_json_rpc_schemas()},
            "responses": {str(status): _error_response(status) for status in _statuses()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "local.token of the state directory, or an agentToken. "
                    "Not needed on http.sock, nor on TCP with the setting auth = off.",
                }
            },
        },
    }


def _without_none(result: Any) -> Any:
    """What an answer with content holds: a wait's None is the answer without."""
    kept = [type_ for type_ in get_args(result) if type_ is not NoneType]
    return kept[0] if NoneType in get_args(result) and len(kept) == 1 else result


def _operation(route: Route, row: Row, components: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    schema = components[row.params.__name__]
    properties: dict[str, Any] = schema["properties"]
    required = set(schema.get("required", ()))
    in_path = route.names
    rest = {name: value for name, value in properties.items() if name not in in_path}
    operation: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "tags": [row.name.partition(".")[0]],
        "x-effect": row.effect.value,
        # As the wire names the parameter: `self(agentId)`.
        "x-who": _UNDERSCORE.sub(lambda found: found[1].upper(), str(row.who)),
        "x-record": row.record.value,
    }
    if route.section:
        operation["description"] = f"Section {route.section} of the agent broker spec."
    parameters = [{"name": name, "in": "path", "required": True, "schema": properties[name]} for name in in_path]
    if route.verb == "GET":
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": value} for name, value in rest.items()
        ]
    elif rest:
        needed = sorted({*required, *_REQUIRED.get(row.name, ())} - set(in_path))
        operation["requestBody"] = _body(rest, needed, _ONE_OF.get(row.name, ()))
    if parameters:
        operation["parameters"] = parameters
    operation["responses"] = _responses(route, row, result)
    return operation


def _body(properties: dict[str, Any], required: list[str], one_of: tuple[str, ...]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    if one_of:
        given = {name: {"not": {"type": "null"}} for name in one_of}
        schema["not"] = {"required": list(one_of), "properties": given}
    return {"required": bool(required), "content": {"application/json": {"schema": schema}}}


def _responses(route: Route, row: Row, result: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if route.status == 204:
        responses["204"] = {"description": "Done; no content."}
    elif row.shape is Shape.STREAM:
        responses["200"] = {
            "description": "Server-sent events; the data of each is JSON of this form.",
            "content": {"text/event-stream": {"schema": result}},
        }
    elif row.result is Blob:
        bytes_ = {"schema": {"type": "string", "format": "binary"}}
        kinds = dict.fromkeys(sorted(INERT_TYPES), bytes_)
        responses[str(route.status)] = {"description": row.summary, "content": kinds}
    else:
        responses[str(route.status)] = {"description": row.summary, "content": {"application/json": {"schema": result}}}
    if row.shape is Shape.WAIT and NoneType in get_args(row.result):
        responses["204"] = {"description": "Nothing came within waitMs; ask again."}
    wrong = set(_statuses()) - _OUTSIDE_ROUTES - (_WITH_A_BODY if route.verb == "GET" else frozenset())
    if row.consent is not Consent.HOLD:
        wrong.discard(ApprovalRequired.status)
    responses |= {str(status): {"$ref": _RESPONSE.format(status=status)} for status in sorted(wrong)}
    if row.name in _IN_THEIR_FORM:
        either = {"anyOf": [{"$ref": _SCHEMA.format(name="Error")}, result]}
        responses["400"] = {
            "description": "Not a valid operations message: answered in the protocol's own form.",
            "content": {"application/json": {"schema": either}},
        }
    return responses


def _page(route: Route) -> dict[str, Any]:
    summary, kind = _PAGES[route.method]
    tag = route.method.partition(".")[0]
    schema = {"type": "object" if kind == "application/json" else "string"}
    responses: dict[str, Any] = {"200": {"description": summary, "content": {kind: {"schema": schema}}}}
    responses |= {str(status): {"$ref": _RESPONSE.format(status=status)} for status in sorted(_BEFORE_ANY_METHOD)}
    if route.method == "page.readyz":
        responses["503"] = {
            "description": "Not ready, or the store cannot be written.",
            "content": {kind: {"schema": schema}},
        }
    return {"operationId": route.method, "summary": summary, "tags": [tag], "responses": responses}


def _mcp(route: Route) -> dict[str, Any]:
    """The envelope only: what is said inside is MCP's to describe."""
    summary = _MCP[route.method]
    message = {"schema": {"$ref": _SCHEMA.format(name="JsonRpcMessage")}}
    events = {"text/event-stream": {"schema": {"type": "string"}}}
    responses: dict[str, Any] = {"200": {"description": summary}}
    if route.verb == "POST":
        responses["200"]["content"] = {"application/json": message} | events
        responses["202"] = {"description": "A notification or an answer was taken; no content."}
    elif route.verb == "GET":
        responses["200"]["content"] = events
    ours = _BEFORE_ANY_METHOD | (frozenset() if route.verb == "GET" else _WITH_A_BODY)
    responses |= {str(status): {"$ref": _RESPONSE.format(status=status)} for status in sorted(ours)}
    either = {"anyOf": [{"$ref": _SCHEMA.format(name=name)} for name in ("Error", "JsonRpcError")]}
    for status, description in _MCP_REFUSALS.items():
        responses[str(status)] = {"description": description}
        if status not in (405, 406):
            responses[str(status)]["content"] = {"application/json": {"schema": either}}
    operation: dict[str, Any] = {
        "operationId": route.method,
        "summary": summary,
        "tags": ["mcp"],
        "parameters": [
            {
                "name": "Mcp-Session-Id",
                "in": "header",
                "required": route.verb != "POST",
                "description": "As the answer to `initialize` gave it.",
                "schema": {"type": "string"},
            },
        ],
        "responses": responses,
    }
    if route.verb == "POST":
        operation["requestBody"] = {"required": True, "content": {"application/json": message}}
    return operation


def _statuses() -> list[int]:
    return sorted({error.status for error in ALL_ERRORS})


def _error_response(status: int) -> dict[str, Any]:
    errors = [error for error in ALL_ERRORS if error.status == status]
    description = " ".join(f"`{error.code}`: {(error.__doc__ or '').splitlines()[0]}" for error in errors)
    response: dict[str, Any] = {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": _SCHEMA.format(name="Error")}}},
    }
    if status in _RETRY_LATER:
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
    return response


def _error_schema() -> dict[str, Any]:
    inner = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "string", "enum": [error.code for error in ALL_ERRORS]},
            "message": {"type": "string", "description": "What was wrong."},
            "details": {"type": "object"},
            "hint": {"type": "string", "description": "What to do next."},
        },
    }
    return {"title": "Error", "type": "object", "required": ["error"], "properties": {"error": inner}}


def _json_rpc_schemas() -> dict[str, Any]:
    id_ = {"type": ["string", "integer", "null"]}
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"type": "integer"}, "message": {"type": "string"}, "data": {}},
    }
    version = {"const": "2.0"}
    return {
        "JsonRpcMessage": {
            "title": "JsonRpcMessage",
            "description": "A request, a notification or an answer of JSON-RPC 2.0.",
            "type": "object",
            "required": ["jsonrpc"],
            "properties": {
                "jsonrpc": version,
                "id": id_,
                "method": {"type": "string"},
                "params": {"type": "object"},
                "result": {"type": "object"},
                "error": error,
            },
        },
        "JsonRpcError": {
            "title": "JsonRpcError",
            "type": "object",
            "required": ["jsonrpc", "error"],
            "properties": {"jsonrpc": version, "id": id_, "error": error},
        },
    }
