"""Puts the daemon's own methods together."""

from bascule.admin.consent import Consent
from bascule.admin.console import Console, ConsoleFacts
from bascule.admin.enrolment import Enrolment
from bascule.admin.machine.doctor_program import doctor_command, examine
from bascule.admin.passkeys import Passkeys
from bascule.admin.person import Person
from bascule.admin.proving import Proving
from bascule.admin.service import Admin
from bascule.admin.settings import AdminSettings
from bascule.daemon.composition import COLLECT_ALL, DAEMON_ID, EVERYTHING, FACTS, HISTORY, RULEBOOK, STATUS
from bascule.daemon.ports import ANCHORS
from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.kernel.call import LOCAL
from bascule.kernel.ports import PROOFS, SESSIONS


def make_admin(kernel: KernelServices, ports: Ports) -> Bridge:
    status = ports.need(STATUS)
    sessions, proofs = ports.need(SESSIONS), ports.need(PROOFS)
    person = Person(ports.need(FACTS), kernel.journal, kernel.clock, kernel.events)
    passkeys = Passkeys(kernel.store, kernel.journal, kernel.clock, kernel.log)
    return Admin(
        store=kernel.store,
        journal=kernel.journal,
        clock=kernel.clock,
        anchors=ports.need(ANCHORS),
        collect_all=ports.need(COLLECT_ALL),
        status=status,
        ledger_days=kernel.config.of(AdminSettings).ledger_days,
        person=person,
        passkeys=passkeys,
        enrolment=Enrolment(passkeys, proofs, sessions, kernel.clock),
        proving=Proving(
            passkeys=passkeys, proofs=proofs, sessions=sessions, person=person, desk=kernel.desk, gate=kernel.gate
        ),
        consent=Consent(kernel.desk),
        console=Console(
            sessions,
            kernel.clock,
            kernel.timers,
            ConsoleFacts(
                daemon_id=ports.need(DAEMON_ID),
                has_person=kernel.desk.has_person,
                count_passkeys=passkeys.count,
                is_stopped=lambda: kernel.gate.halt is not None,
            ),
        ),
        rulebook=ports.need(RULEBOOK),
        history=ports.need(HISTORY),
        examine=lambda: examine(doctor_command(status(LOCAL).state_dir)),
        on_fault=kernel.gate.call_log.task_failed,
        event_ring=kernel.events,
        facts=ports.need(FACTS),
        gate=kernel.gate,
        everything=ports.need(EVERYTHING),
        log=kernel.log,
    ).bridge()
