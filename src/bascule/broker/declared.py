"""The broker bridge, declared: see `kernel.declared`."""

from typing import TYPE_CHECKING

from bascule.broker import rows as broker_rows
from bascule.kernel.declared import Commands, Declared

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from bascule.kernel.policy.rules import Rule
    from bascule.kernel.settings import Settings
    from bascule.kernel.tool import Tool, Toolset


class BrokerDeclared(Declared):
    name = "broker"
    rows = broker_rows.METHODS
    made_by = "bascule.broker.compose:make_broker"
    commands = (Commands("bascule.broker.cli.agents", ("agents",)), Commands("bascule.broker.cli.watch", ("watch",)))

    def toolset(self) -> "Toolset":
        from bascule.broker.tools import TOOLSET

        return TOOLSET

    def hooks(self) -> "tuple[Tool, ...]":
        from bascule.broker.bell import HOOKS

        return HOOKS

    def rules(self) -> "Mapping[str, tuple[Rule, ...]]":
        from bascule.broker import rules as broker_rules

        return {"restrictive": broker_rules.RESTRICTIVE}

    def tables(self) -> "Mapping[str, type[msgspec.Struct]]":
        from bascule.broker.records import AgentRecord, Message, Remembered, Ticket

        return {"agents": AgentRecord, "tickets": Ticket, "messages": Message, "remembered": Remembered}

    def settings(self) -> "type[Settings]":
        from bascule.broker.settings import BrokerSettings

        return BrokerSettings
