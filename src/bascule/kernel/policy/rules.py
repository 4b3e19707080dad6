"""A rule, and the examples that prove it.

    version = 1

    [[rule]]
    name = "jerry-does-not-broadcast"
    decision = "deny"
    reason = "Jerry talks to one agent at a time"
    principals = ["agent:Jerry*"]
    methods = ["messages.broadcast"]
    match = [{ principal = "agent:Jerry-2", method = "messages.broadcast" }]
    not_match = [{ principal = "agent:Tom", method = "messages.broadcast" }]

A rule matches when principal, method, effect and every named parameter match. Patterns are globs,
case-sensitive because handles are. The examples are checked when the text is loaded: a rule that does
not do what its author believes is refused before it is in force, not found out afterwards.

Rules on commands and files say what is in them instead of where it stands in the params:

    [[rule]]
    name = "no-pushing"
    decision = "ask"
    reason = "Command '{command}' changes what others see"
    commands = ["git push", "npm publish"]
    match = [{ principal = "local", method = "workspace.shell", params = { command = "cd x && git push" } }]

`commands` are command prefixes, `traits` what reading a command found (`opaque`, `destructive`, `environment`,
`network`, `sends`, `unplaced`, `code`; for an agent's own tools also `outside`, `ground` and `secret`),
`paths` globs over files. A rule that asks or denies matches when any of them does. A rule that allows matches only
when all commands of the text do, all paths do, and nothing else is to be said about it.
"""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bascule.foundation.agreement import is_target
from bascule.foundation.errors import InvalidRequest
from bascule.kernel.call import LOCAL, PERSON, Principal, agent_of
from bascule.kernel.policy.commands import MAX_PREFIX_WORDS, allows, prefix_of, restricts
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.facts import COMMAND_METHODS, PATH_METHODS, Facts, facts_of
from bascule.kernel.policy.globs import glob_matches
from bascule.kernel.policy.paths import matches_any, path_matches
from bascule.kernel.policy.shell.traits import DESTRUCTIVE, OPAQUE, TRAITS, UNSAID
from bascule.kernel.rows import Effect

POLICY_VERSION = 1
# Larger than any policy a person reads before accepting it; small enough to parse while they wait.
MAX_POLICY_CHARS = 256 * 1024
# Python's reader of TOML takes time with the square of a key's dots (a.b.c): a file of them would take minutes, and a
# caller of `policy.replay` chooses it. Longer than a line that lists every method.
MAX_DOTS_PER_LINE = 256
# The first call of each principal to each method walks them all, at 2 to 3 us each: well below the
# millisecond that may be spent on the loop. (Compiling the globs is paid when they are checked at load.)
MAX_RULES = 200
# A path of many folders, or the beginning of a command. Each is compiled, to thirty times its size, and remembered.
MAX_GLOB_CHARS = 1_000
# What a verdict names when nothing matched; no rule may take the name.
NO_RULE = "no-rule"

# Names appear in error details, ledger and terminals: an alphabet that needs no quoting, a table's width.
MAX_RULE_NAME_CHARS = 64
_NAME_HELP = f"1 to {MAX_RULE_NAME_CHARS} of A-Z a-z 0-9 . _ -"
_ANYTHING = "*"
_WILDCARDS = "*?["
_PRINCIPAL_HELP = (
    'principals are "local", "person", "agent:<handle>", "agent:<handle>@<machine>" and "a2a:<client>", '
    "or globs over these"
)


