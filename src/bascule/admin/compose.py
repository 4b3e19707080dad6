"""Puts the daemon's own methods together."""

from bascule.admin.consent import Consent
from bascule.admin.machine.doctor_program import doctor_command, examine
from bascule.admin.service import Admin
from bascule.admin.settings import AdminSettings
from bascule.daemon.composition import COLLECT_ALL, FACTS, HISTORY, RULEBOOK, STATUS
from bascule.daemon.ports import ANCHORS
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.call import LOCAL


def make_admin(kernel: KernelServices, ports: Ports) -> Bridge:
    status = ports.need(STATUS)
    return Admin(
        store=kernel.store,
        journal=kernel.journal,
        facts=ports.need(FACTS),
        clock=kernel.clock,
        anchors=ports.need(ANCHORS),
        collect_all=ports.need(COLLECT_ALL),
        status=status,
        ledger_days=kernel.config.of(AdminSettings).ledger_days,
        consent=Consent(kernel.desk),
        rulebook=ports.need(RULEBOOK),
        history=ports.need(HISTORY),
        examine=lambda: examine(doctor_command(status(LOCAL).state_dir)),
        on_fault=kernel.gate.call_log.task_failed,
    ).bridge()
