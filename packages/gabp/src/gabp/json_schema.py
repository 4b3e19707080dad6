"""JSON Schema, as far as tools use it: is this value what that schema says, and if not, where and why.

Schemas come from game mods, which are not trusted, and are judged inside the bridge. So the work is bounded whatever
the schema says (`MAX_STEPS`), a `$ref` stays inside its own schema, and a mod's `pattern` is not tried: for some, the
matcher of Python needs 2^n steps. What cannot be judged passes: the mod that brought the schema checks its arguments.

For the same reason no keyword is read that refuses a value because another schema accepts it (`not`, `if`, the "exactly
one" of `oneOf`): with a part of that schema not judged, we would refuse a good call.

Draft 2020-12 with draft 7's spellings (`definitions`, arrays of `items`), OpenAPI's `nullable`, which Lib.GAB writes.
"""

import json
import math
import operator
import re
from collections.abc import Callable
from typing import Any, Final

from gabp.codec import encode
from gabp.text import escaped

# A value of 1 MiB against a schema that looks at every part of it takes less; an anyOf of anyOfs takes any number.
MAX_STEPS = 100_000
# Comparing or matching so much text costs as much as a step.
BYTES_PER_STEP = 64
# JSON is at most 64 levels deep; a schema whose $refs go around in circles is not.
MAX_NESTING = 200
# Enough to mend a call with; a list of a thousand wrong items is one mistake.
MAX_PROBLEMS = 10
# What of a wrong value is shown.
MAX_SHOWN_CHARS = 60
# How many of the names or values that would do are listed.
MAX_LISTED = 20


class _Exhausted(Exception):
    """The budget is spent: the schema cannot be judged here."""


class _Enough(Exception):
    """As many problems are found as are asked for."""


class Schema:
    """One schema, judged against many values."""

    __slots__ = ("_root", "_trusted")

    def __init__(self, schema: Any, *, trusted: bool = False) -> None:
        self._root = schema
        # Ours: its patterns are known to be harmless.
        self._trusted = trusted

    def problems(self, value: Any, where: str = "arguments") -> list[str]:
        """Like ``arguments.count: must be an integer, not "three"``; none when it fits or cannot be judged."""
        walk = _Walk(self._root, self._trusted)
        try:
            walk.judge(self._root, value, where)
        except _Enough:
            pass
        except (_Exhausted, RecursionError):
            # Which of the problems are true is not known before the end.
            return []
        return walk.found