class BadPolicy(InvalidRequest):
    """The policy text does not say what its author meant, as far as can be seen; nothing of it is applied."""


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that a rule must match, or must not."""

    principal: str
    method: str
    params: dict[str, Any] = {}

    def __str__(self) -> str:
        shown = f"{self.principal} calling {self.method}"
        return f"{shown} with {msgspec.json.encode(self.params).decode()}" if self.params else shown


Globs = Annotated[tuple[Annotated[str, Meta(min_length=1)], ...], Meta(min_length=1)]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sentence of a policy: who, doing what, gets which decision and why."""

    name: str
    decision: Decision
    # Sent to the caller that is refused, and kept in the ledger.
    reason: Annotated[str, Meta(min_length=1)]
    # What to do instead.
    suggestion: str | None = None
    principals: Globs = (_ANYTHING,)
    methods: Globs = (_ANYTHING,)
    effects: Annotated[tuple[Effect, ...], Meta(min_length=1)] = tuple(Effect)
    # Dotted path in the params as they are on the wire -> glob.
    params: dict[str, str] = {}
    # Command prefixes, what reading commands found, and globs over paths: see the top of this file.
    commands: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    match: tuple[Example, ...] = ()
    not_match: tuple[Example, ...] = ()

    @property
    def reads_facts(self) -> bool:
        return bool(self.commands or self.traits or self.paths)

    @property
    def reads_params(self) -> bool:
        return bool(self.params) or self.reads_facts


class Cause(msgspec.Struct, frozen=True):
    """What made a rule match, for `{command}` and `{path}` in its words."""

    command: str | None = None
    path: str | None = None


# -- matching -------------------------------------------------------------------------------------


def could_apply(rule: Rule, principal: str, method: str, effect: Effect) -> bool:
    """Everything but the params: what is the same for all calls of one principal to one method."""
    return (
        effect in rule.effects
        and any(glob_matches(method, glob) for glob in rule.methods)
        and any(glob_matches(principal, glob) for glob in rule.principals)
        and (not rule.reads_facts or _has_facts(rule, method))
    )


def _has_facts(rule: Rule, method: str) -> bool:
    """A rule on commands says nothing about methods without one, so these stay as fast as they were."""
    if method in COMMAND_METHODS:
        return True
    # Where a path lies is a trait of the methods that say from which project they are seen.
    traits = bool(rule.traits) and method.startswith("native.")
    return method in PATH_METHODS and (bool(rule.paths) or traits)


def params_match(rule: Rule, params: Any) -> bool:
    """Whether each path of the rule finds what its glob describes in `params`.

    `params` is the decoded Struct (defaults included, nothing copied) or plain JSON values; paths name
    fields as the wire does.

    A path that meets a list goes on in each of its elements. Then a rule that allows needs all of them
    to match, and one that asks or denies needs a single one: a list with one forbidden name in it must
    not pass because another name is fine.
    """
    needed = all if rule.decision is Decision.ALLOW else any
    for path, glob in rule.params.items():
        found = _leaves(params, path.split("."))
        if not found or not needed(_leaf_matches(leaf, glob) for leaf in found):
            return False
    return True


def facts_match(rule: Rule, facts: Facts) -> Cause | None:
    """Why the rule's commands, traits or paths match; None when they do not."""
    if rule.decision is Decision.ALLOW:
        return Cause() if _all_allowed(rule, facts) else None
    for text in rule.commands:
        prefix = prefix_of(text)
        if not prefix.is_glob and prefix.folded not in facts.programs:
            continue
        for command in facts.commands:
            if restricts(prefix, command):
                return Cause(" ".join((command.program or prefix.program, *prefix.words)))
    for trait in rule.traits:
        if trait in facts.traits:
            program = next((command.program for command in facts.commands if trait in command.traits), None)
            return Cause(program, next((path for blamed, path in facts.blamed if blamed == trait), None))
    for path in facts.paths:
        if matches_any(rule.paths, path):
            return Cause(path=path)
    return None


def _all_allowed(rule: Rule, facts: Facts) -> bool:
    """A permission is for what its author saw: everything must be named, and nothing may be hidden."""
    if rule.commands:
        named = all(any(allows(prefix_of(text), command) for text in rule.commands) for command in facts.commands)
        hidden = {trait for trait in facts.traits if trait not in rule.traits} - UNSAID - {DESTRUCTIVE}
        if not facts.commands or not named or hidden or OPAQUE in facts.traits:
            return False
        # `pytest > .git/hooks/pre-commit` is pytest, and more.
        if facts.redirected and not rule.paths:
            return False
    elif rule.traits:
        counted = {trait for trait in facts.traits if trait not in UNSAID or trait in rule.traits}
        if not counted or not counted <= set(rule.traits):
            return False
    if not rule.paths or (rule.commands and not facts.paths):
        return True
    return bool(facts.paths) and all(
        any(path_matches(glob, path, exact=True) for glob in rule.paths) for path in facts.paths
    )


