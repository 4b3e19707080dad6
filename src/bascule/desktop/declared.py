"""The desktop bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.desktop import evidence_rows
from bascule.desktop import rows as desktop_rows
from bascule.kernel.declared import Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings
    from bascule.kernel.tool import Toolset


class DesktopDeclared(Declared):
    name = "desktop"
    rows = (*desktop_rows.METHODS, *evidence_rows.METHODS)
    made_by = "bascule.desktop.compose:make_desktop"
    checked_by = "bascule.desktop.cli.checks:CHECKS"

    def toolset(self) -> "Toolset":
        from bascule.desktop.tools import TOOLSET

        return TOOLSET

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.desktop import rules as desktop_rules

        return {
            "restrictive": desktop_rules.RESTRICTIVE,
            "standard": desktop_rules.STANDARD,
            "permissive": desktop_rules.PERMISSIVE,
        }

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.desktop.apps import AllowedApp
        from bascule.desktop.evidence import EvidencePlace
        from bascule.desktop.switch import Position

        return {"desktop": Position, "desktop_apps": AllowedApp, "desktop_evidence": EvidencePlace}

    def settings(self) -> "type[Settings]":
        from bascule.desktop.settings import DesktopSettings

        return DesktopSettings
