"""What the toy bridge adds to `bascule doctor`."""

from toy_bridge import ToySettings

from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok
from bascule.foundation.errors import BasculeError


def check_marks(patient: Patient) -> Verdict:
    if patient.settings is None or isinstance(patient.settings, BasculeError):
        return info("not looked at")
    running = "running" if patient.ask("daemon.status") else "stopped"
    return ok(f"at most {patient.settings.of(ToySettings).max_marks}, daemon {running}")


CHECKS = (Check("marks", check_marks),)