_ABSENT = object()


def _leaves(value: Any, steps: list[str]) -> list[Any]:
    if isinstance(value, list | tuple):
        return [leaf for element in value for leaf in _leaves(element, steps)]
    if not steps:
        return [value]
    inside = _field(value, steps[0])
    return [_ABSENT] if inside is _ABSENT else _leaves(inside, steps[1:])


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, _ABSENT)
    if isinstance(value, msgspec.Struct) and name in value.__struct_encode_fields__:
        attribute = value.__struct_fields__[value.__struct_encode_fields__.index(name)]
        found = getattr(value, attribute)
        return _ABSENT if found is msgspec.UNSET else found
    return _ABSENT


def _leaf_matches(leaf: Any, glob: str) -> bool:
    match leaf:
        case str():
            return glob_matches(leaf, glob)
        case None | bool() | int() | float():
            # As JSON writes it: true, null, 5.
            return glob_matches(msgspec.json.encode(leaf).decode(), glob)
        case _:
            # An object is there or it is not; its inside is reached by a longer path.
            return leaf is not _ABSENT and glob == _ANYTHING


# -- reading --------------------------------------------------------------------------------------


def parse_rules(text: str, known_methods: Iterable[str], effects: Mapping[str, Effect]) -> tuple[Rule, ...]:
    """The rules of a policy text, each proved by its examples; BadPolicy says what to change.

    With no `known_methods`, patterns are not compared with the methods that exist.
    """
    rules = rules_in(read_document(text))
    check_rules(rules, known_methods, effects)
    return rules


def read_document(text: str) -> dict[str, Any]:
    if len(text) > MAX_POLICY_CHARS:
        raise BadPolicy(f"the policy has {len(text)} characters; at most {MAX_POLICY_CHARS} are read")
    dots, number = max((line.count("."), number) for number, line in enumerate(text.split("\n"), 1))
    if dots > MAX_DOTS_PER_LINE:
        raise BadPolicy(
            f"line {number} of the policy has {dots} dots; at most {MAX_DOTS_PER_LINE} are read",
            hint="write a long list one item a line",
        )
    try:
        return tomllib.loads(text)
    except ValueError as error:
        # A TOMLDecodeError, or a number of more digits than Python reads.
        raise BadPolicy(f"the policy is not TOML: {error}") from error
    except RecursionError:
        raise BadPolicy("the policy is not TOML: it is nested too deeply") from None


def rules_in(document: dict[str, Any]) -> tuple[Rule, ...]:
    """What a document of `version` and `[[rule]]` says; its rules are not checked against anything yet."""
    return tuple(_rule(table, number) for number, table in enumerate(_tables(document), 1))


def check_rules(
    rules: Iterable[Rule], known_methods: Iterable[str], effects: Mapping[str, Effect], *, examples: bool = True
) -> None:
    """What must hold for rules however they were made; `parse_rules` calls it, and a test for the presets.

    `examples`: whether each rule is proved by them. That compares paths with globs, for which a text can be made that
    takes hours, in which nothing else in this process happens: only for the texts of who may stop it anyway.
    """
    known = tuple(known_methods)
    names: set[str] = set()
    for rule in rules:
        if rule.name in names:
            raise BadPolicy(f"two rules are named {rule.name!r}; a verdict must name exactly one")
        names.add(rule.name)
        _check_lengths(rule)
        _check_principals(rule)
        _check_params(rule)
        _check_facts(rule)
        if known:
            _check_methods(rule, known, effects)
        if examples:
            _check_examples(rule, effects)


def _tables(document: dict[str, Any]) -> list[Any]:
    unknown = sorted(document.keys() - {"version", "rule"})
    if unknown:
        raise BadPolicy(f"unknown key {unknown[0]!r} at the top level; known are: version, rule")
    version = document.get("version")
    # `true == 1` in Python, but not in a policy.
    if version != POLICY_VERSION or isinstance(version, bool):
        raise BadPolicy(f"the first line must be `version = {POLICY_VERSION}`", details={"version": str(version)})
    tables = document.get("rule", [])
    if not isinstance(tables, list):
        raise BadPolicy("`rule` must be a list of tables: write [[rule]] with two brackets")
    if len(tables) > MAX_RULES:
        raise BadPolicy(f"the policy has {len(tables)} rules; at most {MAX_RULES} are read")
    return tables


