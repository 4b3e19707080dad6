"""Puts the daemon's own methods together."""

from bascule.admin.consent import Consent
from bascule.admin.service import Admin
from bascule.admin.settings import AdminSettings
from bascule.daemon.composition import COLLECT_ALL, FACTS, RULEBOOK, STATUS
from bascule.daemon.ports import ANCHORS
from bascule.kernel.bridge import Bridge, KernelServices, Ports


def make_admin(kernel: KernelServices, ports: Ports) -> Bridge:
    return Admin(
        store=kernel.store,
        journal=kernel.journal,
        facts=ports.need(FACTS),
        clock=kernel.clock,
        anchors=ports.need(ANCHORS),
        collect_all=ports.need(COLLECT_ALL),
        status=ports.need(STATUS),
        ledger_days=kernel.config.of(AdminSettings).ledger_days,
        consent=Consent(kernel.desk),
        rulebook=ports.need(RULEBOOK),
        all_events=kernel.events,
    ).bridge()
