"""The admin bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.admin import approvals, events
from bascule.admin import protocol as admin
from bascule.kernel.declared import Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.settings import Settings


class AdminDeclared(Declared):
    name = "admin"
    rows = (*admin.METHODS, *approvals.METHODS, *events.METHODS)
    made_by = "bascule.admin.compose:make_admin"

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.admin.records import DaemonFact
        from bascule.kernel.consent.records import Approval, TimedRule

        return {"house": DaemonFact, "approvals": Approval, "rules": TimedRule}

    def settings(self) -> "type[Settings]":
        from bascule.admin.settings import AdminSettings

        return AdminSettings