def _rule(table: Any, number: int) -> Rule:
    if not isinstance(table, dict):
        raise BadPolicy(f"rule {number} is not a table: write [[rule]] with two brackets")
    name = table.get("name")
    if not isinstance(name, str) or not _is_rule_name(name):
        raise BadPolicy(f"rule {number} needs a name of {_NAME_HELP}; found {name!r}")
    if name == NO_RULE:
        raise BadPolicy(f"rule {number} may not be named {NO_RULE!r}: it is what a verdict says when no rule matched")
    unknown = sorted(table.keys() - set(Rule.__struct_fields__))
    if unknown:
        known = ", ".join(Rule.__struct_fields__)
        raise BadPolicy(f"rule {name!r}: unknown key {unknown[0]!r}; known are: {known}")
    decisions = [decision.value for decision in Decision]
    if table.get("decision") not in decisions:
        raise BadPolicy(
            f"rule {name!r}: decision must be one of {', '.join(decisions)}; found {table.get('decision')!r}"
        )
    try:
        return msgspec.convert(table, Rule)
    except msgspec.ValidationError as error:
        raise BadPolicy(f"rule {name!r}: {error}") from error


def _is_rule_name(name: str) -> bool:
    fits = 0 < len(name) <= MAX_RULE_NAME_CHARS and name.isascii()
    return fits and all(letter.isalnum() or letter in "._-" for letter in name)


def _check_lengths(rule: Rule) -> None:
    for glob in (*rule.principals, *rule.methods, *rule.params.values(), *rule.commands, *rule.paths):
        if len(glob) > MAX_GLOB_CHARS:
            raise BadPolicy(
                f"rule {rule.name!r}: {glob[:40]!r}... has {len(glob)} characters; at most {MAX_GLOB_CHARS} are read"
            )


def _check_principals(rule: Rule) -> None:
    for glob in rule.principals:
        if not _can_match_a_principal(glob):
            raise BadPolicy(f"rule {rule.name!r}: no principal can match {glob!r}; {_PRINCIPAL_HELP}")


def _can_match_a_principal(glob: str) -> bool:
    if glob_matches(LOCAL, glob) or glob_matches(PERSON, glob):
        return True
    fixed = glob[: next((at for at, letter in enumerate(glob) if letter in _WILDCARDS), len(glob))]
    if fixed == glob:
        return is_target(agent_of(Principal(glob)) or "") or _is_stranger(glob)
    kinds = ("agent:", "node:", "a2a:", "local@", "person@")
    return any(fixed.startswith(kind) or kind.startswith(fixed) for kind in kinds)


def _is_stranger(glob: str) -> bool:
    """Principals of other machines that are not agents, and clients of other protocols."""
    kind, at, rest = glob.partition("@") if "@" in glob else glob.partition(":")
    return bool(at and rest) and kind in ("local", "person", "node", "a2a")


def _check_params(rule: Rule) -> None:
    for path in rule.params:
        if not all(path.split(".")):
            raise BadPolicy(
                f"rule {rule.name!r}: {path!r} is not a path; write names with dots, as in metadata.project"
            )


def _check_facts(rule: Rule) -> None:
    for text in rule.commands:
        if not 0 < len(text.split()) <= MAX_PREFIX_WORDS:
            raise BadPolicy(f"rule {rule.name!r}: {text!r} is not a command prefix; write a program, then its words")
        if "/" in text.split()[0]:
            raise BadPolicy(
                f"rule {rule.name!r}: {text!r} has a path; programs are compared by their names",
                hint=f"write {text.split()[0].rpartition('/')[2]!r}",
            )
    for trait in rule.traits:
        if trait not in TRAITS:
            raise BadPolicy(f"rule {rule.name!r}: there is no trait {trait!r}; there are: {', '.join(TRAITS)}")
    for glob in rule.paths:
        if not glob.strip("/") or "\\" in glob or ".." in glob.split("/"):
            raise BadPolicy(
                f"rule {rule.name!r}: {glob!r} is not a path; write names separated by /, as in .env or .git/**"
            )


