"""The admin bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.admin import approvals
from bascule.admin import console_protocol as console
from bascule.admin import event_protocol as events
from bascule.admin import passkey_protocol as passkeys
from bascule.admin import protocol as admin
from bascule.admin import stop_protocol as stop
from bascule.kernel.declared import Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.settings import Settings


class AdminDeclared(Declared):
    name = "admin"
    rows = (
        *admin.METHODS,
        *approvals.METHODS,
        *events.METHODS,
        *stop.METHODS,
        *console.METHODS,
        *passkeys.METHODS,
    )
    made_by = "bascule.admin.compose:make_admin"

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.admin.records import DaemonFact, PasskeyRecord
        from bascule.kernel.consent.records import Approval, TimedRule

        return {"house": DaemonFact, "approvals": Approval, "rules": TimedRule, "passkeys": PasskeyRecord}

    def settings(self) -> "type[Settings]":
        from bascule.admin.settings import AdminSettings

        return AdminSettings
