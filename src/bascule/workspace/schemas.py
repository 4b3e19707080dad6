"""JSON Schemas (draft 2020-12) of what an agent sends and what a run answers, made from the wire types."""

from typing import Any

import msgspec

from bascule.workspace.protocol import EventsMessage, OperationsMessage

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS = "#/$defs/{name}"


def operations_schema() -> dict[str, Any]:
    return _schema(OperationsMessage, "Agent Spaces operations message")


def events_schema() -> dict[str, Any]:
    return _schema(EventsMessage, "Agent Spaces events message")


def _schema(type_: type[msgspec.Struct], title: str) -> dict[str, Any]:
    (_,), definitions = msgspec.json.schema_components([type_], ref_template=_DEFINITIONS)
    top = definitions.pop(type_.__name__)
    top["title"] = title
    return {"$schema": _DRAFT, **top, "$defs": definitions}
