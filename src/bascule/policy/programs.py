"""Deny rules as they are enforced when programs are really executed."""

import msgspec


class ProgramRule(msgspec.Struct, frozen=True):
    """A program, by name, that may not be executed; with words, only when its arguments begin so."""

    rule: str
    name: str
    words: tuple[str, ...] = ()
    reason: str = ""


class ProgramRules(msgspec.Struct, frozen=True):
    """What the supervisor of a sandbox enforces; a changed policy is a new object."""

    denied: tuple[ProgramRule, ...] = ()
