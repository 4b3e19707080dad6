"""A Python function as a tool: its arguments' Struct, the schemas of what it takes and gives, its description."""

import collections.abc
import copy
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from bascule_mod.context import Context

_PARAMS_HEADING: Final = re.compile(r"^(Args|Arguments|Parameters):\s*$", re.MULTILINE)
_OTHER_HEADING: Final = re.compile(r"^(Returns?|Yields?|Raises|Examples?|Notes?):\s*$", re.MULTILINE)
_GOOGLE_PARAM: Final = re.compile(r"^(\s+)\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_SPHINX_PARAM: Final = re.compile(r"^\s*:param\s+(?:[\w.\[\], |]+\s+)?(\w+):\s*(.*)$", re.MULTILINE)
_SPHINX_FIELD: Final = re.compile(r"^\s*:\w+", re.MULTILINE)


class BadTool(Exception):
    """A function that cannot be a tool; said when the game starts, not when an agent calls it."""


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    arguments: type[msgspec.Struct]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    description: str
    # The parameter that gets the Context.
    context: str | None
    # It yields: it runs on over many polls.
    steps: bool


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    hints = _hints(function, name)
    summary, described = _read_docstring(inspect.getdoc(function) or "")
    fields: list[Any] = []
    context: str | None = None
    for parameter in _parameters(function, name):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadTool(f"{name}: `{parameter}` cannot be called by name; give each argument a name of its own")
        hint = hints.get(parameter.name, Any)
        hint = Any if hint is object else hint
        if hint is Context:
            context = parameter.name
            continue
        if parameter.name in described:
            hint = typing.Annotated[hint, msgspec.Meta(description=described[parameter.name])]
        fields.append((parameter.name, hint, *_default(parameter)))
    steps = inspect.isgeneratorfunction(function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BadTool(f"{name}: a game's thread runs no event loop; write a plain function, or one that yields")
    try:
        arguments = msgspec.defstruct(
            "Arguments", fields, kw_only=True, frozen=True, forbid_unknown_fields=True, gc=False
        )
        input_schema = _schema(arguments)
        output_schema = _schema(_result_hint(hints.get("return", Any), steps))
    except (TypeError, ValueError, NameError) as error:
        raise BadTool(f"{name}: no JSON schema can be made of its types: {error}") from None
    input_schema.pop("title", None)
    return Signature(
        arguments=arguments,
        input_schema=input_schema,
        output_schema=output_schema,
        description=summary,
        context=context,
        steps=steps,
    )


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise BadTool(f"{name}: its type hints cannot be read: {error}") from None


def _parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        raise BadTool(f"{name}: its arguments cannot be read; wrap it in a function of your own") from None


def _default(parameter: inspect.Parameter) -> tuple[Any, ...]:
    default = parameter.default
    if default is parameter.empty:
        return ()
    if isinstance(default, (list, dict, set, bytearray)):
        return (msgspec.field(default_factory=partial(copy.deepcopy, default)),)
    return (default,)


def _result_hint(hint: Any, steps: bool) -> Any:
    if not steps:
        return hint
    origin = typing.get_origin(hint)
    if origin is collections.abc.Generator:
        return typing.get_args(hint)[2]
    return Any


def _schema(hint: Any) -> dict[str, Any]:
    """With the type itself at the top, and what it refers to under `$defs`."""
    if hint is Any or hint is object:
        return {}
    if hint is None or hint is types.NoneType:
        return {"type": "null"}
    (schema,), components = msgspec.json.schema_components([hint], ref_template="#/$defs/{name}")
    definitions = dict(components)
    reference = schema.get("$ref")
    if isinstance(reference, str) and len(schema) == 1:
        top = reference.removeprefix("#/$defs/")
        schema = definitions[top]
        if not _is_used(reference, definitions):
            del definitions[top]
    return {**schema, **({"$defs": definitions} if definitions else {})}


def _is_used(reference: str, schemas: object) -> bool:
    if isinstance(schemas, dict):
        return schemas.get("$ref") == reference or any(_is_used(reference, each) for each in schemas.values())
    return isinstance(schemas, list) and any(_is_used(reference, each) for each in schemas)


# -- docstrings -----------------------------------------------------------------------------------


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What comes before the first section, and what is said about each parameter; Google's style or Sphinx's."""
    starts = [
        found.start() for pattern in (_PARAMS_HEADING, _OTHER_HEADING, _SPHINX_FIELD) if (found := pattern.search(text))
    ]
    summary = " ".join(text[: min(starts)].split()) if starts else " ".join(text.split())
    described = {found[1]: found[2].strip() for found in _SPHINX_PARAM.finditer(text)}
    described.update(_google_params(text))
    return summary, {name: words for name, words in described.items() if words}


def _google_params(text: str) -> Iterator[tuple[str, str]]:
    heading = _PARAMS_HEADING.search(text)
    if heading is None:
        return
    name, words, indent = "", [""], ""
    for line in text[heading.end() :].splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            break
        found = _GOOGLE_PARAM.match(line)
        if found and (not indent or found[1] == indent):
            if name:
                yield name, " ".join(words)
            indent, name, words = found[1], found[2], [found[3].strip()]
        else:
            words.append(line.strip())
    if name:
        yield name, " ".join(words)
