"""Between a message's parts and a payload: text and JSON, both ways."""

import base64
from collections.abc import Iterable
from typing import Any

from a2a.types.a2a_pb2 import Part
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from bascule.a2a.ports import MAX_VALUES
from bascule.foundation.errors import InvalidRequest
from gabp import codec

# Protobuf reads 100 levels. An object of JSON takes three of them, and the message around it some.
MAX_DATA_DEPTH = 24
# Numbers of `data` are doubles: a larger whole number would become another one.
MAX_WHOLE = 2**53


class UnsupportedPart(InvalidRequest):
    """A file, or an address of one: agents here are told in words."""


def payload_of(parts: Iterable[Part]) -> Any:
    """One part is its text or its JSON; texts are joined by lines; a mixture is a list."""
    contents = [_content(part) for part in parts]
    if not contents:
        raise InvalidRequest("the message has no parts", hint="send at least one part with text or data")
    return _joined(contents)


def shown_of(parts: Iterable[Part]) -> Any:
    """The same for what an agent elsewhere says: its files are shown as what they are, and fetched by nobody."""
    return _joined(
        [_file(part) if part.WhichOneof("content") in ("raw", "url", None) else _content(part) for part in parts]
    )


def parts_of(payload: Any) -> list[Part]:
    if isinstance(payload, str):
        return [Part(text=payload, media_type="text/plain")]
    text = codec.encode(payload)
    if codec.has_too_many_values(text, MAX_VALUES) or not _fits_data(payload, MAX_DATA_DEPTH):
        return [Part(text=text.decode(), media_type="application/json")]
    return [Part(data=ParseDict(payload, Value()), media_type="application/json")]


def _fits_data(value: Any, depth: int) -> bool:
    match value:
        case list():
            return depth > 0 and all(_fits_data(each, depth - 1) for each in value)
        case dict():
            return depth > 0 and all(_fits_data(each, depth - 1) for each in value.values())
        case int():
            return abs(value) <= MAX_WHOLE
        case _:
            return True


def _joined(contents: list[Any]) -> Any:
    if len(contents) == 1:
        return contents[0]
    return "\n".join(contents) if all(isinstance(each, str) for each in contents) else contents


def _file(part: Part) -> dict[str, str]:
    shown = {"filename": part.filename, "mediaType": part.media_type, "url": part.url}
    if part.raw:
        shown["base64"] = base64.b64encode(part.raw).decode()
    return {name: text for name, text in shown.items() if text}


def _content(part: Part) -> Any:
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            try:
                return _whole(MessageToDict(part.data))
            except ValueError:
                # Python's own reader takes NaN and 1e999.
                raise InvalidRequest("a number of its data is not finite", hint="send it as text") from None
        case other:
            raise UnsupportedPart(
                f"a part with {other or 'nothing in it'} is not taken", hint="send text, or JSON as `data`"
            )


def _whole(value: Any) -> Any:
    """Protobuf has no whole numbers in JSON: 5 comes as 5.0, and is meant as 5."""
    match value:
        case float() if value.is_integer() and abs(value) <= MAX_WHOLE:
            return int(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {name: _whole(each) for name, each in value.items()}
        case _:
            return value
