"""A2A: whether the SDK is there, the door open, and whom we ask reachable."""

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
    peers = patient.ask("a2a.agents") or []
    wrong = [f"{each['agentId']}: {each['problem']}" for each in peers if each.get("problem")]
    if wrong:
        return warn(f"agents elsewhere cannot be asked: {'; '.join(wrong)}", "`bascule a2a list` shows them")
    return ok(f"door {listed['door'] or 'closed'}, {len(listed['agents'])} published, {len(peers)} elsewhere")


CHECKS: tuple[Check, ...] = (Check("a2a", check_a2a),)
