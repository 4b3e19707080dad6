"""A policy as the text that people write, read and accept.

    version = 1
    extends = "standard"              # its rules come first; leave it out to begin with nothing
    without = ["no-broadcast"]        # but not these of them

    [[rule]]
    ...

Of all rules that match the strictest decides, so what is added can only restrict; what is to be loosened is left out
of the preset by name, where everybody who reads the file sees it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy, rules_digest
from bascule.kernel.policy.rules import POLICY_VERSION, BadPolicy, Rule, check_rules, read_document, rules_in
from bascule.kernel.rows import Effect

CUSTOM = "custom"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DEFAULTS: dict[str, Any] = msgspec.to_builtins(Rule(name="x", decision=Decision.ALLOW, reason="x"))
_ALWAYS = ("name", "decision", "reason")
# By name: `bridge_list.presets_of`.
Presets: TypeAlias = Mapping[str, tuple[Rule, ...]]


def text_digest(text: str) -> str:
    """What a person accepts is this text, to the last comment: they may have read the comment."""
    return hashlib.sha256(text.encode()).hexdigest()


# -- reading --------------------------------------------------------------------------------------


def parse_policy(
    text: str, known_methods: Iterable[str], effects: Mapping[str, Effect], presets: Presets, *, examples: bool = True
) -> tuple[Rule, ...]:
    """The rules of a policy text, those of the preset it extends first; BadPolicy says what to change."""
    rules = written_out(text, presets)
    check_rules(rules, known_methods, effects, examples=examples)
    return rules


def written_out(text: str, presets: Presets) -> tuple[Rule, ...]:
    """All rules that a text stands for, not yet checked against the methods there are: for comparing two texts."""
    document = read_document(text)
    extends = document.pop("extends", None)
    without = document.pop("without", [])
    own = rules_in(document)
    return (*_extended(extends, without, presets), *own)


def load_policy(
    text: str,
    known_methods: Iterable[str],
    effects: Mapping[str, Effect],
    presets: Presets,
    *,
    name: str = CUSTOM,
    examples: bool = True,
) -> Policy:
    """`examples`: whether each rule is proved by its own; see `check_rules`."""
    rules = parse_policy(text, known_methods, effects, presets, examples=examples)
    return Policy(rules, name, rules_digest(rules))


def _extended(extends: Any, without: Any, presets: Presets) -> tuple[Rule, ...]:
    if not isinstance(without, list) or not all(isinstance(each, str) for each in without):
        raise BadPolicy("`without` must be a list of rule names")
    if extends is None:
        if without:
            raise BadPolicy("`without` leaves rules out of a preset, and no preset is extended", hint=_EXTEND)
        return ()
    if not isinstance(extends, str) or extends not in presets:
        raise BadPolicy(f"extends = {extends!r} is not a preset; there are: {', '.join(presets)}")
    rules = presets[extends]
    names = [rule.name for rule in rules]
    for name in without:
        if name not in names:
            raise BadPolicy(f"`without` names {name!r}, which {extends} does not have; it has: {', '.join(names)}")
    return tuple(rule for rule in rules if rule.name not in without)


_EXTEND = 'write extends = "standard" above it'


# -- writing --------------------------------------------------------------------------------------


def render(rules: Iterable[Rule], comment: str | None = None) -> str:
    """Rules as the text that `parse_policy` reads as the same rules; what stands at its default is left out."""
    lines = [f"# {line}" for line in (comment or "").splitlines()]
    lines.append(f"version = {POLICY_VERSION}")
    for rule in rules:
        lines += ["", "[[rule]]"]
        for name, value in msgspec.to_builtins(rule).items():
            if name in _ALWAYS or value != _DEFAULTS[name]:
                lines.append(_entry(name, value))
    return "\n".join(lines) + "\n"


def _entry(name: str, value: Any) -> str:
    if name in ("match", "not_match") and value:
        # Examples are looked at one by one.
        return f"{name} = [\n" + "".join(f"  {_value(_shortly(each))},\n" for each in value) + "]"
    return f"{name} = {_value(value)}"


def _shortly(example: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in example.items() if value or name != "params"}


def _value(value: Any) -> str:
    match value:
        case str():
            return _string(value)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            inside = ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case _:
            raise BadPolicy(f"a rule holds {value!r}, which TOML cannot say")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """A TOML basic string: control characters escaped, everything else as it is."""
    out = ['"']
    for letter in text:
        if letter in '"\\':
            out.append("\\" + letter)
        elif letter < " " or letter == "\x7f":
            out.append(f"\\u{ord(letter):04X}")
        else:
            out.append(letter)
    out.append('"')
    return "".join(out)
