"""Texts from outside: JSON, envelopes, parameters, paths. Refused with the error we document, or read for good."""

import json
from typing import Any

from bascule.admin.protocol import METHODS as HOUSE_METHODS
from bascule.broker.rows import METHODS as BROKER_METHODS
from bascule.foundation.errors import InvalidRequest, MethodNotAllowed, NotFound
from bascule.surfaces.http.routes import RouteTable, query_params
from bascule.wire import jsonrpc
from bascule.wire.canonical import canonical
from gabp import codec

_ROWS = {row.name: row for row in (*BROKER_METHODS, *HOUSE_METHODS)}
_DECODERS = [codec.decoder(row.params) for row in _ROWS.values()]
_TABLE = RouteTable(tuple(route for row in _ROWS.values() for route in row.routes))
_VERBS = ("GET", "POST", "DELETE", "PUT", "", "{}")
_ANY = codec.decoder(Any)


def envelopes(data: bytes) -> None:
    try:
        message = jsonrpc.parse(data)
    except jsonrpc.BadEnvelope as error:
        # What we would answer must be readable itself.
        jsonrpc.parse(jsonrpc.error_response(error.id, error.code, error.message))
        return
    match message:
        case jsonrpc.Request(id=id_, method=method, params=params):
            again: Any = jsonrpc.parse(jsonrpc.request(id_, method, bytes(params)))
            assert (again.id, again.method, bytes(again.params)) == (id_, method, bytes(params))
        case jsonrpc.Notification(method=method, params=params):
            again = jsonrpc.parse(jsonrpc.notification(method, bytes(params)))
            assert (again.method, bytes(again.params)) == (method, bytes(params))
        case jsonrpc.Response(id=id_, result=result, error=None):
            again = jsonrpc.parse(jsonrpc.response(id_ if id_ is not None else 0, bytes(result or b"")))
            assert bytes(again.result) == bytes(result or b"")
        case jsonrpc.Response(error=error):
            assert error is not None


def params(data: bytes) -> None:
    decoder = _DECODERS[data[0] % len(_DECODERS)] if data else _DECODERS[0]
    try:
        value = decoder.decode(data[1:])
    except codec.BadJson:
        return
    assert decoder.decode(codec.encode(value)) == value


def values(data: bytes) -> None:
    try:
        value = _ANY.decode(data)
    except codec.BadJson:
        return
    text = canonical(value)
    again = _ANY.decode(text)
    assert alike(again, value)
    assert canonical(again) == text
    # Another parser reads the same from it.
    assert alike(json.loads(text), value)
    try:
        codec.check_no_duplicate_keys(data)
    except codec.BadJson:
        return
    assert json.loads(data) == value


def alike(read: Any, meant: Any) -> bool:
    """Equal, but for a double above 2**53, whose canonical text is that of an integer: `canonical` says so."""
    match meant:
        case float():
            return isinstance(read, int | float) and float(read) == meant
        case list():
            return isinstance(read, list) and len(read) == len(meant) and all(map(alike, read, meant))
        case dict():
            return (
                isinstance(read, dict)
                and read.keys() == meant.keys()
                and all(alike(read[key], meant[key]) for key in meant)
            )
        case _:
            return bool(read == meant)


def paths(data: bytes) -> None:
    verb = _VERBS[data[0] % len(_VERBS)] if data else "GET"
    path, _, query = data[1:].partition(b"?")
    try:
        found = _TABLE.find(verb, path)
        fields: dict[str, Any] = {**query_params(query), **found.params}
        row = _ROWS.get(found.route.method)
        if row is not None:
            codec.convert(fields, row.params, lax=True)
    except (NotFound, MethodNotAllowed, InvalidRequest, codec.BadJson):
        return
