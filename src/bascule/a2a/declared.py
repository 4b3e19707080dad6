"""A2A, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.a2a import rows as a2a_rows
from bascule.kernel.declared import Commands, Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings


class A2aDeclared(Declared):
    name = "a2a"
    rows = a2a_rows.METHODS
    made_by = "bascule.a2a.compose:make_a2a"
    checked_by = "bascule.a2a.cli.checks:CHECKS"
    commands = (Commands("bascule.a2a.cli.a2a", ("a2a",)),)

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.a2a.rules import RESTRICTIVE

        return {"restrictive": RESTRICTIVE}

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.a2a.records import TABLES

        return TABLES

    def settings(self) -> "type[Settings]":
        from bascule.a2a.settings import A2aSettings

        return A2aSettings