def _check_methods(rule: Rule, known: tuple[str, ...], effects: Mapping[str, Effect]) -> None:
    for glob in rule.methods:
        if not any(glob_matches(method, glob) for method in known):
            raise BadPolicy(f"rule {rule.name!r}: no method matches {glob!r}", hint=_closest(glob, known))
    # A deny that can never apply is worse than none: its author believes to be protected.
    if not any(
        effects.get(method) in rule.effects and any(glob_matches(method, glob) for glob in rule.methods)
        for method in known
    ):
        listed = ", ".join(effect.value for effect in rule.effects)
        raise BadPolicy(f"rule {rule.name!r} can never apply: none of its methods has the effect {listed}")
    _check_facts_can_be(rule, known)
    for example in (*rule.match, *rule.not_match):
        if example.method not in known:
            raise BadPolicy(
                f"rule {rule.name!r}: the example {example} names a method that does not exist",
                hint=_closest(example.method, known),
            )


def _check_facts_can_be(rule: Rule, known: tuple[str, ...]) -> None:
    for fields, methods, what in (
        (rule.commands or rule.traits, COMMAND_METHODS, "commands"),
        (rule.paths, COMMAND_METHODS | PATH_METHODS, "paths"),
    ):
        having = methods.intersection(known)
        if fields and having and not any(glob_matches(method, glob) for glob in rule.methods for method in having):
            raise BadPolicy(
                f"rule {rule.name!r} can never apply: none of its methods has {what}",
                hint=f"methods with {what} are: {', '.join(sorted(having))}",
            )


def _closest(glob: str, known: tuple[str, ...]) -> str:
    family = glob.partition(".")[0]
    near = sorted(method for method in known if method.startswith(family + ".")) or sorted(known)
    return "methods are: " + ", ".join(near)


def _check_examples(rule: Rule, effects: Mapping[str, Effect]) -> None:
    for example in rule.match:
        why = _why_not(rule, example, effects)
        if why is not None:
            raise BadPolicy(f"rule {rule.name!r} does not match its own example ({example}): {why}")
    for example in rule.not_match:
        if _why_not(rule, example, effects) is None:
            raise BadPolicy(f"rule {rule.name!r} matches an example that it must not match ({example})")


def _why_not(rule: Rule, example: Example, effects: Mapping[str, Effect]) -> str | None:
    """Why the rule does not match the example; None when it does."""
    effect = effects.get(example.method)
    if effect is None:
        return f"the effect of {example.method} is not known"
    if not any(glob_matches(example.principal, glob) for glob in rule.principals):
        return f"its principals are {', '.join(rule.principals)}"
    if not any(glob_matches(example.method, glob) for glob in rule.methods):
        return f"its methods are {', '.join(rule.methods)}"
    if effect not in rule.effects:
        return f"{example.method} has the effect {effect.value}, the rule's are {', '.join(rule.effects)}"
    if not params_match(rule, example.params):
        wanted = ", ".join(f"{path} = {glob!r}" for path, glob in rule.params.items())
        return f"its params are {wanted}"
    if rule.reads_facts:
        facts = facts_of(example.method, example.params)
        if facts_match(rule, facts) is None:
            return _why_no_facts(rule, facts)
    return None


def _why_no_facts(rule: Rule, facts: Facts) -> str:
    wanted = [f"{name} {', '.join(values)}" for name, values in _facts_of_rule(rule) if values]
    programs = [command.program or "?" for command in facts.commands]
    found = [f"{name} {', '.join(values)}" for name, values in
             (("commands", programs), ("traits", facts.traits), ("paths", facts.paths)) if values]  # fmt: skip
    return f"the rule is about {'; '.join(wanted)}, and the example has {'; '.join(found) or 'none'}"


def _facts_of_rule(rule: Rule) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("commands", rule.commands), ("traits", rule.traits), ("paths", rule.paths)
