"""The native bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Commands, Declared
from bascule.native import rows as native_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings
    from bascule.kernel.tool import Tool


class NativeDeclared(Declared):
    name = "native"
    rows = (*native_rows.METHODS, *native_rows.OPERATIONS)
    made_by = "bascule.native.compose:make_native"
    checked_by = "bascule.native.cli.checks:CHECKS"
    commands = (Commands("bascule.native.cli.native", ("native", "sessions")),)

    def hooks(self) -> "tuple[Tool, ...]":
        from bascule.native.tools import HOOKS

        return HOOKS

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.native import rules as native_rules

        return {
            "restrictive": native_rules.RESTRICTIVE,
            "standard": native_rules.STANDARD,
            "permissive": native_rules.PERMISSIVE,
        }

    def settings(self) -> "type[Settings]":
        from bascule.native.settings import NativeSettings

        return NativeSettings

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.native.records import ModeRecord

        return {"native_modes": ModeRecord}
