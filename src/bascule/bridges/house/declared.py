"""The house bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.kernel.declared import Declared
from bascule.protocols import approvals, house

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec


class HouseDeclared(Declared):
    name = "house"
    rows = (*house.METHODS, *approvals.METHODS)
    made_by = "bascule.daemon.compose_house:make_house"

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.bridges.house.records import HouseFact
        from bascule.kernel.consent.records import Approval, TimedRule

        return {"house": HouseFact, "approvals": Approval, "rules": TimedRule}
