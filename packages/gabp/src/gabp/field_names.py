"""Which fields an object may have: for the sentence about one that it may not have."""

import re
from typing import Any, Final

from msgspec import inspect

# A sentence that names the fields stays a sentence.
MAX_NAMED: Final = 20
# msgspec's paths: `.name`, `[0]`, `[...]`.
_STEP: Final = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")


def fields_at(type_: Any, path: str) -> list[str]:
    """Names on the wire, of the object at `path` inside `type_`; none where that is not one kind of object."""
    try:
        found: Any = inspect.type_info(type_)
    except (TypeError, NotImplementedError):
        return []
    for step in _STEP.finditer(path):
        found = _inside(_plain(found), step[1])
    found = _plain(found)
    if not isinstance(found, inspect.StructType | inspect.TypedDictType | inspect.DataclassType):
        return []
    return [each.encode_name for each in found.fields][:MAX_NAMED]


def _plain(found: Any) -> Any:
    """Without `| None` and limits around it; a choice of several objects stays a choice."""
    while isinstance(found, inspect.Metadata):
        found = found.type
    if isinstance(found, inspect.UnionType):
        objects = [each for each in found.types if not isinstance(each, inspect.NoneType)]
        return _plain(objects[0]) if len(objects) == 1 else found
    return found


def _inside(found: Any, name: str | None) -> Any:
    match found:
        case inspect.StructType() if name is not None:
            return next((each.type for each in found.fields if each.encode_name == name), None)
        case inspect.ListType() | inspect.VarTupleType() if name is None:
            return found.item_type
        case inspect.DictType():
            return found.value_type
        case _:
            return None