class _Walk:
    """One judgement: what was found, and how much work is left."""

    def __init__(self, root: Any, trusted: bool) -> None:
        self._root = root
        self.trusted = trusted
        self._steps = MAX_STEPS
        self._nesting = 0
        # Inside `fits` the first problem is the answer.
        self._quiet = False
        self.found: list[str] = []

    def judge(self, schema: Any, value: Any, where: str) -> None:
        self.spend(1)
        if schema is False:
            self.report(where, lambda: "is not allowed here")
        if type(schema) is not dict or (value is None and schema.get("nullable") is True):
            return
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _Exhausted
        for keyword, rule in schema.items():
            check = _CHECKS.get(keyword)
            if check is not None:
                check(self, rule, value, where, schema)
        self._nesting -= 1

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether it does, without a word about it."""
        quiet, nesting = self._quiet, self._nesting
        self._quiet = True
        try:
            self.judge(schema, value, "")
        except _Enough:
            return False
        finally:
            self._quiet, self._nesting = quiet, nesting
        return True

    def report(self, where: str, problem: Callable[[], str]) -> None:
        if not self._quiet:
            self.found.append(f"{where}: {problem()}")
        if self._quiet or len(self.found) == MAX_PROBLEMS:
            raise _Enough

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _Exhausted

    def spend_text(self, text: str | bytes) -> None:
        self.spend(len(text) // BYTES_PER_STEP)

    def resolve(self, reference: Any) -> Any:
        """A `$ref` within this schema; anything else is not followed: nothing is fetched."""
        # `#name` means an `$anchor`, which is not looked for.
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return True
        self.spend_text(reference)
        found = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~").replace("%25", "%")
            if type(found) is dict and key in found:
                found = found[key]
            elif type(found) is list and key.isdecimal() and len(key) < 6 and int(key) < len(found):
                found = found[int(key)]
            else:
                return True
        return found

    def same(self, one: Any, other: Any) -> bool:
        """Equal as JSON: 1 is 1.0, and neither is true."""
        self.spend(1)
        if isinstance(one, bool) or isinstance(other, bool):
            return one is other
        if type(one) is list and type(other) is list:
            return len(one) == len(other) and all(map(self.same, one, other))
        if type(one) is dict and type(other) is dict:
            return len(one) == len(other) and all(key in other and self.same(one[key], other[key]) for key in one)
        if type(one) is str:
            self.spend_text(one)
        return bool(one == other)


def _ref(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    walk.judge(walk.resolve(rule), value, where)


# -- any value ------------------------------------------------------------------------------------

_ARTICLES: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "null": "null",
}


def _is(value: Any, name: Any) -> bool:
    kind = type(value)
    match name:
        case "object":
            return kind is dict
        case "array":
            return kind is list
        case "string":
            return kind is str
        case "integer":
            return kind is int or (kind is float and value.is_integer())
        case "number":
            return kind is int or kind is float
        case "boolean":
            return kind is bool
        case "null":
            return value is None
        case _:
            # A type that JSON does not have: not ours to judge.
            return True


def _type(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    names = rule if type(rule) is list else [rule]
    walk.spend(len(names))
    if names and not any(_is(value, name) for name in names):
        wanted = " or ".join(_ARTICLES[name] for name in names[:MAX_LISTED])
        walk.report(where, lambda: f"must be {wanted}, not {_shown(value)}")


def _enum(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(rule) is list and not any(walk.same(value, each) for each in rule):
        walk.report(where, lambda: f"must be one of {', '.join(map(_shown, rule[:MAX_LISTED]))}, not {_shown(value)}")


def _const(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if not walk.same(value, rule):
        walk.report(where, lambda: f"must be {_shown(rule)}, not {_shown(value)}")


def _all_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    for each in rule if type(rule) is list else ():
        walk.judge(each, value, where)


def _any_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(rule) is not list or not rule or any(walk.fits(each, value) for each in rule):
        return
    alike = [each for each in rule if type(each) is dict and "type" in each and _is(value, each["type"])]
    if len(rule) == 1 or len(alike) == 1:
        # Only one alternative is of the value's kind: what is wrong with that one is what helps.
        walk.judge((alike or rule)[0], value, where)
    else:
        walk.report(where, lambda: f"fits none of the {len(rule)} alternatives, being {_shown(value)}")


# -- objects --------------------------------------------------------------------------------------


def _properties(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict and type(rule) is dict:
        for name, each in rule.items():
            if name in value:
                walk.judge(each, value[name], f"{where}.{_readable(name)}")
            else:
                walk.spend(1)


def _required(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict and type(rule) is list:
        walk.spend(len(rule))
        for name in rule:
            if isinstance(name, str) and name not in value:
                walk.report(f"{where}.{_readable(name)}", lambda: "is missing")


def _additional(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    # Which names patternProperties means is not judged.
    if type(value) is not dict or rule is True or "patternProperties" in schema:
        return
    known = schema.get("properties")
    known = known if type(known) is dict else {}
    for name, each in value.items():
        walk.spend(1)
        if name in known:
            continue
        if rule is False:
            walk.report(f"{where}.{_readable(name)}", lambda: f"is not known; known: {_names(known)}")
        else:
            walk.judge(rule, each, f"{where}.{_readable(name)}")


def _names(known: dict[str, Any]) -> str:
    return ", ".join(map(_readable, sorted(known)[:MAX_LISTED])) or "none at all"


def _property_names(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    for name in value if type(value) is dict else ():
        if not walk.fits(rule, name):
            walk.report(where, lambda name=name: f"must not have the key {_shown(name)}")  # type: ignore[misc]  # a default


# -- arrays ---------------------------------------------------------------------------------------


def _items(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    if type(rule) is list:
        # Draft 7's way of saying prefixItems.
        _prefix_items(walk, rule, value, where, schema)
    elif type(value) is list:
        prefix = schema.get("prefixItems")
        start = len(prefix) if type(prefix) is list else 0
        for number, each in enumerate(value[start:], start):
            walk.judge(rule, each, f"{where}[{number}]")


def _prefix_items(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is list and type(rule) is list:
        for number, (schema, each) in enumerate(zip(rule, value, strict=False)):
            walk.judge(schema, each, f"{where}[{number}]")


def _contains(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    if type(value) is list and schema.get("minContains") != 0 and not any(walk.fits(rule, each) for each in value):
        walk.report(where, lambda: "has no item of the kind that it must contain")


def _unique(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if rule is True and type(value) is list:
        walk.spend(len(value))
        texts = [encode(each) for each in value]
        walk.spend_text(b"".join(texts))
        if len(set(texts)) < len(texts):
            walk.report(where, lambda: "must not have the same item twice")


# -- strings and numbers --------------------------------------------------------------------------


def _pattern(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if walk.trusted and type(value) is str and not re.search(rule, value):
        walk.report(where, lambda: f"must match {_readable(rule)}, and {_shown(value)} does not")


_FORMATS: Final = {
    "uuid": re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:[Zz]|[+-]\d\d:\d\d)"),
}


def _format(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    known = _FORMATS.get(rule) if isinstance(rule, str) else None
    if known is not None and type(value) is str:
        walk.spend_text(value)
        if not known.fullmatch(value):
            walk.report(where, lambda: f"must be a {rule}, not {_shown(value)}")


_Check = Callable[[_Walk, Any, Any, str, dict[str, Any]], None]


def _sized(kind: type[dict[str, Any]] | type[list[Any]] | type[str], words: str, noun: str) -> _Check:
    holds = operator.ge if words == "at least" else operator.le

    def check(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
        if type(value) is kind and type(rule) is int and not holds(len(value), rule):
            walk.report(where, lambda: f"must have {words} {_shown(rule)} {noun}, not {len(value)}")

    return check


def _bounded(holds: Callable[[Any, Any], bool], words: str) -> _Check:
    def check(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
        if _is(value, "number") and _is(rule, "number") and not holds(value, rule):
            walk.report(where, lambda: f"must be {words} {_shown(rule)}, not {_shown(value)}")

    return check


def _multiple_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if not (_is(value, "number") and _is(rule, "number")) or rule <= 0:
        return
    try:
        # A float is seldom exact: 0.3 is a multiple of 0.1. Of a large one it is not known.
        exact = type(value) is int and type(rule) is int
        rest = value % rule if exact else math.remainder(value, rule)
        tolerance = 0 if exact else 1e-9 * rule + 1e-15 * abs(value)
    except (OverflowError, ValueError):
        return
    if abs(rest) > tolerance:
        walk.report(where, lambda: f"must be a multiple of {_shown(rule)}, not {_shown(value)}")


_CHECKS: Final[dict[str, _Check]] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _any_of,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "propertyNames": _property_names,
    "minProperties": _sized(dict, "at least", "properties"),
    "maxProperties": _sized(dict, "at most", "properties"),
    "items": _items,
    "prefixItems": _prefix_items,
    "contains": _contains,
    "uniqueItems": _unique,
    "minItems": _sized(list, "at least", "items"),
    "maxItems": _sized(list, "at most", "items"),
    "minLength": _sized(str, "at least", "characters"),
    "maxLength": _sized(str, "at most", "characters"),
    "pattern": _pattern,
    "format": _format,
    "minimum": _bounded(operator.ge, "at least"),
    "maximum": _bounded(operator.le, "at most"),
    "exclusiveMinimum": _bounded(operator.gt, "more than"),
    "exclusiveMaximum": _bounded(operator.lt, "less than"),
    "multipleOf": _multiple_of,
}

# Written piece by piece, so that of a large value no more is written than is shown.
_pieces = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).iterencode


def _shown(value: Any) -> str:
    if type(value) is str:
        value = value[: MAX_SHOWN_CHARS + 1]
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > MAX_SHOWN_CHARS:
            break
    return _readable(text)


def _readable(text: str) -> str:
    shown = escaped(text[: MAX_SHOWN_CHARS + 1])
    return shown if len(shown) <= MAX_SHOWN_CHARS else shown[: MAX_SHOWN_CHARS - 3] + "..."
