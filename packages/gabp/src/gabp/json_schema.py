"""JSON Schema, as far as tools use it: is this value what that schema says, and if not, where and why.

Schemas come from game mods, which are not trusted, and are judged inside the bridge. So the work is bounded whatever
the schema says (`MAX_STEPS`), a `$ref` stays inside its own schema, and a pattern that could take long is not tried.
What cannot be judged passes: the mod that brought the schema checks its own arguments.

Draft 2020-12 with draft 7's spellings (`definitions`, arrays of `items`), OpenAPI's `nullable`, which Lib.GAB writes.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

from gabp import tame_patterns
from gabp.codec import encode
from gabp.text import escaped

# A value of 1 MiB against a schema that looks at every part of it takes less; an anyOf of anyOfs takes any number.
MAX_STEPS = 100_000
# JSON is at most 64 levels deep; a schema whose $refs go around in circles is not.
MAX_NESTING = 200
# Enough to mend a call with; a list of a thousand wrong items is one mistake.
MAX_PROBLEMS = 10
# What of a wrong value is shown.
MAX_SHOWN_CHARS = 60


class _Exhausted(Exception):
    """The budget is spent: the schema cannot be judged here."""


class Schema:
    """One schema, judged against many values."""

    __slots__ = ("_root", "_trusted")

    def __init__(self, schema: Any, *, trusted: bool = False) -> None:
        self._root = schema
        # Our own patterns are known to be harmless.
        self._trusted = trusted

    def problems(self, value: Any, where: str = "arguments") -> list[str]:
        """Like ``arguments.count: must be an integer, not "three"``; none when it fits or cannot be judged."""
        walk = _Walk(self._root, self._trusted)
        try:
            walk.judge(self._root, value, where)
        except (_Exhausted, RecursionError):
            # What was found before the budget ended is still true only outside of alternatives; say nothing.
            return []
        return walk.found


class _Walk:
    """One judgement: what was found, and how much work is left."""

    def __init__(self, root: Any, trusted: bool) -> None:
        self._root = root
        self._trusted = trusted
        self._steps = MAX_STEPS
        self._nesting = 0
        self.found: list[str] = []

    def judge(self, schema: Any, value: Any, where: str) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _Exhausted
        if schema is False:
            self.say(where, "is not allowed here")
            return
        if type(schema) is not dict:
            return
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _Exhausted
        if not (value is None and schema.get("nullable") is True):
            for keyword, rule in schema.items():
                check = _CHECKS.get(keyword)
                if check is not None:
                    check(self, rule, value, where, schema)
        self._nesting -= 1

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether it does, without a word about it."""
        kept, self.found = self.found, []
        nesting = self._nesting
        self.judge(schema, value, "")
        fits, self.found = not self.found, kept
        self._nesting = nesting
        return fits

    def say(self, where: str, problem: str) -> None:
        if len(self.found) < MAX_PROBLEMS:
            self.found.append(f"{where}: {problem}")

    def spend(self, steps: int) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise _Exhausted

    def resolve(self, reference: Any) -> Any:
        """A `$ref` within this schema; anything else is not followed: nothing is fetched."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
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

    def pattern_found(self, pattern: Any, text: str) -> bool:
        """True also when it cannot be tried."""
        if not isinstance(pattern, str):
            return True
        if self._trusted:
            return re.search(pattern, text) is not None
        tried = tame_patterns.search(pattern, text)
        return tried is not False


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
    if type(rule) is not list:
        if _is(value, rule):
            return
        names = [rule]
    elif any(_is(value, name) for name in rule):
        return
    else:
        names = rule
    wanted = " or ".join(_ARTICLES.get(name, str(name)) for name in names)
    walk.say(where, f"must be {wanted}, not {_shown(value)}")


def _enum(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(rule) is not list:
        return
    walk.spend(len(rule))
    if not any(same(value, each) for each in rule):
        walk.say(where, f"must be one of {', '.join(map(_shown, rule[:20]))}, not {_shown(value)}")


def _const(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if not same(value, rule):
        walk.say(where, f"must be {_shown(rule)}, not {_shown(value)}")


def _all_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    for each in rule if type(rule) is list else ():
        walk.judge(each, value, where)


def _any_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(rule) is not list or not rule or any(walk.fits(each, value) for each in rule):
        return
    if len(rule) == 1:
        walk.judge(rule[0], value, where)
        return
    nearest = _nearest(rule, value)
    if nearest is not None:
        # Only one alternative is of the value's kind: what is wrong with that one is what helps.
        walk.judge(nearest, value, where)
    else:
        walk.say(where, f"fits none of the {len(rule)} alternatives, being {_shown(value)}")


def _nearest(rules: list[Any], value: Any) -> Any | None:
    alike = [each for each in rules if type(each) is dict and "type" in each and _is(value, each["type"])]
    return alike[0] if len(alike) == 1 else None


def _one_of(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    if type(rule) is not list or not rule:
        return
    fitting = sum(walk.fits(each, value) for each in rule)
    if fitting == 0:
        _any_of(walk, rule, value, where, schema)
    elif fitting > 1:
        walk.say(where, f"fits {fitting} of the alternatives, and must fit exactly one")


def _not(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if walk.fits(rule, value):
        walk.say(where, f"must not be {_shown(value)}")


def _if(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    then = "then" if walk.fits(rule, value) else "else"
    if then in schema:
        walk.judge(schema[then], value, where)


# -- objects --------------------------------------------------------------------------------------


def _properties(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict and type(rule) is dict:
        for name, each in rule.items():
            if name in value:
                walk.judge(each, value[name], f"{where}.{name}")


def _required(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict and type(rule) is list:
        for name in rule:
            if isinstance(name, str) and name not in value:
                walk.say(f"{where}.{name}", "is missing")


def _additional(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    if type(value) is not dict or rule is True:
        return
    known = schema.get("properties")
    known = known if type(known) is dict else {}
    patterns = schema.get("patternProperties")
    patterns = patterns if type(patterns) is dict else {}
    for name, each in value.items():
        if name in known or any(walk.pattern_found(pattern, name) for pattern in patterns):
            continue
        if rule is False:
            names = ", ".join(sorted(known)[:20]) or "none at all"
            walk.say(f"{where}.{_readable(name)}", f"is not known; known: {names}")
        else:
            walk.judge(rule, each, f"{where}.{_readable(name)}")


def _pattern_properties(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict and type(rule) is dict:
        for pattern, schema in rule.items():
            for name, each in value.items():
                walk.spend(1)
                if walk.pattern_found(pattern, name):
                    walk.judge(schema, each, f"{where}.{_readable(name)}")


def _property_names(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is dict:
        for name in value:
            if not walk.fits(rule, name):
                walk.say(where, f"must not have the key {_shown(name)}")


def _sized(kind: type[dict[Any, Any]] | type[list[Any]] | type[str], lower: bool, noun: str) -> "_Check":
    def check(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
        if type(value) is kind and type(rule) is int:
            size = len(value)
            if size < rule if lower else size > rule:
                walk.say(where, f"must have at {'least' if lower else 'most'} {rule} {noun}, not {size}")

    return check


# -- arrays ---------------------------------------------------------------------------------------


def _items(walk: _Walk, rule: Any, value: Any, where: str, schema: dict[str, Any]) -> None:
    if type(value) is not list:
        return
    if type(rule) is list:
        # Draft 7's way of saying prefixItems.
        for number, each in enumerate(value[: len(rule)]):
            walk.judge(rule[number], each, f"{where}[{number}]")
        return
    prefix = schema.get("prefixItems")
    start = len(prefix) if type(prefix) is list else 0
    for number, each in enumerate(value[start:], start):
        walk.judge(rule, each, f"{where}[{number}]")


def _prefix_items(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is list and type(rule) is list:
        for number, (schema, each) in enumerate(zip(rule, value, strict=False)):
            walk.judge(schema, each, f"{where}[{number}]")


def _contains(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is list and not any(walk.fits(rule, each) for each in value):
        walk.say(where, "has no item of the kind it must contain")


def _unique(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if rule is True and type(value) is list:
        texts = [encode(each) for each in value]
        walk.spend(len(texts))
        if len(set(texts)) < len(texts):
            walk.say(where, "must not have the same item twice")


# -- strings and numbers --------------------------------------------------------------------------


def _pattern(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if type(value) is str and not walk.pattern_found(rule, value):
        walk.say(where, f"must match {_readable(str(rule))}, and {_shown(value)} does not")


_FORMATS: Final = {
    "uuid": re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s]+"),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,12})?(?:[Zz]|[+-]\d\d:\d\d)"),
}


def _format(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    known = _FORMATS.get(rule) if isinstance(rule, str) else None
    if known is not None and type(value) is str and not known.fullmatch(value):
        walk.say(where, f"must be a {rule}, not {_shown(value)}")


def _bounded(compare: Callable[[Any, Any], bool], words: str) -> "_Check":
    def check(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
        if _is(value, "number") and _is(rule, "number") and not compare(value, rule):
            walk.say(where, f"must be {words} {_shown(rule)}, not {_shown(value)}")

    return check


def _multiple_of(walk: _Walk, rule: Any, value: Any, where: str, _: dict[str, Any]) -> None:
    if not (_is(value, "number") and _is(rule, "number")) or rule <= 0:
        return
    if type(value) is int and type(rule) is int:
        exact = value % rule == 0
    else:
        try:
            exact = math.isclose(math.remainder(value, rule), 0, abs_tol=1e-9 * abs(rule))
        except (OverflowError, ValueError):
            return
    if not exact:
        walk.say(where, f"must be a multiple of {_shown(rule)}, not {_shown(value)}")


_Check = Callable[[_Walk, Any, Any, str, dict[str, Any]], None]

_CHECKS: Final[dict[str, _Check]] = {
    "$ref": _ref,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "patternProperties": _pattern_properties,
    "propertyNames": _property_names,
    "minProperties": _sized(dict, True, "properties"),
    "maxProperties": _sized(dict, False, "properties"),
    "items": _items,
    "prefixItems": _prefix_items,
    "contains": _contains,
    "minItems": _sized(list, True, "items"),
    "maxItems": _sized(list, False, "items"),
    "uniqueItems": _unique,
    "minLength": _sized(str, True, "characters"),
    "maxLength": _sized(str, False, "characters"),
    "pattern": _pattern,
    "format": _format,
    "minimum": _bounded(lambda value, rule: value >= rule, "at least"),
    "maximum": _bounded(lambda value, rule: value <= rule, "at most"),
    "exclusiveMinimum": _bounded(lambda value, rule: value > rule, "more than"),
    "exclusiveMaximum": _bounded(lambda value, rule: value < rule, "less than"),
    "multipleOf": _multiple_of,
}


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 is 1.0, and neither is true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(same, one, other))
    if type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def _shown(value: Any) -> str:
    text = _readable(encode(value).decode())
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."


def _readable(text: str) -> str:
    shown = escaped(text[: MAX_SHOWN_CHARS + 1])
    return shown if len(shown) <= MAX_SHOWN_CHARS else shown[: MAX_SHOWN_CHARS - 3] + "..."
