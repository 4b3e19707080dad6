"""A2A: whether the SDK is there, and the door open."""

from importlib.util import find_spec

from bascule.a2a.settings import INSTALL
from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn


def check_a2a(patient: Patient) -> Verdict:
    if find_spec("a2a") is None:
        return info(f"agents beyond A2A need the a2a-sdk: {INSTALL}")
    listed = patient.ask("a2a.published")
    if not listed:
        return info("the a2a-sdk is installed; what is published is known to a running daemon")
    if listed["problem"]:
        return warn(f"the door for A2A is not open: {listed['problem']}", "choose another a2a_port, and start it again")
    return ok(f"door {listed['door'] or 'closed'}, {len(listed['agents'])} published")


CHECKS: tuple[Check, ...] = (Check("a2a", check_a2a),)
